package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// Verdict is how a check ended.
type Verdict string

// The verdicts.
const (
	Held     Verdict = "held"
	Broken   Verdict = "broken"    // what was promised did not happen
	NotTried Verdict = "not_tried" // what the check needs is not there, or it did not come to its end
)

// Result is what one check has found.
type Result struct {
	Check

	Verdict Verdict
	// OutOfTime says of a check that was not tried that it was called off, since it took longer than the runner's patience.
	OutOfTime bool
	// Why has what is wrong, or missing; nothing where the promise was held.
	Why  []string
	Log  []string // what the check says beside that
	Took time.Duration
	// Times are what the check measured of promises about time, in the order of measuring.
	Times []Time
}

// Time is one measurement of what a promise bounds.
type Time struct {
	Promise     string
	Took, Limit time.Duration
}

// Runner runs suites. Its members are set before the first one.
type Runner struct {
	// Checks are those to run; others of a suite are passed over.
	Checks []Check
	// Parallel is how many checks run at a time, among those that allow it; 0 means one.
	Parallel int
	// Patience is how long one check may take; 0 means two minutes. A check that takes longer is called off, and left behind. No
	// promise bounds that time, so such a check was not tried to its end, unless something was wrong before.
	Patience time.Duration
	// Limits are those of promises about time, by name. A promise without one is not judged.
	Limits map[string]time.Duration
	Seed   uint64
	// Slow is asked after a check in which something came too late, and nothing else was wrong: each of its errors was a
	// [context.DeadlineExceeded]. Slow says how slow the server is; then nothing was tried. Where that is no
	// reason it says nothing, and the check is broken. It may be nil.
	Slow func(ctx context.Context) (why string)
	// Ended is told of each check, one call at a time. It may be nil.
	Ended func(r Result)

	mu      sync.Mutex
	results []Result
}

const (
	defaultPatience = 2 * time.Minute
	// parting is how long a check whose time is over may take to end by itself, now that its context has ended.
	parting = 15 * time.Second
	// misses is how often a promise about time is measured at most, until one measurement is within the limit.
	misses = 3
	// said bounds the messages of one check.
	said = 20
)

// Setup is the name of what a suite does before its checks. There is a result for it if that fails.
const Setup = "setup"

// Run runs a suite: run calls it with the T. When Run returns, all checks have ended, or were left behind. Once ctx has ended, no further
// check begins, and one that fails then was not tried.
func (r *Runner) Run(ctx context.Context, run func(t *T)) []Result {
	r.mu.Lock()
	before := len(r.results)
	r.mu.Unlock()
	t := r.newT(ctx, Setup, make(chan struct{}, max(r.Parallel, 1)))
	t.do(run)
	if result := t.result(ctx); result.Verdict != Held { // The suite itself did not get as far as its checks.
		r.end(result)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.results[before:])
}

func (r *Runner) newT(ctx context.Context, name string, turns chan struct{}) *T {
	t := &T{runner: r, name: name, outer: ctx, turns: turns, queued: make(chan struct{}), parallel: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

func (r *Runner) check(name string) (c Check, wanted bool) {
	if i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Name == name }); i >= 0 {
		return r.Checks[i], true
	}
	return Check{Name: name}, false
}

func (r *Runner) end(result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, result)
	if r.Ended != nil {
		r.Ended(result)
	}
}

// T is a check that a [Runner] runs, or the suite that has it. It is to a suite what a *testing.T is.
type T struct {
	runner   *Runner
	name     string
	outer    context.Context //nolint:containedctx // The runner's.
	ctx      context.Context //nolint:containedctx // As a test has one.
	cancel   context.CancelFunc
	turns    chan struct{} // of checks that run in parallel
	queued   chan struct{} // closed when the check says that it may run beside others
	parallel chan struct{} // closed when its turn has come
	once     sync.Once
	children sync.WaitGroup

	mu       sync.Mutex
	failed   bool
	late     bool // something came too late
	over     bool // its time is: what fails from then on fails for that
	punctual bool // a promise about time was missed while the machine was not delayed
	skipped  bool
	closed   bool // it is reported, and what is left behind of it changes nothing
	why, log []string
	times    []Time
	cleanups []func()
}

var (
	_ Test[*T] = (*T)(nil)
	_ Judge    = (*T)(nil)
	_ Seeded   = (*T)(nil)
)

// Run implements [Test].
func (t *T) Run(name string, f func(*T)) bool {
	if t.ctx.Err() != nil {
		return false
	}
	if _, wanted := t.runner.check(name); !wanted {
		return true
	}
	child := t.runner.newT(t.ctx, name, t.turns)
	ended := make(chan struct{})
	t.children.Go(func() {
		defer close(ended)
		t.runner.end(child.run(f))
	})
	select {
	case <-ended:
		return !child.Failed()
	case <-child.parallel:
		return true
	}
}

// run runs a check to its end, or until its time is over. Waiting for its turn takes none of that time.
func (t *T) run(f func(*T)) Result {
	patience := cmp.Or(t.runner.Patience, defaultPatience)
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		t.do(f)
	}()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-t.queued:
		select {
		case <-t.parallel:
			defer func() { <-t.turns }()
		case <-done: // The runner's context ended first.
		}
		began = time.Now()
		limit.Reset(patience)
	case <-done:
	case <-limit.C:
		limit.Reset(0)
	}
	select {
	case <-done:
	case <-limit.C:
		t.outOfTime(patience)
		limit.Reset(parting)
		select {
		case <-done:
		case <-limit.C:
		}
	}
	r := t.result(t.outer)
	r.Took = time.Since(began)
	return r
}

