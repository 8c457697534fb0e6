package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// patience bounds the wait for something that should happen soon.
const patience = 30 * time.Second

// Harness is a store under test.
type Harness struct {
	Store checkpoint.Store
	// Plant puts bytes where the state of an operation would be, whatever they are.
	Plant func(tb testing.TB, key checkpoint.Key, body []byte)
	// Forget makes the store lose all it has, as a flush does.
	Forget func(tb testing.TB)
	// Break makes the store unreachable until mend is called. It may be nil.
	Break func(tb testing.TB) (mend func())
}

// Run runs the suite. Each test gets a harness of its own, whose store is empty.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"missing is nil", testMissing},
		{"kept byte for byte", testKept},
		{"guarded", testGuarded},
		{"one of many", testOneOfMany},
		{"lost", testLost},
		{"expiry", testExpiry},
		{"keys apart", testKeysApart},
		{"cancelled", testCancelled},
		{"unreachable", testUnreachable},
		{"corrupt", testCorrupt},
		{"interrupted anywhere", testInterrupted},
		{"zombie", testZombie},
		{"forgotten meanwhile", testForgotten},
		{"roll-back", testRollback},
		{"too large", testTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

func key(id string) checkpoint.Key { return checkpoint.Key{LockKey: "user_123:daily", ID: id} }

// save makes a save that a store can't tell from a state.
func save(revision, token int64, run, content string) *checkpoint.Save {
	body := fmt.Sprintf(`{"version":1,"revision":%d,"token":%d,"run":%q,"content":%q}`, revision, token, run, content)
	return &checkpoint.Save{
		Head: checkpoint.Head{Revision: revision, Token: token, Run: run}, Body: []byte(body), TTL: time.Hour,
	}
}

func wantBody(t *testing.T, s checkpoint.Store, key checkpoint.Key, want *checkpoint.Save) {
	t.Helper()
	body, err := s.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case want == nil && body != nil:
		t.Errorf("there is %s", body)
	case want != nil && !bytes.Equal(body, want.Body):
		t.Errorf("there is %s, not %s", body, want.Body)
	}
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func testMissing(t *testing.T, h Harness) {
	t.Helper()
	body, err := h.Store.Load(t.Context(), key("none"))
	if err != nil || body != nil {
		t.Errorf("%q, %v", body, err)
	}
	testwait.Must(t, h.Store.Delete(t.Context(), key("none")))
	r := runner(t, h.Store, checkpoint.Options{})
	if s, err := r.Load(t.Context(), key("none")); err != nil || s != nil {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = r.Resume(t.Context(), key("none"), checkpoint.Call{})
	wantError(t, "resume", err, checkpoint.ErrNotFound)
	_, err = r.Rollback(t.Context(), key("none"), checkpoint.Call{})
	wantError(t, "roll back", err, checkpoint.ErrNotFound)
}

func testKept(t *testing.T, h Harness) {
	t.Helper()
	first := save(1, 5, "a", "\x00 é \U0001F3B2 '\"\\ \r\n")
	testwait.Must(t, h.Store.Save(t.Context(), key("k"), first))
	wantBody(t, h.Store, key("k"), first)
	second := save(2, 5, "a", string(bytes.Repeat([]byte("large "), 300_000)))
	testwait.Must(t, h.Store.Save(t.Context(), key("k"), second))
	wantBody(t, h.Store, key("k"), second)
	testwait.Must(t, h.Store.Delete(t.Context(), key("k")))
	wantBody(t, h.Store, key("k"), nil)
	testwait.Must(t, h.Store.Save(t.Context(), key("k"), first))
	wantBody(t, h.Store, key("k"), first)
}

func testGuarded(t *testing.T, h Harness) {
	t.Helper()
	k := key("g")
	try := func(s *checkpoint.Save) error { return h.Store.Save(t.Context(), k, s) }
	testwait.Must(t, try(save(1, 9, "a", "one")))
	testwait.Must(t, try(save(1, 9, "a", "one"))) // Its answer was lost, and it is sent again.
	two := save(2, 10, "b", "two")                // A new tenure goes on.
	testwait.Must(t, try(two))
	testwait.Must(t, try(two))
	for what, s := range map[string]*checkpoint.Save{
		"the old token":                     save(3, 9, "a", "x"),
		"an old token with fewer digits":    save(3, 2, "a", "x"),
		"the same revision of another run":  save(2, 10, "c", "x"),
		"the same revision, a newer token":  save(2, 11, "c", "x"),
		"a gap":                             save(4, 10, "b", "x"),
		"a revision before":                 save(1, 10, "b", "x"),
		"the first one, of another tenure":  save(1, 99, "c", "x"),
		"a token that floats cannot hold":   save(3, 8, "b", "x"),
		"the revision before, the same run": save(1, 9, "a", "one"),
	} {
		err := try(s)
		fenced, ok := errors.AsType[*checkpoint.FencedError](err)
		if !ok || fenced.Seen != two.Head || fenced.Want != s.Head || fenced.Key != k || !errors.Is(err, checkpoint.ErrFenced) {
			t.Errorf("%s: %v", what, err)
		}
	}
	wantBody(t, h.Store, k, two)
	// Tokens are integers of 63 bits, none of them lost.
	const huge = int64(1)<<62 + 1
	three := save(3, huge, "d", "three")
	testwait.Must(t, try(three))
	wantError(t, "a token that is smaller by one", try(save(4, huge-1, "b", "x")), checkpoint.ErrFenced)
	wantBody(t, h.Store, k, three)
}

// testOneOfMany lets many make the next save at once: one of them does, each time.
func testOneOfMany(t *testing.T, h Harness) {
	t.Helper()
	const writers, rounds = 8, 20
	for revision := int64(1); revision <= rounds; revision++ {
		var (
			all  sync.WaitGroup
			mu   sync.Mutex
			won  []string
			odds []error
		)
		for w := range writers {
			all.Go(func() {
				s := save(revision, 1, fmt.Sprintf("run-%d", w), fmt.Sprint(revision, w))
				err := h.Store.Save(t.Context(), key("race"), s)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, string(s.Body))
				} else if !errors.Is(err, checkpoint.ErrFenced) {
					odds = append(odds, err)
				}
			})
		}
		all.Wait()
		body, err := h.Store.Load(t.Context(), key("race"))
		if err != nil || len(won) != 1 || string(body) != won[0] || len(odds) > 0 {
			t.Fatalf("revision %d: %q won, there is %q, %v, %v", revision, won, body, err, odds)
		}
	}
}

