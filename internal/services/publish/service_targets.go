package publish

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
)

// MadeTarget is a target with a secret that was just made, which is shown this once.
type MadeTarget struct {
	Target
	// SigningSecret is the secret as Standard Webhooks spells it: whsec_ and base64. It is empty for targets without one.
	SigningSecret string
}

func (s *Service) flushTargets(ctx context.Context, batch []command.Command[Op]) (answers []command.Answer, err error) {
	var names []string
	command.Each(batch, func(op CreateTarget) { names = append(names, op.Name) })
	err = s.store.CreateTargets(ctx, names, command.Keys(batch), func(u *Unit) error {
		return s.decideSealed(u, func() {
			answers = command.DecideAs(batch, u.Keys, func(c command.Command[Op], op CreateTarget) (any, error) {
				made, err := s.makeTarget(u, op)
				if err == nil {
					u.Audit = append(u.Audit, command.Audited(c, op.action(), made.ID.String()))
				}
				return made, err
			})
		})
	})
	return answers, err
}

func (s *Service) makeTarget(u *Unit, op CreateTarget) (*MadeTarget, error) {
	if u.Targets[op.Name] != nil {
		return nil, ErrTargetExists
	}
	if s.o.CheckURL != nil {
		if err := s.o.CheckURL(op.URL); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRefusedURL, err)
		}
	}
	t := &Target{ID: u.NewID(), Name: op.Name, Kind: op.Kind, URL: op.URL, Timeout: op.Timeout, CreatedAt: u.Now}
	secret, shown := op.Secret, ""
	if t.HasSigningSecret() {
		secret, shown = makeSecret()
	}
	t.Secret = s.o.Vault.Seal(secret, t.ID[:])
	if op.Token != nil {
		u.Tokens = with(u.Tokens, t.ID, s.o.Vault.Seal(op.Token, TokenPurpose(t.ID)))
	}
	u.Targets = with(u.Targets, op.Name, t)
	u.MadeTargets = append(u.MadeTargets, t)
	return &MadeTarget{Target: *t, SigningSecret: shown}, nil
}

func with[K comparable, V any](m map[K]V, key K, value V) map[K]V {
	if m == nil {
		m = map[K]V{}
	}
	m[key] = value
	return m
}

// makeSecret makes a signing secret, raw and as it is shown. It is as long as the hash it is used with.
func makeSecret() (raw []byte, shown string) {
	raw = make([]byte, sha256.Size)
	_, _ = rand.Read(raw) // It never fails; it crashes the program instead.
	return raw, "whsec_" + base64.StdEncoding.EncodeToString(raw)
}

func (s *Service) flushTarget(ctx context.Context, id uuid.UUID, batch []command.Command[Op]) (answers []command.Answer, err error) {
	resumed := false
	err = s.store.CommitTarget(ctx, id, command.Keys(batch), func(u *Unit) error {
		resumed = false
		return s.decideSealed(u, func() {
			answers = command.Decide(batch, u.Keys, func(c command.Command[Op]) (any, error) {
				if u.Blocked != nil {
					return nil, u.Blocked
				}
				made, err := s.changeTarget(u, c.Op)
				if err != nil {
					return nil, err
				}
				resumed = resumed || made.PausedAt == nil
				u.Audit = append(u.Audit, command.Audited(c, c.Op.action(), id.String()))
				return made, nil
			})
		})
	})
	if err == nil && resumed {
		s.o.Scheduled(0) // What was kept back may be due.
	}
	return answers, err
}

func (s *Service) changeTarget(u *Unit, op Op) (*MadeTarget, error) {
	var (
		t          = *u.Target
		raw, token []byte
		shown      string
		sealed     *Sealed
	)
	switch op := op.(type) {
	case RotateSecret:
		raw, shown = makeSecret()
	case ReplaceCredentials:
		raw, token = op.Secret, op.Token
	}
	if raw != nil {
		sealed = new(s.o.Vault.Seal(raw, t.ID[:]))
	}
	if err := DecideTarget(&t, op, sealed, u.Now); err != nil {
		return nil, err
	}
	if token != nil {
		u.Tokens = with(u.Tokens, t.ID, s.o.Vault.Seal(token, TokenPurpose(t.ID)))
	}
	*u.Target = t
	return &MadeTarget{Target: t, SigningSecret: shown}, nil
}

// decideSealed runs decide for commands whose answers may hold a secret: the answers are sealed under their keys.
func (s *Service) decideSealed(u *Unit, decide func()) error {
	known, err := eachAnswer(u.Known, s.openAnswer)
	if err != nil {
		return err
	}
	u.Keys = idempotency.NewBatch(known)
	decide()
	u.Fresh, err = eachAnswer(u.Keys.Fresh(), s.sealAnswer)
	return err
}

// sealedAnswer is how an answer that shows a secret is kept under its key, so that a backup of the database does not
// disclose the secret.
type sealedAnswer struct {
	ID     uuid.UUID `json:"id"`
	KeyID  string    `json:"sealed_under"`
	Sealed []byte    `json:"sealed"`
}

func (s *Service) sealAnswer(r *idempotency.Record, a sealedAnswer) (body []byte, err error) {
	sealed := s.o.Vault.Seal(r.Body, r.ID[:])
	a.KeyID, a.Sealed = sealed.KeyID, sealed.Bytes
	return json.Marshal(a)
}

func (s *Service) openAnswer(r *idempotency.Record, a sealedAnswer) (body []byte, err error) {
	return s.o.Vault.Open(Sealed{KeyID: a.KeyID, Bytes: a.Sealed}, r.ID[:])
}

// eachAnswer replaces the bodies of answers that are not refusals.
func eachAnswer(in []idempotency.Record, replace func(*idempotency.Record, sealedAnswer) ([]byte, error)) ([]idempotency.Record, error) {
	out := slices.Clone(in)
	for i := range out {
		r := &out[i]
		if r.Status >= http.StatusBadRequest {
			continue
		}
		var a sealedAnswer
		err := json.Unmarshal(r.Body, &a)
		if err == nil {
			r.Body, err = replace(r, a)
		}
		if err != nil {
			return nil, fmt.Errorf("publish: the answer about a target: %w", err)
		}
	}
	return out, nil
}
