package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// Faulty is a store whose calls all go through Around, which may run the call or not. Method is the name of what is called.
// Where Around returns an error, the caller gets no answer, also when the call had its effect.
type Faulty struct {
	idempotency.Store

	Around func(method string, run func() error) error
}

func through[T any](f *Faulty, method string, run func() (T, error)) (out T, err error) {
	var got T
	if err = f.Around(method, func() (err error) { got, err = run(); return err }); err != nil {
		return out, err
	}
	return got, nil
}

// Begin implements [idempotency.Store].
func (f *Faulty) Begin(ctx context.Context, r idempotency.Request, t idempotency.Terms) (idempotency.Entry, error) {
	return through(f, "Begin", func() (idempotency.Entry, error) { return f.Store.Begin(ctx, r, t) })
}

// Look implements [idempotency.Store].
func (f *Faulty) Look(ctx context.Context, id idempotency.ID) (idempotency.Entry, error) {
	return through(f, "Look", func() (idempotency.Entry, error) { return f.Store.Look(ctx, id) })
}

// Extend implements [idempotency.Store].
func (f *Faulty) Extend(ctx context.Context, g idempotency.Grant, lease time.Duration) error {
	return f.Around("Extend", func() error { return f.Store.Extend(ctx, g, lease) })
}

// Complete implements [idempotency.Store].
func (f *Faulty) Complete(ctx context.Context, g idempotency.Grant, a idempotency.Response) (idempotency.Response, error) {
	return through(f, "Complete", func() (idempotency.Response, error) { return f.Store.Complete(ctx, g, a) })
}

// Release implements [idempotency.Store].
func (f *Faulty) Release(ctx context.Context, g idempotency.Grant) error {
	return f.Around("Release", func() error { return f.Store.Release(ctx, g) })
}

// Park implements [idempotency.Store].
func (f *Faulty) Park(ctx context.Context, g idempotency.Grant) error {
	return f.Around("Park", func() error { return f.Store.Park(ctx, g) })
}

// point is where in an execution a process dies.
type point string

// The points, in order.
const (
	beforeBegin point = "before it begins"
	begun       point = "begun, and not executed"
	effect      point = "executed, and not answered"
	kept        point = "answered, and not sent"
)

func points() []point { return []point{beforeBegin, begun, effect, kept} }

var errDead = errors.New("this process is dead")

// mortal is the store of a process that dies at a point. From then on it answers nothing and does nothing.
type mortal struct {
	Faulty

	at   point
	dead atomic.Bool
	cut  bool // leases are not extended
}

func newMortal(store idempotency.Store, at point) *mortal {
	m := &mortal{at: at}
	m.Faulty = Faulty{Store: store, Around: m.do}
	return m
}

// die ends the process in the middle of a call, as its callers see it.
func (m *mortal) die() {
	m.dead.Store(true)
	panic(errDead)
}

func (m *mortal) do(method string, run func() error) error {
	switch {
	case m.dead.Load() && (method == "Release" || method == "Park"):
		return idempotency.ErrLost // So that the dead process doesn't try again.
	case m.dead.Load(), method == "Extend" && m.cut:
		return errDead
	case method == "Begin" && m.at == beforeBegin:
		m.die()
	}
	err := run()
	if err == nil && (method == "Begin" && m.at == begun || method == "Complete" && m.at == kept) {
		m.die()
	}
	return err
}