func testLost(t *testing.T, h Harness) {
	t.Helper()
	k := key("l")
	testwait.Must(t, h.Store.Save(t.Context(), k, save(1, 1, "a", "one")))
	testwait.Must(t, h.Store.Save(t.Context(), k, save(2, 1, "a", "two")))
	h.Forget(t)
	wantBody(t, h.Store, k, nil)
	wantError(t, "a save after the loss", h.Store.Save(t.Context(), k, save(3, 1, "a", "three")), checkpoint.ErrLost)
	wantBody(t, h.Store, k, nil)
	testwait.Must(t, h.Store.Save(t.Context(), k, save(1, 1, "b", "anew")))
}

func testExpiry(t *testing.T, h Harness) {
	t.Helper()
	k := key("e")
	s := save(1, 1, "a", "one")
	s.TTL, s.Ended = 300*time.Millisecond, true
	began := time.Now()
	testwait.Must(t, h.Store.Save(t.Context(), k, s))
	testwait.Eventually(t, patience, "the state expires", func() bool { return body(t, h.Store, k) == nil })
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("it expired after %s", took)
	}
	wantError(t, "a save that follows", h.Store.Save(t.Context(), k, save(2, 1, "a", "two")), checkpoint.ErrLost)
	testwait.Must(t, h.Store.Save(t.Context(), k, save(1, 1, "b", "anew")))
}

func testKeysApart(t *testing.T, h Harness) {
	t.Helper()
	keys := []checkpoint.Key{
		{LockKey: "a", ID: "b"},
		{LockKey: "a:b", ID: "b"},
		{LockKey: "b", ID: "a"},
		{LockKey: "a", ID: "b."},
		{LockKey: "Ä {x} *?[", ID: "b"},
		{LockKey: "a%", ID: "B"},
		{LockKey: "a", ID: "B"},
		{LockKey: "'; --", ID: "b"},
	}
	for _, k := range keys {
		testwait.Must(t, h.Store.Save(t.Context(), k, save(1, 1, "a", k.String())))
	}
	for _, k := range keys {
		wantBody(t, h.Store, k, save(1, 1, "a", k.String()))
	}
	testwait.Must(t, h.Store.Delete(t.Context(), keys[0]))
	wantBody(t, h.Store, keys[0], nil)
	wantBody(t, h.Store, keys[1], save(1, 1, "a", keys[1].String()))
}

func testCancelled(t *testing.T, h Harness) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the caller is gone")
	cancel(gone)
	err := h.Store.Save(ctx, key("c"), save(1, 1, "a", "one"))
	if !errors.Is(err, gone) && !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := h.Store.Load(ctx, key("c")); err == nil {
		t.Error("loaded under a context that has ended")
	}
	wantBody(t, h.Store, key("c"), nil)
}

// testUnreachable breaks the store: what is asked of it then is tried again, reported, and never half done.
func testUnreachable(t *testing.T, h Harness) {
	t.Helper()
	if h.Break == nil {
		t.Skip("it is always reachable")
	}
	k := key("u")
	testwait.Must(t, h.Store.Save(t.Context(), k, save(1, 1, "a", "one")))
	mend := h.Break(t)
	for op, err := range map[string]error{
		"load": func() error { _, err := h.Store.Load(t.Context(), k); return err }(),
		"save": h.Store.Save(t.Context(), k, save(2, 1, "a", "two")), "delete": h.Store.Delete(t.Context(), k),
	} {
		e, ok := errors.AsType[*checkpoint.ConnectionError](err)
		if !ok || !errors.Is(err, checkpoint.ErrConnection) || e.Op != op || e.Key != k || e.Attempts != 1+checkpoint.Retries || e.Err == nil {
			t.Errorf("%s: %v", op, err)
		}
		if checkpoint.SeverityOf(err) != checkpoint.SeverityTransient {
			t.Errorf("%s: severity %s", op, checkpoint.SeverityOf(err))
		}
	}
	if _, err := runner(t, h.Store, checkpoint.Options{}).Run(t.Context(), k, counting(3), checkpoint.Call{}); !errors.Is(err, checkpoint.ErrConnection) {
		t.Errorf("run: %v", err)
	}
	mend()
	wantBody(t, h.Store, k, save(1, 1, "a", "one"))
	testwait.Must(t, h.Store.Save(t.Context(), k, save(2, 1, "a", "two")))
}
