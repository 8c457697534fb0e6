package translog

import (
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/durable"
)

// maxKeyBytes bounds the file of a key. With the longest name it takes some 400.
const maxKeyBytes = 4 << 10

// ErrKeyExposed is wrapped by [ReadKey] and [ReadCosigner] where other users may read or write the file of a key.
var ErrKeyExposed = errors.New("other users have access to the key")

// A Key signs a log's checkpoints. Its name is the log's origin. Whoever has it can sign a second history of the log; only witnesses
// stand against that.
type Key struct {
	private
	signer note.Signer
}

// GenerateKey makes a key. The origin should look like a URL without a scheme, such as log.example.com/shop, and never change. It has
// at most [MaxNameBytes] bytes and neither spaces nor plus signs; an error wraps [ErrBadKey] otherwise.
func GenerateKey(origin string) (*Key, error) {
	p, err := generate(origin, kindLog)
	if err != nil {
		return nil, err
	}
	return newKey(p)
}

// ReadKey reads the file of a key. Errors are those of the operating system, or wrap [ErrKeyExposed], [ErrBadKey] or [ErrWrongKind].
func ReadKey(file string) (*Key, error) {
	p, err := readPrivate(file, kindLog)
	if err != nil {
		return nil, err
	}
	return newKey(p)
}

func newKey(p private) (*Key, error) {
	signer, err := note.NewSigner(p.text())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadKey, err)
	}
	return &Key{private: p, signer: signer}, nil
}

// Origin is the key's name, and the first line of the checkpoints that it signs.
func (k *Key) Origin() string { return k.name }

// Verifier is the public half of the key, in the format name+hash+key of signed notes.
func (k *Key) Verifier() string { return k.vkey }

// WriteFile keeps the key in a new file of mode 0600, whose text begins with PRIVATE+KEY. The file is whole and on disk when WriteFile
// returns. An error wraps [os.ErrExist] where there is a file of that name.
func (k *Key) WriteFile(file string) error { return k.writeFile(file) }

// Sign returns a checkpoint of a tree: a note that has no signature but the log's. Whether the tree extends those that were signed before
// is for the caller to know. The empty tree has the hash that [tlog.TreeHash] gives it. An error wraps [ErrMalformed] where no checkpoint
// can have that tree.
func (k *Key) Sign(tree tlog.Tree) (checkpoint string, err error) {
	c := torchwood.Checkpoint{Origin: k.name, Tree: tree}
	if err := checkTree(tree); err != nil {
		return "", err
	}
	signed, err := note.Sign(&note.Note{Text: c.String()}, k.signer)
	if err != nil {
		return "", fmt.Errorf("sign a checkpoint: %w", err)
	}
	return string(signed), nil
}

// A Cosigner is a witness's key. It signs whatever checkpoint it is given: the witness decides what to give it.
type Cosigner struct {
	private
	signer *torchwood.CosignatureSigner
}

// GenerateCosigner makes a witness's key. Its name should look like a URL without a scheme, such as witness.example.com/w1. The limits
// and the error are those of [GenerateKey].
func GenerateCosigner(name string) (*Cosigner, error) {
	p, err := generate(name, kindCosigner)
	if err != nil {
		return nil, err
	}
	return newCosigner(p)
}

// ReadCosigner reads the file of a witness's key, with the errors of [ReadKey].
func ReadCosigner(file string) (*Cosigner, error) {
	p, err := readPrivate(file, kindCosigner)
	if err != nil {
		return nil, err
	}
	return newCosigner(p)
}

func newCosigner(p private) (*Cosigner, error) {
	signer, err := torchwood.NewCosignatureSigner(p.name, p.key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadKey, err)
	}
	return &Cosigner{private: p, signer: signer}, nil
}

// Name is the key's name, which stands in front of its cosignatures.
func (c *Cosigner) Name() string { return c.name }

// Verifier is the public half of the key, in the format name+hash+key of signed notes, with the type of cosignature/v1.
func (c *Cosigner) Verifier() string { return c.vkey }

// WriteFile keeps the key in a new file, as [Key.WriteFile] does.
func (c *Cosigner) WriteFile(file string) error { return c.writeFile(file) }

