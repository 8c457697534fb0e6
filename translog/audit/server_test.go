package audit_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog/audit"
	"github.com/fairlead-dev/fairlead/translog/audit/audittest"
)

// long is a history of more than two bundles, the same each time.
func long() []audittest.Leaf { return fixed().Everything() }

// indexOf is the leaf with that many of its type before it.
func indexOf(leaves []audittest.Leaf, kind string, n int) int {
	for i, l := range leaves {
		if l.Type == kind {
			if n--; n < 0 {
				return i
			}
		}
	}
	panic("no such leaf: " + kind)
}

// TestSignedTree cheats with the entries under a tree that is signed: the first leaf that is not in it is named.
func TestSignedTree(t *testing.T) {
	t.Parallel()
	leaves := long()
	at := indexOf(leaves, "bid.placed", 400)
	if at < 512 || at%256 == 0 {
		t.Fatalf("leaf %d is in the first bundles", at)
	}
	for name, cheat := range map[string]func(all [][]byte) [][]byte{
		"changed": func(all [][]byte) [][]byte {
			all[at] = []byte(strings.Replace(string(all[at]), `"rank":`, `"rank":1`, 1))
			return all
		},
		"removed":   func(all [][]byte) [][]byte { return append(slices.Delete(all, at, at+1), []byte("{}")) },
		"inserted":  func(all [][]byte) [][]byte { return slices.Insert(all, at, all[at-1]) },
		"reordered": func(all [][]byte) [][]byte { all[at], all[at+1] = all[at+1], all[at]; return all },
		"emptied":   func(all [][]byte) [][]byte { all[at] = nil; return all },
	} {
		l := published(leaves...)
		l.Cheat(cheat)
		r := judged(t, l, audit.Options{})
		if f := r.Finding; f == nil || r.Consistent || f.Index != int64(at) || f.What != "hash of the leaf" {
			t.Errorf("%s: %v, want leaf %d", name, f, at)
		}
	}
}

// TestResignedTree cheats with the leaves, and signs the tree over them.
func TestResignedTree(t *testing.T) {
	t.Parallel()
	leaves := long()
	next := func(at int) int { // the next leaf of the same topic
		return at + 1 + slices.IndexFunc(leaves[at+1:], func(l audittest.Leaf) bool { return l.Topic == leaves[at].Topic })
	}
	bid, winners := indexOf(leaves, "bid.placed", 300), indexOf(leaves, "round.completed", 3)
	drawn, closing, extended := indexOf(leaves, "campaign.drawn", 2), indexOf(leaves, "books.closed", 5), indexOf(leaves, "round.extended", 1)
	ended := indexOf(leaves, "multidraw.ended", 1)
	edit := func(i int, before, after string) func() []audittest.Leaf {
		return func() []audittest.Leaf {
			all := slices.Clone(leaves)
			if !strings.Contains(all[i].Data, before) {
				panic("nothing to replace in " + all[i].Data)
			}
			all[i].Data = strings.Replace(all[i].Data, before, after, 1)
			return all
		}
	}
	for name, test := range map[string]struct {
		cheat func() []audittest.Leaf
		index int
		what  string
	}{
		"changed":   {edit(bid, `"rank":`, `"rank":1`), bid, "rank"},
		"removed":   {func() []audittest.Leaf { return slices.Delete(slices.Clone(leaves), bid, bid+1) }, next(bid) - 1, "seq"},
		"inserted":  {func() []audittest.Leaf { return slices.Insert(slices.Clone(leaves), bid, leaves[bid]) }, bid + 1, "seq"},
		"payment":   {edit(winners, `"amount":`, `"amount":1`), winners, "winners[0].amount"},
		"draw":      {edit(drawn, `"winners":[[`, `"winners":[[0,`), drawn, "winners[0]"},
		"closing":   {edit(closing, `"held":`, `"held":1`), closing, "currencies[0].available + held"},
		"extension": {edit(extended, `"extensions":`, `"extensions":1`), extended, "extension.extensions"},
		"multidraw": {edit(ended, `"digest":"`, `"digest":"0000`), ended, "digest"},
	} {
		r := judged(t, published(test.cheat()...), audit.Options{})
		f := r.Finding
		if f == nil || f.Index != int64(test.index) || !strings.HasPrefix(f.What, test.what) || r.Consistent || !strings.Contains(f.Error(), f.Topic) {
			t.Errorf("%s: %v, want leaf %d and %s", name, f, test.index, test.what)
		}
	}
}

// TestFindingStays runs an auditor on behind what it has found.
func TestFindingStays(t *testing.T) {
	t.Parallel()
	leaves := long()
	l := audittest.NewLog(origin)
	l.Append(leaves[:10]...)
	l.Append(leaves[9])
	l.Publish()
	state := filepath.Join(t.TempDir(), "state")
	a := auditor(t, l, audit.Options{State: state})
	for range 2 {
		r, err := a.Run(t.Context())
		testwait.Must(t, err)
		if r.Finding == nil || r.Finding.Index != 10 || r.Consistent {
			t.Fatal(r.Finding)
		}
		l.Append(leaves[10])
		l.Publish()
	}
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a state was written: %v", err)
	}
}

