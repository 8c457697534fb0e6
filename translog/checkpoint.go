package translog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Limits of what is read.
const (
	// MaxNoteBytes bounds a checkpoint with its signatures. Sixteen signatures, which all readers of notes must take, have up to 7 KB
	// each where they are post-quantum ones.
	MaxNoteBytes = 128 << 10
	// MaxTreeSize bounds the number of leaves. Package tlog does not end for sizes beyond 1<<62.
	MaxTreeSize = 1 << 60
	// maxTime is the last second that RFC 3339 can write.
	maxTime = 253402300799
)

// Errors of reading a checkpoint.
var (
	// ErrMalformed is wrapped where a text is no checkpoint, or exceeds a limit.
	ErrMalformed = errors.New("malformed checkpoint")
	// ErrEmptyRoot is wrapped, beside ErrMalformed, where a checkpoint of no leaves has another root than the empty tree's.
	ErrEmptyRoot = errors.New("the empty tree has another root")
	// ErrUnsigned is wrapped where the log's signature is missing.
	ErrUnsigned = errors.New("the log has not signed the checkpoint")
	// ErrBadSignature is wrapped where a signature has the name and hash of a known key, and is not that key's.
	ErrBadSignature = errors.New("a signature does not verify")
	// ErrOtherLog is wrapped where the log's key has signed a checkpoint of another origin.
	ErrOtherLog = errors.New("the checkpoint is another log's")
)

// A Checkpoint is a tree's head that its log has signed.
type Checkpoint struct {
	// Origin is the log's name.
	Origin string
	// Tree is the number of leaves and the root of the tree.
	Tree tlog.Tree
	// Extension is what follows the root: nothing, or lines that each end with a line feed. Fairlead's log has none.
	Extension string
	// Note is the signed note as it was read, with all signatures, known or not.
	Note string
	// Cosignatures are those of the known witnesses, one each at most, in the order of their lines.
	Cosignatures []Cosignature
}

// A Cosignature is a witness's statement that, at a time, the checkpoint's tree was the largest that it had seen of the log, and that
// each one that it saw extended the one before.
type Cosignature struct {
	// Name is that of the witness's key.
	Name string
	// Key is the witness's verifier key.
	Key string
	// At is the time by the witness's clock, in whole seconds and UTC.
	At time.Time
	// Line is the line of the signature, which ends with a line feed.
	Line string
}

// Open reads a checkpoint. It verifies the log's signature, and the signatures of the witnesses' verifier keys that are given, as
// far as they are there; it passes over signatures of other keys. A witness that has signed nothing is simply missing from
// [Checkpoint.Cosignatures].
//
// Errors wrap [ErrMalformed], [ErrUnsigned], [ErrBadSignature] or [ErrOtherLog], and where a key can't be used [ErrBadKey] or
// [ErrWrongKind].
func Open(text, log string, witnesses ...string) (*Checkpoint, error) {
	key, err := parseVerifier(log, kindLog)
	if err != nil {
		return nil, err
	}
	known, err := parseWitnesses(witnesses)
	if err != nil {
		return nil, err
	}
	verifiers := []note.Verifier{key}
	for _, w := range known {
		verifiers = append(verifiers, w.verifier)
	}
	n, err := openNote(text, verifiers...)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(n.Sigs, func(sig note.Signature) bool { return sig.Name == key.Name() && sig.Hash == key.KeyHash() }) {
		return nil, fmt.Errorf("%w: no signature of %s+%08x", ErrUnsigned, key.Name(), key.KeyHash())
	}
	head, err := parseText(n.Text)
	if err != nil {
		return nil, err
	}
	if head.Origin != key.Name() {
		return nil, fmt.Errorf("%w: %.300q, not %s", ErrOtherLog, head.Origin, key.Name())
	}
	c := &Checkpoint{Origin: head.Origin, Tree: head.Tree, Extension: head.Extension, Note: text}
	for _, sig := range n.Sigs {
		w, ok := known[id{sig.Name, sig.Hash}]
		if !ok {
			continue // The log's.
		}
		s, err := w.read(sig)
		if err != nil {
			return nil, err
		}
		c.Cosignatures = append(c.Cosignatures, s)
	}
	return c, nil
}

