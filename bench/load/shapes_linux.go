package load

import (
	"fmt"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a load measured.
type Result struct {
	// Answers counts the answers that were measured, Elapsed is the time they took.
	Answers int64
	Elapsed time.Duration
	// Latencies holds nanoseconds.
	Latencies *hdrhistogram.Histogram
	// Seconds are those of an open load, by the second in which a request was due, with two significant digits.
	Seconds []*hdrhistogram.Histogram
}

// PerSecond returns the throughput.
func (r *Result) PerSecond() float64 { return float64(r.Answers) / r.Elapsed.Seconds() }

// Quantile returns a latency; q is in percent.
func (r *Result) Quantile(q float64) time.Duration {
	return time.Duration(r.Latencies.ValueAtQuantile(q))
}

// Latencies are kept from 1 µs to 10 min.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(time.Microsecond), int64(10*time.Minute), 3)
}

func (r *Result) record(latency int64) error {
	r.Answers++
	if err := r.Latencies.RecordValue(max(latency, int64(time.Microsecond))); err != nil {
		return fmt.Errorf("record a latency: %w", err)
	}
	return nil
}

// recordDue also notes the latency in the second in which it was due, so long after the beginning.
func (r *Result) recordDue(due time.Duration, latency int64) error {
	for second := int(due / time.Second); len(r.Seconds) <= second; {
		r.Seconds = append(r.Seconds, hdrhistogram.New(int64(time.Microsecond), int64(10*time.Minute), 2))
	}
	if err := r.record(latency); err != nil {
		return err
	}
	return r.Seconds[due/time.Second].RecordValue(max(latency, int64(time.Microsecond)))
}

// Race sends requests[i] on connection i, all at once, and waits for all answers. Latencies and Elapsed count from the
// start signal.
func (e *Engine) Race(requests [][]byte, check Check) (*Result, error) {
	r := &Result{Latencies: newHistogram()}
	start := e.now()
	for i, request := range requests {
		if err := e.send(e.conns[i], request, start); err != nil {
			return nil, err
		}
	}
	for e.waiting > 0 {
		if err := e.wait(func(_ int, c *conn, status int, body []byte) error {
			if err := r.record(e.now() - c.since); err != nil {
				return err
			}
			return check(status, body)
		}); err != nil {
			return nil, err
		}
	}
	r.Elapsed = time.Duration(e.now() - start)
	return r, nil
}

// Phases of a closed load: what is answered before Warmup is over isn't measured. Begin and End, when set, are called
// at the borders of what is measured.
type Phases struct {
	Warmup, Measure time.Duration
	Begin, End      func()
}

// Closed keeps every connection busy with what next returns, until the phases are over or, when next returns nil, all
// requests are answered. next's bytes need to be valid only until its next call.
func (e *Engine) Closed(p Phases, next func() []byte, check Check) (*Result, error) {
	r := &Result{Latencies: newHistogram()}
	start := e.now()
	begin, end := start+int64(p.Warmup), start+int64(p.Warmup+p.Measure)
	measuring, over := false, false
	sendNext := func(c *conn, now int64) error {
		request := next()
		if request == nil {
			over = true
			return nil
		}
		return e.send(c, request, now)
	}
	for _, c := range e.conns {
		if over {
			break
		}
		if err := sendNext(c, e.now()); err != nil {
			return nil, err
		}
	}
	for e.waiting > 0 {
		if err := e.wait(func(_ int, c *conn, status int, body []byte) error {
			now := e.now()
			if err := check(status, body); err != nil {
				return err
			}
			switch {
			case !measuring && now >= begin && now < end:
				measuring, begin = true, now
				if p.Begin != nil {
					p.Begin()
				}
			case now < end && measuring:
				if err := r.record(now - c.since); err != nil {
					return err
				}
			case now >= end && !over:
				over = true
				r.Elapsed = time.Duration(now - begin)
				if p.End != nil {
					p.End()
				}
			}
			if over {
				return nil
			}
			return sendNext(c, e.now())
		}); err != nil {
			return nil, err
		}
	}
	if r.Elapsed == 0 {
		r.Elapsed = time.Duration(e.now() - begin)
	}
	return r, nil
}

// Open sends requests at a fixed rate a second, on whichever connection is free, for warmup and then for measure. A
// request for which no connection is free waits, and its waiting counts.
func (e *Engine) Open(ratePerSecond float64, warmup, measure time.Duration, next func() []byte, check Check) (*Result, error) {
	r := &Result{Latencies: newHistogram()}
	idle := slices.Clone(e.conns)
	interval := float64(time.Second) / ratePerSecond
	total := int64((warmup + measure).Seconds() * ratePerSecond)
	start := e.now()
	dueAt := func(k int64) int64 { return start + int64(float64(k)*interval) }
	sent := int64(0)
	for sent < total || e.waiting > 0 {
		for now := e.now(); sent < total && len(idle) > 0 && dueAt(sent) <= now; sent++ {
			// The one that has been idle longest: all take their turn, and none lies idle until the server closes it.
			c := idle[0]
			idle = idle[1:]
			if err := e.send(c, next(), dueAt(sent)); err != nil {
				return nil, err
			}
		}
		if sent < total && len(idle) > 0 {
			if err := e.arm(time.Duration(dueAt(sent) - e.now())); err != nil {
				return nil, err
			}
		}
		if err := e.wait(func(_ int, c *conn, status int, body []byte) error {
			idle = append(idle, c)
			if due := c.since - start - int64(warmup); due >= 0 {
				if err := r.recordDue(time.Duration(due), e.now()-c.since); err != nil {
					return err
				}
			}
			return check(status, body)
		}); err != nil {
			return nil, err
		}
	}
	r.Elapsed = time.Duration(e.now()-start) - warmup
	return r, nil
}
