package witness_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
	"github.com/fairlead-dev/fairlead/translog/witness"
)

// TestAddCheckpoint goes through the answers of tlog-witness, in the order of the specification.
func TestAddCheckpoint(t *testing.T) {
	t.Parallel()
	h, stranger := newHistory(t, "log.example.com").grow(20, "a"), newHistory(t, "stranger").grow(5, "a")
	impostor := newHistory(t, "log.example.com").grow(20, "a")
	p := newPlace(t, "witness.example.com/w1")
	r := p.start(t, h)

	// 400: malformed.
	good := h.request(0, 5)
	for name, body := range map[string]string{
		"empty": "", "no old size": strings.TrimPrefix(good, "old 0\n"), "a leading zero": "old 00\n\n" + h.checkpoint(5), "negative": "old -1\n\n" + h.checkpoint(5),
		"a plus": "old +0\n\n" + h.checkpoint(5), "two spaces": "old  0\n\n" + h.checkpoint(5), "carriage returns": strings.ReplaceAll(good, "\n", "\r\n"),
		"a size beyond all": "old 99999999999999999999\n\n" + h.checkpoint(5), "a proof that is no hash": "old 0\nAAAA\n\n" + h.checkpoint(5),
		"a hash in another spelling": "old 0\n" + strings.Repeat("A", 42) + "B=\n\n" + h.checkpoint(5),
		"64 lines of proof":          "old 0\n" + strings.Repeat(base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n", 64) + "\n" + h.checkpoint(5),
		"no signature":               "old 0\n\n" + strings.SplitAfter(h.checkpoint(5), "\n\n")[0], "a size with text": strings.Replace(good, "\n5\n", "\nfive\n", 1),
		"an old size that is larger": "old 6\n\n" + h.checkpoint(5), "a large text": "old 0\n\n" + signed(t, h, "log.example.com\n5\n"+h.tree(5).Hash.String()+"\n"+strings.Repeat("x", 9000)+"\n"),
	} {
		if a := r.add(body); a.status != http.StatusBadRequest {
			// A text that is not what the key has signed is refused for its signature first.
			if name != "a size with text" || a.status != http.StatusForbidden {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
	if a := r.add("old 0\n\n" + signed(t, h, "log.example.com\n9223372036854775807\n"+h.tree(5).Hash.String()+"\n")); a.status != http.StatusBadRequest {
		t.Errorf("a size for which no proof can be checked: %+v", a)
	}
	r.want(http.StatusRequestEntityTooLarge, good+strings.Repeat("x", 200_000))
	// 404, 403.
	r.want(http.StatusNotFound, stranger.request(0, 5))
	r.want(http.StatusForbidden, impostor.request(0, 5))
	r.want(http.StatusForbidden, strings.Replace(good, "\n5\n", "\n6\n", 1))
	if a := r.send(http.MethodGet, "/"+hashOf("log.example.com")+"/checkpoint", ""); a.status != http.StatusNotFound {
		t.Errorf("a checkpoint before the first: %+v", a)
	}
	// 422 for the empty tree, and for proofs where there is nothing to prove.
	zero := base64.StdEncoding.EncodeToString(make([]byte, 32))
	r.want(http.StatusUnprocessableEntity, "old 0\n\n"+signed(t, h, "log.example.com\n0\n"+zero+"\n"))
	r.want(http.StatusUnprocessableEntity, "old 0\n"+zero+"\n\n"+h.checkpoint(5))
	// 409 before the first: the size is zero.
	if a := r.want(http.StatusConflict, h.request(3, 5)); a.text != "0\n" || a.kind != "text/x.tlog.size" {
		t.Errorf("%+v", a)
	}
	// 200, from the empty tree on, with other signatures and further lines.
	empty := r.want(http.StatusOK, "old 0\n\n"+h.checkpoint(0))
	verifyLine(t, p.key.Verifier(), h.checkpoint(0), empty.text)
	verifyLine(t, p.key.Verifier(), h.checkpoint(5), r.want(http.StatusOK, good+"— someone AAAAAAAA\n").text)
	if a := r.want(http.StatusConflict, good); a.text != "5\n" {
		t.Errorf("%+v", a)
	}
	verifyLine(t, p.key.Verifier(), h.checkpoint(5), r.want(http.StatusOK, h.request(5, 5)).text)
	verifyLine(t, p.key.Verifier(), h.checkpoint(12), r.want(http.StatusOK, h.request(5, 12)).text)
	extended := signed(t, h, "log.example.com\n12\n"+h.tree(12).Hash.String()+"\nextension\n")
	verifyLine(t, p.key.Verifier(), extended, r.want(http.StatusOK, "old 12\n\n"+extended).text)
	// 409 backwards, 422 with a wrong proof, another root, and a proof of the same size.
	if a := r.want(http.StatusConflict, h.request(5, 9)); a.text != "12\n" {
		t.Errorf("%+v", a)
	}
	r.want(http.StatusUnprocessableEntity, "old 12\n\n"+h.checkpoint(20))
	r.want(http.StatusUnprocessableEntity, strings.Replace(h.request(12, 20), "old 12\n", "old 12\n"+zero+"\n", 1))
	r.want(http.StatusUnprocessableEntity, "old 12\n"+zero+"\n\n"+h.checkpoint(12))
	other := h.fork()
	other.stored, other.size = nil, 0
	r.want(http.StatusUnprocessableEntity, other.grow(12, "b").request(12, 12))
	r.want(http.StatusUnprocessableEntity, other.grow(20, "b").request(12, 20))
	// What it serves has the log's signature and its own, and no other.
	a := r.send(http.MethodGet, "/"+hashOf("log.example.com")+"/checkpoint", "")
	c, err := translog.Open(a.text, h.key.Verifier(), p.key.Verifier())
	testwait.Must(t, err)
	if a.status != http.StatusOK || c.Tree != h.tree(12) || len(c.Cosignatures) != 1 || strings.Count(a.text, "\n—") != 2 {
		t.Errorf("%+v", a)
	}
	if a := r.send(http.MethodGet, "/healthz", ""); a.status != http.StatusOK {
		t.Errorf("%+v", a)
	}
	if a := r.send(http.MethodGet, "/add-checkpoint", ""); a.status != http.StatusMethodNotAllowed {
		t.Errorf("%+v", a)
	}
}

func hashOf(origin string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(origin))) }

// signed signs any text with a log's key.
func signed(t *testing.T, h *history, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	testwait.Must(t, h.key.WriteFile(file))
	raw, err := os.ReadFile(file)
	testwait.Must(t, err)
	signer, err := note.NewSigner(strings.TrimSpace(string(raw)))
	testwait.Must(t, err)
	n, err := note.Sign(&note.Note{Text: text}, signer)
	testwait.Must(t, err)
	return string(n)
}

// verifyLine verifies a cosignature by this module, and by crypto/ed25519 and the bytes of the specification alone.
func verifyLine(t *testing.T, vkey, checkpoint, line string) {
	t.Helper()
	found, err := translog.VerifyCosignatures(checkpoint, line, vkey)
	testwait.Must(t, err)
	name, rest, _ := strings.Cut(vkey, "+")
	hash, key64, _ := strings.Cut(rest, "+")
	public, err := base64.StdEncoding.DecodeString(key64)
	testwait.Must(t, err)
	b64, ok := strings.CutPrefix(line, "— "+name+" ")
	blob, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(b64, "\n"))
	testwait.Must(t, err)
	text, _, _ := strings.Cut(checkpoint, "\n\n")
	if len(found) != 1 || !ok || len(blob) != 76 || fmt.Sprintf("%x", blob[:4]) != hash || public[0] != 4 ||
		!ed25519.Verify(public[1:], fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s\n", binary.BigEndian.Uint64(blob[4:]), text), blob[12:]) {
		t.Errorf("%q does not verify", line)
	}
}

// TestTorchwoodVerifies: the verifier of another implementation takes what a witness has signed.
func TestTorchwoodVerifies(t *testing.T) {
	t.Parallel()
	h, p := newHistory(t, "log").grow(5, "a"), newPlace(t, "w")
	line := p.start(t, h).want(http.StatusOK, h.request(0, 5)).text
	file := filepath.Join(t.TempDir(), "key")
	testwait.Must(t, p.key.WriteFile(file))
	raw, err := os.ReadFile(file)
	testwait.Must(t, err)
	fields := strings.Split(strings.TrimSpace(string(raw)), "+")
	seed, err := base64.StdEncoding.DecodeString(strings.Join(fields[4:], "+"))
	testwait.Must(t, err)
	theirs, err := torchwood.NewCosignatureSigner("w", ed25519.NewKeyFromSeed(seed[1:]))
	testwait.Must(t, err)
	if theirs.Verifier().String() != p.key.Verifier() {
		t.Errorf("%s, not %s", theirs.Verifier(), p.key.Verifier())
	}
	n, err := note.Open([]byte(h.checkpoint(5)+line), note.VerifierList(theirs.Verifier()))
	testwait.Must(t, err)
	if len(n.Sigs) != 1 {
		t.Errorf("%+v", n)
	}
}

// TestSeveralKeysOfALog: any of a log's keys will do.
func TestSeveralKeysOfALog(t *testing.T) {
	t.Parallel()
	before, after := newHistory(t, "log").grow(5, "a"), newHistory(t, "log").grow(5, "a").grow(9, "b")
	p := newPlace(t, "w")
	r := p.start(t, before, after)
	r.want(http.StatusOK, before.request(0, 5))
	r.want(http.StatusOK, after.request(5, 9))
	r.close()
	p.start(t, after).want(http.StatusOK, after.request(9, 9))
}

// TestTwoHistories: one witness takes one of them; where two witnesses have seen one each, the two notes are the proof.
func TestTwoHistories(t *testing.T) {
	t.Parallel()
	left := newHistory(t, "log").grow(5, "common")
	right := left.fork().grow(9, "right")
	left.grow(9, "left")
	p := newPlace(t, "w1")
	one, other := p.start(t, left), newPlace(t, "w2").start(t, left)
	one.want(http.StatusOK, left.request(0, 5))
	one.want(http.StatusOK, left.request(5, 8))
	one.want(http.StatusUnprocessableEntity, right.request(8, 8))
	one.want(http.StatusUnprocessableEntity, right.request(8, 9))
	if a := one.want(http.StatusConflict, right.request(5, 9)); a.text != "8\n" {
		t.Errorf("%+v", a)
	}
	// A restart changes nothing.
	one.close()
	one = p.start(t, left)
	one.want(http.StatusUnprocessableEntity, right.request(8, 9))
	one.want(http.StatusOK, left.request(8, 9))

	other.want(http.StatusOK, right.request(0, 9))
	var shown []*translog.Checkpoint
	client := witness.NewClient(nil)
	defer client.Close()
	for _, r := range []*running{one, other} {
		c, err := client.Latest(testwait.Context(t, patience), r.remote(), left.key.Verifier())
		testwait.Must(t, err)
		shown = append(shown, c)
	}
	if shown[0].Tree.N != 9 || shown[1].Tree.N != 9 || shown[0].Tree.Hash == shown[1].Tree.Hash || shown[0].Origin != shown[1].Origin {
		t.Errorf("the two notes do not prove two histories:\n%s\n%s", shown[0].Note, shown[1].Note)
	}
}

// TestConcurrentHistories: of requests that compete, those that are cosigned are on one history.
func TestConcurrentHistories(t *testing.T) {
	t.Parallel()
	left := newHistory(t, "log")
	right := left.fork().grow(40, "right")
	left.grow(40, "left")
	p := newPlace(t, "w")
	r := p.start(t, left)
	var mu sync.Mutex
	var cosigned []seen
	var wait sync.WaitGroup
	for range 4 {
		for _, h := range []*history{left, right} {
			wait.Go(func() {
				old := int64(0)
				for n := int64(1); n <= 40; n++ {
					switch a := r.add(h.request(old, n)); a.status {
					case http.StatusOK:
						mu.Lock()
						cosigned = append(cosigned, seen{h, n})
						mu.Unlock()
						old = n
					case http.StatusConflict:
						testwait.Check(t, testwait.Err(fmt.Sscanf(a.text, "%d", &old)))
						n = max(n, old)
					}
				}
			})
		}
	}
	wait.Wait()
	if oneHistory(t, cosigned) != 40 {
		t.Errorf("%d cosignatures", len(cosigned))
	}
}

// seen is a tree that was cosigned.
type seen struct {
	h *history
	n int64
}

// oneHistory checks that each of the trees that were cosigned extends the smaller ones, and returns the largest size.
func oneHistory(t *testing.T, cosigned []seen) (largest int64) {
	t.Helper()
	for i, a := range cosigned {
		largest = max(largest, a.n)
		for _, b := range cosigned[:i] {
			small, large := a, b
			if small.n > large.n {
				small, large = large, small
			}
			if small.n == 0 {
				continue
			}
			s, l := small.h.tree(small.n), large.h.tree(large.n)
			if err := tlog.CheckTree(large.h.proof(l.N, s.N), l.N, l.Hash, s.N, s.Hash); err != nil {
				t.Fatalf("%d leaves and %d leaves of two histories were cosigned", s.N, l.N)
			}
		}
	}
	return largest
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	h, p := newHistory(t, "log").grow(5, "a"), newPlace(t, "w")
	r := p.start(t, h)
	r.want(http.StatusOK, h.request(0, 5))
	refused := func(name string, o witness.Options, want error) {
		t.Helper()
		w, err := witness.New(o)
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		if w != nil {
			w.Close()
		}
	}
	refused("a state in use", p.options(t, h), witness.ErrInUse)
	r.close()

	file := filepath.Join(t.TempDir(), "key")
	testwait.Must(t, p.key.WriteFile(file))
	first := p.options(t, h)
	first.KeyFile = file
	w, err := witness.New(first)
	testwait.Must(t, err)
	second := first
	second.StateFile = filepath.Join(t.TempDir(), "another")
	refused("a key in use, with another state", second, witness.ErrInUse)
	w.Close()

	whole, err := os.ReadFile(p.state)
	testwait.Must(t, err)
	line := strings.Split(string(whole), "\\n")[4] // The log's signature.
	for name, text := range map[string]string{
		"empty": "", "cut": string(whole[:len(whole)-30]), "zeroes": strings.Repeat("\x00", len(whole)), "another version": strings.Replace(string(whole), `"version": 1`, `"version": 2`, 1),
		"a smaller size": strings.Replace(string(whole), `log\n5\n`, `log\n4\n`, 1), "another root": strings.Replace(string(whole), h.tree(5).Hash.String(), h.tree(4).Hash.String(), 1),
		"another origin": strings.Replace(string(whole), `"log\n`, `"lag\n`, 1), "twice": strings.Replace(string(whole), "    }\n", "    },"+between(string(whole), `"checkpoints": [`, "\n  ]")+"\n", 1),
		"without the log's signature": strings.Replace(string(whole), line+"\\n", "", 1), "null": "null", "another document": `{"a":1}`, "two documents": string(whole) + string(whole),
		"large": string(whole) + strings.Repeat(" ", 17<<20),
	} {
		if text == string(whole) {
			t.Errorf("%s: nothing is changed", name)
		}
		testwait.Must(t, os.WriteFile(p.state, []byte(text), 0o600))
		refused(name, p.options(t, h), witness.ErrCorrupt)
		if now, err := os.ReadFile(p.state); err != nil || string(now) != text {
			t.Errorf("%s: the file was changed: %v", name, err)
		}
	}
	testwait.Must(t, os.WriteFile(p.state, whole, 0o600))
	// What a crash leaves beside it is nothing.
	testwait.Must(t, os.WriteFile(p.state+".tmp", whole[:100], 0o600))
	refused("another key", place{newCosigner(t, "w"), p.state}.options(t, h), witness.ErrCorrupt)
	refused("no log", p.options(t), nil)
	bad := p.options(t)
	bad.Logs = []string{p.key.Verifier()}
	refused("a witness's key for a log's", bad, translog.ErrWrongKind)
	bad.Logs = []string{"x"}
	refused("a malformed key", bad, translog.ErrBadKey)
	again := p.start(t, h)
	if a := again.want(http.StatusConflict, h.request(0, 5)); a.text != "5\n" {
		t.Errorf("%+v", a)
	}
	// Logs that it no longer knows stay in its state.
	again.close()
	other := newHistory(t, "other").grow(3, "a")
	only := p.start(t, other)
	only.want(http.StatusNotFound, h.request(5, 5))
	only.want(http.StatusOK, other.request(0, 3))
	only.close()
	p.start(t, h).want(http.StatusOK, h.request(5, 5))
}

func between(text, from, to string) string {
	_, rest, _ := strings.Cut(text, from)
	inner, _, _ := strings.Cut(rest, to)
	return inner
}

// TestDiskTrouble: what is not on disk is not cosigned, and a witness that can't tell what is there cosigns no more.
func TestDiskTrouble(t *testing.T) {
	t.Parallel()
	left := newHistory(t, "log").grow(5, "common")
	right := left.fork().grow(9, "right")
	left.grow(9, "left")
	p := newPlace(t, "w")
	p.state = filepath.Join(filepath.Dir(p.state), "dir", "state")
	dir := filepath.Dir(p.state)
	testwait.Must(t, os.Mkdir(dir, 0o700))
	r := p.start(t, left)
	r.want(http.StatusOK, left.request(0, 5))
	// Nothing can be written: the state is as it was, and it goes on afterwards.
	testwait.Must(t, os.Rename(dir, dir+".away"))
	r.want(http.StatusInternalServerError, left.request(5, 9))
	r.want(http.StatusOK, left.request(5, 5))
	testwait.Must(t, os.Rename(dir+".away", dir))
	r.want(http.StatusOK, right.request(5, 7))
	// The new file can't be moved to its place: nobody knows what a power failure would leave.
	testwait.Must(t, os.Rename(p.state, p.state+".kept"))
	testwait.Must(t, os.MkdirAll(filepath.Join(p.state, "in the way"), 0o700))
	r.want(http.StatusInternalServerError, right.request(7, 8))
	testwait.Must(t, os.RemoveAll(p.state))
	testwait.Must(t, os.Rename(p.state+".kept", p.state))
	r.want(http.StatusInternalServerError, right.request(7, 8))
	r.want(http.StatusInternalServerError, right.request(7, 7))
	if a := r.send(http.MethodGet, "/healthz", ""); a.status != http.StatusServiceUnavailable {
		t.Errorf("%+v", a)
	}
	r.close()
	r = p.start(t, left)
	r.want(http.StatusUnprocessableEntity, left.request(7, 9))
	r.want(http.StatusOK, right.request(7, 8))
}

// TestRemovedLock: a witness whose lock was removed writes nothing, and nothing any more once another process has made a new one.
func TestRemovedLock(t *testing.T) {
	t.Parallel()
	left := newHistory(t, "log").grow(9, "left")
	p := newPlace(t, "w")
	one := p.start(t, left)
	one.want(http.StatusOK, left.request(0, 5))
	testwait.Must(t, os.Remove(p.state+".lock"))
	one.want(http.StatusInternalServerError, left.request(5, 9))
	other := p.start(t, left)
	other.want(http.StatusOK, left.request(5, 7))
	one.want(http.StatusInternalServerError, left.request(5, 9))
	if a := one.send(http.MethodGet, "/healthz", ""); a.status != http.StatusServiceUnavailable {
		t.Errorf("%+v", a)
	}
	other.want(http.StatusOK, left.request(7, 9))
	// A link to a state is the same state.
	link := place{p.key, filepath.Join(t.TempDir(), "link")}
	testwait.Must(t, os.Symlink(p.state, link.state))
	if _, err := witness.New(link.options(t, left)); !errors.Is(err, witness.ErrInUse) {
		t.Errorf("a link to a state in use: %v", err)
	}
	other.close()
	testwait.Must(t, os.Rename(p.state, p.state+".away"))
	if _, err := witness.New(link.options(t, left)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a link to nothing: %v", err)
	}
	testwait.Must(t, os.Rename(p.state+".away", p.state))
	link.start(t, left).want(http.StatusOK, left.request(9, 9))
}

func TestClosedWitness(t *testing.T) {
	t.Parallel()
	h := newHistory(t, "log").grow(5, "a")
	r := newPlace(t, "w").start(t, h)
	r.w.Close()
	r.want(http.StatusInternalServerError, h.request(0, 5))
	r.closed = true
	r.server.Close()
}