// outOfTime calls the check off.
func (t *T) outOfTime(patience time.Duration) {
	t.mu.Lock()
	t.over = true
	t.note(&t.why, fmt.Sprintf("it did not end within %s, with the seed %d", patience, t.runner.Seed))
	t.mu.Unlock()
	t.cancel()
}

// result is how the check ended. From then on nothing changes it.
func (t *T) result(ctx context.Context) Result {
	t.mu.Lock()
	t.closed = true
	only := t.late && !t.failed
	t.mu.Unlock()
	slow := ""
	if only && t.runner.Slow != nil {
		slow = t.runner.Slow(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := Result{Verdict: Held, Why: t.why, Log: t.log, Times: t.times}
	r.Check, _ = t.runner.check(t.name)
	switch {
	case (t.failed || t.late || t.over) && t.outer.Err() != nil:
		r.Verdict, r.Why = NotTried, []string{"interrupted"}
	case slow != "":
		r.Verdict, r.Why = NotTried, append([]string{slow}, r.Why...)
	case t.failed || t.late:
		r.Verdict = Broken
	case t.over:
		r.Verdict, r.OutOfTime = NotTried, true
	case t.skipped:
		r.Verdict = NotTried
	}
	return r
}

// do calls f, waits for the checks in it, and then calls what was given to Cleanup, the last first.
func (t *T) do(f func(*T)) {
	step := func(f func()) {
		ended := make(chan struct{})
		go func() { // FailNow ends it.
			defer close(ended)
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v\n%s", p, debug.Stack())
				}
			}()
			f()
		}()
		<-ended
	}
	step(func() { f(t) })
	t.children.Wait()
	t.cancel()
	for {
		t.mu.Lock()
		n := len(t.cleanups)
		if n == 0 {
			t.mu.Unlock()
			return
		}
		last := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		t.mu.Unlock()
		step(last)
	}
}

// Parallel implements [Test]: it waits for the check's turn.
func (t *T) Parallel() {
	t.once.Do(func() {
		close(t.queued)
		select {
		case t.turns <- struct{}{}:
			close(t.parallel)
		case <-t.ctx.Done():
			t.Skip("interrupted")
		}
	})
}

func (t *T) note(to *[]string, text string) {
	if text = strings.TrimSpace(text); len(*to) < said && text != "" && !t.closed {
		*to = append(*to, text)
	}
}

func (t *T) fail(text string, late bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = t.late || late && !t.closed && !t.over
	t.failed = t.failed || !late && !t.closed && !t.over
	t.note(&t.why, text)
}

// tooLate reports whether a check that fails with this only waited for too long.
func tooLate(args []any) bool {
	return slices.ContainsFunc(args, func(arg any) bool {
		err, ok := arg.(error)
		return ok && errors.Is(err, context.DeadlineExceeded)
	})
}

func (t *T) skip(text string) {
	t.mu.Lock()
	t.skipped = t.skipped || !t.closed
	t.note(&t.why, text)
	t.mu.Unlock()
	runtime.Goexit()
}

// Helper implements [TB].
func (t *T) Helper() {}

// Name implements [TB].
func (t *T) Name() string { return t.name }

// Context implements [TB]. It ends when the time of the check is over, or the runner's context ends.
func (t *T) Context() context.Context { return t.ctx }

// Cleanup implements [TB].
func (t *T) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// Log implements [TB].
func (t *T) Log(args ...any) { t.Logf("%s", fmt.Sprintln(args...)) }

// Logf implements [TB].
func (t *T) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note(&t.log, fmt.Sprintf(format, args...))
}

// Error implements [TB].
func (t *T) Error(args ...any) { t.fail(fmt.Sprintln(args...), tooLate(args)) }

// Errorf implements [TB].
func (t *T) Errorf(format string, args ...any) { t.fail(fmt.Sprintf(format, args...), tooLate(args)) }

// Failed implements [TB].
func (t *T) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed || t.late || t.over
}

// FailNow implements [TB].
func (t *T) FailNow() {
	t.fail("", false)
	runtime.Goexit()
}

// Fatal implements [TB].
func (t *T) Fatal(args ...any) {
	t.Error(args...)
	runtime.Goexit()
}

// Fatalf implements [TB].
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// Skip implements [TB]. What was skipped was not tried.
func (t *T) Skip(args ...any) { t.skip(fmt.Sprintln(args...)) }

// Skipf implements [TB].
func (t *T) Skipf(format string, args ...any) { t.skip(fmt.Sprintf(format, args...)) }

// Seed implements [Seeded].
func (t *T) Seed() uint64 { return t.runner.Seed }

// Took implements [Judge]. Of several measurements the best one counts: the others may be the machine's fault. Where all may be, nothing was
// tried.
func (t *T) Took(promise string, took time.Duration, delayed func(limit time.Duration) bool) (enough bool) {
	limit, known := t.runner.Limits[promise]
	if !known {
		return true
	}
	t.mu.Lock()
	if !t.closed {
		t.times = append(t.times, Time{Promise: promise, Took: took, Limit: limit})
	}
	t.punctual = t.punctual || took > limit && !delayed(limit)
	missed, punctual := 0, t.punctual
	for _, x := range t.times {
		if x.Promise == promise {
			missed++
		}
	}
	t.mu.Unlock()
	switch {
	case took <= limit:
		return true
	case missed < misses:
		return false
	case !punctual:
		t.Skipf("%s: %s, where %s are promised; the machine that measures this is too busy to tell", promise, took.Round(time.Millisecond), limit)
	}
	t.Errorf("%s: %s; promised are %s", promise, took.Round(time.Millisecond), limit)
	return true
}
