package multidraw

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/lock"
)

// EngineOptions configure an [Engine]. All may be zero.
type EngineOptions struct {
	Every int           // how many draws there are between two saves; 0 means [DefaultEvery]
	TTL   time.Duration // for how long a state is kept after its last save; 0 means checkpoint.DefaultTTL, an hour
	// Lock says how the lock on the lock key is acquired: without a wait, unless it says otherwise.
	Lock     lock.Options
	Logger   *slog.Logger
	Observer Observer
	States   checkpoint.Observer // of the operations on saved states
}

// Engine draws under lock keys for a program that has a lock backend and a store for states of its own, such as Redis for
// both, and no server: one draw or many, of a range or of prizes, saved by itself, with progress, resume and roll-back.
// Each draw is made under the lock on its lock key. An Engine is safe for concurrent use.
type Engine struct {
	locks  *lock.Locker
	o      EngineOptions
	ranges *checkpoint.Runner[request, int64]
	prizes *checkpoint.Runner[request, won]
}

// The names of the kinds of operations, which are kept in their states.
const (
	kindRange  = "multidraw/v2 range"
	kindPrizes = "multidraw/v2 prizes"
)

// NewEngine returns an engine. It returns a [*checkpoint.ParameterError] for options that break a rule.
func NewEngine(store checkpoint.Store, locks *lock.Locker, o EngineOptions) (*Engine, error) {
	if locks == nil {
		return nil, &checkpoint.ParameterError{Field: "locks", Reason: "are needed"}
	}
	e := &Engine{locks: locks, o: o}
	co := checkpoint.Options{Every: cmp.Or(o.Every, DefaultEvery), TTL: o.TTL, Lock: o.Lock, Logger: o.Logger, Observer: o.States}
	var err, err2 error
	e.ranges, err = checkpoint.New(checkpoint.Definition[request, int64]{Name: kindRange, Open: openRange, Pure: true, Adopt: adoptRange}, store, locks, co)
	e.prizes, err2 = checkpoint.New(checkpoint.Definition[request, won]{
		Name: kindPrizes, Open: openPrizes, ResultsName: checkpoint.NamePrizeResults, Pure: true, Adopt: adoptPrizes,
	}, store, locks, co)
	return e, errors.Join(err, err2)
}

// DrawInRange draws one integer from low to high, both included, under the lock on lockKey. It returns a [*ParameterError],
// or the errors of acquiring the lock, or of releasing it, when another may have drawn under it.
func (e *Engine) DrawInRange(ctx context.Context, lockKey string, low, high int64) (v int64, err error) {
	err = e.locked(ctx, lockKey, func() (err error) {
		v, err = InRange(rand.Reader, low, high)
		return err
	})
	return v, err
}

// DrawFromPrizes draws one prize, as [Engine.DrawInRange] draws an integer.
func (e *Engine) DrawFromPrizes(ctx context.Context, lockKey string, prizes []Prize) (p Prize, err error) {
	err = e.locked(ctx, lockKey, func() (err error) {
		p, err = FromPrizes(rand.Reader, prizes)
		return err
	})
	return p, err
}

func (e *Engine) locked(ctx context.Context, lockKey string, draw func() error) error {
	held, err := e.locks.Acquire(ctx, []string{lockKey}, e.o.Lock)
	if err != nil {
		return fmt.Errorf("multidraw: %w", err)
	}
	err = draw()
	return errors.Join(err, held.Release(ctx))
}

// Order is what many draws are asked for with, besides what is drawn from. All may be zero.
type Order struct {
	// ID names the operation under its lock key, see [checkpoint.Key]; "" means a new one. Asking again under the same id
	// goes on with what was begun, or returns what was drawn.
	ID   string
	Seed *fairdraw.Seed // what the draws are derived from; nil means a new random seed
	// Progress is called after each save. It must return quickly.
	Progress func(completed, total int64)
	// PrizeObjects saves drawn prizes as objects and not as ids, for programs that read states. It belongs to the operation's
	// parameters. Objects are longer, so that fewer draws fit.
	PrizeObjects bool
	// Adopt goes on with an operation that a program of the requirement's form has saved under the ID. The draws that are there
	// must be possible ones. They stay, and only the others follow from the seed, so that there is no [Drawn.Proof].
	Adopt bool
}

