// Package storetest is the conformance suite of package checkpoint's stores: every store runs it, its behaviour when it fails
// included.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// Harness is a store under test.
type Harness struct {
	// Prefix begins the lock keys of all operations. It may be empty.
	Prefix string
	Store  checkpoint.Store
	// Plant puts bytes where the state of an operation would be, whatever they are.
	Plant func(key checkpoint.Key, body []byte)
	// Forget makes the store lose all it has, as a flush does.
	Forget func()
	// Break makes the store unreachable until mend is called. It may be nil.
	Break func() (mend func())
}

func tests() conformance.Suite[*suite] {
	of := func(name, tries string, run func(*suite)) conformance.Trial[*suite] {
		return conformance.NewTrial(name, "C1", tries, run)
	}
	return conformance.Suite[*suite]{
		of("kept byte for byte", "states up to the size limit come back byte for byte", (*suite).kept),
		of("guarded", "a save with an old token, a gap or another run's revision is refused", (*suite).guarded),
		of("one of many", "of eight who make the next save at once, one does", (*suite).oneOfMany),
		of("lost", "a save after a loss of the state is refused", (*suite).lost),
		of("expiry", "a state expires at its time, and not before", (*suite).expiry),
		of("keys apart", "states of keys that look alike are kept apart", (*suite).keysApart),
		of("cancelled", "a save under a cancelled context saves nothing", (*suite).cancelled),
		of("unreachable", "while connections are cut, each call is tried again, reported, and not half done", (*suite).unreachable),
		of("corrupt", "what is no state is returned as it is, and not begun anew", (*suite).corrupt),
		of("another program's", "another program's state is replaced only by a save that names its bytes", (*suite).another),
	}
}

// Checks lists what the suite has, in order.
func Checks() []conformance.Check { return tests().Checks() }

// Run runs the suite. Each check gets a harness of its own, whose store has nothing of the harness's keys.
func Run[T conformance.Test[T]](t T, open func(t T) Harness) {
	t.Helper()
	conformance.Run(t, tests(), func(t T, _ conformance.Check) *suite {
		h := open(t)
		return &suite{TB: t, Harness: h, one: checkpoint.Key{LockKey: h.Prefix + "user_123:daily", ID: "op"}}
	})
}

// suite is one check.
type suite struct {
	conformance.TB
	Harness

	one checkpoint.Key
}

// state makes a save that a store can't tell from one of a state.
func state(revision, token int64, run, content string) *checkpoint.Save {
	return &checkpoint.Save{
		Head: checkpoint.Head{Revision: revision, Token: token, Run: run}, TTL: time.Hour,
		Body: fmt.Appendf(nil, `{"version":1,"revision":%d,"token":%d,"run":%q,"content":%q}`, revision, token, run, content),
	}
}

func (s *suite) try(save *checkpoint.Save) error { return s.Store.Save(s.Context(), s.one, save) }

// save saves, and loads what was saved.
func (s *suite) save(key checkpoint.Key, save *checkpoint.Save) {
	s.Helper()
	testwait.Must(s, s.Store.Save(s.Context(), key, save))
	s.want(key, save.Body)
}

func (s *suite) want(key checkpoint.Key, want []byte) {
	s.Helper()
	body, err := s.Store.Load(s.Context(), key)
	if err != nil || !bytes.Equal(body, want) || (body == nil) != (want == nil) {
		s.Fatalf("there is %.200q, %v; want %.200q", body, err, want)
	}
}

func (s *suite) refused(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: %v, want %v", what, err, want)
	}
}

func (s *suite) kept() {
	s.want(s.one, nil)
	testwait.Must(s, s.Store.Delete(s.Context(), s.one))
	first := state(1, 5, "a", "\x00 é \U0001F3B2 '\"\\ \r\n")
	s.save(s.one, first)
	s.save(s.one, state(2, 5, "a", strings.Repeat("large ", checkpoint.MaxBytes/6-100)))
	testwait.Must(s, s.Store.Delete(s.Context(), s.one))
	s.want(s.one, nil)
	s.save(s.one, first)
}

