package witness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/mod/sumdb/note"

	"github.com/fairlead-dev/fairlead/internal/durable"
	"github.com/fairlead-dev/fairlead/translog"
)

const (
	// MaxLogs bounds the logs of a witness: its state is written as a whole with each cosignature.
	MaxLogs = 1024
	// maxTextBytes bounds a checkpoint without its signatures, since the state keeps one of each log.
	maxTextBytes = 8 << 10
	// maxWaiting is how many requests may wait for their turn; the next ones are told to come again. Each turn takes a write to disk.
	maxWaiting = 256
)

// Options configure a witness.
type Options struct {
	// Key is the witness's own. No other witness may use it, on any machine, ever.
	Key *translog.Cosigner
	// KeyFile is where Key was read from. While the witness runs no other one on this machine gets it, whatever its state. It may be empty.
	KeyFile string
	// StateFile keeps what was cosigned. A file that is not there is that of a witness that has cosigned nothing. Beside it the witness
	// keeps StateFile.lock. Both must be on a local disk.
	StateFile string
	// Logs are the verifier keys of the logs whose checkpoints it cosigns, at most [MaxLogs]. A key's name is its log's origin; of several
	// keys of one origin any will do.
	Logs []string
	// Logger gets each cosigned size at debug and refusals at warn, with the notes where two trees don't fit; nil: nothing.
	Logger *slog.Logger
}

// A Witness cosigns checkpoints. It is an [http.Handler] with
//
//	POST /add-checkpoint          as tlog-witness has it
//	GET  /{origin}/checkpoint     the latest cosigned checkpoint of the log whose origin has this SHA-256, in hex
//	GET  /healthz                 200 while it can cosign
//
// It is safe for concurrent use.
type Witness struct {
	key     *translog.Cosigner
	logs    map[string][]string // verifier keys by origin
	hashes  map[string]string   // origins by their hash
	logger  *slog.Logger
	mux     *http.ServeMux
	keyLock *os.File // nil without a file of the key
	lock    *os.File
	waiting atomic.Int64
	turn    chan struct{}         // has one token, which is taken to decide and write
	state   atomic.Pointer[state] // replaced by who has the token
	stopped atomic.Pointer[error] // why it cosigns no more
}

// errClosed is why a closed witness cosigns no more.
var errClosed = errors.New("the witness is closed")

// New reads the state and takes its lock. Errors wrap [ErrInUse], [ErrCorrupt], [translog.ErrBadKey], [translog.ErrWrongKind], or are those
// of the operating system.
func New(o Options) (*Witness, error) {
	if o.Key == nil || o.StateFile == "" {
		return nil, errors.New("a witness needs a key and a file for its state")
	}
	if len(o.Logs) == 0 || len(o.Logs) > MaxLogs {
		return nil, fmt.Errorf("a witness needs 1 to %d logs, not %d", MaxLogs, len(o.Logs))
	}
	w := &Witness{key: o.Key, logs: map[string][]string{}, hashes: map[string]string{}, logger: o.Logger, mux: http.NewServeMux(), turn: make(chan struct{}, 1)}
	if w.logger == nil {
		w.logger = slog.New(slog.DiscardHandler)
	}
	for _, vkey := range o.Logs {
		origin, err := translog.LogKeyName(vkey)
		if err != nil {
			return nil, err
		}
		w.logs[origin] = append(w.logs[origin], vkey)
		w.hashes[originHash(origin)] = origin
	}
	if err := w.open(o); err != nil {
		w.unlock()
		return nil, err
	}
	w.mux.HandleFunc("POST /add-checkpoint", w.serveAdd)
	w.mux.HandleFunc("GET /{origin}/checkpoint", w.serveCheckpoint)
	w.mux.HandleFunc("GET /healthz", w.serveHealth)
	w.turn <- struct{}{}
	return w, nil
}

