package publish

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
)

// The keys of the lanes on which publications and targets are made. No publication has these ids.
var (
	creations       = uuid.Nil //nolint:gochecknoglobals // A constant, but for the type.
	targetCreations = uuid.Max //nolint:gochecknoglobals // A constant, but for the type.
)

// maxBatch keeps the statement of a batch of the largest payloads, 1 MiB each, well below what PostgreSQL takes.
const maxBatch = 128

// Options are a service's hooks and limits.
type Options struct {
	Lanes groupcommit.Options
	Vault *Vault // seals the secrets of targets
	// Scheduled is told, after the commit, that something is due within a time, by the database's clock; 0 or less: now. It
	// must not block, and may be called concurrently.
	Scheduled func(in time.Duration)
	Logger    *slog.Logger
}

// Service executes commands on publications and targets. It is safe for concurrent use.
type Service struct {
	Reader

	store Store
	group *groupcommit.Group[uuid.UUID, command.Command[Op], command.Answer]
	o     Options
}

// NewService returns a service that commits through store.
func NewService(store Store, o Options) *Service {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Scheduled == nil {
		o.Scheduled = func(time.Duration) {}
	}
	s := &Service{Reader: store, store: store, o: o}
	lanes := o.Lanes
	if lanes.MaxBatch <= 0 {
		lanes.MaxBatch = maxBatch
	}
	lanes.Divisible = func(err error) bool { return !command.Undividable(err) }
	s.group = groupcommit.New(s.flush, lanes)
	return s
}

// MadeTarget is a target as it is made: with its secret, which is shown this once.
type MadeTarget struct {
	Target
	// SigningSecret is the secret as Standard Webhooks spells it: whsec_ and base64.
	SigningSecret string
}

// Create makes a publication, with a [Create], or a target, with a [CreateTarget]. Errors are those of [Service.Execute].
func (s *Service) Create(ctx context.Context, c command.Command[Op]) (command.Answer, error) {
	switch c.Op.(type) {
	case Create:
		return s.group.Do(ctx, creations, c)
	case CreateTarget:
		return s.group.Do(ctx, targetCreations, c)
	}
	return command.Answer{}, fmt.Errorf("publish: %T creates nothing", c.Op)
}

// Execute decides one command on a publication, commits it, and returns its answer. It returns groupcommit.ErrFull,
// groupcommit.ErrClosed, command.ErrUnavailable, command.ErrUnknownOutcome, or the context's error. A command without a
// Render gets the refusal as the answer's Err, [NotFoundError] among them.
func (s *Service) Execute(ctx context.Context, publication uuid.UUID, c command.Command[Op]) (command.Answer, error) {
	switch c.Op.(type) {
	case Create, CreateTarget:
		return command.Answer{}, fmt.Errorf("publish: %T is no operation on a publication", c.Op)
	}
	if publication == creations || publication == targetCreations {
		return refuseAll([]command.Command[Op]{c}, &NotFoundError{ID: publication})[0], nil
	}
	return s.group.Do(ctx, publication, c)
}

// Close stops taking commands and waits until those already taken are answered.
func (s *Service) Close(ctx context.Context) error { return s.group.Close(ctx) }

// draw is the randomness of jitter and pauses, which needs no secrecy.
func draw(n int64) int64 { return rand.Int64N(n) } //nolint:gosec // As above.

func (s *Service) flush(ctx context.Context, key uuid.UUID, batch []command.Command[Op]) ([]command.Answer, error) {
	switch key {
	case creations:
		return s.flushCreations(ctx, batch)
	case targetCreations:
		return s.flushTargets(ctx, batch)
	}
	var (
		answers []command.Answer
		soon    sooner
	)
	err := s.store.Commit(ctx, key, command.Keys(batch), func(u *Unit) {
		soon = sooner{} // This may be another run of the same batch.
		answers = command.Decide(batch, u.Keys, func(c command.Command[Op]) (any, error) {
			if err := Decide(u.Publication, c.Op, u.Now, draw); err != nil {
				return nil, err
			}
			soon.note(u.Publication, u.Now)
			u.Audit = append(u.Audit, command.Audited(c, action(c.Op), u.Publication.ID.String()))
			shown := *u.Publication // A later command of the batch may change it again.
			return &shown, nil
		})
	})
	if notFound, ok := isNotFound(err); ok {
		return refuseAll(batch, notFound), nil
	}
	if err != nil {
		return nil, err
	}
	soon.tell(s.o.Scheduled)
	return answers, nil
}

