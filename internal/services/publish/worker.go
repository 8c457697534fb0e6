package publish

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// Limits and rhythms of a worker.
const (
	forgetAfter = time.Minute // how long a target without attempts keeps more than the first of its places
	poll        = time.Second // how often a worker looks for what other processes have scheduled
	// When an attempt has ended, a worker waits for more to end, so that one claim fills all their places. It waits
	// gatherTimes as long as its last claim took, so that many workers leave the database time, but at least leastGather
	// and at most mostGather.
	gatherTimes = 2
	leastGather = 8 * time.Millisecond
	mostGather  = 50 * time.Millisecond
	// shortestWait keeps a worker from asking again and again for something that another transaction has locked.
	shortestWait = 10 * time.Millisecond
	errorPause   = 500 * time.Millisecond // how long a worker leaves a database alone that has just failed
	// Heartbeats come four times in the life of a claim, but often enough for those who watch an attempt.
	beatsPerLife = 4
	longestBeat  = 10 * time.Second
	// leaseMargin is what is left of a claim's life when nothing new is begun under it.
	leaseMargin = 10 // per cent
)

// Observer receives what workers do, for metrics. Its methods must not block and may be called concurrently.
type Observer interface {
	// Claimed reports publications that were claimed in one transaction and how long it took.
	Claimed(n int, took time.Duration)
	// Attempted reports an attempt: how late it was claimed, how long it took, and the status of the answer, 0 without one.
	Attempted(late, took time.Duration, statusCode int)
	// Recorded reports what was recorded of an attempt to publish to a target.
	Recorded(target uuid.UUID, result AttemptResult)
	// Running reports how many attempts are under way.
	Running(n int)
	// Released reports stale claims that were released.
	Released(n int)
	// Overdue reports for how long the publication is due that has waited longest although there is a place for it; 0: none does.
	Overdue(d time.Duration)
	// Fired reports a firing of an automation, and how late it was.
	Fired(outcome Outcome, late time.Duration)
}

// WorkerOptions make a worker. Queue, Senders and Vault are required.
type WorkerOptions struct {
	Queue   Queue
	Senders map[Kind]Sender
	Vault   *Vault
	Policy  Policy
	// StaleAfter is how long a claim without heartbeat lives; SweepEvery how often stale claims are released.
	StaleAfter, SweepEvery time.Duration
	Drain                  time.Duration // how long the end of Run waits for attempts under way
	Concurrency, PerTarget int           // 0: the defaults
	Observer               Observer
	// Trace, where it is not nil, begins the trace of an attempt, which runs under the context that it returns; end is called
	// with the answer's status, 0 without one, and with why nothing was delivered. It must not block.
	Trace func(ctx context.Context, kind string, target, publication uuid.UUID, version int64, late time.Duration) (
		attempt context.Context, end func(status int, err error))
	Logger *slog.Logger
}

// Worker claims what is due, sends it, and records what came of it.
type Worker struct {
	o      WorkerOptions
	ends   *groupcommit.Group[struct{}, Conclusion, AttemptResult]
	beats  *groupcommit.Group[struct{}, Beat, bool] // whether the claim is lost
	wake   chan struct{}
	freed  chan struct{} // an attempt has ended
	ending atomic.Bool   // set when an unreachable database is no longer waited for

	mu      sync.Mutex
	looksAt time.Time // when it will look for due publications by itself
	running int       // attempts under way
	targets map[uuid.UUID]*slots
}

// slots are how many attempts a target has, and may have.
type slots struct {
	used, limit int
	ended       time.Time // when an attempt ended last
}

// NewWorker returns a worker; Run makes it work.
func NewWorker(o WorkerOptions) *Worker {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	if o.Concurrency <= 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.PerTarget <= 0 {
		o.PerTarget = DefaultPerTarget
	}
	w := &Worker{o: o, wake: make(chan struct{}, 1), freed: make(chan struct{}, 1), targets: map[uuid.UUID]*slots{}}
	// An attempt whose row another session has locked must not keep the others from being recorded, nor their claims from being
	// renewed.
	lanes := groupcommit.Options{Divisible: func(err error) bool {
		_, blocked := errors.AsType[*command.BlockedError](err)
		return blocked
	}}
	w.ends, w.beats = groupcommit.New(w.record, lanes), groupcommit.New(w.beat, lanes)
	return w
}