// open takes the locks, then reads the state.
func (w *Witness) open(o Options) error {
	if o.KeyFile != "" {
		f, err := lock(o.KeyFile, os.O_RDONLY)
		if err != nil {
			return err
		}
		w.keyLock = f
	}
	// The file itself, and not a link to it: another process may come by another name.
	file, err := filepath.EvalSymlinks(o.StateFile)
	if _, there := os.Lstat(o.StateFile); errors.Is(there, os.ErrNotExist) { // A link to nothing is no new witness.
		file, err = filepath.EvalSymlinks(filepath.Dir(o.StateFile))
		file = filepath.Join(file, filepath.Base(o.StateFile))
	}
	if err == nil {
		file, err = filepath.Abs(file)
	}
	if err != nil {
		return err
	}
	if w.lock, err = lock(lockOf(file), os.O_RDWR|os.O_CREATE); err != nil {
		return err
	}
	s, err := readState(file, o.Key.Verifier())
	if err != nil {
		return err
	}
	w.state.Store(s)
	return nil
}

func (w *Witness) unlock() {
	for _, f := range []*os.File{w.keyLock, w.lock} {
		if f != nil {
			unlock(f)
		}
	}
}

// Close waits for the decision under way, refuses all others, and gives the locks back. It may be called once.
func (w *Witness) Close() {
	<-w.turn
	w.stopped.CompareAndSwap(nil, &errClosed)
	w.unlock()
	w.turn <- struct{}{}
}

// ServeHTTP implements [http.Handler].
func (w *Witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) { w.mux.ServeHTTP(rw, r) }

func (w *Witness) serveAdd(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxRequestBytes))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			w.refuse(rw, r, &refusal{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("the body has more than %d bytes", maxRequestBytes)})
		}
		return // Else the client has gone.
	}
	line, err := w.add(r.Context(), string(body))
	if no, ok := errors.AsType[*refusal](err); ok {
		w.refuse(rw, r, no)
		return
	}
	if err != nil && r.Context().Err() != nil {
		return // The client went while it waited.
	}
	if err != nil {
		w.logger.ErrorContext(r.Context(), "checkpoint not cosigned", "error", err)
		http.Error(rw, "the witness can't cosign now", http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(rw, line) // A log that has gone asks again.
}

// refuse answers, and logs what the log's operator or the witness's should know.
func (w *Witness) refuse(rw http.ResponseWriter, r *http.Request, no *refusal) {
	level := slog.LevelWarn
	if no.status == http.StatusConflict {
		level = slog.LevelDebug // This is how a log learns the size.
	}
	w.logger.Log(r.Context(), level, "checkpoint refused", "status", no.status, "reason", no.text, "remote", r.RemoteAddr)
	switch no.status {
	case http.StatusConflict:
		rw.Header().Set("Content-Type", sizeType)
		rw.WriteHeader(no.status)
		_, _ = fmt.Fprintf(rw, "%d\n", no.size)
	case http.StatusServiceUnavailable:
		rw.Header().Set("Retry-After", "1")
		fallthrough
	default:
		http.Error(rw, no.text, no.status)
	}
}

// add decides on the body of an add-checkpoint request and returns the line of the cosignature.
func (w *Witness) add(ctx context.Context, body string) (line string, err error) {
	r, err := parseRequest(body)
	if err != nil {
		return "", &refusal{status: http.StatusBadRequest, text: err.Error()}
	}
	c, vkey, err := w.verify(r.checkpoint)
	if err != nil {
		return "", err
	}
	defer w.waiting.Add(-1)
	if w.waiting.Add(1) > maxWaiting {
		return "", &refusal{status: http.StatusServiceUnavailable, text: "too many requests wait"}
	}
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-w.turn:
	}
	defer func() { w.turn <- struct{}{} }()
	return w.decide(ctx, r, c, vkey)
}

