package postgres

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

var errDied = errors.New("the process died")

// mortal is a store whose checkpoints fail from some on, as those of a process that died do: whatever was committed stays.
type mortal struct {
	*Multidraws

	mu   sync.Mutex
	left int  // checkpoints until death; negative: none
	lose bool // the last checkpoint is committed, but its answer is lost
	dead bool
}

func (m *mortal) Checkpoint(ctx context.Context, c *multidraw.Checkpoint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDied
	}
	if m.left == 0 {
		m.dead = true
		if !m.lose {
			return errDied
		}
		return errors.Join(m.Multidraws.Checkpoint(ctx, c), errDied)
	}
	m.left--
	return m.Multidraws.Checkpoint(ctx, c)
}

// Update, Renew and Expire are not to be heard of from the dead.
func (m *mortal) Renew(context.Context, uuid.UUID, []uuid.UUID, time.Duration) error { return nil }

func newMultidraws(t *testing.T, store multidraw.Store, o multidraw.Options) *multidraw.Service {
	t.Helper()
	s := multidraw.NewService(store, o)
	t.Cleanup(func() { closing(t, s.Close) })
	return s
}

func inRange(key string, count int64, async bool) multidraw.Create {
	return multidraw.Create{LockKey: key, Count: count, Async: async, Spec: multidraw.Spec{Range: &multidraw.Range{Min: 1, Max: 1_000_000}}}
}

// made makes an operation that must come to be.
func made(t *testing.T, s *multidraw.Service, op multidraw.Create) *multidraw.Operation {
	t.Helper()
	a, err := s.Create(t.Context(), own[multidraw.Op](op))
	return operationOf(t, a, errors.Join(err, a.Err))
}

func operationOf(t *testing.T, a command.Answer, err error) *multidraw.Operation {
	t.Helper()
	o, ok := a.Result.(*multidraw.Operation)
	if err != nil || !ok {
		t.Fatalf("%T, %v", a.Result, err)
	}
	return o
}

func change(t *testing.T, s *multidraw.Service, id uuid.UUID, op multidraw.Op) (*multidraw.Operation, error) {
	t.Helper()
	a, err := s.Execute(t.Context(), id, own(op))
	if err = errors.Join(err, a.Err); err != nil {
		return nil, err
	}
	return operationOf(t, a, nil), nil
}

func operation(t *testing.T, s *multidraw.Service, id uuid.UUID) *multidraw.Operation {
	t.Helper()
	o, err := s.Operation(t.Context(), id)
	testwait.Must(t, err)
	return o
}

func awaitStatus(t *testing.T, s *multidraw.Service, id uuid.UUID, want multidraw.Status) *multidraw.Operation {
	t.Helper()
	testwait.Eventually(t, patience, "the operation is "+string(want), func() bool { return operation(t, s, id).Status == want })
	return operation(t, s, id)
}

// allSaved reads an operation page by page.
func allSaved(t *testing.T, s *multidraw.Service, o *multidraw.Operation) []byte {
	t.Helper()
	var out []byte
	for from := int64(0); from < o.Completed; from += 777 {
		page, err := s.Saved(t.Context(), o, from, from+777)
		testwait.Must(t, err)
		out = append(out, page...)
	}
	return out
}

func drawSeedOf(t *testing.T, db *DB, o *multidraw.Operation) fairdraw.Seed {
	t.Helper()
	return fairdraw.Seed(ask[[]byte](t, db, `SELECT seed FROM multidraw_seeds WHERE multidraw = $1`, o.ID))
}

// checkSaved compares an operation's saved draws, digest and proof with what its seed gives without a break.
func checkSaved(t *testing.T, db *DB, s *multidraw.Service, o *multidraw.Operation) {
	t.Helper()
	seed := drawSeedOf(t, db, o)
	d, err := multidraw.New(seed, o.ID.String(), o.Spec)
	testwait.Must(t, err)
	if want := d.Append(nil, 0, int(o.Completed)); !bytes.Equal(allSaved(t, s, o), want) {
		t.Errorf("%s: the %d saved draws are not those of an unbroken run", o.ID, o.Completed)
	}
	if o.CompletedAt == nil {
		return
	}
	proof, err := multidraw.NewProof(o)
	testwait.Must(t, err)
	testwait.Check(t, errors.Join(proof.Verify(t.Context()), proof.VerifyCommitment(seed.Commitment())))
}

type silent struct{ mortal }

func (s *silent) Update(context.Context, uuid.UUID, []idempotency.ID, func(*multidraw.Unit)) error {
	return errDied
}

type gated struct {
	*Multidraws

	open    chan struct{}
	reached chan struct{}

	mu  sync.Mutex
	err error
}

func (g *gated) Checkpoint(ctx context.Context, c *multidraw.Checkpoint) error {
	select {
	case g.reached <- struct{}{}:
	default:
	}
	<-g.open
	err := g.Multidraws.Checkpoint(ctx, c)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
	return err
}

func (g *gated) last() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}
