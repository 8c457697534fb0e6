package witness_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
	"github.com/fairlead-dev/fairlead/translog/witness"
)

func newCollector(t *testing.T, h *history, timeout time.Duration, client *http.Client, witnesses ...witness.Remote) *witness.Collector {
	t.Helper()
	c, err := witness.NewCollector(witness.CollectorOptions{Log: h.key.Verifier(), Witnesses: witnesses, Timeout: timeout, HTTP: client})
	testwait.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// ask asks for one checkpoint, which must be readable afterwards, and returns it and the answers.
func ask(t *testing.T, c *witness.Collector, h *history, n int64) (*translog.Checkpoint, []witness.Answer) {
	t.Helper()
	cosigned, answers, err := c.Ask(testwait.Context(t, patience), h.checkpoint(n), h)
	testwait.Must(t, err)
	var keys []string
	for _, a := range answers {
		keys = append(keys, a.Witness.Key)
		if (a.Cosignature == nil) == (a.Err == nil) {
			t.Errorf("%s: %v and %v", a.Witness.Name(), a.Cosignature, a.Err)
		}
	}
	checkpoint, err := translog.Open(cosigned, h.key.Verifier(), keys...)
	testwait.Must(t, err)
	return checkpoint, answers
}

// TestAskAll: witnesses that are new, behind and up to date all cosign, and each is remembered.
func TestAskAll(t *testing.T) {
	t.Parallel()
	h := newHistory(t, "log").grow(50, "a")
	fresh, behind, current := newPlace(t, "a").start(t, h), newPlace(t, "b").start(t, h), newPlace(t, "c").start(t, h)
	behind.want(http.StatusOK, h.request(0, 7))
	current.want(http.StatusOK, h.request(0, 30))
	var requests atomic.Int64
	count := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		requests.Add(1)
		return http.DefaultTransport.RoundTrip(r)
	})}
	c := newCollector(t, h, patience, count, fresh.remote(), behind.remote(), current.remote())
	for _, step := range []struct{ size, requests int64 }{{30, 1 + 2 + 2}, {31, 3}, {31, 3}, {50, 3}} {
		requests.Store(0)
		checkpoint, answers := ask(t, c, h, step.size)
		if len(checkpoint.Cosignatures) != 3 || checkpoint.Tree.N != step.size || requests.Load() != step.requests {
			t.Errorf("%d leaves: %d requests, %+v", step.size, requests.Load(), answers)
		}
		for _, a := range answers {
			if c.Sizes()[a.Witness.Key] != step.size {
				t.Errorf("%s is remembered with %d", a.Witness.Name(), c.Sizes()[a.Witness.Key])
			}
		}
	}
	// Those that have cosigned a checkpoint are not asked again.
	cosigned, _, err := c.Ask(testwait.Context(t, patience), h.checkpoint(50), h)
	testwait.Must(t, err)
	requests.Store(0)
	again, answers, err := c.Ask(testwait.Context(t, patience), cosigned, h)
	testwait.Must(t, err)
	if again != cosigned || requests.Load() != 0 || answers[2].Cosignature == nil {
		t.Errorf("%d requests: %q", requests.Load(), again)
	}
	// Another server of the log has asked for more, meanwhile.
	h.grow(60, "a")
	fresh.want(http.StatusOK, h.request(50, 55))
	if checkpoint, answers := ask(t, c, h, 60); len(checkpoint.Cosignatures) != 3 {
		t.Errorf("%+v", answers)
	}
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestAskAfterARestore: a log that has lost its end is told so, and the witness's checkpoint proves it, as long as it is shorter and
// after it has grown in another way.
func TestAskAfterARestore(t *testing.T) {
	t.Parallel()
	h := newHistory(t, "log").grow(5, "common")
	restored := h.fork()
	h.grow(12, "lost")
	r := newPlace(t, "w").start(t, h)
	for _, remembers := range []bool{false, true} {
		c := newCollector(t, h, patience, nil, r.remote())
		if remembers {
			ask(t, c, h, 12)
		}
		r.want(http.StatusOK, h.request(map[bool]int64{false: 0, true: 12}[remembers], 12))
		checkpoint, answers := ask(t, c, restored, 5)
		ahead, ok := errors.AsType[*witness.AheadError](answers[0].Err)
		if !ok || ahead.Size != 12 || ahead.Ours != 5 || ahead.Witness != r.vkey || len(checkpoint.Cosignatures) != 0 {
			t.Fatalf("%v", answers[0].Err)
		}
		if ahead.Latest == nil || ahead.Latest.Tree != h.tree(12) || ahead.Latest.Origin != "log" {
			t.Errorf("no proof: %+v", ahead.Latest)
		}
		for _, n := range []int64{12, 15} {
			checkpoint, answers = ask(t, c, restored.grow(15, "new"), n)
			fork, ok := errors.AsType[*witness.ForkError](answers[0].Err)
			if !ok || fork.Size != 12 || fork.Witness != r.vkey || len(checkpoint.Cosignatures) != 0 {
				t.Fatalf("%v", answers[0].Err)
			}
			if fork.Latest == nil || fork.Latest.Tree != h.tree(12) {
				t.Errorf("no proof: %+v", fork.Latest)
			}
		}
		restored = h.fork() // As it was before the restore, for the second turn.
		restored.stored, restored.size = nil, 0
		restored.grow(5, "common")
	}
}