// VerifyCosignatures reads signature lines over a checkpoint, each of which ends with a line feed, and returns those of the
// witnesses' verifier keys. It passes over lines of other keys. Errors are those of [AddCosignatures].
func VerifyCosignatures(checkpoint, lines string, witnesses ...string) ([]Cosignature, error) {
	known, err := parseWitnesses(witnesses)
	if err != nil {
		return nil, err
	}
	text, _, err := splitNote(checkpoint)
	if err != nil {
		return nil, err
	}
	if len(lines) > MaxNoteBytes {
		return nil, fmt.Errorf("%w: %d bytes of signatures, more than %d", ErrMalformed, len(lines), MaxNoteBytes)
	}
	var found []Cosignature
	for line := range strings.Lines(lines) {
		_, s, err := known.verify(text, line)
		if err != nil {
			return nil, err
		}
		if s != nil {
			found = append(found, *s)
		}
	}
	return found, nil
}

// AddCosignatures puts signature lines into a checkpoint. Each line ends with a line feed; an argument may have several. Lines of keys
// that are not among the witnesses' verifier keys are left out; of the others each must verify. Where a witness has signed before, the
// earlier cosignature stays. The result has the note's other signatures first, in their order, and then those of the witnesses by name
// and hash: it does not depend on the order of calls, and adding what is there changes nothing.
//
// Errors wrap [ErrMalformed] or [ErrBadSignature], and where a key can't be used [ErrBadKey] or [ErrWrongKind]. The log's signature is
// not verified.
func AddCosignatures(checkpoint string, witnesses []string, lines ...string) (string, error) {
	known, err := parseWitnesses(witnesses)
	if err != nil {
		return "", err
	}
	text, signatures, err := splitNote(checkpoint)
	if err != nil {
		return "", err
	}
	added, err := VerifyCosignatures(checkpoint, strings.Join(lines, ""), witnesses...)
	if err != nil {
		return "", err
	}
	best, sorted := map[id]Cosignature{}, []string{}
	keep := func(key id, s Cosignature) {
		if old, ok := best[key]; !ok || s.At.Before(old.At) || s.At.Equal(old.At) && s.Line < old.Line {
			best[key] = s
		}
	}
	for line := range strings.Lines(signatures) {
		key, s, err := known.verify(text, line)
		switch {
		case err != nil:
			return "", err
		case s == nil:
			sorted = append(sorted, line)
		default:
			keep(key, *s)
		}
	}
	for _, s := range added {
		keep(known.id(s), s)
	}
	for _, key := range slices.SortedFunc(maps.Keys(best), id.compare) {
		sorted = append(sorted, best[key].Line)
	}
	merged := text + "\n" + strings.Join(sorted, "")
	if _, _, err := splitNote(merged); err != nil {
		return "", err
	}
	return merged, nil
}

// id is what identifies a key in a signature line.
type id struct {
	name string
	hash uint32
}

func (a id) compare(b id) int {
	return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.hash, b.hash))
}

// witnessKey is a witness's verifier key, read.
type witnessKey struct {
	vkey     string
	verifier note.Verifier
}

// read returns a cosignature of this key that verifies.
func (w witnessKey) read(sig note.Signature) (Cosignature, error) {
	at, err := timeOf(sig)
	return Cosignature{Name: sig.Name, Key: w.vkey, At: at, Line: "— " + sig.Name + " " + sig.Base64 + "\n"}, err
}

type witnessKeys map[id]witnessKey

