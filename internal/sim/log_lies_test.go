//go:build unix

package sim_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
)

// liar is a witness with a key of its own that says what it wants.
type liar struct {
	key *translog.Cosigner

	mu     sync.Mutex
	lie    int
	told   int    // times since the lie began
	first  string // the first checkpoint that it was shown
	forged string // of a larger tree, under another key of the log's name
}

// lies are what it can say. All of them are about the log, and none is proved.
func lies() []string {
	return []string{
		"has seen more, and shows nothing", "has seen more, and shows its own signature alone", "has seen more, and shows another key's signature",
		"has seen another history, and shows a part of this one", "has seen another history, and shows nothing", "has seen no size", "makes no sense",
	}
}

// ServeHTTP implements [http.Handler].
func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Method == http.MethodGet {
		switch text, _, _ := strings.Cut(l.forged, "\n\n"); l.lie {
		case 1:
			line, err := l.key.Cosign(text + "\n")
			if err == nil {
				_, _ = io.WriteString(w, text+"\n\n"+line)
			}
		case 2:
			line, err := l.key.Cosign(text + "\n")
			if err == nil {
				_, _ = io.WriteString(w, l.forged+line)
			}
		case 3:
			text, _, _ := strings.Cut(l.first, "\n\n")
			line, err := l.key.Cosign(text + "\n")
			if err == nil {
				_, _ = io.WriteString(w, l.first+line)
			}
		case 6:
			_, _ = io.WriteString(w, "\x00\xff")
		default:
			http.NotFound(w, r)
		}
		return
	}
	body, _ := io.ReadAll(r.Body) // It is not believed either.
	if _, checkpoint, _ := strings.Cut(string(body), "\n\n"); l.first == "" {
		l.first = checkpoint
	}
	l.told++
	old := int64(-1)
	_, _ = fmt.Sscanf(string(body), "old %d", &old)
	switch {
	case l.lie < 3:
		w.Header().Set("Content-Type", "text/x.tlog.size")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, "1000000\n")
	case l.lie < 5 && old == 0: // One must have a size to have another history.
		w.Header().Set("Content-Type", "text/x.tlog.size")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, "1\n")
	case l.lie < 5:
		http.Error(w, "another history", http.StatusUnprocessableEntity)
	case l.lie == 5:
		w.WriteHeader(http.StatusConflict)
	default:
		_, _ = io.WriteString(w, strings.Repeat("— nonsense ☃\n", 10))
	}
}

// tells begins a lie, and has says how often it was told.
func (l *liar) tells(lie int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lie, l.told = lie, 0
}

func (l *liar) has() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

// TestALyingWitnessStopsNothing has a witness claim whatever it wants without the log's own signature under it. The log goes on to be
// signed, cosigned by the other witness and published, also by a server that begins under the lie.
func TestALyingWitnessStopsNothing(t *testing.T) {
	beside(t)
	key, err := translog.GenerateCosigner("liar.example")
	testwait.Must(t, err)
	l := &liar{key: key}
	web := httptest.NewServer(l)
	t.Cleanup(web.Close)
	s := newLogSite(t, newDatabase(t), 1, 1, 1, "--witness", key.Verifier()+"="+web.URL)
	server := s.servers[0]
	origin, _, _ := strings.Cut(s.vkey, "+")
	impostor, err := translog.GenerateKey(origin)
	testwait.Must(t, err)
	forged, err := impostor.Sign(tlog.Tree{N: 1_000_000, Hash: tlog.Hash{1}})
	testwait.Must(t, err)
	l.mu.Lock()
	l.forged = forged
	l.mu.Unlock()
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), clientOf(t, server), []string{"house"}, 1))
	goesOn := func(lie string) {
		t.Helper()
		before, told := s.stateOf(t), l.has()
		fact(t, server)
		s.awaitWhole(t)
		testwait.Eventually(t, patience, "a lie: "+lie, func() bool { return l.has() > told })
		if after := s.stateOf(t); after.Published < before.Size+2 || after.Refused != "" {
			t.Fatalf("the witness %s: the log was %+v, and is %+v", lie, before, after)
		}
	}
	for i, lie := range lies() {
		l.tells(i)
		goesOn(lie)
		fact(t, server) // The next checkpoint is asked for where the size is known.
		s.awaitWhole(t)
		testwait.Must(t, server.Kill(testwait.Context(t, patience)))
		start(t, server)
		goesOn(lie)
	}
}