// TestBadWitnesses: whatever a witness answers, the others' cosignatures are kept, and the error says what is wrong.
func TestBadWitnesses(t *testing.T) {
	t.Parallel()
	h := newHistory(t, "log").grow(20, "a")
	key, good := newCosigner(t, "bad"), newPlace(t, "good").start(t, h)
	text, _, _ := strings.Cut(h.checkpoint(20), "\n\n")
	line, err := key.Cosign(text + "\n")
	testwait.Must(t, err)
	other, _, _ := strings.Cut(h.checkpoint(19), "\n\n")
	otherLine, err := key.Cosign(other + "\n")
	testwait.Must(t, err)
	strangers, err := newCosigner(t, "bad").Cosign(text + "\n")
	testwait.Must(t, err)
	say := func(status int, kind, text string) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			rw.Header().Set("Content-Type", kind)
			rw.WriteHeader(status)
			_, _ = io.WriteString(rw, text)
		}
	}
	size := "text/x.tlog.size"
	status := func(want int) func(error) bool {
		return func(err error) bool {
			refused, ok := errors.AsType[*witness.StatusError](err)
			return ok && refused.Status == want && len(refused.Text) <= 300
		}
	}
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	for name, it := range map[string]struct {
		handler http.HandlerFunc
		right   func(error) bool
	}{
		"right":                     {say(200, "", line), func(err error) bool { return err == nil }},
		"right, among others":       {say(200, "", strangers+line), func(err error) bool { return err == nil }},
		"empty":                     {say(200, "", ""), is(witness.ErrBadAnswer)},
		"a page":                    {say(200, "text/html", "<html>\n"), is(witness.ErrBadAnswer)},
		"of another tree":           {say(200, "", otherLine), is(witness.ErrBadAnswer)},
		"another's":                 {say(200, "", strangers), is(witness.ErrBadAnswer)},
		"the checkpoint":            {say(200, "", h.checkpoint(20)), is(witness.ErrBadAnswer)},
		"zeroes":                    {say(200, "", strings.Repeat("\x00", 100)), is(witness.ErrBadAnswer)},
		"endless":                   {say(200, "", strings.Repeat(line, 20_000)), is(witness.ErrBadAnswer)},
		"a conflict without a size": {say(409, size, "many\n"), is(witness.ErrBadAnswer)},
		"a conflict of no type":     {say(409, "text/plain", "3\n"), is(witness.ErrBadAnswer)},
		"a negative size":           {say(409, size, "-3\n"), is(witness.ErrBadAnswer)},
		"always the same conflict":  {say(409, size, "3\n"), is(witness.ErrBadAnswer)},
		"a conflict with zero":      {say(409, size, "0\n"), is(witness.ErrBadAnswer)},
		"ahead, without a proof": {say(409, size, "9000000000000000000\n"), func(err error) bool {
			ahead, ok := errors.AsType[*witness.AheadError](err)
			return ok && ahead.Latest == nil
		}},
		"404":               {say(404, "", "unknown log"), status(404)},
		"403":               {say(403, "", "bad signature"), status(403)},
		"422 for the first": {say(422, "", "no"), status(422)},
		"500, long":         {say(500, "", strings.Repeat("\xff", 10_000)), status(500)},
		"a redirect":        {http.RedirectHandler("http://127.0.0.1:1/", http.StatusTemporaryRedirect).ServeHTTP, status(307)},
		"hangs up":          {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, is(witness.ErrUnreachable)},
		"another conflict each time": {func() http.HandlerFunc {
			var n atomic.Int64
			return func(rw http.ResponseWriter, r *http.Request) { say(409, size, fmt.Sprintf("%d\n", n.Add(1)))(rw, r) }
		}(), func(err error) bool { _, ok := errors.AsType[*witness.ConflictError](err); return ok }},
		"a fork, without a proof": {func() http.HandlerFunc {
			var n atomic.Int64
			return func(rw http.ResponseWriter, r *http.Request) {
				if n.Add(1) == 1 {
					say(409, size, "7\n")(rw, r)
				} else {
					say(422, "", "no")(rw, r)
				}
			}
		}(), func(err error) bool {
			fork, ok := errors.AsType[*witness.ForkError](err)
			return ok && fork.Size == 7 && fork.Latest == nil
		}},
		"a fork, but the tree is ours": {func() http.HandlerFunc {
			ours, _, _ := strings.Cut(h.checkpoint(7), "\n\n")
			line, err := key.Cosign(ours + "\n")
			testwait.Must(t, err)
			return func(rw http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				switch {
				case r.Method == http.MethodGet:
					say(200, "", h.checkpoint(7)+line)(rw, r)
				case strings.HasPrefix(string(body), "old 0\n"):
					say(409, size, "7\n")(rw, r)
				default:
					say(422, "", "no")(rw, r)
				}
			}
		}(), is(witness.ErrBadAnswer)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(it.handler)
			defer server.Close()
			c := newCollector(t, h, patience, nil, witness.Remote{Key: key.Verifier(), URL: server.URL + "/sub/"}, good.remote())
			checkpoint, answers := ask(t, c, h, 20)
			if !it.right(answers[0].Err) {
				t.Errorf("%v", answers[0].Err)
			}
			if n := len(checkpoint.Cosignatures); answers[1].Err != nil || n != 1 && it.right(errors.New("x")) || n == 0 {
				t.Errorf("%d cosignatures, %v", n, answers[1].Err)
			}
		})
	}
}

