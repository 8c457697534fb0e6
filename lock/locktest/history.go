package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

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
	// crowded says that somebody stood in line meanwhile: then a refusal may be for who is before us, who may be just
	// being handed the key, or may have been and was too slow to take it.
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
	holds int   // nobody, firmly, loosely
	fence int64
}

// Who holds a key: nobody, somebody who renews it, somebody whose lease may have run out.
const (
	nobody = iota
	firmly
	loosely
)

// step says what a sequential lock may answer.
func step(from state, in input, out output) (bool, state) {
	switch in.op {
	case opAcquire, opSeize:
		if out.refused {
			return from.holds != nobody || in.crowded, from
		}
		if out.lost {
			return in.op == opSeize && from.holds != firmly, state{last: from.last, holds: loosely, fence: from.fence}
		}
		to := state{last: out.token, holds: firmly, fence: from.fence}
		if in.op == opSeize {
			to.holds = loosely
		}
		return from.holds != firmly && out.token > from.last, to
	case opRelease:
		to := from
		to.holds = nobody
		return !out.refused && from.holds == firmly && in.token == from.last, to
	case opWrite:
		if out.refused {
			return in.token < from.fence, from
		}
		to := from
		to.fence = in.token
		return in.token >= from.fence, to
	}
	panic("locktest: an operation that is none")
}

func model() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, op := range history {
				if in, ok := op.Input.(input); ok {
					byKey[in.key] = append(byKey[in.key], op)
				}
			}
			out := make([][]porcupine.Operation, 0, len(byKey))
			for _, ops := range byKey {
				out = append(out, ops)
			}
			return out
		},
		Init: func() any { return state{} },
		Step: func(from, in, out any) (bool, any) {
			f, okF := from.(state)
			i, okI := in.(input)
			o, okO := out.(output)
			ok, to := step(f, i, o)
			return ok && okF && okI && okO, to
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
	}
}

// crowd marks the refusals during which somebody stood in line.
func crowd(history []porcupine.Operation) {
	for i, op := range history {
		in, ok := op.Input.(input)
		if out, refused := op.Output.(output); !ok || !refused || !out.refused {
			continue
		}
		in.crowded = slices.ContainsFunc(history, func(other porcupine.Operation) bool {
			w, ok := other.Input.(input)
			return ok && w.waits && w.key == in.key && other.Call < op.Return && op.Call < other.Return
		})
		history[i].Input = in
	}
}

// recorder collects a history.
type recorder struct {
	mu      sync.Mutex
	began   time.Time
	history []porcupine.Operation
}

func (r *recorder) do(client int, in input, f func() output) {
	call := time.Since(r.began).Nanoseconds()
	out := f()
	back := time.Since(r.began).Nanoseconds()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: back})
}

// histories checks what concurrent clients of two processes were told against the sequential lock.
func (s *suite) histories() {
	lockers := []*lock.Locker{s.locker(), s.locker()}
	runs, operations := count(4, 100), 0
	defer func() { s.Logf("%d runs of seed %d, %d operations", runs, s.seed, operations) }()
	for run := range runs {
		rec := &recorder{began: time.Now()}
		keys := []string{key("a"), key("b")}
		var all sync.WaitGroup
		ctx, cancel := context.WithTimeout(s.Context(), 2*patience)
		for client := range 5 {
			seed := s.rng.Uint64()
			all.Go(func() {
				c := historian{suite: s, rec: rec, client: client, locker: lockers[client%2], ctx: ctx}
				rng := newRand(seed)
				for range 5 {
					c.tenure(keys[rng.IntN(len(keys))], rng.IntN(3) == 0, rng.IntN(2) == 0)
				}
			})
		}
		all.Wait()
		cancel()
		if s.Failed() {
			return
		}
		operations += len(rec.history)
		crowd(rec.history)
		if verdict := porcupine.CheckOperationsTimeout(model(), rec.history, patience); verdict != porcupine.Ok {
			s.Fatalf("run %d of seed %d: %s: %+v", run, s.seed, verdict, rec.history)
		}
	}
}

// historian is one client of a history.
type historian struct {
	*suite

	rec    *recorder
	client int
	locker *lock.Locker
	ctx    context.Context //nolint:containedctx // That of the history.
}

// tenure acquires, writes, and releases or lets go; a client that let go writes once more, too late.
func (c *historian) tenure(k string, seize, wait bool) {
	o := lock.Options{TTL: 10 * time.Second}
	op := opAcquire
	if seize {
		op, o.TTL, o.NoRenewal = opSeize, lock.MinTTL, true
	}
	if wait {
		o.Wait = lock.Forever
	}
	var h *lock.Held
	c.rec.do(c.client, input{op: op, key: k, waits: wait}, func() output {
		var err error
		began := time.Now()
		h, err = c.locker.Acquire(c.ctx, []string{k}, o)
		switch {
		case err == nil:
			return output{token: h.Token(k)}
		case seize && errors.Is(err, lock.ErrLost) && time.Since(began) >= o.TTL: // The grant was on its way for too long.
			return output{lost: true}
		case !errors.Is(err, lock.ErrHeld):
			c.Error(err)
		}
		return output{refused: true}
	})
	if h == nil {
		return
	}
	c.write(k, h.Token(k))
	if seize {
		<-h.Context().Done()
		c.pause(c.ctx, lock.MinTTL/2)
		c.write(k, h.Token(k))
		return
	}
	c.rec.do(c.client, input{op: opRelease, key: k, token: h.Token(k)}, func() output {
		if err := h.Release(c.ctx); err != nil {
			c.Error(err)
		}
		return output{}
	})
}

func (c *historian) write(k string, token int64) {
	if c.h.Fence == nil {
		return
	}
	c.rec.do(c.client, input{op: opWrite, key: k, token: token}, func() output {
		err := c.h.Fence(c.ctx, k, token)
		if err != nil && !errors.Is(err, lock.ErrStaleToken) {
			c.Error(err)
		}
		return output{refused: err != nil}
	})
}
