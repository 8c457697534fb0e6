package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// call is a method of a store.
type call int

const (
	callBegin call = iota
	callLook
	callExtend
	callComplete
	callRelease
	callPark
)

// hooked is a store whose calls all go through around, which may run the call or not.
type hooked struct {
	idempotency.Store

	around func(c call, run func() error) error
}

// Begin implements [idempotency.Store].
func (h *hooked) Begin(ctx context.Context, r idempotency.Request, t idempotency.Terms) (e idempotency.Entry, err error) {
	err = h.around(callBegin, func() error { e, err = h.Store.Begin(ctx, r, t); return err })
	return answered(e, err)
}

// Look implements [idempotency.Store].
func (h *hooked) Look(ctx context.Context, id idempotency.ID) (e idempotency.Entry, err error) {
	err = h.around(callLook, func() error { e, err = h.Store.Look(ctx, id); return err })
	return answered(e, err)
}

// Extend implements [idempotency.Store].
func (h *hooked) Extend(ctx context.Context, g idempotency.Grant, lease time.Duration) error {
	return h.around(callExtend, func() error { return h.Store.Extend(ctx, g, lease) })
}

// Complete implements [idempotency.Store].
func (h *hooked) Complete(ctx context.Context, g idempotency.Grant, answer idempotency.Response) (out idempotency.Response, err error) {
	err = h.around(callComplete, func() error { out, err = h.Store.Complete(ctx, g, answer); return err })
	return answered(out, err)
}

// Release implements [idempotency.Store].
func (h *hooked) Release(ctx context.Context, g idempotency.Grant) error {
	return h.around(callRelease, func() error { return h.Store.Release(ctx, g) })
}

// Park implements [idempotency.Store].
func (h *hooked) Park(ctx context.Context, g idempotency.Grant) error {
	return h.around(callPark, func() error { return h.Store.Park(ctx, g) })
}

// answered is a call's answer, which an error hides even when the call had its effect.
func answered[T any](answer T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return answer, nil
}

// point is where in an execution a process dies.
type point string

// The points, in order.
const (
	beforeBegin point = "before it begins"
	begun       point = "begun, and not executed"
	effect      point = "executed, and not answered"
	kept        point = "answered, and not told"
)

func points() []point { return []point{beforeBegin, begun, effect, kept} }

var errDead = errors.New("this process is dead")

// mortal is the store of a process that dies at a point. From then on it answers nothing and does nothing.
type mortal struct {
	hooked

	at   point
	dead atomic.Bool
	cut  atomic.Bool // leases are not extended any more
}

func newMortal(store idempotency.Store, at point) *mortal {
	m := &mortal{at: at}
	m.hooked = hooked{Store: store, around: m.do}
	return m
}

// die ends the process in the middle of a call, as its callers see it.
func (m *mortal) die() {
	m.dead.Store(true)
	panic(errDead)
}

func (m *mortal) do(c call, run func() error) error {
	switch {
	case m.dead.Load() && (c == callRelease || c == callPark):
		return idempotency.ErrLost // So that the dead process doesn't try again.
	case m.dead.Load(), c == callExtend && m.cut.Load():
		return errDead
	case c == callBegin && m.at == beforeBegin:
		m.die()
	}
	err := run()
	if err == nil && (c == callBegin && m.at == begun || c == callComplete && m.at == kept) {
		m.die()
	}
	return err
}

var errAway = errors.New("the store is away")

// fading is a store that goes away at one of its calls, before or after the call has its effect. Calls from then on fail until it
// is back.
type fading struct {
	hooked

	calls  atomic.Int64
	at     atomic.Int64 // number of the call; 0: it stays
	effect atomic.Bool  // that call has its effect
	blind  atomic.Bool  // Begin alone fails, after its effect
}

func newFading(store idempotency.Store) *fading {
	f := &fading{}
	f.hooked = hooked{Store: store, around: f.do}
	return f
}

// leave makes the store go away at the n-th call from now on.
func (f *fading) leave(n int, effect bool) {
	f.calls.Store(0)
	f.effect.Store(effect)
	f.at.Store(int64(n))
}

func (f *fading) comeBack() { f.at.Store(0) }

func (f *fading) do(c call, run func() error) error {
	n, at := f.calls.Add(1), f.at.Load()
	away := at != 0 && n >= at
	if !away || n == at && f.effect.Load() {
		if err := run(); err != nil {
			return err
		}
	}
	if away || c == callBegin && f.blind.Load() {
		return errAway
	}
	return nil
}