// Drawn is an operation of an [Engine] as a call has left it.
type Drawn struct {
	ID        string
	LockKey   string
	Status    checkpoint.Status
	Spec      Spec
	Total     int64
	Completed int64
	// Ints or PrizeIDs are the first Completed draws.
	Ints       []int64
	PrizeIDs   []string
	Errors     []checkpoint.Failure // those that interrupted the operation, on all runs
	StartedAt  time.Time
	UpdatedAt  time.Time
	Commitment string // the hex SHA-256 of Seed, which is to be kept secret until all is drawn
	Seed       fairdraw.Seed
}

// Partial reports whether something was drawn, and not all.
func (d *Drawn) Partial() bool { return d.Completed > 0 && d.Completed < d.Total }

// drawn reads the result of a run.
func drawn[R any](r *checkpoint.Result[R], err error) (*Drawn, error) {
	if r == nil {
		return nil, err
	}
	var what request
	if bad := json.Unmarshal(r.Parameters, &what); bad != nil {
		return nil, errors.Join(err, &checkpoint.CorruptError{Key: r.Key, Reason: "its parameters cannot be read: " + bad.Error()})
	}
	seed := fairdraw.Seed(r.Seed)
	d := &Drawn{
		ID: r.Key.ID, LockKey: r.Key.LockKey, Status: r.Status, Spec: what.spec(), Total: int64(r.Total), Completed: int64(r.Completed),
		Errors: r.Errors, StartedAt: r.StartedAt, UpdatedAt: r.UpdatedAt, Commitment: seed.Commitment(), Seed: seed,
	}
	switch results := any(r.Results).(type) {
	case []int64:
		d.Ints = results
	case []won:
		d.PrizeIDs = make([]string, len(results))
		ids := map[won]string{} // A text is read once.
		for i, w := range results {
			id, ok := ids[w]
			if !ok {
				id = w.id()
				ids[w] = id
			}
			d.PrizeIDs[i] = id
		}
	}
	return d, err
}

// Prizes are those of PrizeIDs, as the list that was drawn from has them.
func (d *Drawn) Prizes() []Prize {
	of := make(map[string]Prize, len(d.Spec.Prizes))
	for _, p := range d.Spec.Prizes {
		of[p.ID] = p
	}
	prizes := make([]Prize, len(d.PrizeIDs))
	for i, id := range d.PrizeIDs {
		prizes[i] = of[id]
		prizes[i].ID = id // Of an operation that was adopted without its list, the id is all.
	}
	return prizes
}

// DrawMultipleInRange draws count integers from low to high, both included, under the lock on lockKey, saved as it goes.
// With an error it returns what is drawn and saved so far, if anything is; the operation can be gone on with. Errors are
// those of [checkpoint.Runner.Run]. More draws than a state can hold ([checkpoint.MaxBytes] with the parameters: 5 million
// of one digit, half a million of any int64) are refused with a [*checkpoint.ParameterError] before anything is drawn.
func (e *Engine) DrawMultipleInRange(ctx context.Context, lockKey string, low, high, count int64, o Order) (*Drawn, error) {
	return drawMultiple(ctx, e, e.ranges, lockKey, request{Count: count, Range: &Range{Min: low, Max: high}}, o)
}

// DrawMultipleFromPrizes draws count prizes, as [Engine.DrawMultipleInRange] draws integers.
func (e *Engine) DrawMultipleFromPrizes(ctx context.Context, lockKey string, prizes []Prize, count int64, o Order) (*Drawn, error) {
	return drawMultiple(ctx, e, e.prizes, lockKey, request{Count: count, Prizes: prizes, PrizeObjects: o.PrizeObjects}, o)
}

