package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/idempotency"
)

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

// mortal is the store of a process that dies at a point: from then on it says nothing, and nothing it is asked to do is done.
type mortal struct {
	idempotency.Store

	at   point
	dead atomic.Bool
	cut  atomic.Bool // leases are not extended any more
}

// die ends the process in the middle of a call, as its callers see it.
func (m *mortal) die() {
	m.dead.Store(true)
	panic(errDead)
}

// Begin implements [idempotency.Store].
func (m *mortal) Begin(ctx context.Context, r idempotency.Request, t idempotency.Terms) (idempotency.Entry, error) {
	if m.dead.Load() {
		return idempotency.Entry{}, errDead
	}
	if m.at == beforeBegin {
		m.die()
	}
	e, err := m.Store.Begin(ctx, r, t)
	if m.at == begun && err == nil && e.Phase == idempotency.Started {
		m.die()
	}
	return e, err
}

// Look implements [idempotency.Store].
func (m *mortal) Look(ctx context.Context, id idempotency.ID) (idempotency.Entry, error) {
	if m.dead.Load() {
		return idempotency.Entry{}, errDead
	}
	return m.Store.Look(ctx, id)
}

// Extend implements [idempotency.Store].
func (m *mortal) Extend(ctx context.Context, g idempotency.Grant, lease time.Duration) error {
	if m.dead.Load() || m.cut.Load() {
		return errDead
	}
	return m.Store.Extend(ctx, g, lease)
}

// Complete implements [idempotency.Store].
func (m *mortal) Complete(ctx context.Context, g idempotency.Grant, answer idempotency.Response) (idempotency.Response, error) {
	if m.dead.Load() {
		return idempotency.Response{}, errDead
	}
	out, err := m.Store.Complete(ctx, g, answer)
	if m.at == kept && err == nil {
		m.die()
	}
	return out, err
}

// Release implements [idempotency.Store].
func (m *mortal) Release(ctx context.Context, g idempotency.Grant) error {
	if m.dead.Load() {
		return idempotency.ErrLost // It needn't be asked again: what a dead process wants is nobody's concern.
	}
	return m.Store.Release(ctx, g)
}

// Park implements [idempotency.Store].
func (m *mortal) Park(ctx context.Context, g idempotency.Grant) error {
	if m.dead.Load() {
		return idempotency.ErrLost
	}
	return m.Store.Park(ctx, g)
}