// id identifies the key of a cosignature of one of them.
func (known witnessKeys) id(s Cosignature) id {
	for key, w := range known {
		if w.vkey == s.Key {
			return key
		}
	}
	return id{}
}

// parseWitnesses reads verifier keys. One that is given twice counts once.
func parseWitnesses(vkeys []string) (witnessKeys, error) {
	known := witnessKeys{}
	for _, vkey := range vkeys {
		v, err := parseVerifier(vkey, kindCosigner)
		if err != nil {
			return nil, err
		}
		key := id{v.Name(), v.KeyHash()}
		if other, ok := known[key]; ok && other.vkey != vkey {
			return nil, fmt.Errorf("%w: two witnesses' keys have the name and hash %s+%08x", ErrBadKey, key.name, key.hash)
		}
		known[key] = witnessKey{vkey, v}
	}
	return known, nil
}

// verify reads a signature line over a checkpoint's text. The result is nil for a key that is not known.
func (known witnessKeys) verify(text, line string) (key id, s *Cosignature, err error) {
	verifiers := make([]note.Verifier, 0, len(known))
	for _, w := range known {
		verifiers = append(verifiers, w.verifier)
	}
	n, err := openNote(text+"\n"+line, verifiers...)
	if err != nil {
		return id{}, nil, err
	}
	if len(n.Sigs) == 0 {
		return id{}, nil, nil
	}
	key = id{n.Sigs[0].Name, n.Sigs[0].Hash}
	read, err := known[key].read(n.Sigs[0])
	return key, &read, err
}

// openNote opens a note that may be signed by none of the keys.
func openNote(text string, known ...note.Verifier) (*note.Note, error) {
	if len(text) > MaxNoteBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, more than %d", ErrMalformed, len(text), MaxNoteBytes)
	}
	n, err := note.Open([]byte(text), note.VerifierList(known...))
	if unsigned, ok := errors.AsType[*note.UnverifiedNoteError](err); ok {
		return unsigned.Note, nil
	}
	if bad, ok := errors.AsType[*note.InvalidSignatureError](err); ok {
		return nil, fmt.Errorf("%w: that of %s+%08x", ErrBadSignature, bad.Name, bad.Hash)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return n, nil
}

// splitNote cuts a checkpoint into its text, which ends with a line feed, and its signature lines.
func splitNote(text string) (body, signatures string, err error) {
	n, err := openNote(text)
	if err != nil {
		return "", "", err
	}
	_, err = parseText(n.Text)
	return n.Text, text[len(n.Text)+1:], err
}

// parseText reads a checkpoint's text, which must be written in the one way that there is.
func parseText(text string) (torchwood.Checkpoint, error) {
	c, err := torchwood.ParseCheckpoint(text)
	if err != nil {
		return c, ErrMalformed
	}
	if c.Origin == "" || c.String() != text {
		return c, fmt.Errorf("%w: it is not in canonical form", ErrMalformed)
	}
	return c, checkTree(c.Tree)
}

// checkTree checks what can be known of a tree's head alone.
func checkTree(tree tlog.Tree) error {
	if tree.N < 0 || tree.N > MaxTreeSize {
		return fmt.Errorf("%w: a tree of %d leaves", ErrMalformed, tree.N)
	}
	if empty, err := tlog.TreeHash(0, nil); err != nil || tree.N == 0 && tree.Hash != empty {
		return fmt.Errorf("%w: %w", ErrMalformed, ErrEmptyRoot)
	}
	return nil
}

// timeOf is the time of a cosignature that verifies. Zero stands for no time, which a witness must not sign.
func timeOf(sig note.Signature) (time.Time, error) {
	at, err := torchwood.CosignatureTimestamp(sig)
	if err != nil || at <= 0 || at > maxTime {
		return time.Time{}, fmt.Errorf("%w: the cosignature of %s has no time that can be", ErrBadSignature, sig.Name)
	}
	return time.Unix(at, 0).UTC(), nil
}