// Scheduled tells the worker that something is due within a time. It doesn't block.
func (w *Worker) Scheduled(in time.Duration) {
	w.mu.Lock()
	early := time.Now().Add(in).Before(w.looksAt)
	w.mu.Unlock()
	if early {
		wait.Signal(w.wake)
	}
}

// Run works until ctx ends. Then it claims nothing more, waits for the attempts under way, no longer than the drain, and
// records them all.
func (w *Worker) Run(ctx context.Context) {
	// What is under way goes on after ctx; it has its own end.
	sending, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	var attempts, helpers sync.WaitGroup
	helpers.Go(func() { wait.Every(ctx, w.o.SweepEvery, nil, func() { w.sweep(ctx) }) })
	helpers.Go(func() {
		var failures wait.News
		wait.Every(ctx, automatorPoll, nil, func() { w.fireAll(ctx, &failures) })
	})

	w.loop(ctx, func(work []*Work, since time.Time) {
		for _, one := range work {
			attempts.Go(w.begin(sending, one, since))
		}
	})

	done := make(chan struct{})
	go func() { attempts.Wait(); close(done) }()
	patience := time.NewTimer(w.o.Drain)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		w.ending.Store(true)
		cut(errShutdown)
		<-done
	}
	helpers.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.o.Drain+time.Second)
	defer cancel()
	if err := errors.Join(w.ends.Close(closing), w.beats.Close(closing)); err != nil {
		w.o.Logger.WarnContext(ctx, "ends of attempts were not recorded", "error", err)
	}
}

// loop claims again and again, until ctx ends.
func (w *Worker) loop(ctx context.Context, start func([]*Work, time.Time)) {
	defer w.o.Observer.Overdue(0) // From here on others see it.
	var failures wait.News
	for ctx.Err() == nil {
		w.plan(time.Time{}) // From here on it needn't be woken: it is about to look, or will find the signal.
		free := w.free()
		rest, took := poll, time.Duration(0)
		if free.Total > 0 {
			since := time.Now()
			work, err := w.o.Queue.ClaimDue(ctx, free)
			took = time.Since(since)
			if err == nil && len(work) > 0 {
				w.o.Observer.Claimed(len(work), took)
				start(work, since)
				if len(work) == free.Total {
					continue
				}
				// It took what there was for each target, or as much as that may have: what is due still is for targets
				// whose places are taken.
				free = w.free()
			}
			if err == nil {
				rest, err = w.nextLook(ctx, free)
			}
			if news := failures.Is(err); err != nil {
				if news && ctx.Err() == nil {
					w.o.Logger.WarnContext(ctx, "claim publications", "error", err)
				}
				rest = errorPause
			}
		}
		w.pause(ctx, rest, took)
	}
}

// nextLook asks how long there will be nothing to do.
func (w *Worker) nextLook(ctx context.Context, free Slots) (time.Duration, error) {
	// What is scheduled from here on wakes the worker if it is early enough, and it may be as early as now.
	w.plan(time.Now().Add(poll))
	next, err := w.o.Queue.NextDue(ctx, free)
	if err != nil {
		return poll, err
	}
	in := poll
	if next.In != nil {
		in = *next.In
	}
	if next.Whole {
		w.o.Observer.Overdue(max(-in, 0)) // What was due has just been claimed, unless somebody has locked it.
	}
	return min(max(in, shortestWait), poll), nil
}

// plan notes when the worker will look by itself.
func (w *Worker) plan(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looksAt = at
}

// gather is how long to wait for more attempts to end after a claim that took so long.
func gather(claim time.Duration) time.Duration {
	return min(max(gatherTimes*claim, leastGather), mostGather)
}

// pause waits until there may be something to do.
func (w *Worker) pause(ctx context.Context, rest, claim time.Duration) {
	w.plan(time.Now().Add(rest))
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-w.wake:
	case <-w.freed:
		time.Sleep(gather(claim))
	}
}