func drawMultiple[R any](
	ctx context.Context, e *Engine, runner *checkpoint.Runner[request, R], lockKey string, what request, o Order,
) (*Drawn, error) {
	if err := fits(what); err != nil {
		return nil, fmt.Errorf("multidraw: %w", err)
	}
	return drawn(runner.Run(ctx, checkpoint.Key{LockKey: lockKey, ID: cmp.Or(o.ID, NewID(time.Now()))}, what, e.call(o)))
}

// Resume goes on with an operation that was interrupted, from what is saved of it. Errors are those of
// [checkpoint.Runner.Resume].
func (e *Engine) Resume(ctx context.Context, lockKey, id string, o Order) (*Drawn, error) {
	return e.existing(ctx, lockKey, id, o, e.ranges.Resume, e.prizes.Resume)
}

// Rollback ends an operation for good, whether it is interrupted or completed, and whether an engine has saved it or a program
// of the requirement's form. What was drawn stays readable, until the state expires. Errors are those of [checkpoint.Runner.Rollback].
func (e *Engine) Rollback(ctx context.Context, lockKey, id string, o Order) (*Drawn, error) {
	return e.existing(ctx, lockKey, id, o, e.ranges.Rollback, e.prizes.Rollback)
}

// State returns what is saved of an operation, or nil where nothing is. It returns a [*checkpoint.CorruptError] or a
// [*checkpoint.ConnectionError].
func (e *Engine) State(ctx context.Context, lockKey, id string) (*checkpoint.State, error) {
	return e.ranges.Load(ctx, checkpoint.Key{LockKey: lockKey, ID: id})
}

// Delete forgets an operation, even where its state is corrupt.
func (e *Engine) Delete(ctx context.Context, lockKey, id string) error {
	return e.ranges.Delete(ctx, checkpoint.Key{LockKey: lockKey, ID: id})
}

// act goes on with an operation, or undoes it.
type act[R any] func(ctx context.Context, key checkpoint.Key, c checkpoint.Call) (*checkpoint.Result[R], error)

// existing calls what is made for the operation's kind. An id that is free is passed on as well, and refused there.
func (e *Engine) existing(ctx context.Context, lockKey, id string, o Order, ofRange act[int64], ofPrizes act[won]) (*Drawn, error) {
	s, err := e.State(ctx, lockKey, id)
	if err != nil {
		return nil, err
	}
	key := checkpoint.Key{LockKey: lockKey, ID: id}
	if s != nil && (s.Kind == kindPrizes || s.Legacy() && s.ResultsName == checkpoint.NamePrizeResults) {
		return drawn(ofPrizes(ctx, key, e.call(o)))
	}
	return drawn(ofRange(ctx, key, e.call(o)))
}

// call adds the engine's observer to the caller's progress function.
func (e *Engine) call(o Order) checkpoint.Call {
	c := checkpoint.Call{Adopt: o.Adopt}
	if o.Seed != nil {
		c.Seed = new(checkpoint.Seed(*o.Seed))
	}
	if o.Progress == nil && e.o.Observer == nil {
		return c
	}
	completed, last := -1, time.Now()
	c.Progress = func(p checkpoint.Progress) {
		if o.Progress != nil {
			o.Progress(int64(p.Completed), int64(p.Total))
		}
		now := time.Now()
		if e.o.Observer != nil {
			if completed >= 0 && p.Completed > completed {
				e.o.Observer.Saved(p.Completed-completed, now.Sub(last))
			}
			switch p.Status {
			case checkpoint.StatusCompleted:
				e.o.Observer.Ended(StatusCompleted)
			case checkpoint.StatusRolledBack:
				e.o.Observer.Ended(StatusRolledBack)
			case checkpoint.StatusRunning, checkpoint.StatusRollingBack:
			}
		}
		completed, last = p.Completed, now
	}
	return c
}

