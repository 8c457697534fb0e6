// Command contend is one process of contenders for locks: some goroutines that acquire and release, again and again, by
// one of the libraries that are compared. The benchmarks start as many of it as a turn has processes, wait until each has
// said "ready", and tell all to begin by a line on their standard input. Its standard output then has one [Report].
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
	"syscall"
	"time"
)

// options are what one process is asked for.
type options struct {
	side    string
	store   string // where the locks are: a PostgreSQL URL, an etcd endpoint, a Redis address or Unix socket
	workers int
	first   int  // number of the first worker, among those of all processes
	own     bool // each worker has a key of its own
	pool    int  // connections, for the sides that have a pool; 0 means the side's default
	prefix  string
	warmup  time.Duration
	measure time.Duration
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("contend", flag.ContinueOnError)
	f.StringVar(&o.side, "side", "", "which library; see the source")
	f.StringVar(&o.store, "store", "", "where the locks are kept")
	f.IntVar(&o.workers, "workers", 1, "goroutines that acquire and release")
	f.IntVar(&o.first, "first", 0, "number of the first of them, among those of all processes")
	f.BoolVar(&o.own, "own", false, "each has a key of its own")
	f.IntVar(&o.pool, "pool", 0, "connections; 0 is the side's default")
	f.StringVar(&o.prefix, "prefix", "bench", "prefix of the keys")
	f.DurationVar(&o.warmup, "warmup", time.Second, "unmeasured beginning")
	f.DurationVar(&o.measure, "measure", 3*time.Second, "measured part")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if o.workers < 1 || o.measure <= 0 {
		return nil, errors.New("at least one worker and some time are needed")
	}
	return o, nil
}

// key is what a worker locks.
func (o *options) key(worker int) string {
	if o.own {
		return fmt.Sprintf("%s-%d", o.prefix, worker)
	}
	return o.prefix
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "contend:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	s, err := open(ctx, o)
	if err != nil {
		return fmt.Errorf("open %s: %w", o.side, err)
	}
	defer s.close()
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the signal: %w", err)
	}
	report, err := contend(ctx, o, s)
	if err != nil {
		return fmt.Errorf("%s: %w", o.side, err)
	}
	return json.NewEncoder(out).Encode(report)
}
