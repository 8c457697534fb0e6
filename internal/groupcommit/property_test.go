package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// scripted is one command of a random script, and what became of it.
type scripted struct {
	id       int // its place in the script, which is the order of arrival
	key      string
	kind     int           // fine, failing or panicking
	pause    time.Duration // before it is submitted
	patience time.Duration // of its caller; 0 is for ever

	full   bool // its lane held MaxQueue commands when it came
	answer *answer
}

const (
	fine = iota
	failing
	panicking
)

// attempted is one flush of a script.
type attempted struct {
	key string
	ids []int
	err error // nil on success; a panic is a PanicError
}

// run plays the script on the clock of a bubble; every flush takes a millisecond.
func run(t *testing.T, o Options, script []*scripted) (history []attempted, trouble []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		active := map[string]int{}
		busy := 0
		mu := make(chan struct{}, 1)
		g := New(func(ctx context.Context, key string, batch []int) ([]int, error) {
			mu <- struct{}{}
			if active[key]++; active[key] > 1+o.Overlap {
				trouble = append(trouble, fmt.Sprintf("%d flushes of %s at once", active[key], key))
			}
			if busy++; busy > o.MaxLanesBusy {
				trouble = append(trouble, fmt.Sprintf("%d flushes at once", busy))
			}
			at := len(history)
			history = append(history, attempted{key: key, ids: slices.Clone(batch)})
			<-mu
			time.Sleep(time.Millisecond)
			mu <- struct{}{}
			defer func() { <-mu }()
			active[key]--
			busy--
			for _, id := range batch {
				switch script[id].kind {
				case failing:
					history[at].err = poison(id)
					return nil, poison(id)
				case panicking:
					history[at].err = poison(id)
					panic(poison(id))
				}
			}
			return double(ctx, batch)
		}, o)
		for _, c := range script {
			time.Sleep(c.pause)
			synctest.Wait()
			ctx := t.Context()
			if c.patience > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.patience)
				defer cancel()
			}
			g.mu.Lock()
			if ln := g.lanes[c.key]; ln != nil {
				c.full = len(ln.queue) == o.MaxQueue
				if len(ln.queue) > o.MaxQueue {
					trouble = append(trouble, "queue longer than its limit")
				}
			}
			g.mu.Unlock()
			c.answer = submit(ctx, g, c.key, c.id)
		}
		if err := g.Close(t.Context()); err != nil {
			trouble = append(trouble, err.Error())
		}
		wantIdle(t, g)
	})
	return history, trouble
}

func TestPropertyOrderAndExactlyOneAnswer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := Options{
			MaxQueue:     rapid.IntRange(1, 12).Draw(rt, "MaxQueue"),
			MaxBatch:     rapid.IntRange(1, 9).Draw(rt, "MaxBatch"),
			MaxLanesBusy: rapid.IntRange(1, 3).Draw(rt, "MaxLanesBusy"),
			Overlap:      rapid.IntRange(0, 2).Draw(rt, "Overlap"),
			MinOverlap:   rapid.IntRange(0, 3).Draw(rt, "MinOverlap"),
		}
		script := make([]*scripted, rapid.IntRange(1, 60).Draw(rt, "commands"))
		for i := range script {
			script[i] = &scripted{
				id:       i,
				key:      rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "key"),
				kind:     rapid.SampledFrom([]int{fine, fine, fine, fine, failing, panicking}).Draw(rt, "kind"),
				pause:    time.Duration(rapid.SampledFrom([]int{0, 0, 0, 0, 300, 1100}).Draw(rt, "pause_us")) * time.Microsecond,
				patience: time.Duration(rapid.SampledFrom([]int{0, 0, 0, 150, 1250, 4450}).Draw(rt, "patience_us")) * time.Microsecond,
			}
		}
		history, trouble := run(t, o, script)
		for _, s := range trouble {
			rt.Error(s)
		}
		tried, succeeded := checkHistory(rt, o, history)
		for _, c := range script {
			checkAnswer(rt, c, tried[c.id], succeeded[c.id])
		}
	})
}

