package audit_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog/audit"
	"github.com/fairlead-dev/fairlead/translog/audit/audittest"
)

// watching is a Watch under way.
type watching struct {
	reports chan *audit.Report
	warned  chan error
	ended   chan struct{}
	last    *audit.Report
	err     error
	stop    context.CancelFunc
}

func watch(t *testing.T, l *audittest.Log, o audit.Options) *watching {
	t.Helper()
	o.Interval = time.Millisecond
	a := auditor(t, l, o)
	ctx, stop := context.WithCancel(t.Context())
	w := &watching{reports: make(chan *audit.Report), warned: make(chan error, 1), ended: make(chan struct{}), stop: stop}
	go func() {
		defer close(w.ended)
		w.last, w.err = a.Watch(ctx, func(r *audit.Report) { w.reports <- r }, func(err error) {
			select {
			case w.warned <- err:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		stop()
		<-w.ended
	})
	return w
}

const patience = testwait.Patience

func (w *watching) report(t *testing.T) *audit.Report {
	t.Helper()
	select {
	case r := <-w.reports:
		return r
	case <-w.ended:
		t.Fatalf("ended with %v, %+v", w.err, w.last)
	case <-time.After(patience):
		t.Fatal("waited in vain for a report")
	}
	return nil
}

func wait[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatal("waited in vain for ", what)
	}
	return v
}

func TestWatch(t *testing.T) {
	t.Parallel()
	leaves := long()
	l := published(leaves[:300]...)
	state := filepath.Join(t.TempDir(), "state")
	w := watch(t, l, audit.Options{State: state})
	if r := w.report(t); r.Size != 300 || !r.Consistent || r.SeenBefore != nil {
		t.Errorf("%+v", r)
	}
	for _, size := range []int{301, 512, 513, 800} {
		l.Cheat(func(all [][]byte) [][]byte { return all[:0] })
		l.Append(leaves[:size]...)
		l.Publish()
		if r := w.report(t); r.Size != int64(size) || !r.Consistent || r.Counts.Leaves != int64(size) {
			t.Errorf("%+v", r)
		}
	}
	if l.Served("/log/tile/entries/000") != 1 {
		t.Errorf("the first bundle was read %d times", l.Served("/log/tile/entries/000"))
	}

	// The server is away, or something else answers in its place.
	l.Answer(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusBadGateway); return true })
	var read *audit.ReadError
	if err := wait(t, "a warning", w.warned); !errors.As(err, &read) {
		t.Error(err)
	}
	l.Answer(func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write([]byte("hello")); return true })
	testwait.Eventually(t, patience, "another warning", func() bool { return errors.Is(<-w.warned, audit.ErrNotTheLog) })

	// It comes back, loses an answer in the middle of the new leaves, and goes on from there.
	l.Append(leaves[800:]...)
	l.Publish()
	var lost atomic.Bool
	l.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		gone := strings.Contains(r.URL.Path, "/tile/entries/003") && !lost.Swap(true)
		if gone {
			w.WriteHeader(http.StatusNotFound)
		}
		return gone
	})
	if r := w.report(t); r.Size != int64(len(leaves)) || r.Counts.Leaves != r.Size || !lost.Load() {
		t.Errorf("%+v", r)
	}
	kept, err := os.ReadFile(state)
	testwait.Must(t, err)
	if string(kept) != string(l.Checkpoint()) {
		t.Error("the state file is not the newest checkpoint")
	}

	// It cheats.
	l.Append(leaves[len(leaves)-1])
	l.Publish()
	wait(t, "the end", w.ended)
	if w.err != nil || w.last == nil || w.last.Finding == nil || w.last.Finding.Index != int64(len(leaves)) {
		t.Errorf("%+v, %v", w.last, w.err)
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	leaves := long()
	t.Run("by the caller", func(t *testing.T) {
		t.Parallel()
		w := watch(t, published(leaves[:9]...), audit.Options{})
		w.report(t)
		w.stop()
		wait(t, "the end", w.ended)
		if w.err != nil || w.last == nil || !w.last.Consistent {
			t.Errorf("%+v, %v", w.last, w.err)
		}
	})
	t.Run("by a fork", func(t *testing.T) {
		t.Parallel()
		l := published(leaves[:9]...)
		w := watch(t, l, audit.Options{})
		w.report(t)
		l.Cheat(func([][]byte) [][]byte { return nil })
		l.Append(leaves[1:20]...)
		l.Publish()
		wait(t, "the end", w.ended)
		if w.err != nil || w.last.Finding == nil || !strings.HasPrefix(w.last.Finding.What, "root of the first 9") || w.last.Earlier == "" {
			t.Errorf("%+v, %v", w.last, w.err)
		}
	})
	t.Run("by a wrong key", func(t *testing.T) {
		t.Parallel()
		l := published(leaves[:9]...)
		l.Sign("hello\n")
		w := watch(t, l, audit.Options{})
		wait(t, "the end", w.ended)
		if !errors.Is(w.err, audit.ErrNotTheLog) {
			t.Error(w.err)
		}
	})
	t.Run("by a tree that stays smaller", func(t *testing.T) {
		t.Parallel()
		l := published(leaves[:9]...)
		w := watch(t, l, audit.Options{Patience: 50 * time.Millisecond})
		w.report(t)
		l.Cheat(func(all [][]byte) [][]byte { return all[:8] })
		l.Publish()
		var f *audit.Finding
		if err := wait(t, "a warning", w.warned); !errors.As(err, &f) || f.What != "size of the tree" {
			t.Error(err)
		}
		wait(t, "the end", w.ended)
		if w.last.Finding == nil || w.last.Finding.What != "size of the tree" {
			t.Errorf("%+v, %v", w.last, w.err)
		}
	})
	t.Run("not by an old checkpoint", func(t *testing.T) {
		t.Parallel()
		l := published(leaves[:8]...)
		old := l.Checkpoint()
		l.Append(leaves[8])
		l.Publish()
		w := watch(t, l, audit.Options{Patience: time.Hour})
		w.report(t)
		answer(l, "/checkpoint", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(old) })
		_ = wait(t, "a warning", w.warned)
		l.Answer(nil)
		l.Append(leaves[9])
		l.Publish()
		if r := w.report(t); r.Size != 10 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("not by a quorum that comes late", func(t *testing.T) {
		t.Parallel()
		l := published(leaves[:8]...)
		w := watch(t, l, audit.Options{Witnesses: []string{l.NewWitness("late.test")}, Quorum: 1, Patience: time.Hour})
		_ = wait(t, "a warning", w.warned)
		l.Publish()
		if r := w.report(t); !r.Consistent || r.Witnesses[0].At == nil {
			t.Errorf("%+v", r)
		}
	})
}