func (s *suite) guarded() {
	for range 2 { // The first answer was lost, and it is sent again.
		s.save(s.one, state(1, 9, "a", "one"))
	}
	two := state(2, 10, "b", "two") // A new tenure goes on.
	for range 2 {
		s.save(s.one, two)
	}
	for what, save := range map[string]*checkpoint.Save{
		"the old token":                     state(3, 9, "a", "x"),
		"an old token with fewer digits":    state(3, 2, "a", "x"),
		"the same revision of another run":  state(2, 10, "c", "x"),
		"the same revision, a newer token":  state(2, 11, "c", "x"),
		"a gap":                             state(4, 10, "b", "x"),
		"a revision before":                 state(1, 10, "b", "x"),
		"the first one, of another tenure":  state(1, 99, "c", "x"),
		"the revision before, the same run": state(1, 9, "a", "one"),
	} {
		err := s.try(save)
		fenced, ok := errors.AsType[*checkpoint.FencedError](err)
		if !ok || fenced.Seen != two.Head || fenced.Want != save.Head || fenced.Key != s.one || !errors.Is(err, checkpoint.ErrFenced) {
			s.Errorf("%s: %v", what, err)
		}
	}
	s.want(s.one, two.Body)
	// Tokens are integers of 63 bits, none of them lost.
	const huge = int64(1)<<62 + 1
	three := state(3, huge, "d", "three")
	s.save(s.one, three)
	s.refused("a token that is smaller by one", s.try(state(4, huge-1, "b", "x")), checkpoint.ErrFenced)
	s.want(s.one, three.Body)
}

// oneOfMany lets many make the next save at once: one of them does, each time.
func (s *suite) oneOfMany() {
	const writers, rounds = 8, 20
	for revision := int64(1); revision <= rounds; revision++ {
		var (
			all  sync.WaitGroup
			errs [writers]error
		)
		of := func(w int) *checkpoint.Save {
			return state(revision, 1, fmt.Sprint("run-", w), fmt.Sprint(revision, w))
		}
		for w := range writers {
			all.Go(func() { errs[w] = s.try(of(w)) })
		}
		all.Wait()
		won := -1
		for w, err := range errs {
			switch {
			case err == nil && won < 0:
				won = w
			case !errors.Is(err, checkpoint.ErrFenced):
				s.Fatalf("revision %d: writer %d got %v after %d had won", revision, w, err, won)
			}
		}
		if won < 0 {
			s.Fatalf("revision %d: nobody has won", revision)
		}
		s.want(s.one, of(won).Body)
	}
}

func (s *suite) lost() {
	s.save(s.one, state(1, 1, "a", "one"))
	s.save(s.one, state(2, 1, "a", "two"))
	s.Forget()
	s.want(s.one, nil)
	s.refused("a save after the loss", s.try(state(3, 1, "a", "three")), checkpoint.ErrLost)
	s.want(s.one, nil)
	s.save(s.one, state(1, 1, "b", "anew"))
}

func (s *suite) expiry() {
	save := state(1, 1, "a", "one")
	save.TTL, save.Ended = 300*time.Millisecond, true
	began := time.Now()
	testwait.Must(s, s.try(save))
	testwait.Eventually(s, testwait.Patience, "the state expires", func() bool {
		body, err := s.Store.Load(s.Context(), s.one)
		return err == nil && body == nil
	})
	if took := time.Since(began); took < 200*time.Millisecond {
		s.Errorf("it expired after %s", took)
	}
	s.refused("a save that follows", s.try(state(2, 1, "a", "two")), checkpoint.ErrLost)
	s.save(s.one, state(1, 1, "b", "anew"))
}