// checkHistory checks the order of flushes and counts, for each command, how often it was tried and how
// often it was in a flush that succeeded.
func checkHistory(rt *rapid.T, o Options, history []attempted) (tried, succeeded map[int]int) {
	tried, succeeded = map[int]int{}, map[int]int{}
	lastSettled := map[string]int{}
	for _, f := range history {
		if len(f.ids) == 0 || len(f.ids) > o.MaxBatch {
			rt.Errorf("flush of %d commands", len(f.ids))
		}
		for i, id := range f.ids {
			tried[id]++
			if i > 0 && f.ids[i-1] >= id {
				rt.Errorf("batch out of order: %v", f.ids)
			}
		}
		if f.err == nil {
			for _, id := range f.ids {
				succeeded[id]++
			}
		}
		if o.Overlap == 0 && (f.err == nil || len(f.ids) == 1) { // The commands are answered now, in the order of arrival.
			if last, ok := lastSettled[f.key]; ok && f.ids[0] <= last {
				rt.Errorf("key %s: %v settled after %d", f.key, f.ids, last)
			}
			lastSettled[f.key] = f.ids[len(f.ids)-1]
		}
	}
	return tried, succeeded
}

func checkAnswer(rt *rapid.T, c *scripted, tried, succeeded int) {
	a := c.answer
	if a.count != 1 {
		rt.Fatalf("command %d: %d answers", c.id, a.count)
	}
	inFlight := errors.Is(a.err, ErrInFlight)
	switch {
	case c.full != errors.Is(a.err, ErrFull):
		rt.Errorf("command %d: lane full %v, answer %v", c.id, c.full, a.err)
	case c.full && tried != 0:
		rt.Errorf("command %d: refused, yet tried", c.id)
	case errors.Is(a.err, context.DeadlineExceeded) && (c.patience == 0 || inFlight != (tried > 0)):
		rt.Errorf("command %d: %v, tried %d times", c.id, a.err, tried)
	case c.kind == fine && a.err == nil && (succeeded != 1 || a.result != 2*c.id):
		rt.Errorf("command %d: result %d, committed %d times", c.id, a.result, succeeded)
	case c.kind == fine && inFlight && succeeded != 1:
		rt.Errorf("command %d: taken, yet committed %d times", c.id, succeeded)
	case c.kind != fine && (a.err == nil || succeeded != 0):
		rt.Errorf("command %d: poisonous, yet %v, committed %d times", c.id, a.err, succeeded)
	}
	if a.err == nil || c.full || errors.Is(a.err, context.DeadlineExceeded) {
		return
	}
	var p *PanicError
	if !errors.Is(a.err, poison(c.id)) || c.kind == fine || errors.As(a.err, &p) != (c.kind == panicking) {
		rt.Errorf("command %d: got another's failure: %v", c.id, a.err)
	}
}

func TestPropertyBisectionIsolatesExactlyThePoisonous(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 70).Draw(rt, "commands")
		cmds, bad := make([]int, n), []int{}
		for i := range cmds {
			cmds[i] = i + 1
			switch rapid.IntRange(0, 9).Draw(rt, "kind") {
			case 0:
				bad = append(bad, cmds[i])
			case 1:
				cmds[i] = -cmds[i] // Panics.
				bad = append(bad, cmds[i])
			}
		}
		var got []*answer
		var flushes [][]int
		synctest.Test(t, func(t *testing.T) { got, flushes = flushTogether(t, Options{}, poisoned(bad...), cmds...) })
		for i, a := range got {
			switch {
			case a.count != 1:
				rt.Errorf("command %d: %d answers", cmds[i], a.count)
			case slices.Contains(bad, cmds[i]) && !errors.Is(a.err, poison(cmds[i])):
				rt.Errorf("poisonous command %d: %v", cmds[i], a.err)
			case !slices.Contains(bad, cmds[i]) && (a.err != nil || a.result != 2*cmds[i]):
				rt.Errorf("fine command %d: %d, %v", cmds[i], a.result, a.err)
			}
		}
		if k := float64(len(bad)); k > 0 && float64(len(flushes)) >= 2*k*(math.Log2(float64(n)/k)+2) {
			rt.Errorf("%d flushes for %d poisonous of %d", len(flushes), len(bad), n)
		} else if k == 0 && len(flushes) != 1 {
			rt.Errorf("%d flushes for one good batch", len(flushes))
		}
	})
}
