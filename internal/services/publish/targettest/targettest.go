// Package targettest is the conformance suite of senders: what the worker of package publish relies on, tried on a target
// that a test controls. Write a [Target] for yours and call [Run] from a test.
package targettest

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// Answer is what the target's server does with the requests that publish something, from the call of Answers on.
type Answer struct {
	Status     int           // answered in place of an effect; 0: the request has its effect and is answered as usual
	RetryAfter time.Duration // sent along, in whole seconds, when above 0
	// Stall has the request neither take effect nor be answered, until its client goes away.
	Stall bool
	// Cut has the request take effect, and its answer lost.
	Cut bool
}

// Target is a target that a test controls. One test at a time uses it.
type Target interface {
	// Sender is the sender under test.
	Sender() publish.Sender
	// Delivery makes one for a new publication, with a target whose timeout is at most [MaxTimeout]. Version, Progress and
	// Save are set by the suite.
	Delivery(t *testing.T) *publish.Delivery
	// Answers says what happens from now on.
	Answers(a Answer)
	// Published is how often the target shows the publication as published.
	Published(d *publish.Delivery) int
	// Secrets are texts that no result may hold.
	Secrets() []string
}

// MaxTimeout is what a target of the suite may take to answer: one test waits until it is over.
const MaxTimeout = 5 * time.Second

// Run tries a sender. fresh makes a target for each test.
func Run(t *testing.T, fresh func(t *testing.T) Target) {
	t.Helper()
	for name, test := range map[string]func(*trial){
		"Delivers":                 delivers,
		"TellsWhatMayWorkLater":    tellsWhatMayWorkLater,
		"TellsWhenItIsTooMuch":     tellsWhenItIsTooMuch,
		"TellsWhatWillNotWork":     tellsWhatWillNotWork,
		"EndsWithItsContext":       endsWithItsContext,
		"EndsWithItsTimeout":       endsWithItsTimeout,
		"IsConcurrent":             isConcurrent,
		"RepeatsNothingItCanAsk":   repeatsNothingItCanAsk,
		"EndsWhenItsClaimIsLost":   endsWhenItsClaimIsLost,
		"GoesOnFromItsOwnProgress": goesOnFromItsOwnProgress,
	} {
		t.Run(name, func(t *testing.T) { test(&trial{T: t, Target: fresh(t)}) })
	}
}

// trial is one test on one target.
type trial struct {
	*testing.T
	Target
}

// next is another publication, at its first attempt.
func (x *trial) next() *publish.Delivery {
	x.Helper()
	d := x.Delivery(x.T)
	if d.Target.Timeout > MaxTimeout {
		x.Fatalf("the target's timeout is %v", d.Target.Timeout)
	}
	d.Version = 1
	d.Save = func(_ context.Context, progress []byte) error {
		if len(progress) == 0 {
			x.Error("saved nothing")
		}
		d.Progress = slices.Clone(progress)
		return nil
	}
	return d
}

// attempt makes one as the worker does, and the next one's version.
func (x *trial) attempt(ctx context.Context, d *publish.Delivery) publish.Result {
	x.Helper()
	given := *d
	d.Version++
	r := publish.Deliver(ctx, x.Sender(), &given)
	x.check(r)
	return r
}

// check holds a result to what all of them promise.
func (x *trial) check(r publish.Result) {
	x.Helper()
	if (r.Class == publish.Delivered) != (r.Error == "") || r.RetryAfter < 0 || r.Throttled && r.Class != publish.Transient {
		x.Errorf("the result contradicts itself: %+v", r)
	}
	for _, secret := range x.Secrets() {
		if strings.Contains(r.Error, secret) || strings.Contains(r.ExternalID, secret) {
			x.Errorf("the result gives a secret away: %+v", r)
		}
	}
}

func (x *trial) want(r publish.Result, class publish.Class) {
	x.Helper()
	if r.Class != class {
		x.Errorf("class %d, want %d: %+v", r.Class, class, r)
	}
}

func (x *trial) times(d *publish.Delivery, want int) {
	x.Helper()
	if n := x.Published(d); n != want {
		x.Errorf("published %d times, want %d", n, want)
	}
}