// free says what the worker can take now.
func (w *Worker) free() Slots {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, free := w.o.Concurrency, w.o.Concurrency-w.running
	s := Slots{Total: portion(free, all), Each: share(w.firstSlots(), w.running, all), Targets: make(map[uuid.UUID]int, len(w.targets)), Keys: w.o.Vault.KeyIDs()}
	for id, t := range w.targets {
		// What a target has earned outlasts the moments in which nothing is under way, between one claim and the next.
		if t.used == 0 && t.limit >= w.firstSlots() && time.Since(t.ended) > forgetAfter {
			delete(w.targets, id)
			continue
		}
		s.Targets[id] = max(0, share(t.limit, w.running-t.used, all)-t.used)
	}
	return s
}

func (w *Worker) firstSlots() int { return min(firstSlots, w.o.PerTarget) }

// begin notes an attempt as running, and returns the function that makes the attempt.
func (w *Worker) begin(ctx context.Context, work *Work, since time.Time) func() {
	w.mu.Lock()
	w.running++
	t := w.targets[work.Target.ID]
	if t == nil {
		t = &slots{limit: w.firstSlots()}
		w.targets[work.Target.ID] = t
	}
	t.used++
	w.o.Observer.Running(w.running)
	w.mu.Unlock()
	work.meter = &Meter{}
	return func() {
		// What was sent is sent; an attempt whose claim may be another's by now must not go on.
		every := min(w.o.StaleAfter/beatsPerLife, longestBeat)
		ctx, stop := wait.Keep(ctx, wait.Keeping{
			Since: since, Life: w.o.StaleAfter - w.o.StaleAfter*leaseMargin/100, First: every, Every: every, Retry: min(every, errorPause),
			Renew: func(ctx context.Context) error { return w.renew(ctx, Beat{work.Claim, work.meter.Read()}) }, Lost: errClaimLost, TooLate: errClaimLost,
		})
		began := time.Now()
		result := w.traced(ctx, work, since)
		took := time.Since(began)
		w.o.Observer.Attempted(work.Late, took, result.StatusCode)
		crashpoint.Hit(crashpoint.PublishSent)
		w.conclude(ctx, work, result)
		stop(nil)
		w.end(work, result, took)
	}
}

// renew keeps a claim alive, in one transaction with those whose time has come too.
func (w *Worker) renew(ctx context.Context, b Beat) error {
	lost, err := w.beats.Do(ctx, struct{}{}, b)
	switch {
	case lost:
		return errClaimLost
	case err != nil && ctx.Err() == nil:
		w.o.Logger.WarnContext(ctx, "heartbeat of a claim", "publication", b.ID, "error", err)
	}
	return err
}

func (w *Worker) beat(ctx context.Context, _ struct{}, batch []Beat) ([]bool, error) {
	lost, err := w.o.Queue.Heartbeat(ctx, batch)
	out := make([]bool, len(batch))
	for i := range batch {
		out[i] = slices.Contains(lost, batch[i].Claim)
	}
	return out, err
}

// end gives an attempt's slot back.
func (w *Worker) end(work *Work, result Result, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	t := w.targets[work.Target.ID]
	t.used--
	t.limit = nextLimit(t.limit, w.firstSlots(), w.o.PerTarget, result.Class, took)
	t.ended = time.Now()
	w.o.Observer.Running(w.running)
	wait.Signal(w.freed)
}

// traced makes the attempt, under a trace where somebody wants one.
func (w *Worker) traced(ctx context.Context, work *Work, since time.Time) Result {
	if w.o.Trace == nil {
		return w.send(ctx, work, since)
	}
	ctx, end := w.o.Trace(ctx, string(work.Target.Kind), work.Target.ID, work.ID, work.Version, work.Late)
	result := w.send(ctx, work, since)
	var err error
	if result.Class != Delivered {
		err = errors.New(result.Error)
	}
	end(result.StatusCode, err)
	return result
}

// send makes the attempt, whose claim was asked for at since.
func (w *Worker) send(ctx context.Context, work *Work, since time.Time) Result {
	sender := w.o.Senders[work.Target.Kind]
	if sender == nil {
		return Result{Class: Permanent, Error: ErrUnsupportedKind.Error()}
	}
	d := &Delivery{
		Publication: work.ID, Version: work.Version, At: work.ClaimedAt.Add(time.Since(since)),
		Target: work.Target, Payload: work.Payload, Progress: work.Progress,
		Save: func(ctx context.Context, progress []byte) error {
			return w.o.Queue.SaveProgress(ctx, work.Claim, progress)
		},
		Meter: work.meter,
	}
	if err := d.Unseal(ctx, w.o.Vault, w.o.Logger); err != nil {
		w.o.Logger.ErrorContext(ctx, "a target's secret cannot be read", "target", work.Target.ID, "error", err)
		return Unreadable()
	}
	return Deliver(ctx, sender, d)
}