// verify checks that the log has signed a checkpoint, and returns the key by which.
func (w *Witness) verify(checkpoint string) (c *translog.Checkpoint, vkey string, err error) {
	origin, _, _ := strings.Cut(checkpoint, "\n")
	keys := w.logs[origin]
	if len(keys) == 0 {
		return nil, "", &refusal{status: http.StatusNotFound, text: "this witness does not know the log"}
	}
	for _, vkey = range keys {
		c, err = translog.Open(checkpoint, vkey)
		if !errors.Is(err, translog.ErrUnsigned) {
			break
		}
	}
	text, _, _ := strings.Cut(checkpoint, "\n\n")
	switch {
	case err == nil && len(text) >= maxTextBytes:
		return nil, "", &refusal{status: http.StatusBadRequest, text: fmt.Sprintf("the checkpoint has more than %d bytes before its signatures", maxTextBytes)}
	case err == nil:
		return c, vkey, nil
	case errors.Is(err, translog.ErrEmptyRoot):
		return nil, "", &refusal{status: http.StatusUnprocessableEntity, text: err.Error()}
	case errors.Is(err, translog.ErrMalformed):
		return nil, "", &refusal{status: http.StatusBadRequest, text: err.Error()}
	default:
		return nil, "", &refusal{status: http.StatusForbidden, text: err.Error()}
	}
}

// decide cosigns a checkpoint, or refuses to. The caller has the turn, and the state is on disk before it gets the cosignature.
func (w *Witness) decide(ctx context.Context, r request, c *translog.Checkpoint, vkey string) (line string, err error) {
	if stopped := w.stopped.Load(); stopped != nil {
		return "", *stopped
	}
	text, logsOwn, err := split(c.Note, vkey)
	if err != nil {
		return "", err
	}
	s := w.state.Load()
	last, known := s.logs[c.Origin]
	if no := check(last.tree, r, c.Tree); no != nil {
		if no.status == http.StatusUnprocessableEntity {
			w.logger.WarnContext(ctx, "a log shows two trees that don't fit, or a wrong proof", "origin", c.Origin, "cosigned", last.Note, "shown", text+"\n"+logsOwn)
		}
		return "", no
	}
	if line, err = w.key.Cosign(text); err != nil {
		return "", err
	}
	if known && last.tree == c.Tree {
		return line, nil // It is on disk.
	}
	next := s.with(c.Origin, kept{Log: vkey, Note: text + "\n" + logsOwn + line, tree: c.Tree})
	if err := next.write(w.key.Verifier(), w.lock); err != nil {
		if errors.Is(err, durable.ErrUncertain) || errors.Is(err, ErrInUse) {
			// The disk may have the new state or lose it later, or another process may write. Only what the next start reads is sure.
			err = fmt.Errorf("the witness cosigns no more until it is started again: %w", err)
			w.stopped.CompareAndSwap(nil, &err)
		}
		return "", err
	}
	w.state.Store(next)
	w.logger.DebugContext(ctx, "checkpoint cosigned", "origin", c.Origin, "size", c.Tree.N, "root", c.Tree.Hash.String())
	return line, nil
}

// split returns a checkpoint's text and the line of the log's signature. Anybody may have added other lines.
func split(checkpoint, vkey string) (text, line string, err error) {
	v, err := note.NewVerifier(vkey)
	if err != nil {
		return "", "", err
	}
	n, err := note.Open([]byte(checkpoint), note.VerifierList(v))
	if err != nil {
		return "", "", err
	}
	return n.Text, "— " + n.Sigs[0].Name + " " + n.Sigs[0].Base64 + "\n", nil
}

// serveCheckpoint shows the latest cosigned checkpoint of a log.
func (w *Witness) serveCheckpoint(rw http.ResponseWriter, r *http.Request) {
	if k, ok := w.state.Load().logs[w.hashes[r.PathValue("origin")]]; ok {
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		rw.Header().Set("Cache-Control", "no-cache")
		_, _ = io.WriteString(rw, k.Note) // A reader that has gone needs nothing.
		return
	}
	http.Error(rw, "this witness has cosigned no checkpoint of such a log", http.StatusNotFound)
}

// originHash is how a witness's GET names a log: the SHA-256 of its origin, in lower-case hex.
func originHash(origin string) string {
	sum := sha256.Sum256([]byte(origin))
	return hex.EncodeToString(sum[:])
}

func (w *Witness) serveHealth(rw http.ResponseWriter, _ *http.Request) {
	if w.stopped.Load() != nil {
		http.Error(rw, "the witness cosigns no more until it is started again", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(rw, "ok\n") // Nobody waits for it.
}