// TestSilentWitness: one that says nothing is given up in time, and so is one whose answer never ends.
func TestSilentWitness(t *testing.T) {
	t.Parallel()
	h := newHistory(t, "log").grow(20, "a")
	for name, begin := range map[string]func(rw http.ResponseWriter){
		"silent": func(http.ResponseWriter) {},
		"slow": func(rw http.ResponseWriter) {
			_, _ = io.WriteString(rw, "— ")
			_ = http.NewResponseController(rw).Flush()
		},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			begin(rw)
			<-r.Context().Done()
		}))
		c := newCollector(t, h, 50*time.Millisecond, nil, witness.Remote{Key: newCosigner(t, "w").Verifier(), URL: server.URL})
		_, answers := ask(t, c, h, 20)
		if err := answers[0].Err; !errors.Is(err, witness.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
	}
}

// TestLatest: each witness shows what it has cosigned, and those that have nothing to show, or show what the log has not signed, are left out.
func TestLatest(t *testing.T) {
	t.Parallel()
	h := newHistory(t, "log").grow(50, "a")
	first, second, fresh, gone := newPlace(t, "a").start(t, h), newPlace(t, "b").start(t, h), newPlace(t, "c").start(t, h), newPlace(t, "d").start(t, h)
	first.want(http.StatusOK, h.request(0, 7))
	second.want(http.StatusOK, h.request(0, 30))
	impostor := newHistory(t, "log").grow(99, "b")
	elsewhere := newPlace(t, "e").start(t, impostor)
	elsewhere.want(http.StatusOK, impostor.request(0, 99))
	left := gone.remote()
	gone.close()
	c := newCollector(t, h, patience, nil, first.remote(), second.remote(), fresh.remote(), elsewhere.remote(), left)
	latest := c.Latest(testwait.Context(t, patience))
	if len(latest) != 2 || latest[first.remote().Key].Tree != h.tree(7) || latest[second.remote().Key].Tree != h.tree(30) {
		t.Errorf("%+v", latest)
	}
}

// TestAskReturnsWhatCameInTime: where the caller's time is over, the cosignatures that came are returned.
func TestAskReturnsWhatCameInTime(t *testing.T) {
	t.Parallel()
	h := newHistory(t, "log").grow(20, "a")
	good := newPlace(t, "good").start(t, h)
	ctx, cancel := context.WithCancel(testwait.Context(t, patience))
	defer cancel()
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host == "silent.example" {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		res, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			res.Body = &told{ReadCloser: res.Body, closed: cancel} // The answer was read.
		}
		return res, err
	})
	c := newCollector(t, h, patience, &http.Client{Transport: transport}, witness.Remote{Key: newCosigner(t, "w").Verifier(), URL: "http://silent.example"}, good.remote())
	cosigned, answers, err := c.Ask(ctx, h.checkpoint(20), h)
	testwait.Must(t, err)
	if !errors.Is(answers[0].Err, context.Canceled) || answers[1].Err != nil || !strings.Contains(cosigned, answers[1].Cosignature.Line) {
		t.Errorf("%+v", answers)
	}
}