func (s *suite) keysApart() {
	keys := []checkpoint.Key{
		{LockKey: s.Prefix + "a", ID: "b"},
		{LockKey: s.Prefix + "a:b", ID: "b"},
		{LockKey: s.Prefix + "b", ID: "a"},
		{LockKey: s.Prefix + "a", ID: "b."},
		{LockKey: s.Prefix + "Ä {x} *?[", ID: "b"},
		{LockKey: s.Prefix + "a%", ID: "B"},
		{LockKey: s.Prefix + "a", ID: "B"},
		{LockKey: s.Prefix + "'; --", ID: "b"},
	}
	for _, k := range keys {
		s.save(k, state(1, 1, "a", k.String()))
	}
	testwait.Must(s, s.Store.Delete(s.Context(), keys[0]))
	s.want(keys[0], nil)
	for _, k := range keys[1:] {
		s.want(k, state(1, 1, "a", k.String()).Body)
	}
}

func (s *suite) cancelled() {
	ctx, cancel := context.WithCancelCause(s.Context())
	gone := errors.New("the caller is gone")
	cancel(gone)
	err := s.Store.Save(ctx, s.one, state(1, 1, "a", "one"))
	if !errors.Is(err, gone) && !errors.Is(err, context.Canceled) {
		s.Errorf("%v", err)
	}
	if _, err := s.Store.Load(ctx, s.one); err == nil {
		s.Error("loaded under a context that has ended")
	}
	s.want(s.one, nil)
}

// unreachable breaks the store: what is asked of it then is tried again, reported, and never half done.
func (s *suite) unreachable() {
	if s.Break == nil {
		s.Skip("it is always reachable")
	}
	s.save(s.one, state(1, 1, "a", "one"))
	mend := s.Break()
	_, load := s.Store.Load(s.Context(), s.one)
	for op, err := range map[string]error{
		"load": load, "save": s.try(state(2, 1, "a", "two")), "delete": s.Store.Delete(s.Context(), s.one),
	} {
		e, ok := errors.AsType[*checkpoint.ConnectionError](err)
		if !ok || !errors.Is(err, checkpoint.ErrConnection) || e.Op != op || e.Key != s.one || e.Attempts != 1+checkpoint.Retries || e.Err == nil {
			s.Errorf("%s: %v", op, err)
		}
	}
	mend()
	s.want(s.one, state(1, 1, "a", "one").Body)
	s.save(s.one, state(2, 1, "a", "two"))
}

// corrupt plants what is no state: it is returned as it is, is not begun anew, and can be deleted.
func (s *suite) corrupt() {
	for _, body := range []string{"", "\x80\x00{", "null", "[1,2]", `{"revision":1}`, `{"version":2,"revision":1,"token":1,"run":"a"}`} {
		s.Plant(s.one, []byte(body))
		// A store that keeps heads apart sees that there is one.
		if err := s.try(state(1, 1, "a", "x")); !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, checkpoint.ErrFenced) {
			s.Errorf("%q: a first save: %v", body, err)
		}
		s.want(s.one, []byte(body))
	}
	testwait.Must(s, s.Store.Delete(s.Context(), s.one))
	s.want(s.one, nil)
	s.save(s.one, state(1, 1, "a", "x"))
}

// another plants what another program has saved. Only a save that replaces exactly those bytes takes their place.
func (s *suite) another() {
	const theirs = `{"lock_key":"user_123:daily","total_count":3,"completed_count":1,"results":[4]}`
	first := state(1, 5, "a", "one")
	first.Replaces = []byte(theirs)
	s.refused("a save in place of what is gone", s.try(first), checkpoint.ErrLost)
	s.Plant(s.one, []byte(strings.Replace(theirs, "4", "5", 1))) // It went on.
	if err := s.try(first); !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, checkpoint.ErrFenced) {
		s.Errorf("a save in place of what has changed: %v", err)
	}
	s.want(s.one, []byte(strings.Replace(theirs, "4", "5", 1)))
	s.Plant(s.one, []byte(theirs))
	for range 2 { // The first answer was lost, and it is sent again.
		s.save(s.one, first)
	}
	late := state(1, 6, "b", "late")
	late.Replaces = first.Replaces
	s.refused("another save in its place", s.try(late), checkpoint.ErrFenced)
	s.save(s.one, state(2, 5, "a", "two"))
}
