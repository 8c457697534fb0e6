package groupcommit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call is one call of a fake flush.
type call struct {
	key   string
	batch []int
}

// store is a fake flush that records its calls, and holds each until the test steps it if it has gates.
type store struct {
	mu     sync.Mutex
	calls  []call
	gates  map[string]chan struct{} // by key; a key without one is not held
	decide func(ctx context.Context, batch []int) ([]int, error)
}

// held makes a store that holds the flushes of the keys given.
func held(keys ...string) *store {
	s := &store{gates: map[string]chan struct{}{}, decide: double}
	for _, k := range keys {
		s.gates[k] = make(chan struct{})
	}
	return s
}

func double(_ context.Context, batch []int) ([]int, error) {
	out := make([]int, len(batch))
	for i, c := range batch {
		out[i] = 2 * c
	}
	return out, nil
}

func (s *store) flush(ctx context.Context, key string, batch []int) ([]int, error) {
	s.mu.Lock()
	s.calls = append(s.calls, call{key, slices.Clone(batch)})
	gate := s.gates[key]
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return s.decide(ctx, batch)
}

// step lets one held flush of the key go on and waits until everything has settled.
func (s *store) step(key string) {
	s.gates[key] <- struct{}{}
	synctest.Wait()
}

// open stops holding the key's flushes, a running one included.
func (s *store) open(key string) {
	s.mu.Lock()
	gate := s.gates[key]
	s.gates[key] = nil
	s.mu.Unlock()
	close(gate)
	synctest.Wait()
}

func (s *store) batches(key string) [][]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out [][]int
	for _, c := range s.calls {
		if c.key == key {
			out = append(out, c.batch)
		}
	}
	return out
}

// answer is what one Do returned; it is read once nobody writes it any more.
type answer struct {
	count  int
	result int
	err    error
}

// submit runs Do in a goroutine of its own and returns once the command is queued or answered, so that
// commands arrive in the order of the calls. It needs a synctest bubble.
func submit(ctx context.Context, g *Group[string, int, int], key string, cmd int) *answer {
	a := &answer{}
	go func() {
		result, err := g.Do(ctx, key, cmd)
		a.result, a.err = result, err
		a.count++
	}()
	synctest.Wait()
	return a
}

func submitAll(t *testing.T, g *Group[string, int, int], key string, cmds ...int) []*answer {
	t.Helper()
	out := make([]*answer, len(cmds))
	for i, c := range cmds {
		out[i] = submit(t.Context(), g, key, c)
	}
	return out
}

func wantResult(t *testing.T, a *answer, want int) {
	t.Helper()
	if a.count != 1 || a.err != nil || a.result != want {
		t.Errorf("got %d answers, result %d, error %v; want one, %d, nil", a.count, a.result, a.err, want)
	}
}

// wantErr checks that a was answered once with an error that matches every one of want.
func wantErr(t *testing.T, a *answer, want ...error) {
	t.Helper()
	if a.count != 1 {
		t.Errorf("got %d answers, want one", a.count)
	}
	for _, w := range want {
		if !errors.Is(a.err, w) {
			t.Errorf("got error %v, want %v", a.err, w)
		}
	}
}

func wantUnanswered(t *testing.T, a *answer) {
	t.Helper()
	if a.count != 0 {
		t.Errorf("got an answer (%d, %v), want none yet", a.result, a.err)
	}
}

func wantBatches(t *testing.T, got [][]int, want ...[]int) {
	t.Helper()
	if !slices.EqualFunc(got, want, slices.Equal[[]int]) {
		t.Errorf("flushed %v, want %v", got, want)
	}
}

// wantHeld checks how many commands wait, how many lanes have work, and how many of these are being flushed.
func wantHeld(t *testing.T, g *Group[string, int, int], waiting, lanes, busy int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	gotWaiting, gotBusy := 0, 0
	for _, ln := range g.lanes {
		gotWaiting += len(ln.queue)
		gotBusy += min(1, len(ln.batches))
	}
	if gotWaiting != waiting || len(g.lanes) != lanes || gotBusy != busy {
		t.Errorf("%d commands wait, %d lanes, %d busy; want %d, %d, %d", gotWaiting, len(g.lanes), gotBusy, waiting, lanes, busy)
	}
}

// wantIdle checks that nothing is left: no command, no lane, no goroutine.
func wantIdle(t *testing.T, g *Group[string, int, int]) {
	t.Helper()
	synctest.Wait()
	wantHeld(t, g, 0, 0, 0)
	if len(g.ready) != 0 || g.workers != 0 {
		t.Errorf("an idle group has %d ready lanes, %d workers", len(g.ready), g.workers)
	}
}
