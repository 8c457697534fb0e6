package idempotency

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// ErrLost is returned by a [Store] when an execution is no longer the one under its key: another took the key over after
// the lease had run out, or the key was released. Nothing was changed.
var ErrLost = errors.New("idempotency: the execution has lost its key")

// Response is what was decided, as it is kept and repeated.
type Response struct {
	Status int         // HTTP status; what is not HTTP may say what it likes, but 0
	Header http.Header // may be nil
	Body   []byte
}

// Grant is the right to execute one request, once.
type Grant struct {
	ID        ID
	Execution uuid.UUID // that of the [Request]
	// Fence grows with each execution under one key, by the store's clock. Hand it to whatever the execution writes to, so
	// that a write of an earlier execution can be refused there.
	Fence int64
}

// CrashPolicy says what becomes of a key whose execution is not heard of until its lease runs out.
type CrashPolicy uint8

// What a crash leaves behind.
const (
	// FreeAfterLease lets the next request with the key execute again. It is for handlers whose effect is undone by a crash,
	// or does no harm when it is repeated, and for those that complete their key in the effect's own transaction.
	FreeAfterLease CrashPolicy = iota
	// ParkAsUnknown executes nothing under the key any more until somebody has found out what happened.
	ParkAsUnknown
)

// Terms are what an execution begins under. Both times are a microsecond or more.
type Terms struct {
	// Lease is how long the execution may go without [Store.Extend]. It is the same wherever requests can have the same ids: a
	// store may take a longer one for the work of a clock that was ahead, and shorten it.
	Lease     time.Duration
	Retention time.Duration // how long the answer is kept; at least the lease
	OnCrash   CrashPolicy
}

// Validate is for those who write a [Store]. It returns an [ErrBadOptions] for times that are not positive.
func (t Terms) Validate() error {
	if min(t.Lease, t.Retention) < time.Microsecond {
		return fmt.Errorf("%w: a lease of %s and a retention of %s", ErrBadOptions, t.Lease, t.Retention)
	}
	return nil
}

// Phase is where a key is.
type Phase uint8

// The phases of a key.
const (
	Absent   Phase = iota // nothing is known of it; only [Store.Look] says so
	Started               // the request that asks is to execute; only [Store.Begin] says so
	InFlight              // another request executes
	Unknown               // an execution crashed, and its key is parked
	Answered              // it was decided
)

// Entry is what a store knows of a key.
type Entry struct {
	Phase       Phase
	Grant       Grant         // of the execution that began last
	Fingerprint Fingerprint   // of its request
	Response    Response      // of a key that is answered
	LeaseLeft   time.Duration // of a key in flight
}

// Store keeps what was begun and what was answered. Implementations are safe for concurrent use, by any number of
// processes; all their times are those of one clock, the store's. Each method takes effect at once or not at all, and may be
// called again with the same arguments when its answer was lost. Package storetest is their conformance suite.
//
// An execution is known by its id, execution and fence together. That its lease has run out does not end it: what ends it
// is that another begins in its place, and from then on every method but Begin and Look returns [ErrLost] to it.
type Store interface {
	// Begin makes the request the one that executes, unless its key is in flight, parked or answered. A key whose retention
	// is over is as good as new; so is one that is in flight under [FreeAfterLease] and past its lease, but for its fence,
	// which grows, and its fingerprint, which stays. It returns [ErrKeyReused] when the key stands for another request,
	// and what [Terms.Validate] does.
	Begin(ctx context.Context, r Request, t Terms) (Entry, error)
	// Look tells where a key is.
	Look(ctx context.Context, id ID) (Entry, error)
	// Extend gives an execution a new lease, from now. A lease that has run out is not revived.
	Extend(ctx context.Context, g Grant, lease time.Duration) error
	// Complete keeps an execution's answer, and returns the one that is kept: another one where the execution had one
	// already. It resolves a parked key.
	Complete(ctx context.Context, g Grant, answer Response) (Response, error)
	// Release forgets an execution that has no answer: the next request with the key is the first. It resolves a parked key.
	Release(ctx context.Context, g Grant) error
	// Sweep deletes up to limit entries whose retention is over, and returns how many. Stores that expire their entries
	// themselves delete none. Parked keys stay.
	Sweep(ctx context.Context, limit int) (int, error)
}

// EncodeHeader writes an answer's header as ASCII text for a store. [DecodeHeader] restores every byte of it.
func EncodeHeader(h http.Header) string {
	if len(h) == 0 {
		return ""
	}
	out := make(map[string][][]byte, len(h)) // Values need not be UTF-8, so they become base64.
	for name, values := range h {
		list := make([][]byte, len(values))
		for i, v := range values {
			list[i] = []byte(v)
		}
		out[name] = list
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic(err) // It is strings and bytes.
	}
	return string(text)
}

// DecodeHeader reads what [EncodeHeader] has written.
func DecodeHeader(text string) (http.Header, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // No header is none.
	}
	var in map[string][][]byte
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return nil, fmt.Errorf("idempotency: the header of a kept answer: %w", err)
	}
	h := make(http.Header, len(in))
	for name, values := range in {
		list := make([]string, len(values))
		for i, v := range values {
			list[i] = string(v)
		}
		h[name] = list
	}
	return h, nil
}

// sweepLimit is how many entries one call deletes, so that none takes long.
const sweepLimit = 1000

// KeepSwept sweeps a store now and then every while, until ctx ends; 0 means [DefaultSweepEvery]. It passes failures to failed,
// which may be nil, and goes on. Any number of processes may do so. It returns at once, after giving failed an [ErrBadOptions],
// when every is negative.
func KeepSwept(ctx context.Context, s Store, every time.Duration, failed func(error)) {
	every = cmp.Or(every, DefaultSweepEvery)
	if every < 0 {
		if failed != nil {
			failed(fmt.Errorf("%w: a sweep every %s", ErrBadOptions, every))
		}
		return
	}
	wait.Every(ctx, every, nil, func() {
		for n := sweepLimit; n == sweepLimit; {
			var err error
			if n, err = s.Sweep(ctx, sweepLimit); err != nil && ctx.Err() == nil && failed != nil {
				failed(err)
			}
		}
	})
}