// TestStateFile cheats against what an earlier run has seen.
func TestStateFile(t *testing.T) {
	t.Parallel()
	leaves := long()
	state := filepath.Join(t.TempDir(), "state")
	l := audittest.NewLog(origin)
	l.Append(leaves[:600]...)
	l.Publish()
	if r := judged(t, l, audit.Options{State: state}); !r.Consistent {
		t.Fatal(r.Finding)
	}
	earlier := l.Checkpoint()
	l.Append(leaves[600:]...)
	l.Publish()
	if r := judged(t, l, audit.Options{State: state}); !r.Consistent || *r.SeenBefore != 600 {
		t.Fatalf("%+v, %v", r, r.Finding)
	}
	all := int64(len(leaves))
	for name, test := range map[string]struct {
		leaves []audittest.Leaf
		what   string
	}{
		"fork of the same size": {slices.Concat(leaves[:all-1], []audittest.Leaf{leaves[0]}), "root of the first"},
		"longer fork":           {slices.Concat(leaves[:100], leaves[50:60], leaves[100:]), "root of the first"},
		"truncated":             {leaves[:all-1], "size of the tree"},
		"emptied":               {nil, "size of the tree"},
	} {
		kept, err := os.ReadFile(state)
		testwait.Must(t, err)
		l.Cheat(func([][]byte) [][]byte { return nil })
		l.Append(test.leaves...)
		l.Publish()
		r := judged(t, l, audit.Options{State: state})
		if f := r.Finding; f == nil || f.Index != -1 || !strings.HasPrefix(f.What, test.what) || r.Earlier != string(kept) || r.Checkpoint != string(l.Checkpoint()) {
			t.Errorf("%s: %v, want %s", name, f, test.what)
		}
		if now, err := os.ReadFile(state); err != nil || string(now) != string(kept) {
			t.Errorf("%s: the state file has changed: %v", name, err)
		}
	}
	// What is in the state file must be the log's.
	for _, text := range []string{"", "garbage", strings.Replace(string(earlier), "600", "601", 1)} {
		testwait.Must(t, os.WriteFile(state, []byte(text), 0o600))
		if _, err := audit.New(audit.Options{URL: "http://127.0.0.1:1", Key: l.Key(), State: state}); !errors.Is(err, audit.ErrNotTheLog) || !errors.Is(err, audit.ErrState) {
			t.Errorf("state %q: %v", text, err)
		}
	}
	if _, err := audit.New(audit.Options{URL: "http://127.0.0.1:1", Key: l.Key(), State: t.TempDir()}); err == nil {
		t.Error("a directory is a state file")
	}
}

// TestCheckpoints are those that are not this log's.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	l := published(long()[:3]...)
	url := serve(t, l)
	other := audittest.NewLog(origin)
	a, err := audit.New(audit.Options{URL: url, Key: other.Key()})
	testwait.Must(t, err)
	t.Cleanup(a.Close)
	if _, err := a.Run(t.Context()); !errors.Is(err, audit.ErrNotTheLog) || !strings.Contains(err.Error(), "--key") {
		t.Error(err)
	}
	for name, publish := range map[string]func(){
		"extension":    func() { l.PublishWith("more\n") },
		"other origin": func() { l.Sign("other.test/log\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n") },
		"no tree":      func() { l.Sign("hello\n") },
		"HTML": func() {
			l.Answer(func(w http.ResponseWriter, _ *http.Request) bool {
				_, _ = w.Write([]byte("<html>sign in</html>"))
				return true
			})
		},
	} {
		publish()
		if _, err := auditor(t, l, audit.Options{URL: url}).Run(t.Context()); !errors.Is(err, audit.ErrNotTheLog) {
			t.Errorf("%s: %v", name, err)
		}
		l.Answer(nil)
	}
	l.Sign(origin + "\n0\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")
	if r := judged(t, l, audit.Options{URL: url}); r.Finding == nil || r.Finding.What != "root of the empty tree" {
		t.Error(r.Finding)
	}
	if r := judged(t, published(), audit.Options{}); !r.Consistent || r.Size != 0 {
		t.Error(r.Finding)
	}
}

// answer answers the paths that contain a text.
func answer(l *audittest.Log, part string, with http.HandlerFunc) {
	l.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, part) {
			return false
		}
		with(w, r)
		return true
	})
}