// action names an operation in the audit log.
func action(op Op) string {
	switch op.(type) {
	case Schedule:
		return "publication.schedule"
	case MakeDue:
		return "publication.publish"
	case Cancel:
		return "publication.cancel"
	case Retry:
		return "publication.retry"
	}
	return "publication.change"
}

// sooner remembers what of a transaction is due first.
type sooner struct {
	any bool
	in  time.Duration
}

func (s *sooner) note(p *Publication, now time.Time) {
	if p.Status != StatusScheduled {
		return
	}
	if in := p.DueAt.Sub(now); !s.any || in < s.in {
		s.any, s.in = true, in
	}
}

func (s *sooner) tell(scheduled func(time.Duration)) {
	if s.any {
		scheduled(s.in)
	}
}

func (s *Service) flushCreations(ctx context.Context, batch []command.Command[Op]) ([]command.Answer, error) {
	var (
		answers []command.Answer
		names   []string
		soon    sooner
	)
	for i := range batch {
		if op, ok := batch[i].Op.(Create); ok { // Only Create enters this lane.
			names = append(names, op.Target)
		}
	}
	err := s.store.Create(ctx, names, command.Keys(batch), func(u *Unit) {
		soon = sooner{}
		answers = command.Decide(batch, u.Keys, func(c command.Command[Op]) (any, error) {
			op, ok := c.Op.(Create)
			if !ok {
				return nil, fmt.Errorf("publish: %T does not make a publication", c.Op)
			}
			target := u.Targets[op.Target]
			if target == nil {
				return nil, &TargetNotFoundError{Name: op.Target}
			}
			made := DecideCreate(op, target, u.NewID(), u.Now, draw)
			u.Made = append(u.Made, made)
			soon.note(made, u.Now)
			return made, nil
		})
	})
	if err != nil {
		return nil, err
	}
	soon.tell(s.o.Scheduled)
	return answers, nil
}

func (s *Service) flushTargets(ctx context.Context, batch []command.Command[Op]) ([]command.Answer, error) {
	var (
		answers []command.Answer
		names   []string
	)
	for i := range batch {
		if op, ok := batch[i].Op.(CreateTarget); ok { // Only CreateTarget enters this lane.
			names = append(names, op.Name)
		}
	}
	err := s.store.CreateTargets(ctx, names, command.Keys(batch), func(u *Unit) error {
		known, err := s.openAnswers(u.Known)
		if err != nil {
			return err
		}
		u.Keys = idempotency.NewBatch(known)
		answers = command.Decide(batch, u.Keys, func(c command.Command[Op]) (any, error) {
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
		u.Fresh, err = s.sealAnswers(u.Keys.Fresh())
		return err
	})
	return answers, err
}

func (s *Service) makeTarget(u *Unit, op CreateTarget) (*MadeTarget, error) {
	if op.Kind != KindWebhook {
		return nil, ErrUnsupportedKind
	}
	if u.Targets[op.Name] != nil {
		return nil, ErrTargetExists
	}
	t := &Target{ID: u.NewID(), Name: op.Name, Kind: op.Kind, URL: op.URL, Timeout: op.Timeout, CreatedAt: u.Now}
	secret := newSecret()
	t.Secret = s.o.Vault.Seal(secret, t.ID[:])
	if u.Targets == nil {
		u.Targets = map[string]*Target{}
	}
	u.Targets[op.Name] = t
	u.MadeTargets = append(u.MadeTargets, t)
	return &MadeTarget{Target: *t, SigningSecret: secretPrefix + base64.StdEncoding.EncodeToString(secret)}, nil
}

const secretPrefix = "whsec_"

// sealedAnswer is how the answer to the making of a target is kept under its key: it holds the secret, and a backup of the
// database must not give that away.
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
				return nil, fmt.Errorf("publish: the answer to the making of a target: %w", err)
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

// refuseAll answers commands on a publication that does not exist. Nothing can have been decided under their keys.
func refuseAll(batch []command.Command[Op], reason error) []command.Answer {
	answers := make([]command.Answer, len(batch))
	for i, c := range batch {
		if c.Render == nil {
			answers[i].Err = reason
			continue
		}
		r := c.Render(nil, reason)
		answers[i].Status, answers[i].Body = r.Status, r.Body
	}
	return answers
}
