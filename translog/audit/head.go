package audit

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// head is a checkpoint that the log has signed.
type head struct {
	tlog.Tree

	note []byte // as it was read, with all signatures
}

// ErrNotTheLog is returned when what the server answers is not a checkpoint of the log whose key was given.
var ErrNotTheLog = errors.New("not a checkpoint of this log")

// ErrState is returned when the state file is not one of the log whose key was given.
var ErrState = errors.New("state file")

// openHead reads a checkpoint, which must be signed by the log, and by it alone it is believed.
func openHead(text []byte, key note.Verifier) (*head, error) {
	n, err := note.Open(text, note.VerifierList(key))
	if err != nil {
		if _, ok := errors.AsType[*note.UnverifiedNoteError](err); ok {
			return nil, fmt.Errorf("%w: the key %s+%08x has not signed it: is --key that of this log?", ErrNotTheLog, key.Name(), key.KeyHash())
		}
		return nil, fmt.Errorf("%w: %w", ErrNotTheLog, err)
	}
	c, err := torchwood.ParseCheckpoint(n.Text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotTheLog, err)
	case c.Origin != key.Name():
		return nil, fmt.Errorf("%w: its origin is %q, and the key's name %q", ErrNotTheLog, c.Origin, key.Name())
	case c.Extension != "":
		return nil, fmt.Errorf("%w: it has a fourth line, %q", ErrNotTheLog, c.Extension)
	}
	return &head{Tree: c.Tree, note: text}, nil
}

// Cosignature says whether, and when, a witness signed that it has seen the checkpoint.
type Cosignature struct {
	Witness string     `json:"witness"` // its name
	At      *time.Time `json:"at"`      // by the witness's clock; nil where it has not signed
}

// cosignatures asks for each witness whether it has signed.
func (h *head) cosignatures(witnesses []*witness) []Cosignature {
	all := make([]Cosignature, len(witnesses))
	for i, w := range witnesses {
		all[i].Witness = w.name
		if n, err := note.Open(h.note, note.VerifierList(w)); err == nil {
			if seconds, err := torchwood.CosignatureTimestamp(n.Sigs[0]); err == nil {
				at := time.Unix(seconds, 0).UTC()
				all[i].At = &at
			}
		}
	}
	return all
}

// witness verifies signatures of type 4, cosignature/v1 (https://c2sp.org/tlog-cosignature).
type witness struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

var _ note.Verifier = (*witness)(nil)

const (
	cosignatureV1 = 4
	timeBytes     = 8
)

// newWitness reads a verifier key: name+hash+key, where the key begins with its type.
func newWitness(vkey string) (*witness, error) {
	bad := fmt.Errorf("%q is not a witness's key, which is name+hash+key, of type 4", vkey)
	name, rest, ok := strings.Cut(vkey, "+")
	hash, encoded, ok2 := strings.Cut(rest, "+")
	if !ok || !ok2 || name == "" {
		return nil, bad
	}
	h, err := strconv.ParseUint(hash, 16, 32)
	key, err2 := base64.StdEncoding.DecodeString(encoded)
	if err != nil || err2 != nil || len(key) != 1+ed25519.PublicKeySize || key[0] != cosignatureV1 {
		return nil, bad
	}
	sum := sha256.Sum256(append([]byte(name+"\n"), key...))
	if len(hash) != 8 || uint32(h) != binary.BigEndian.Uint32(sum[:]) {
		return nil, bad
	}
	return &witness{name: name, hash: uint32(h), key: key[1:]}, nil
}

func (w *witness) Name() string    { return w.name }
func (w *witness) KeyHash() uint32 { return w.hash }

// Verify implements [note.Verifier].
func (w *witness) Verify(msg, sig []byte) bool {
	if len(sig) != timeBytes+ed25519.SignatureSize {
		return false
	}
	at := binary.BigEndian.Uint64(sig)
	signed := append([]byte("cosignature/v1\ntime "+strconv.FormatUint(at, 10)+"\n"), msg...)
	return at <= math.MaxInt64 && ed25519.Verify(w.key, signed, sig[timeBytes:])
}

// readState returns the checkpoint of the last good run, or nil where there is none yet.
func readState(file string, key note.Verifier) (*head, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // No state is no error.
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // This is the first run.
	}
	if err != nil {
		return nil, err
	}
	h, err := openHead(text, key)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrState, file, err)
	}
	return h, nil
}

// writeState replaces the state file as a whole: after a crash it is the old one or the new one.
func writeState(file string, h *head) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temporary.Name()))
		}
	}()
	_, err = temporary.Write(h.note)
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	return err
}
