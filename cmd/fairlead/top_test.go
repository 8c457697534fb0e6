package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/screen"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/top"
)

// until is standard output that somebody reads until they have seen enough.
type until struct {
	mu     sync.Mutex
	b      bytes.Buffer
	enough func(seen string)
}

func (u *until) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n, err := u.b.Write(p)
	u.enough(u.b.String())
	return n, err
}

func (u *until) seen() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.b.String()
}

// TestTop watches a real server that has something to do, and one that goes away.
func TestTop(t *testing.T) {
	s := startScene(t)
	s.account("buyer-1", 1000)
	s.call("POST", "/v1/locks", obj{"keys": []string{"dock-a"}, "owner": "captain", "ttl": "10m"})
	t.Setenv(keyVariable, s.key)
	t.Setenv(adminKeyVariable, "")

	// Deposits go on until the test is through with looking.
	depositing, enough := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		for depositing.Err() == nil {
			s.try("POST", "/v1/deposits", obj{"account": "buyer-1", "amount": 1})
		}
	})
	var f topFrame
	var ledger top.LaneView
	s.eventually("a second in which a deposit ends", func() bool {
		out, err := execute(t, "top", "--url", s.url, "--json")
		if err == nil {
			f = topFrame{}
			err = json.Unmarshal([]byte(out), &f, json.RejectUnknownMembers(true))
		}
		if err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		for _, l := range f.Lanes {
			if l.Service == "ledger" {
				ledger = l
			}
		}
		return ledger.Commands > 0
	})
	if f.Requests <= 0 || f.Failures != 0 || f.Latency.P99 <= 0 || ledger.BatchMean < 1 || ledger.Commit.P50 <= 0 || f.Transactions <= 0 ||
		f.Held != 1 || len(f.Locks) != 1 || f.Locks[0].Owner != "captain" || f.Memory <= 0 || f.Version != fairlead.Version() || f.Restarted {
		t.Errorf("%+v", f)
	}
	out, err := execute(t, "top", "--url", s.url, "--once", "--interval", "200ms")
	for _, want := range []string{"requests", "ledger", "captain", "dock-a", "1 held", "the auctions", s.url} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("no %q in %v %s", want, err, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("what is no terminal is spoken to as one")
	}
	enough()
	working.Wait()

	// Another kind of key, one that is none, none at all, and another server.
	for _, c := range []struct{ key, url, says string }{
		{"wrong" + s.key, s.url, "does not know the key in " + keyVariable},
		{s.serviceKey(), s.url, "is neither an admin nor a reader key"},
		{"", s.url, "needs an API key in " + keyVariable},
		{s.key, "http://127.0.0.1:1", "no server answers at http://127.0.0.1:1"},
		{s.key, "nonsense", "--url must be"},
	} {
		t.Setenv(keyVariable, c.key)
		if out, err := execute(t, "top", "--url", c.url, "--once"); err == nil || !strings.Contains(err.Error(), c.says) || out != "" {
			t.Errorf("%q at %s: %v, %s", c.key, c.url, err, out)
		}
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\n")) }))
	defer other.Close()
	t.Setenv(keyVariable, s.key)
	if _, err := execute(t, "top", "--url", other.URL); !errors.Is(err, top.ErrNotFairlead) {
		t.Errorf("another program: %v", err)
	}
	if _, err := execute(t, "top", "--interval", "1ms"); err == nil || !strings.Contains(err.Error(), "--interval") {
		t.Errorf("a short interval: %v", err)
	}

	// Line by line, until the server goes, of which a line is told, too.
	ctx, stop := context.WithCancel(t.Context())
	row := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d +\d+\.\d `)
	gone := make(chan struct{})
	away := sync.OnceFunc(func() { close(gone) })
	lines := &until{enough: func(seen string) {
		if len(row.FindAllString(seen, -1)) >= 3 {
			away()
		}
		if strings.Contains(seen, "no server answers") {
			stop()
		}
	}}
	root := newRoot()
	root.SetArgs([]string{"top", "--url", s.url, "--interval", "100ms"})
	root.SetOut(lines)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	select {
	case <-gone:
	case err := <-ended:
		t.Fatalf("it ended by itself with %v after %s", err, lines.seen())
	case <-time.After(stepTimeout):
		t.Fatalf("there are too few lines: %s", lines.seen())
	}
	s.stop()
	select {
	case err := <-ended:
		if err != nil || ctx.Err() == nil {
			t.Errorf("its end by Ctrl-C: %v", err)
		}
	case <-time.After(stepTimeout):
		t.Fatalf("nothing is said of the server's end: %s", lines.seen())
	}
	if header := strings.Count(lines.seen(), "req/s"); header != 1 {
		t.Errorf("%d headers in %s", header, lines.seen())
	}
}

// serviceKey makes a key that is no admin's, and returns its secret.
func (s *scene) serviceKey() string {
	s.t.Helper()
	out, err := execute(s.t, "keys", "create", "--role", "service", "--name", "shop", "--json", "--url", s.url)
	var made struct {
		Key string `json:"key"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &made)
	}
	if err != nil {
		s.t.Fatalf("%v in %s", err, out)
	}
	return made.Key
}

