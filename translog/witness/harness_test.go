package witness_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
	"github.com/fairlead-dev/fairlead/translog/witness"
)

// history is a log, or one of the histories that a log with two of them shows.
type history struct {
	tb     testing.TB
	key    *translog.Key
	stored []tlog.Hash
	size   int64
}

func newHistory(tb testing.TB, origin string) *history {
	tb.Helper()
	key, err := translog.GenerateKey(origin)
	testwait.Must(tb, err)
	return &history{tb: tb, key: key}
}

// fork returns another history of the same log that begins with the same leaves.
func (h *history) fork() *history {
	return &history{tb: h.tb, key: h.key, stored: append([]tlog.Hash{}, h.stored...), size: h.size}
}

// grow adds leaves of a text up to a size.
func (h *history) grow(size int64, text string) *history {
	h.tb.Helper()
	for ; h.size < size; h.size++ {
		hashes, err := tlog.StoredHashes(h.size, fmt.Appendf(nil, "%s %d", text, h.size), h)
		testwait.Must(h.tb, err)
		h.stored = append(h.stored, hashes...)
	}
	return h
}

// ReadHashes implements tlog.HashReader.
func (h *history) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	var hashes []tlog.Hash
	for _, i := range indexes {
		if i >= int64(len(h.stored)) {
			return nil, fmt.Errorf("there is no hash %d", i)
		}
		hashes = append(hashes, h.stored[i])
	}
	return hashes, nil
}

func (h *history) tree(n int64) tlog.Tree {
	h.tb.Helper()
	root, err := tlog.TreeHash(n, h)
	testwait.Must(h.tb, err)
	return tlog.Tree{N: n, Hash: root}
}

func (h *history) checkpoint(n int64) string {
	h.tb.Helper()
	checkpoint, err := h.key.Sign(h.tree(n))
	testwait.Must(h.tb, err)
	return checkpoint
}

func (h *history) proof(n, old int64) tlog.TreeProof {
	h.tb.Helper()
	if old == 0 {
		return nil
	}
	proof, err := tlog.ProveTree(n, old, h)
	testwait.Must(h.tb, err)
	return proof
}

// request is the body of an add-checkpoint request.
func (h *history) request(old, n int64) string {
	h.tb.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "old %d\n", old)
	for _, hash := range h.proof(n, old) {
		fmt.Fprintln(&b, hash)
	}
	return b.String() + "\n" + h.checkpoint(n)
}

func newCosigner(tb testing.TB, name string) *translog.Cosigner {
	tb.Helper()
	c, err := translog.GenerateCosigner(name)
	testwait.Must(tb, err)
	return c
}

// place is where a witness keeps what it has.
type place struct {
	key   *translog.Cosigner
	state string
}

func newPlace(tb testing.TB, name string) place {
	tb.Helper()
	return place{key: newCosigner(tb, name), state: filepath.Join(tb.TempDir(), "state")}
}

func (p place) options(tb testing.TB, logs ...*history) witness.Options {
	tb.Helper()
	o := witness.Options{Key: p.key, StateFile: p.state, Logger: slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, h := range logs {
		o.Logs = append(o.Logs, h.key.Verifier())
	}
	return o
}

// start runs a witness until it is closed or the test ends.
func (p place) start(t *testing.T, logs ...*history) *running {
	t.Helper()
	w, err := witness.New(p.options(t, logs...))
	testwait.Must(t, err)
	r := &running{t: t, w: w, server: httptest.NewServer(w), vkey: p.key.Verifier()}
	t.Cleanup(r.close)
	return r
}

// running is a witness that answers.
type running struct {
	t      *testing.T
	w      *witness.Witness
	server *httptest.Server
	vkey   string
	closed bool
}

func (r *running) close() {
	if !r.closed {
		r.closed = true
		r.server.Close()
		r.w.Close()
	}
}

func (r *running) remote() witness.Remote { return witness.Remote{Key: r.vkey, URL: r.server.URL} }

// answer is that to an HTTP request.
type answer struct {
	status     int
	kind, text string
}

func (r *running) send(method, path, body string) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path, strings.NewReader(body))
	testwait.Must(r.t, err)
	res, err := r.server.Client().Do(req)
	testwait.Must(r.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	testwait.Must(r.t, err)
	return answer{res.StatusCode, res.Header.Get("Content-Type"), string(text)}
}

func (r *running) add(body string) answer {
	r.t.Helper()
	return r.send(http.MethodPost, "/add-checkpoint", body)
}

// want sends a request that must have an answer's status.
func (r *running) want(status int, body string) answer {
	r.t.Helper()
	a := r.add(body)
	if a.status != status {
		r.t.Errorf("status %d, want %d: %s", a.status, status, a.text)
	}
	return a
}
