//go:build unix

package sim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// lockProcessURL makes the test binary a process that locks on that database, as told line by line.
const lockProcessURL = "FAIRLEAD_TEST_LOCK_PROCESS_URL"

// lockCall is a line to the process, and lockReply one from it. Calls are answered as they end, in any order.
type lockCall struct {
	Call    int           `json:"call"`
	Op      string        `json:"op"` // acquire, renew, release, snapshot, cancel
	Request lock.Request  `json:"request,omitzero"`
	ID      string        `json:"id,omitempty"`
	TTL     time.Duration `json:"ttl,omitempty"`
}

type lockReply struct {
	Call     int           `json:"call"`
	Grant    lock.Grant    `json:"grant,omitzero"`
	Snapshot lock.Snapshot `json:"snapshot,omitzero"`
	Error    string        `json:"error,omitempty"`
	Cycle    []string      `json:"cycle,omitempty"`
}

// spoken are the errors that are told by their texts.
func spoken() []error { return []error{lock.ErrHeld, lock.ErrLost, lock.ErrClosed, context.Canceled} }

// pgLocks is a backend in this process, on a server's database.
func pgLocks(tb testing.TB, url string) *pglock.Backend {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	testwait.Must(tb, err)
	b := pglock.New(pool, pglock.Options{})
	tb.Cleanup(func() {
		b.Close()
		pool.Close()
	})
	return b
}

// TestLockProcess is no test: it is the other process of TestLocksOfAllKinds.
func TestLockProcess(t *testing.T) {
	url := os.Getenv(lockProcessURL)
	if url == "" {
		t.Skip("run by another test")
	}
	b := pgLocks(t, url)
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	cancels := map[int]context.CancelFunc{}
	var calls sync.WaitGroup
	defer calls.Wait()
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var c lockCall
		if err := in.Decode(&c); err != nil {
			return // The parent has gone.
		}
		if c.Op == "cancel" {
			mu.Lock()
			cancel := cancels[c.Call]
			mu.Unlock()
			if cancel != nil {
				cancel()
			}
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		mu.Lock()
		cancels[c.Call] = cancel
		mu.Unlock()
		calls.Go(func() {
			defer cancel()
			r := execute(ctx, b, c)
			mu.Lock()
			defer mu.Unlock()
			delete(cancels, c.Call)
			_ = out.Encode(r) // The parent may have gone.
		})
	}
}

func execute(ctx context.Context, b *pglock.Backend, c lockCall) (r lockReply) {
	r.Call = c.Call
	var err error
	switch c.Op {
	case "acquire":
		r.Grant, err = b.Acquire(ctx, c.Request)
	case "renew":
		r.Grant, err = b.Renew(ctx, c.ID, c.TTL)
	case "release":
		err = b.Release(ctx, c.ID)
	case "snapshot":
		r.Snapshot, err = b.Snapshot(ctx)
	}
	if d, ok := errors.AsType[*lock.DeadlockError](err); ok {
		r.Cycle = d.Cycle
	} else if err != nil {
		r.Error = err.Error()
		for _, known := range spoken() {
			if errors.Is(err, known) {
				r.Error = known.Error()
			}
		}
	}
	return r
}

// lockProcess is a backend in another process.
type lockProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	mu      sync.Mutex
	last    int
	pending map[int]chan lockReply
	over    bool
	done    chan struct{}
}

func newLockProcess(tb testing.TB, url string) *lockProcess {
	tb.Helper()
	p := &lockProcess{pending: map[int]chan lockReply{}, done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.Background(), os.Args[0], "-test.run=^TestLockProcess$")
	p.cmd.Env = append(os.Environ(), lockProcessURL+"="+url)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	testwait.Must(tb, err)
	testwait.Must(tb, p.cmd.Start())
	go p.hear(json.NewDecoder(out))
	tb.Cleanup(func() {
		_ = p.in.Close() // It ends by itself then.
		<-p.done
		if err := p.cmd.Wait(); err != nil {
			tb.Errorf("the lock process: %v", err)
		}
	})
	return p
}

func (p *lockProcess) hear(in *json.Decoder) {
	defer close(p.done)
	for {
		var r lockReply
		err := in.Decode(&r) // At its end a test binary says PASS, which is no JSON.
		p.mu.Lock()
		if err != nil {
			p.over = true
			for _, c := range p.pending {
				close(c)
			}
			clear(p.pending)
			p.mu.Unlock()
			return
		}
		if c, ok := p.pending[r.Call]; ok {
			c <- r
			delete(p.pending, r.Call)
		}
		p.mu.Unlock()
	}
}

var errProcessOver = errors.New("the lock process has ended")

func (p *lockProcess) call(ctx context.Context, c lockCall) (lockReply, error) {
	answer := make(chan lockReply, 1)
	if err := p.tell(&c, answer); err != nil {
		return lockReply{}, err
	}
	var r lockReply
	ok := false
	select {
	case r, ok = <-answer:
	case <-ctx.Done():
		if err := p.tell(&lockCall{Call: c.Call, Op: "cancel"}, nil); err != nil {
			return lockReply{}, err
		}
		r, ok = <-answer
	}
	switch {
	case !ok:
		return r, errProcessOver
	case r.Cycle != nil:
		return r, &lock.DeadlockError{Cycle: r.Cycle}
	case r.Error == "":
		return r, nil
	}
	for _, known := range spoken() {
		if r.Error == known.Error() {
			return r, known
		}
	}
	return r, errors.New(r.Error)
}

// tell writes a line; with an answer it is a new call, which is numbered.
func (p *lockProcess) tell(c *lockCall, answer chan lockReply) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return errProcessOver
	}
	if answer != nil {
		p.last++
		c.Call = p.last
		p.pending[c.Call] = answer
	}
	return json.NewEncoder(p.in).Encode(c)
}

// Acquire implements [lock.Backend]. When the lease began after a wait is not known here: it is renewed then.
func (p *lockProcess) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	start := time.Now()
	a, err := p.call(ctx, lockCall{Op: "acquire", Request: r})
	if err != nil {
		return lock.Grant{}, err
	}
	if a.Grant.Start = start; time.Since(start) < lock.Margin(r.TTL) {
		return a.Grant, nil
	}
	g, err := p.Renew(ctx, a.Grant.ID, 0)
	g.Waited = true
	return g, err
}

// Renew implements [lock.Backend].
func (p *lockProcess) Renew(ctx context.Context, id string, ttl time.Duration) (lock.Grant, error) {
	start := time.Now()
	a, err := p.call(ctx, lockCall{Op: "renew", ID: id, TTL: ttl})
	a.Grant.Start = start
	return a.Grant, err
}

// Release implements [lock.Backend].
func (p *lockProcess) Release(ctx context.Context, id string) error {
	_, err := p.call(ctx, lockCall{Op: "release", ID: id})
	return err
}

// Snapshot implements [lock.Inspector].
func (p *lockProcess) Snapshot(ctx context.Context) (lock.Snapshot, error) {
	a, err := p.call(ctx, lockCall{Op: "snapshot"})
	return a.Snapshot, err
}