// TestAnotherKeyNeverSigns gives a second server another admin key, from which another key of the log follows. It signs nothing, says why,
// and yet appends leaves once the first server is dead; the first one signs them when it is back.
func TestAnotherKeyNeverSigns(t *testing.T) {
	beside(t)
	const otherKey = "another-admin-key-0123456789abcdefghijkl"
	s := newLogSite(t, newDatabase(t), 1, 0, 0)
	first := s.servers[0]
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), clientOf(t, first), []string{"house"}, 1))
	fact(t, first)
	s.awaitWhole(t)
	second := sim.NewServer(sim.ServerOptions{Binary: binary(t), DataDir: tempDir(t), DatabaseURL: s.database, Args: s.args})
	t.Cleanup(func() { stopServer(t, second, false) })
	_, err := second.Start(testwait.Context(t, patience), "FAIRLEAD_ADMIN_KEY="+otherKey)
	testwait.Must(t, err)
	if logKeyOf(t, second) == s.vkey {
		t.Fatal("two admin keys have one key of the log")
	}
	fact(t, first)
	s.awaitWhole(t)
	before := s.stateOf(t)
	testwait.Must(t, first.Kill(testwait.Context(t, patience)))
	testwait.Eventually(t, patience, "the second server refuses", func() bool { return s.stateOf(t).Refused != "" })
	if why := s.stateOf(t).Refused; !strings.Contains(why, "another key") {
		t.Errorf("refused: %s", why)
	}
	body := `{"name":"raffle","layers":[{"positions":2}],"price":1,"currency":"SIM","beneficiary":"house","prizes":[{"name":"grand","quantity":1}]}`
	req, err := http.NewRequestWithContext(testwait.Context(t, patience), http.MethodPost, second.URL()+"/v1/campaigns", strings.NewReader(body))
	testwait.Must(t, err)
	req.Header.Set("Authorization", "Bearer "+otherKey)
	req.Header.Set("Idempotency-Key", "another")
	resp, err := visits.Do(req)
	testwait.Must(t, err)
	testwait.Check(t, resp.Body.Close())
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("the second server answers %s", resp.Status)
	}
	testwait.Eventually(t, patience, "a leaf by the second server", func() bool { return s.stateOf(t).Size > before.Size })
	if now := s.stateOf(t); now.Published != before.Published {
		t.Errorf("the second server has published %+v", now)
	}
	status, text := fetch(t.Context(), second.URL()+"/log/checkpoint", "")
	if h, err := openHead(string(text), s.vkey); err != nil || h.size != before.Published {
		t.Errorf("the second server shows, with %d, %s: %v", status, text, err)
	}
	if _, err := os.Stat(filepath.Join(second.DataDir(), "log.signed")); err == nil {
		t.Error("the second server has signed something")
	}
	_, metrics := fetch(t.Context(), second.URL()+"/metrics", otherKey)
	if !strings.Contains(string(metrics), "\nfairlead_log_refused 1\n") {
		t.Error("the metrics don't tell that nothing is signed")
	}
	said := ""
	for line := range strings.Lines(second.Log()) {
		if strings.Contains(line, "no checkpoint of the log is signed any more") {
			said = line
		}
	}
	if !strings.Contains(said, "another key") {
		t.Errorf("the log says %q", said)
	}
	out, code := doctor(t, "--database-url", s.database)
	if code != 1 || !strings.Contains(out, "another key") {
		t.Errorf("doctor says, with %d: %s", code, complaints(out))
	}
	// The first one comes back, and gets the log when the second one loses it.
	start(t, first)
	testwait.Must(t, second.Signal(syscall.SIGSTOP))
	testwait.Eventually(t, patience, "the first server keeps the log", func() bool { return keepsLog(t.Context(), first, sim.AdminKey) })
	testwait.Must(t, second.Signal(syscall.SIGCONT))
	testwait.Eventually(t, patience, "the second server does not count as one that refuses", func() bool {
		_, metrics := fetch(t.Context(), second.URL()+"/metrics", otherKey)
		return strings.Contains(string(metrics), "\nfairlead_log_refused 0\n")
	})
	testwait.Eventually(t, patience, "a checkpoint of all leaves", func() bool {
		now := s.stateOf(t)
		return now.Refused == "" && now.Published == now.Size && now.Size > before.Size
	})
	s.whole(t)
}