// TestTiles has tiles that contradict the tree: the first leaf that can't be shown to be in it is named, or one before that does not
// follow.
func TestTiles(t *testing.T) {
	t.Parallel()
	leaves := long()
	for path, index := range map[string]int64{"/tile/0/001": 256, "/tile/entries/001": 256, "/tile/0/x000": -1, "/tile/1/000": 0} {
		for _, garbage := range []string{"", strings.Repeat("x", 8192), strings.Repeat("y", 64), strings.Repeat("\x00", 512)} {
			l := published(leaves...)
			answer(l, path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(garbage)) })
			r := judged(t, l, audit.Options{})
			if f := r.Finding; (f == nil) != (index < 0) || f != nil && f.Index != index {
				t.Errorf("%s, %d bytes: %v, want leaf %d", path, len(garbage), f, index)
			}
		}
	}
	bid := indexOf(leaves, "bid.placed", 10)
	leaves[bid].Data = strings.Replace(leaves[bid].Data, `"rank":`, `"rank":1`, 1)
	l := published(leaves...)
	answer(l, "/tile/0/001", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 8192)) })
	if f := judged(t, l, audit.Options{}).Finding; f == nil || f.Index != int64(bid) || f.What != "rank" {
		t.Errorf("%v, want leaf %d", f, bid)
	}
}

// TestServersThatDoNotAnswer are an error within a bounded time, and not a finding.
func TestServersThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	leaves := long()
	endless := func(w http.ResponseWriter, r *http.Request) {
		for page := make([]byte, 1<<16); r.Context().Err() == nil; {
			if _, err := w.Write(page); err != nil {
				return
			}
		}
	}
	slow := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	for _, path := range []string{"/checkpoint", "/tile/0/001", "/tile/entries/001"} {
		for name, with := range map[string]http.HandlerFunc{
			"endless": endless, "slow": slow, "absent": http.NotFound,
			"failing":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
			"hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		} {
			t.Run(name+path, func(t *testing.T) {
				t.Parallel()
				l := published(leaves...)
				answer(l, path, with)
				timeout := testwait.Patience
				if name == "slow" {
					timeout = 300 * time.Millisecond
				}
				_, err := auditor(t, l, audit.Options{Timeout: timeout}).Run(t.Context())
				var read *audit.ReadError
				// Where the machine is slow, another request may be the one that takes too long.
				if !errors.As(err, &read) || name != "slow" && !strings.Contains(read.Path, strings.TrimPrefix(path, "/")) {
					t.Error(err)
				}
			})
		}
	}
	l := published(leaves...)
	ctx, cancel := context.WithCancel(t.Context())
	answer(l, "/tile/entries/001", func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	if _, err := auditor(t, l, audit.Options{}).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestRetries has every first request fail.
func TestRetries(t *testing.T) {
	t.Parallel()
	l := published(long()[:10]...)
	l.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		first := l.Served(r.URL.Path) == 1
		if first {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return first
	})
	if r := judged(t, l, audit.Options{}); !r.Consistent {
		t.Error(r.Finding)
	}
}

func TestWitnesses(t *testing.T) {
	t.Parallel()
	l := audittest.NewLog(origin)
	one, two := l.NewWitness("one.test"), l.NewWitness("two.test")
	absent := audittest.NewLog(origin).NewWitness("absent.test")
	l.Append(long()[:20]...)
	l.Publish()
	began := time.Now().Add(-time.Minute)
	url := serve(t, l)
	r := judged(t, l, audit.Options{URL: url, Witnesses: []string{one, absent, two}, Quorum: 2})
	if w := r.Witnesses; !r.Consistent || len(w) != 3 || w[0].At == nil || w[1].At != nil || w[2].At == nil || w[0].Witness != "one.test" || w[0].At.Before(began) {
		t.Errorf("%+v, %v", r.Witnesses, r.Finding)
	}
	r = judged(t, l, audit.Options{URL: url, Witnesses: []string{one, absent}, Quorum: 2})
	if r.Consistent || r.Finding == nil || r.Finding.What != "cosignatures of the checkpoint" || r.Finding.Said != "1" {
		t.Error(r.Finding)
	}
	// A signature of another checkpoint is none of this one.
	old := string(l.Checkpoint())
	l.Append(long()[20])
	l.Publish()
	lines := strings.Split(string(l.Checkpoint()), "\n")
	stolen := slices.IndexFunc(strings.Split(old, "\n"), func(line string) bool { return strings.Contains(line, "one.test") })
	lines[stolen] = strings.Split(old, "\n")[stolen]
	answer(l, "/checkpoint", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(strings.Join(lines, "\n"))) })
	r = judged(t, l, audit.Options{URL: url, Witnesses: []string{one, two}})
	if !r.Consistent || r.Witnesses[0].At != nil || r.Witnesses[1].At == nil {
		t.Errorf("%+v, %v", r.Witnesses, r.Finding)
	}
	for _, o := range []audit.Options{
		{Witnesses: []string{one, one}},
		{Witnesses: []string{l.Key()}},
		{Witnesses: []string{strings.Replace(one, "one", "eno", 1)}},
		{Witnesses: []string{"x"}},
		{Witnesses: []string{one}, Quorum: 2},
		{Quorum: -1},
		{Chains: []string{"AB"}},
		{URL: "tickets.example.com"},
		{URL: "http://a?b"},
		{Key: "x"},
	} {
		if o.URL == "" {
			o.URL = url
		}
		if o.Key == "" {
			o.Key = l.Key()
		}
		if _, err := audit.New(o); err == nil {
			t.Errorf("taken: %+v", o)
		}
	}
}
