// Command queue is one turn of the benchmarks of claims: it works off a queue of items that do nothing, or schedules single
// items from many callers, by Fairlead or by River. It prepares its database, says "ready", begins at a line on its standard
// input, and then writes one [Report]. It keeps its connections until the input ends, so that the processor time that they
// have used can be read.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// options are what one turn is asked for.
type options struct {
	side     string
	shape    string
	database string
	items    int
	workers  int
	callers  int
	pool     int
	warmup   time.Duration
	measure  time.Duration
}

// The sides and the shapes.
const (
	sideFairlead = "fairlead"
	sideRiver    = "river"

	shapeWork     = "work"     // items are there, and are claimed and completed
	shapeSchedule = "schedule" // callers schedule single items for later
)

// Report is what a turn measured.
type Report struct {
	Done             int64   `json:"done"`
	Seconds          float64 `json:"seconds"`
	ProcessorSeconds float64 `json:"processor_s"`
}

// payload is what every item carries.
const payload = `{"title":"a picture","body":"a few words that somebody has written about it","tags":["a","b"]}`

// delay is how far ahead callers schedule, further than any run lasts.
const delay = 24 * time.Hour

// turn is a side in a shape: what it does before the start, and what is measured.
type turn interface {
	prepare(ctx context.Context) error
	run(ctx context.Context) (Report, error)
	close()
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("queue", flag.ContinueOnError)
	f.StringVar(&o.side, "side", "", sideFairlead+" or "+sideRiver)
	f.StringVar(&o.shape, "shape", "", shapeWork+" or "+shapeSchedule)
	f.StringVar(&o.database, "database-url", "", "an empty database")
	f.IntVar(&o.items, "items", 40_000, "items to work off")
	f.IntVar(&o.workers, "workers", 1000, "items that may be under way at a time")
	f.IntVar(&o.callers, "callers", 64, "callers that schedule")
	f.IntVar(&o.pool, "pool", 16, "connections")
	f.DurationVar(&o.warmup, "warmup", time.Second, "unmeasured beginning of scheduling")
	f.DurationVar(&o.measure, "measure", 4*time.Second, "measured part of scheduling")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if min(o.items, o.workers, o.callers, o.pool) < 1 || o.measure <= 0 {
		return nil, errors.New("numbers are positive")
	}
	return o, nil
}

func newTurn(o *options) (turn, error) {
	switch o.side + " " + o.shape {
	case sideFairlead + " " + shapeWork:
		return &claimWork{o: o}, nil
	case sideFairlead + " " + shapeSchedule:
		return &publishSchedule{o: o}, nil
	case sideRiver + " " + shapeWork:
		return &riverWork{o: o}, nil
	case sideRiver + " " + shapeSchedule:
		return &riverSchedule{o: o}, nil
	}
	return nil, fmt.Errorf("no turn %q of %q", o.shape, o.side)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "queue:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	t, err := newTurn(o)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.prepare(ctx); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	lines := bufio.NewReader(in)
	if _, err := lines.ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	before := processorSeconds()
	report, err := t.run(ctx)
	if err != nil {
		return err
	}
	report.ProcessorSeconds = processorSeconds() - before
	if err := json.NewEncoder(out).Encode(report); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, lines)
	return err
}

// open returns a pool of connections, all of them open.
func open(ctx context.Context, o *options) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(o.database)
	if err != nil {
		return nil, err
	}
	c.MaxConns, c.MinConns = int32(o.pool), int32(o.pool) //nolint:gosec // A few dozen.
	return pgxpool.NewWithConfig(ctx, c)
}

// meter times the working off of a queue: from the first item that is executed until all are completed in the database.
type meter struct {
	once  sync.Once
	began time.Time
	done  atomic.Int64
}

// item executes an item, which does nothing but count.
func (m *meter) item() {
	m.once.Do(func() { m.began = time.Now() })
	m.done.Add(1)
}

func (m *meter) report() Report {
	return Report{Done: m.done.Load(), Seconds: time.Since(m.began).Seconds()}
}

// schedule lets the callers schedule one item after the other for a time, and counts those that were acknowledged in it.
func schedule(ctx context.Context, o *options, measure time.Duration, one func(ctx context.Context, at time.Time) error) (Report, error) {
	var (
		wg    sync.WaitGroup
		done  atomic.Int64
		first atomic.Pointer[error]
		began = time.Now()
	)
	for range o.callers {
		wg.Go(func() {
			for time.Since(began) < measure {
				if err := one(ctx, time.Now().Add(delay)); err != nil {
					first.CompareAndSwap(nil, &err)
					return
				}
				if time.Since(began) < measure {
					done.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if err := first.Load(); err != nil {
		return Report{}, *err
	}
	return Report{Done: done.Load(), Seconds: measure.Seconds()}, nil
}

// settle brings the statistics up to date and clears the log, so that neither side pays for its preparation.
func settle(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, "VACUUM (ANALYZE)"); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "CHECKPOINT")
	return err
}

// processorSeconds is what this process has used so far.
func processorSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
