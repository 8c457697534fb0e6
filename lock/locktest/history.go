package locktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
)

// What is done to a key in a history.
const (
	opAcquire = iota // a lock that is renewed until it is released
	opSeize          // a lock that is left to expire, which it may do at any time
	opRelease
	opWrite // a guarded write
)

// input and output are those of one operation on one key.
type input struct {
	op    int
	key   string
	token int64 // of releases and writes
	waits bool  // it stands in line if it must
	// crowded says that another request stood in line meanwhile. Then a refusal may be due to that request: it may be
	// taking over the key, or may have been granted the key and been too slow to take it.
	crowded bool
}

type output struct {
	token   int64 // of grants
	refused bool  // held by another, or a token too old
	lost    bool  // granted, and over before anybody learned the token
}

// state is what the sequential lock knows of a key.
type state struct {
	last  int64 // the newest token
	holds int
	fence int64
}

// Who holds a key: nobody, a client that renews it, a client whose lease may have run out.
const (
	nobody = iota
	firmly
	loosely
)

// step says what a sequential lock may answer, and what its state is then.
func step(from state, in input, out output) (bool, state) {
	to := from
	switch in.op {
	case opAcquire, opSeize:
		if out.refused {
			return from.holds != nobody || in.crowded, from
		}
		to.holds = firmly
		if in.op == opSeize {
			to.holds = loosely
		}
		if out.lost {
			return in.op == opSeize && from.holds != firmly, to
		}
		to.last = out.token
		return from.holds != firmly && out.token > from.last, to
	case opRelease:
		to.holds = nobody
		return !out.refused && from.holds == firmly && in.token == from.last, to
	case opWrite:
		if out.refused {
			return in.token < from.fence, from
		}
		to.fence = in.token
		return in.token >= from.fence, to
	}
	panic("locktest: an operation that is none")
}

func in(op porcupine.Operation) input   { return op.Input.(input) }   //nolint:errcheck,forcetypeassert // What do wrote.
func out(op porcupine.Operation) output { return op.Output.(output) } //nolint:errcheck,forcetypeassert // What do wrote.

func model() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, op := range history {
				byKey[in(op).key] = append(byKey[in(op).key], op)
			}
			return slices.Collect(maps.Values(byKey))
		},
		Init: func() any { return state{} },
		Step: func(from, in, out any) (bool, any) {
			return step(from.(state), in.(input), out.(output)) //nolint:errcheck,forcetypeassert // As above.
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
	}
}

// history is what clients of two processes did at one time.
type history struct {
	*suite

	ctx   context.Context //nolint:containedctx // That of all operations.
	began time.Time

	mu         sync.Mutex
	operations []porcupine.Operation
}

// do does one operation and records it.
func (x *history) do(client int, in input, f func() output) {
	call := time.Since(x.began).Nanoseconds()
	out := f()
	back := time.Since(x.began).Nanoseconds()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.operations = append(x.operations, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: back})
}

// crowd marks the refusals during which another request stood in line.
func (x *history) crowd() {
	for i, op := range x.operations {
		if !out(op).refused {
			continue
		}
		marked := in(op)
		marked.crowded = slices.ContainsFunc(x.operations, func(other porcupine.Operation) bool {
			return in(other).waits && in(other).key == marked.key && other.Call < op.Return && op.Call < other.Return
		})
		x.operations[i].Input = marked
	}
}

// histories checks the answers that concurrent clients of two processes got against the sequential lock.
func (s *suite) histories() {
	lockers := []*lock.Locker{s.locker(), s.locker()}
	runs, operations := testwait.Count(4, 100), 0
	defer func() { s.Logf("%d runs of seed %d, %d operations", runs, s.seed, operations) }()
	for run := range runs {
		x := &history{suite: s, ctx: testwait.Context(s.TB, 2*patience), began: time.Now()}
		keys := newKeys(2)
		var all sync.WaitGroup
		for client := range 5 {
			seed := s.rng.Uint64()
			all.Go(func() {
				rng := newRand(seed)
				for range 5 {
					x.tenure(client, lockers[client%2], keys[rng.IntN(len(keys))], rng.IntN(3) == 0, rng.IntN(2) == 0)
				}
			})
		}
		all.Wait()
		if s.Failed() {
			return
		}
		operations += len(x.operations)
		x.crowd()
		if verdict := porcupine.CheckOperationsTimeout(model(), x.operations, patience); verdict != porcupine.Ok {
			s.Fatalf("run %d of seed %d: %s: %+v", run, s.seed, verdict, x.operations)
		}
	}
}

// tenure acquires, writes, and releases or lets the lease expire; after that the client writes once more, too late.
func (x *history) tenure(client int, l *lock.Locker, k string, seize, waits bool) {
	o := lock.Options{TTL: 10 * time.Second}
	op := opAcquire
	if seize {
		op, o.TTL, o.NoRenewal = opSeize, lock.MinTTL, true
	}
	if waits {
		o.Wait = lock.Forever
	}
	var h *lock.Held
	x.do(client, input{op: op, key: k, waits: waits}, func() output {
		var err error
		began := time.Now()
		h, err = l.Acquire(x.ctx, []string{k}, o)
		switch {
		case err == nil:
			return output{token: h.Token(k)}
		case seize && errors.Is(err, lock.ErrLost) && time.Since(began) >= o.TTL: // The grant was on its way for too long.
			return output{lost: true}
		}
		x.is("acquire", err, lock.ErrHeld)
		return output{refused: true}
	})
	if h == nil {
		return
	}
	x.write(client, k, h.Token(k))
	if seize {
		<-h.Context().Done()
		wait.For(x.ctx, lock.MinTTL/2)
		x.write(client, k, h.Token(k))
		return
	}
	x.do(client, input{op: opRelease, key: k, token: h.Token(k)}, func() output {
		x.is("release", h.Release(x.ctx), nil)
		return output{}
	})
}

func (x *history) write(client int, k string, token int64) {
	if x.h.Fence == nil {
		return
	}
	x.do(client, input{op: opWrite, key: k, token: token}, func() output {
		err := x.h.Fence(x.ctx, k, token)
		if err != nil {
			x.is("write", err, lock.ErrStaleToken)
		}
		return output{refused: err != nil}
	})
}