// NewID names an operation by the time at which it begins, with enough randomness that no two are alike.
func NewID(now time.Time) string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // It never fails.
	return "multi_draw_" + now.UTC().Format("20060102_150405") + "_" + hex.EncodeToString(random[:])
}

// Proof is the document that fairlead verify reads. It draws again, and returns a [*Difference] where the draws are not
// those of the seed, and [ErrNotCompleted] before their end.
func (d *Drawn) Proof(ctx context.Context) (*Proof, error) {
	if d.Completed < d.Total {
		return nil, ErrNotCompleted
	}
	p := &Proof{
		Kind: ProofKind, Version: proofVersion, Operation: engineName, Commitment: d.Commitment, ServerSeed: d.Seed.Hex(), Count: d.Total,
		Every: EveryFor(d.Total), Range: d.Spec.Range, Prizes: d.Spec.Prizes,
	}
	digest, err := p.redraw(ctx, true, d.Ints, d.PrizeIDs)
	if err != nil {
		return nil, err
	}
	p.Digest = hex.EncodeToString(digest[:])
	if d.Total <= InlineResults {
		p.Results, p.PrizeResults = d.Ints, d.PrizeIDs
	}
	return p, nil
}

// request is the parameters of an operation of an [Engine], of which one of Range and Prizes is set.
type request struct {
	Count  int64   `json:"count"`
	Range  *Range  `json:"range,omitempty"`
	Prizes []Prize `json:"prizes,omitempty"`

	PrizeObjects bool `json:"prize_objects,omitempty"`
}

func (o *request) spec() Spec { return Spec{Range: o.Range, Prizes: o.Prizes} }

// engineName is the name of the draws of all operations of engines: each has a seed of its own.
const engineName = "engine"

// steps are draws, one a step. They are made some at a time.
type steps[R any] struct {
	count int
	draw  func(first int64, count int) []R
	drawn []R
	first int // index of the first in drawn
}

// drawsAtOnce is how many draws are made at a time.
const drawsAtOnce = 1000

var _ checkpoint.Steps[int64] = (*steps[int64])(nil)

// Count implements [checkpoint.Steps].
func (s *steps[R]) Count() int { return s.count }

// Do implements [checkpoint.Steps].
func (s *steps[R]) Do(_ context.Context, step int) (R, error) {
	if step < s.first || step >= s.first+len(s.drawn) {
		s.first, s.drawn = step, s.draw(int64(step), min(drawsAtOnce, s.count-step))
	}
	return s.drawn[step-s.first], nil
}

func openDraws(o *request, seed checkpoint.Seed) (*Draws, error) {
	if o.Count < 1 || o.Count > MaxCount {
		return nil, bad("count", "must be an integer from 1 to %d", MaxCount)
	}
	return New(fairdraw.Seed(seed), engineName, o.spec())
}

func openRange(o request, seed checkpoint.Seed) (checkpoint.Steps[int64], error) {
	d, err := openDraws(&o, seed)
	if err != nil {
		return nil, err
	}
	return &steps[int64]{count: int(o.Count), draw: d.Ints}, nil
}

func openPrizes(o request, seed checkpoint.Seed) (checkpoint.Steps[won], error) {
	if o.Prizes == nil {
		o.Prizes = []Prize{} // An empty list of prizes is refused as such.
	}
	d, err := openDraws(&o, seed)
	if err != nil {
		return nil, err
	}
	of := make([]won, len(o.Prizes))
	for i, p := range o.Prizes {
		of[i] = wonOf(p, o.PrizeObjects)
	}
	return &steps[won]{count: int(o.Count), draw: func(first int64, count int) []won {
		drawn := make([]won, 0, count)
		for _, place := range d.Places(first, count) {
			drawn = append(drawn, of[place])
		}
		return drawn
	}}, nil
}