// Cosign returns the signature line over a checkpoint's text (its lines up to the empty one), with the time now by this machine's clock,
// in whole seconds. It ends with a line feed. An error wraps [ErrMalformed] where the text is none of a checkpoint, and [ErrBadSignature]
// where the clock shows no time that a cosignature can have.
func (c *Cosigner) Cosign(text string) (line string, err error) {
	if _, err := parseText(text); err != nil {
		return "", err
	}
	signed, err := note.Sign(&note.Note{Text: text}, c.signer)
	if err != nil {
		return "", fmt.Errorf("cosign a checkpoint: %w", err)
	}
	line = strings.TrimPrefix(string(signed), text+"\n")
	known := witnessKeys{{c.name, c.signer.KeyHash()}: {c.vkey, c.signer.Verifier()}}
	if _, s, err := known.verify(text, line); err != nil || s == nil { // A signature that nobody takes must not be kept.
		return "", fmt.Errorf("cosign a checkpoint: %w", cmp.Or(err, ErrBadSignature))
	}
	return line, nil
}

// private is an Ed25519 key with its name and its kind. The kind is part of the file, so that no key serves two purposes.
type private struct {
	name string
	kind byte
	key  ed25519.PrivateKey
	vkey string
}

func newPrivate(name string, kind byte, key ed25519.PrivateKey) (private, error) {
	if !validName(name) {
		return private{}, fmt.Errorf("%w: the name %.300q must have 1 to %d bytes, without spaces, plus signs or control characters", ErrBadKey, name, MaxNameBytes)
	}
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return private{}, ErrBadKey
	}
	_, vkey, err := newVerifier(name, kind, public)
	return private{name: name, kind: kind, key: key, vkey: vkey}, err
}

func generate(name string, kind byte) (private, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return private{}, err
	}
	return newPrivate(name, kind, key)
}

// text is the encoding of private keys of signed notes: PRIVATE+KEY+name+hash+key.
func (p private) text() string {
	_, rest, _ := strings.Cut(p.vkey, "+")
	hash, _, _ := strings.Cut(rest, "+")
	return "PRIVATE+KEY+" + p.name + "+" + hash + "+" + base64.StdEncoding.EncodeToString(append([]byte{p.kind}, p.key.Seed()...))
}

func parsePrivate(text string, kind byte) (private, error) {
	rest, found := strings.CutPrefix(text, "PRIVATE+KEY+")
	name, rest, _ := strings.Cut(rest, "+")
	_, key64, _ := strings.Cut(rest, "+")
	key, err := base64.StdEncoding.DecodeString(key64)
	if !found || err != nil || len(key) != 1+ed25519.SeedSize { // What is there stays untold: it may be a secret.
		return private{}, fmt.Errorf("%w: it is not PRIVATE+KEY+name+hash+key on one line, with an Ed25519 key", ErrBadKey)
	}
	if key[0] != kind {
		return private{}, fmt.Errorf("%w: it is %s, not %s", ErrWrongKind, kindName(key[0]), kindName(kind))
	}
	p, err := newPrivate(name, kind, ed25519.NewKeyFromSeed(key[1:]))
	if err == nil && p.text() != text {
		err = fmt.Errorf("%w: its hash does not match", ErrBadKey)
	}
	return p, err
}

func readPrivate(file string, kind byte) (private, error) {
	f, err := os.Open(file)
	if err != nil {
		return private{}, err
	}
	defer func() { _ = f.Close() }() // Only read from.
	info, err := f.Stat()
	if err != nil {
		return private{}, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" { // It has no such modes.
		return private{}, fmt.Errorf("%w: %s has mode %04o: chmod 600 %[2]s, and make a new key if somebody may have read it", ErrKeyExposed, file, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyBytes))
	if err != nil {
		return private{}, err
	}
	p, err := parsePrivate(strings.TrimSuffix(string(text), "\n"), kind)
	if err != nil {
		return private{}, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

func (p private) writeFile(file string) error {
	return durable.Create(file, []byte(p.text()+"\n"), 0o600)
}

// NewKey makes the key that a private key is under an origin, with the error of [GenerateKey].
func NewKey(origin string, key ed25519.PrivateKey) (*Key, error) {
	p, err := newPrivate(origin, kindLog, key)
	if err != nil {
		return nil, err
	}
	return newKey(p)
}
