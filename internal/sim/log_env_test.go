//go:build unix

package sim_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/translog"
)

// witness is a process of fairlead witness, at one address for good.
type witness struct {
	binary, dir, addr, vkey string
	cmd                     *exec.Cmd
	exited                  chan struct{}
}

// newWitness makes a witness's key. The witness can be started once the log's key is known.
func newWitness(t *testing.T, name string) *witness {
	t.Helper()
	key, err := translog.GenerateCosigner(name)
	testwait.Must(t, err)
	w := &witness{binary: binary(t), dir: tempDir(t), addr: fmt.Sprintf("127.0.0.1:%d", pgtest.Port(t)), vkey: key.Verifier()}
	testwait.Must(t, key.WriteFile(filepath.Join(w.dir, "key")))
	t.Cleanup(func() {
		if w.cmd != nil {
			testwait.Check(t, w.end(syscall.SIGKILL))
		}
	})
	return w
}

// flag is how a server is told of the witness.
func (w *witness) flag() string { return w.vkey + "=http://" + w.addr }

// name is how a server's reasons name it.
func (w *witness) name() string {
	name, _, _ := strings.Cut(w.vkey, "+")
	return "the witness " + name
}

// start starts it for a log, and waits until it answers.
func (w *witness) start(ctx context.Context, log string) error {
	w.cmd = exec.Command(w.binary, "witness", "--key", filepath.Join(w.dir, "key"), "--state", filepath.Join(w.dir, "state"), "--log", log, "--listen", w.addr)
	out, err := os.OpenFile(filepath.Join(w.dir, "out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // The process has its own.
	w.cmd.Stdout, w.cmd.Stderr, w.cmd.SysProcAttr = out, out, &syscall.SysProcAttr{Setpgid: true}
	if err := w.cmd.Start(); err != nil {
		return err
	}
	w.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		defer close(exited)
		_ = cmd.Wait() // It is killed.
	}(w.cmd, w.exited)
	for {
		if status, _ := fetch(ctx, "http://"+w.addr+"/healthz", ""); status == http.StatusOK {
			return nil
		}
		select {
		case <-w.exited:
			return fmt.Errorf("the witness has ended: %s", w.said())
		default:
		}
		if !wait.For(ctx, 10*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

func (w *witness) end(by syscall.Signal) error {
	if err := w.cmd.Process.Signal(by); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-w.exited
	return nil
}

// said is what its processes have written.
func (w *witness) said() string {
	text, err := os.ReadFile(filepath.Join(w.dir, "out"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// checkpoint is where it shows the latest that it has cosigned.
func (w *witness) checkpoint(log string) string {
	origin, _, _ := strings.Cut(log, "+")
	return fmt.Sprintf("http://%s/%x/checkpoint", w.addr, sha256.Sum256([]byte(origin)))
}

// visits asks without keeping connections, since who is asked may be gone the next time. Who is there may be late, on a machine that stalls.
var visits = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

// fetch reads an address, with a key or none; the status is 0 where no whole answer came.
func fetch(ctx context.Context, address, key string) (status int, body []byte) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, nil
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := visits.Do(req)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = resp.Body.Close() }() // Only read from.
	if body, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil
	}
	return resp.StatusCode, body
}

// logSite is servers on one database, with witnesses of their public log.
type logSite struct {
	database  string
	servers   []*sim.Server
	args      []string // of the servers
	witnesses []*witness
	vkey      string // of the log
}

// newLogSite starts servers that are given the same admin key, and so many witnesses, of which each checkpoint needs a quorum.
func newLogSite(t *testing.T, database string, servers, witnesses, quorum int, args ...string) *logSite {
	t.Helper()
	s := &logSite{database: database}
	args = append(args, "--leader-ttl", "1s", "--witness-quorum", fmt.Sprint(quorum))
	for i := range witnesses {
		w := newWitness(t, fmt.Sprintf("witness-%d.example", i))
		s.witnesses = append(s.witnesses, w)
		args = append(args, "--witness", w.flag())
	}
	s.args = args
	for range servers {
		s.servers = append(s.servers, newServer(t, database, args...))
	}
	for _, server := range s.servers {
		vkey := logKeyOf(t, server)
		if s.vkey != "" && vkey != s.vkey {
			t.Fatalf("two servers with one admin key have the log's keys %s and %s", s.vkey, vkey)
		}
		s.vkey = vkey
	}
	for _, w := range s.witnesses {
		testwait.Must(t, w.start(testwait.Context(t, patience), s.vkey))
	}
	return s
}

// logKeyOf is the verifier key of a server's log.
func logKeyOf(t *testing.T, server *sim.Server) string {
	t.Helper()
	key, err := translog.ReadKey(fairlead.LogKeyFile(server.DataDir()))
	testwait.Must(t, err)
	return key.Verifier()
}

// keeper waits until one of the servers, all of which run, keeps the log.
func (s *logSite) keeper(t *testing.T) (keeper *sim.Server) {
	t.Helper()
	testwait.Eventually(t, patience, "a keeper of the log", func() bool {
		for _, server := range s.servers {
			if keepsLog(t.Context(), server, sim.AdminKey) {
				keeper = server
				return true
			}
		}
		return false
	})
	return keeper
}

// keepsLog asks a server, under an admin key, whether it keeps the log; one that does not answer doesn't.
func keepsLog(ctx context.Context, server *sim.Server, key string) bool {
	_, body := fetch(ctx, server.URL()+"/metrics", key)
	return bytes.Contains(body, []byte("\nfairlead_log_leading 1\n"))
}

// logState is the row of the log's state.
type logState struct {
	Size, Published int64
	Refused         string
}

func readLogState(ctx context.Context, from interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (s logState, err error) {
	err = from.QueryRow(ctx, `SELECT size, published, refused FROM log_state`).Scan(&s.Size, &s.Published, &s.Refused)
	return s, err
}

// stateOf reads the log's state.
func (s *logSite) stateOf(t *testing.T) (state logState) {
	t.Helper()
	conn := pgtest.Connect(t, s.database)
	state, err := readLogState(t.Context(), conn)
	testwait.Must(t, err)
	testwait.Check(t, conn.Close(t.Context()))
	return state
}

// head is a tree's head in a note that the log's key has signed.
type head struct {
	size int64
	root tlog.Hash
	note string
	by   int // signatures of known witnesses
}

// openHead reads a checkpoint by the library of signed notes alone.
func openHead(text, log string, witnesses ...string) (h head, err error) {
	own, err := note.NewVerifier(log)
	if err != nil {
		return h, err
	}
	n, err := note.Open([]byte(text), note.VerifierList(own))
	if err != nil {
		return h, fmt.Errorf("%w: %q", err, text)
	}
	var origin, root string
	if fields := strings.Split(n.Text, "\n"); len(fields) != 4 || fields[3] != "" {
		return h, fmt.Errorf("a checkpoint of %d lines: %q", len(fields), n.Text)
	} else if origin, root = fields[0], fields[2]; origin != own.Name() {
		return h, fmt.Errorf("a checkpoint of %q", origin)
	} else if _, err := fmt.Sscanf(fields[1], "%d", &h.size); err != nil {
		return h, err
	}
	h.note = text
	if h.root, err = tlog.ParseHash(root); err != nil || len(witnesses) == 0 {
		return h, err
	}
	lines, err := translog.VerifyCosignatures(text, text[len(n.Text)+1:], witnesses...)
	h.by = len(lines)
	return h, err
}

// watchCheckpoints collects every checkpoint that the servers and the witnesses show, until stop is called, which returns them.
func (s *logSite) watchCheckpoints(t *testing.T) (stop func() []head) {
	t.Helper()
	var (
		mu   sync.Mutex
		seen = map[string]head{} // by size and root
		bad  []error
		all  sync.WaitGroup
	)
	ctx, cancel := context.WithCancel(t.Context())
	watch := func(address func() string) {
		all.Go(func() {
			for wait.For(ctx, 20*time.Millisecond) {
				status, body := fetch(ctx, address(), "")
				if status != http.StatusOK {
					continue
				}
				h, err := openHead(string(body), s.vkey)
				mu.Lock()
				if err != nil {
					bad = append(bad, err)
				} else {
					seen[fmt.Sprint(h.size, h.root)] = h
				}
				mu.Unlock()
			}
		})
	}
	for _, server := range s.servers {
		watch(func() string { return server.URL() + "/log/checkpoint" })
	}
	for _, w := range s.witnesses {
		watch(func() string { return w.checkpoint(s.vkey) })
	}
	end := sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(end)
	return func() []head {
		t.Helper()
		end()
		complain(t, errors.Join(bad...))
		return slices.SortedFunc(maps.Values(seen), func(a, b head) int { return int(a.size - b.size) })
	}
}
