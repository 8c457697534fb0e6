package groupcommit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestPropertyListsStayTogether queues lists beside single commands, on lanes that overlap, with commands that fail and callers who
// leave: each list is in one batch, or in the halves of one, in its order, and each of its commands gets one outcome, its own.
func TestPropertyListsStayTogether(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := Options{
			MaxQueue: rapid.IntRange(1, 30).Draw(rt, "MaxQueue"), MaxBatch: rapid.IntRange(1, 9).Draw(rt, "MaxBatch"),
			Overlap: rapid.IntRange(0, 2).Draw(rt, "Overlap"), MinOverlap: rapid.IntRange(0, 3).Draw(rt, "MinOverlap"),
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 12), 1, 30).Draw(rt, "sizes")
		pauses := rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 300, 1100}), len(sizes), len(sizes)).Draw(rt, "pauses_us")
		patience := rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 0, 150, 1250, 4450}), len(sizes), len(sizes)).Draw(rt, "patience_us")
		turn := rapid.SampledFrom([]time.Duration{0, 0, 2500 * time.Microsecond}).Draw(rt, "turn")
		poisonous := rapid.SliceOfN(rapid.IntRange(0, 200), 0, 4).Draw(rt, "poisonous")
		synctest.Test(t, func(t *testing.T) {
			var (
				mu      sync.Mutex
				flushed [][]int         // that succeeded, in the order of their ends
				tried   = map[int]int{} // a command's first flush
				flushes int
				callers sync.WaitGroup
			)
			g := New(func(_ context.Context, _ string, batch []int) ([]int, error) {
				mu.Lock()
				flushes++
				for _, id := range batch {
					tried[id] = cmp.Or(tried[id], flushes)
				}
				mu.Unlock()
				time.Sleep(time.Millisecond)
				for _, id := range batch {
					if slices.Contains(poisonous, id) {
						return nil, poison(id)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				flushed = append(flushed, slices.Clone(batch))
				doubled := make([]int, len(batch))
				for i, id := range batch {
					doubled[i] = 2 * id
				}
				return doubled, nil
			}, o)
			g.Admit(func(context.Context, string) bool {
				time.Sleep(turn)
				return turn > 0
			})
			lists, outcomes := make([][]int, len(sizes)), make([][]Outcome[int], len(sizes))
			next := 0
			for i, size := range sizes {
				time.Sleep(time.Duration(pauses[i]) * time.Microsecond)
				for range size {
					lists[i] = append(lists[i], next)
					next++
				}
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if patience[i] > 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(patience[i])*time.Microsecond)
				}
				callers.Go(func() {
					defer cancel()
					outcomes[i] = g.DoAll(ctx, "lane", lists[i])()
				})
				synctest.Wait() // The lists arrive in their order.
			}
			callers.Wait()
			if err := g.Close(t.Context()); err != nil {
				rt.Error(err)
			}
			wantIdle(t, g)
			order := map[int]int{} // a command's place among all that were committed
			for _, batch := range flushed {
				for _, id := range batch {
					if _, twice := order[id]; twice {
						rt.Errorf("command %d was committed twice", id)
					}
					order[id] = len(order)
				}
			}
			for i, list := range lists {
				if want := min(len(list), o.MaxBatch, o.MaxQueue); len(outcomes[i]) != want {
					rt.Fatalf("%d outcomes for a list of %d, want %d", len(outcomes[i]), len(list), want)
				}
				last := -1
				for at, got := range outcomes[i] {
					if tried[list[at]] != tried[list[0]] {
						rt.Errorf("commands of list %v were tried in batches of their own", list)
					}
					if err := checkListed(list[at], got, order, poisonous); err != nil {
						rt.Error(err)
					}
					place, committed := order[list[at]]
					if committed && place < last {
						rt.Errorf("list %v was committed out of its order", list)
					}
					if committed {
						last = place
					}
				}
			}
		})
	})
}

