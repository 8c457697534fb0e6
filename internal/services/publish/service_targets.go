package publish

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// MadeTarget is a target with a secret that was just made, which is shown this once.
type MadeTarget struct {
	Target
	// SigningSecret is the secret as Standard Webhooks spells it: whsec_ and base64. It is empty for targets without one.
	SigningSecret string
}

func (s *Service) makeTarget(u *Unit, op CreateTarget) (made any, id uuid.UUID, err error) {
	if u.Targets[op.Name] != nil {
		return nil, id, ErrTargetExists
	}
	if s.o.CheckURL != nil {
		if err := s.o.CheckURL(op.URL); err != nil {
			return nil, id, fmt.Errorf("%w: %w", ErrRefusedURL, err)
		}
	}
	t := &Target{ID: u.NewID(), Name: op.Name, Kind: op.Kind, URL: op.URL, Timeout: op.Timeout, CreatedAt: u.Now}
	secret, shown := op.Secret, ""
	if t.HasSigningSecret() {
		secret, shown = makeSecret()
	}
	t.Secret = s.o.Vault.Seal(secret, t.ID[:])
	if op.Token != nil {
		u.Tokens[t.ID] = s.o.Vault.Seal(op.Token, TokenPurpose(t.ID))
	}
	u.Targets[op.Name] = t
	u.MadeTargets = append(u.MadeTargets, t)
	return &MadeTarget{Target: *t, SigningSecret: shown}, t.ID, nil
}

// makeSecret makes a signing secret, raw and as it is shown. It is as long as the hash it is used with.
func makeSecret() (raw []byte, shown string) {
	raw = make([]byte, sha256.Size)
	_, _ = rand.Read(raw) // It never fails; it crashes the program instead.
	return raw, "whsec_" + base64.StdEncoding.EncodeToString(raw)
}

func (s *Service) changeTarget(u *Unit, op Op) (changed any, id uuid.UUID, err error) {
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
		return nil, id, err
	}
	if token != nil {
		u.Tokens[t.ID] = s.o.Vault.Seal(token, TokenPurpose(t.ID))
	}
	*u.Target = t
	if t.PausedAt == nil {
		u.soon = append(u.soon, 0) // What was kept back may be due.
	}
	return &MadeTarget{Target: t, SigningSecret: shown}, t.ID, nil
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