// told tells that it was closed.
type told struct {
	io.ReadCloser
	closed func()
}

func (b *told) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}

// TestAskWithWrongHashes: no witness is blamed for hashes that are not the tree's.
func TestAskWithWrongHashes(t *testing.T) {
	t.Parallel()
	h := newHistory(t, "log").grow(20, "a")
	r := newPlace(t, "w").start(t, h)
	r.want(http.StatusOK, h.request(0, 7))
	c := newCollector(t, h, patience, nil, r.remote())
	broken := errors.New("the disk is gone")
	for name, it := range map[string]struct {
		hashes tlog.HashReader
		want   error
	}{
		"of another tree": {newHistory(t, "log").grow(20, "b"), witness.ErrHashes},
		"too few":         {tlog.HashReaderFunc(func([]int64) ([]tlog.Hash, error) { return nil, broken }), broken},
	} {
		_, answers, err := c.Ask(testwait.Context(t, patience), h.checkpoint(20), it.hashes)
		testwait.Must(t, err)
		if !errors.Is(answers[0].Err, it.want) {
			t.Errorf("%s: %v", name, answers[0].Err)
		}
	}
	if _, _, err := c.Ask(testwait.Context(t, patience), newHistory(t, "log").grow(5, "a").checkpoint(5), h); !errors.Is(err, translog.ErrUnsigned) {
		t.Errorf("another key's checkpoint: %v", err)
	}
}

// TestAskSideBySide: hashes are read by one goroutine at a time, and concurrent questions are answered.
func TestAskSideBySide(t *testing.T) {
	t.Parallel()
	h := newHistory(t, "log").grow(40, "a")
	var remotes []witness.Remote
	for i := range 5 {
		r := newPlace(t, fmt.Sprintf("w%d", i)).start(t, h)
		r.want(http.StatusOK, h.request(0, int64(1+i)))
		remotes = append(remotes, r.remote())
	}
	c := newCollector(t, h, patience, nil, remotes...)
	var reading sync.Mutex
	var wait sync.WaitGroup
	for n := int64(20); n <= 40; n += 5 {
		wait.Go(func() {
			_, answers, err := c.Ask(testwait.Context(t, patience), h.checkpoint(n), tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
				reading.Lock()
				defer reading.Unlock()
				return h.ReadHashes(indexes)
			}))
			testwait.Check(t, err)
			for _, a := range answers {
				// A larger one was cosigned before, or all the time others went first.
				_, isAhead := errors.AsType[*witness.AheadError](a.Err)
				_, isConflict := errors.AsType[*witness.ConflictError](a.Err)
				if a.Err != nil && !isAhead && !isConflict {
					t.Errorf("%d leaves: %v", n, a.Err)
				}
			}
		})
	}
	wait.Wait()
	if checkpoint, answers := ask(t, c, h, 40); len(checkpoint.Cosignatures) != 5 {
		t.Errorf("%+v", answers)
	}
}

func TestRemotes(t *testing.T) {
	t.Parallel()
	h, key := newHistory(t, "log"), newCosigner(t, "w=http").Verifier()
	r, err := witness.ParseRemote(key + "=https://w.example/a=http/")
	testwait.Must(t, err)
	if r.Key != key || r.URL != "https://w.example/a=http/" || r.Name() != "w=http" {
		t.Errorf("%+v", r)
	}
	for _, bad := range []string{"", key, key + "=", key + "=ftp://x", key + "=http://", key + "=https://x?y", key + "=https://x#y", h.key.Verifier() + "=http://x", "=http://x"} {
		if _, err := witness.ParseRemote(bad); err == nil {
			t.Errorf("%q is a witness", bad)
		}
	}
	for name, o := range map[string]witness.CollectorOptions{
		"no log":          {},
		"a witness's key": {Log: key},
		"twice":           {Log: h.key.Verifier(), Witnesses: []witness.Remote{r, {Key: key, URL: "http://other"}}},
		"a bad URL":       {Log: h.key.Verifier(), Witnesses: []witness.Remote{{Key: key, URL: "x"}}},
		"too many":        {Log: h.key.Verifier(), Witnesses: make([]witness.Remote, witness.MaxWitnesses+1)},
	} {
		if _, err := witness.NewCollector(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := witness.NewClient(nil).Latest(t.Context(), r, "x"); !errors.Is(err, translog.ErrBadKey) {
		t.Error(err)
	}
}