// checkListed compares an outcome with what was committed.
func checkListed(id int, got Outcome[int], order map[int]int, poisonous []int) error {
	_, committed := order[id]
	switch {
	case got.Err == nil && (!committed || got.Result != 2*id):
		return fmt.Errorf("command %d: result %d, committed %v", id, got.Result, committed)
	case errors.Is(got.Err, ErrInFlight): // Its caller has left, and either may be.
	case got.Err != nil && committed:
		return fmt.Errorf("command %d: %w, but it was committed", id, got.Err)
	case slices.Contains(poisonous, id) && got.Err == nil:
		return fmt.Errorf("command %d is poisonous, and succeeded", id)
	}
	return nil
}

// TestListsAreTakenWhole leaves a list that does not fit into a batch to the next one.
func TestListsAreTakenWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]int
		g := New(func(_ context.Context, key string, batch []int) ([]int, error) {
			if key == "b" {
				return batch, nil
			}
			batches = append(batches, slices.Clone(batch))
			time.Sleep(time.Millisecond)
			return batch, nil
		}, Options{MaxBatch: 4, MaxQueue: 6})
		first := g.DoAll(t.Context(), "a", []int{1})
		synctest.Wait() // It is being flushed, and what follows waits.
		second, third := g.DoAll(t.Context(), "a", []int{2, 3}), g.DoAll(t.Context(), "a", []int{4, 5, 6})
		for _, o := range g.DoAll(t.Context(), "a", []int{7, 8})() { // There is room for one.
			if !errors.Is(o.Err, ErrFull) {
				t.Errorf("got %v, want ErrFull", o.Err)
			}
		}
		if got := len(g.DoAll(t.Context(), "b", []int{1, 2, 3, 4, 5})()); got != 4 {
			t.Errorf("%d outcomes, want those of a batch of 4", got)
		}
		first()
		second()
		third()
		if got := fmt.Sprint(batches); got != "[[1] [2 3] [4 5 6]]" {
			t.Errorf("batches %s", got)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for _, o := range g.DoAll(t.Context(), "a", []int{1})() {
			if !errors.Is(o.Err, ErrClosed) {
				t.Errorf("got %v, want ErrClosed", o.Err)
			}
		}
		if got := g.DoAll(t.Context(), "a", nil)(); len(got) != 0 {
			t.Errorf("outcomes of nothing: %v", got)
		}
	})
}

// TestBatchesAreBoundedByWeight: commands weigh what they say, lists stay whole, and one that is too heavy for a batch is one by itself.
func TestBatchesAreBoundedByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]int
		g := New(func(_ context.Context, _ string, batch []int) ([]int, error) {
			batches = append(batches, slices.Clone(batch))
			time.Sleep(time.Millisecond)
			return batch, nil
		}, Options{MaxBatch: 10})
		g.Weigh(func(cmd int) int { return cmd })
		waits := []func() []Outcome[int]{g.DoAll(t.Context(), "a", []int{1})}
		synctest.Wait() // It is being flushed, and what follows waits.
		for _, list := range [][]int{{4, 5}, {1}, {2}, {12}, {3, 3, 3}, {2}, {6, 4, 1}} {
			waits = append(waits, g.DoAll(t.Context(), "a", list))
		}
		var answered []int
		for _, wait := range waits {
			outcomes := wait()
			answered = append(answered, len(outcomes))
			for _, o := range outcomes {
				if o.Err != nil {
					t.Error(o.Err)
				}
			}
		}
		// The last list is longer than a batch: its end is the caller's to queue again.
		if got := fmt.Sprint(answered); got != "[1 2 1 1 1 3 1 2]" {
			t.Errorf("answers %s", got)
		}
		if got := fmt.Sprint(batches); got != "[[1] [4 5 1] [2] [12] [3 3 3] [2] [6 4]]" {
			t.Errorf("batches %s", got)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