// TestTopDisplay draws on what it takes for a terminal.
func TestTopDisplay(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := &topDisplay{s: &screen.Screen{Out: &out, TTY: true, Colour: true}, url: "http://house", interval: time.Second}
	f := &topFrame{Version: "v9", Locks: []lockView{{Key: "dock\x1b[2J\u202e", Owner: strings.Repeat("ö", 30), Waiters: 2, HeldSeconds: 3700, WaitSeconds: 61}}}
	f.Requests, f.Failures, f.Restarted, f.Waiting, f.Backlog.SagasStuck = 1234567, 2.5, true, 2, 3
	f.Lanes = []top.LaneView{{Service: "ledger", Commands: 812, Refused: 1}}
	d.open(strings.NewReader(""), func() { t.Error("no key was pressed") })
	testwait.Must(t, errors.Join(d.show(f), d.lost(errors.New("no server answers "+strings.Repeat("x", 80)))))
	d.close()
	got := out.String()
	for _, want := range []string{"1,234,567", "2.5/s failed", "started anew", "dock·[2J·", strings.Repeat("ö", 19) + "…", "1h 1m", "1m 1s", "no server answers", "what was seen last", "(q quits)", d.s.Paint(screen.Red, "3 stuck")} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if !strings.HasPrefix(got, topEnter) || !strings.HasSuffix(got, topLeave) || strings.Count(got, topHome) != 3 {
		t.Errorf("the terminal is not left as it was: %q", got)
	}
}

// TestTopFitsSixtyColumns draws the largest figures. No line is longer than the terminal is wide, and nothing is cut but names.
func TestTopFitsSixtyColumns(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("name", 40)
	f := &topFrame{Version: "v10.20.30-dirty", Held: 100_000, Waiting: 100_000, Locks: []lockView{
		{Key: long, Owner: long, Waiters: 100_000, HeldSeconds: 99*86400 + 23*3600, WaitSeconds: 86399},
	}}
	for _, x := range []*float64{&f.Requests, &f.Transactions} {
		*x = 123_456
	}
	for _, x := range []*float64{&f.Failures, &f.Failed, &f.Retries, &f.Granted, &f.Victims, &f.Dropped, &f.Bids, &f.Draws, &f.Attempts, &f.Sagas, &f.Goroutines, &f.Streams} {
		*x = 12_345
	}
	f.Latency, f.Transaction = top.Quantiles{P50: 0.999, P90: 9.99, P99: 99.9}, top.Quantiles{P50: 0.999, P99: 99.9}
	f.UptimeSeconds, f.Restarted, f.CPU, f.Memory, f.Leading, f.Term = 99*86400, true, 127.99, 99e9, true, 123_456
	f.Lanes = []top.LaneView{{
		Service: "multidraws-and-more", Commands: 123_456, BatchMean: 4096, Commit: top.Quantiles{P99: 99.9}, Wait: top.Quantiles{P99: 0.999}, Queue: 4096, Refused: 123_456, Failures: 1,
	}}
	f.Backlog = topBacklog{1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}
	s := &screen.Screen{TTY: true}
	for _, width := range []int{minTopWidth, 100} {
		page := f.page(s, "https://fairlead."+long, 100*time.Millisecond, width)
		for line := range strings.Lines(page) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d columns: %q", n, line)
			}
		}
		for _, want := range []string{
			"123,456/s", "p99 99.9 s", "99d 23h", "23h 59m", "1000 late", "1000 stuck", "1000 failed", "12,345/s failed", "12,345/s deadlocks broken", "1000 rounds overdue", "1000 interrupted", "term 123456",
			"127.99 cores", "(q quits)", "  4096   123,456", "4,096", "100000 waiting",
		} {
			if !strings.Contains(page, want) {
				t.Errorf("no %q in %d columns:\n%s", want, width, page)
			}
		}
	}
	for _, line := range fold(long, minTopWidth) {
		if len(line) > minTopWidth {
			t.Error(line)
		}
	}
}

// TestTopEndsByKey presses keys.
func TestTopEndsByKey(t *testing.T) {
	t.Parallel()
	for keys, ends := range map[string]bool{"q": true, "xyQ": true, "\x03": true, "": false, "hello": false} {
		ended := false
		awaitQuit(strings.NewReader(keys), func() { ended = true })
		if ended != ends {
			t.Errorf("%q: %v", keys, ended)
		}
	}
}

// TestTopFigures holds how numbers are written.
func TestTopFigures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{figure(0), "0.0"},
		{figure(99.94), "99.9"},
		{figure(99.96), "100"},
		{figure(999.6), "1,000"},
		{figure(1234567), "1,234,567"},
		{brief(0), "-"},
		{brief(0.00123), "1.23 ms"},
		{brief(0.0123), "12 ms"},
		{brief(2.55), "2.5 s"},
		{span(0), "0s"},
		{span(59.9), "59s"},
		{span(3599), "59m 59s"},
		{span(3600), "1h 0m"},
		{span(200000), "2d 7h"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
