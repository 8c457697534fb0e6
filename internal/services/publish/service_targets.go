package publish

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"

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
	for i := range batch {
		if op, ok := batch[i].Op.(CreateTarget); ok { // Only CreateTarget enters this lane.
			names = append(names, op.Name)
		}
	}
	err = s.store.CreateTargets(ctx, names, command.Keys(batch), func(u *Unit) error {
		return s.decideSealed(u, batch, &answers, func(c command.Command[Op]) (any, error) {
			op, ok := c.Op.(CreateTarget)
			if !ok {
				return nil, fmt.Errorf("publish: %T does not make a target", c.Op)
			}
			made, err := s.makeTarget(u, op)
			if err == nil {
				u.Audit = append(u.Audit, command.Audited(c, "target.create", made.ID.String()))
			}
			return made, err
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

const secretPrefix = "whsec_"

// makeSecret makes a signing secret, raw and as it is shown.
func makeSecret() (raw []byte, shown string) {
	raw = newSecret()
	return raw, secretPrefix + base64.StdEncoding.EncodeToString(raw)
}

func (s *Service) flushTarget(ctx context.Context, id uuid.UUID, batch []command.Command[Op]) (answers []command.Answer, err error) {
	resumed := false
	err = s.store.CommitTarget(ctx, id, command.Keys(batch), func(u *Unit) error {
		resumed = false
		return s.decideSealed(u, batch, &answers, func(c command.Command[Op]) (any, error) {
			made, err := s.changeTarget(u, c.Op)
			if err != nil {
				return nil, err
			}
			resumed = resumed || made.PausedAt == nil
			u.Audit = append(u.Audit, command.Audited(c, action(c.Op), id.String()))
			return made, nil
		})
	})
	if err == nil && resumed {
		s.o.Scheduled(0) // What was kept back may be due.
	}
	return answers, err
}

func (s *Service) changeTarget(u *Unit, op Op) (*MadeTarget, error) {
	var (
		t      = *u.Target
		raw    []byte
		token  []byte
		shown  string
		sealed *Sealed
	)
	switch op := op.(type) {
	case RotateSecret:
		raw, shown = makeSecret()
	case ReplaceCredentials:
		raw, token = op.Secret, op.Token
	}
	if raw != nil {
		secret := s.o.Vault.Seal(raw, t.ID[:])
		sealed = &secret
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

// decideSealed is command.Decide for commands whose answers may hold a secret: they are sealed under their keys.
func (s *Service) decideSealed(u *Unit, batch []command.Command[Op], answers *[]command.Answer, decide func(command.Command[Op]) (any, error)) error {
	known, err := s.openAnswers(u.Known)
	if err != nil {
		return err
	}
	u.Keys = idempotency.NewBatch(known)
	*answers = command.Decide(batch, u.Keys, decide)
	u.Fresh, err = s.sealAnswers(u.Keys.Fresh())
	return err
}

// sealedAnswer is how an answer that shows a secret is kept under its key: a backup of the database must not give that away.
type sealedAnswer struct {
	ID     uuid.UUID `json:"id"`
	KeyID  string    `json:"sealed_under"`
	Sealed []byte    `json:"sealed"`
}

func (s *Service) sealAnswers(fresh []idempotency.Record) ([]idempotency.Record, error) {
	out := make([]idempotency.Record, len(fresh))
	for i, r := range fresh {
		if r.Status < http.StatusBadRequest {
			var a sealedAnswer
			if err := json.Unmarshal(r.Body, &a); err != nil {
				return nil, fmt.Errorf("publish: the answer of a target: %w", err)
			}
			sealed := s.o.Vault.Seal(r.Body, r.ID[:])
			a.KeyID, a.Sealed = sealed.KeyID, sealed.Bytes
			body, err := json.Marshal(a)
			if err != nil {
				return nil, fmt.Errorf("publish: seal an answer: %w", err)
			}
			r.Body = body
		}
		out[i] = r
	}
	return out, nil
}

func (s *Service) openAnswers(known []idempotency.Record) ([]idempotency.Record, error) {
	out := make([]idempotency.Record, len(known))
	for i, r := range known {
		if r.Status < http.StatusBadRequest {
			var a sealedAnswer
			if err := json.Unmarshal(r.Body, &a); err != nil {
				return nil, fmt.Errorf("publish: a sealed answer: %w", err)
			}
			body, err := s.o.Vault.Open(Sealed{KeyID: a.KeyID, Bytes: a.Sealed}, r.ID[:])
			if err != nil {
				return nil, err
			}
			r.Body = body
		}
		out[i] = r
	}
	return out, nil
}