func delivers(x *trial) {
	d := x.next()
	x.times(d, 0)
	x.want(x.attempt(x.Context(), d), publish.Delivered)
	x.times(d, 1)
}

// refused has the next publication answered with a status, checks the result, and returns the publication.
func (x *trial) refused(a Answer, class publish.Class) *publish.Delivery {
	x.Helper()
	d := x.next()
	x.Answers(a)
	r := x.attempt(x.Context(), d)
	x.want(r, class)
	if r.StatusCode != a.Status || r.Throttled != (a.Status == http.StatusTooManyRequests) || r.RetryAfter != a.RetryAfter {
		x.Errorf("%+v: %+v", a, r)
	}
	x.times(d, 0)
	return d
}

func tellsWhatMayWorkLater(x *trial) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable} {
		d := x.refused(Answer{Status: status}, publish.Transient)
		x.Answers(Answer{})
		x.want(x.attempt(x.Context(), d), publish.Delivered)
		x.times(d, 1)
	}
}

func tellsWhenItIsTooMuch(x *trial) {
	for _, after := range []time.Duration{0, 7 * time.Second} {
		x.refused(Answer{Status: http.StatusTooManyRequests, RetryAfter: after}, publish.Transient)
	}
}

func tellsWhatWillNotWork(x *trial) {
	x.refused(Answer{Status: http.StatusBadRequest}, publish.Permanent)
}

func endsWithItsContext(x *trial) {
	x.Answers(Answer{Stall: true})
	ctx, cancel := context.WithCancel(x.Context())
	cancel()
	x.want(x.attempt(ctx, x.next()), publish.Transient)
}

func endsWithItsTimeout(x *trial) {
	x.Answers(Answer{Stall: true})
	d := x.next()
	x.want(x.attempt(x.Context(), d), publish.Transient)
	x.times(d, 0)
}

func isConcurrent(x *trial) {
	const n = 16
	all := make([]*publish.Delivery, n)
	for i := range all {
		all[i] = x.next()
	}
	var wg sync.WaitGroup
	for _, d := range all {
		wg.Go(func() { x.want(x.attempt(x.Context(), d), publish.Delivered) })
	}
	wg.Wait()
	for _, d := range all {
		x.times(d, 1)
	}
}

// repeatsNothingItCanAsk loses the answer to what took effect. A sender that can ask does not send again; a sender that
// can't is not a Finder.
func repeatsNothingItCanAsk(x *trial) {
	d := x.next()
	x.Answers(Answer{Cut: true})
	x.want(x.attempt(x.Context(), d), publish.Transient)
	x.times(d, 1)
	x.Answers(Answer{})
	r := x.attempt(x.Context(), d)
	x.want(r, publish.Delivered)
	if _, ok := x.Sender().(publish.Finder); !ok {
		x.times(d, 2)
		return
	}
	x.times(d, 1)
	if r.ExternalID == "" {
		x.Errorf("the target does not say what it calls it: %+v", r)
	}
	x.want(x.attempt(x.Context(), d), publish.Delivered)
	x.times(d, 1)
}

// endsWhenItsClaimIsLost loses the claim before the first step that cannot be undone.
func endsWhenItsClaimIsLost(x *trial) {
	d := x.next()
	saves := 0
	d.Save = func(context.Context, []byte) error {
		saves++
		return publish.ErrClaimLost
	}
	r := x.attempt(x.Context(), d)
	if saves == 0 {
		x.want(r, publish.Delivered) // It has but one step.
		return
	}
	x.want(r, publish.Transient)
	x.times(d, 0)
}

// goesOnFromItsOwnProgress has an attempt fail after it has saved something, and another one that knows of it.
func goesOnFromItsOwnProgress(x *trial) {
	d := x.next()
	for range 3 {
		x.Answers(Answer{Status: http.StatusServiceUnavailable})
		x.want(x.attempt(x.Context(), d), publish.Transient)
	}
	x.Answers(Answer{})
	x.want(x.attempt(x.Context(), d), publish.Delivered)
	x.times(d, 1)
}