// lateTries is how often conclude tries once the claim is over: all that it can note then is that the attempt was refused. A process that was stopped finds
// its connections broken first.
const lateTries = 3

// conclude records what came of an attempt. It goes on trying while the claim under lease may be in force, and a few times after that: what is not
// recorded is sent again.
func (w *Worker) conclude(lease context.Context, work *Work, result Result) {
	ctx := context.WithoutCancel(lease)
	c := Conclusion{
		Claim: work.Claim, Verdict: Conclude(result, work.Try, w.o.Policy, draw), Result: result,
		Target: work.Target.ID, Slowed: work.Target.Pace.Slowed(),
	}
	for late := 0; ; {
		recorded, err := w.ends.Do(ctx, struct{}{}, c)
		if err == nil {
			if recorded != "" {
				w.o.Observer.Recorded(work.Target.ID, recorded)
			}
			w.report(ctx, work, result, c.Verdict, recorded)
			return
		}
		w.o.Logger.WarnContext(ctx, "record an attempt", "publication", work.ID, "version", work.Version, "error", err)
		if lease.Err() != nil {
			late++
		}
		if errors.Is(err, groupcommit.ErrClosed) || w.ending.Load() || late >= lateTries {
			return // Its claim goes stale, and is attempted again.
		}
		time.Sleep(errorPause)
	}
}

func (w *Worker) report(ctx context.Context, work *Work, result Result, v Verdict, recorded AttemptResult) {
	if v.Pause && recorded == ResultFailed {
		w.o.Logger.WarnContext(ctx, "target paused: its authorization has expired", "target", work.Target.ID)
	}
	level := slog.LevelDebug
	if recorded == ResultRefused || v.Status == StatusFailed {
		level = slog.LevelWarn
	}
	w.o.Logger.Log(ctx, level, "publication attempted", "publication", work.ID, "target", work.Target.ID, "version", work.Version,
		"result", string(recorded), "status", string(v.Status), "status_code", result.StatusCode, "error", result.Error)
}

// sweep releases stale claims, and seals what is under an old key under the new one, so that the old one can go.
func (w *Worker) sweep(ctx context.Context) {
	switch n, err := w.o.Queue.Reseal(ctx, w.o.Vault); {
	case err != nil && ctx.Err() == nil:
		w.o.Logger.WarnContext(ctx, "seal secrets under the new key", "error", err)
	case n > 0:
		w.o.Logger.InfoContext(ctx, "secrets sealed under the new key", "count", n)
	}
	switch n, err := w.o.Queue.ReleaseStale(ctx, w.o.StaleAfter); {
	case err != nil && ctx.Err() == nil:
		w.o.Logger.WarnContext(ctx, "release stale claims", "error", err)
	case n > 0:
		w.o.Observer.Released(n)
		w.o.Logger.InfoContext(ctx, "stale claims released", "count", n)
		wait.Signal(w.wake)
	}
}

// record commits the ends of attempts that have gathered.
func (w *Worker) record(ctx context.Context, _ struct{}, batch []Conclusion) ([]AttemptResult, error) {
	return w.o.Queue.Conclude(ctx, batch, func(c *Conclusion, p Pace, now time.Time) Pace {
		if c.Throttled {
			return p.Refused(c.ID, c.RetryAfter, now, w.o.Policy, draw)
		}
		return p.Eased(w.o.Policy)
	})
}

// nobody is the observer that does nothing.
type nobody struct{}

func (nobody) Claimed(int, time.Duration)                  {}
func (nobody) Attempted(time.Duration, time.Duration, int) {}
func (nobody) Recorded(uuid.UUID, AttemptResult)           {}
func (nobody) Running(int)                                 {}
func (nobody) Released(int)                                {}
func (nobody) Overdue(time.Duration)                       {}
func (nobody) Fired(Outcome, time.Duration)                {}
