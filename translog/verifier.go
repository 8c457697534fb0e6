package translog

import (
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
)

// The kinds of signatures, by the first byte of a verifier key's key (signed-note, "Signature types").
const (
	kindLog      = 0x01 // Ed25519 over the note's text
	kindCosigner = 0x04 // cosignature/v1: Ed25519 over the time and the note's text
)

// MaxNameBytes bounds the name of a key, and so an origin. Newer formats of cosignatures count names in one byte.
const MaxNameBytes = 255

// ErrBadKey is wrapped where a key's text is malformed, or has a name that no key can have.
var ErrBadKey = errors.New("malformed key")

// ErrWrongKind is wrapped where a log's key is needed and a witness's is given, or the other way round.
var ErrWrongKind = errors.New("wrong kind of key")

// LogKeyName checks the verifier key of a log (name+hash+key, of Ed25519) and returns its name, which is the log's origin. Errors wrap
// [ErrBadKey] or [ErrWrongKind].
func LogKeyName(vkey string) (origin string, err error) {
	v, err := parseVerifier(vkey, kindLog)
	if err != nil {
		return "", err
	}
	return v.Name(), nil
}

// WitnessKeyName checks the verifier key of a witness (name+hash+key, of cosignature/v1) and returns its name. Errors wrap [ErrBadKey]
// or [ErrWrongKind].
func WitnessKeyName(vkey string) (name string, err error) {
	v, err := parseVerifier(vkey, kindCosigner)
	if err != nil {
		return "", err
	}
	return v.Name(), nil
}

// parseVerifier reads a verifier key of one kind.
func parseVerifier(vkey string, kind byte) (note.Verifier, error) {
	name, rest, _ := strings.Cut(vkey, "+")
	_, key64, _ := strings.Cut(rest, "+")
	key, err := base64.StdEncoding.DecodeString(key64)
	if err != nil || len(key) != 1+ed25519.PublicKeySize || !validName(name) {
		return nil, fmt.Errorf("%w: %.80q is no verifier key of Ed25519", ErrBadKey, vkey)
	}
	if key[0] != kind {
		return nil, fmt.Errorf("%w: %s is %s, not %s", ErrWrongKind, name, kindName(key[0]), kindName(kind))
	}
	v, text, err := newVerifier(name, kind, key[1:])
	if err == nil && text != vkey { // Its hash is another one, or it is written in another way.
		err = errors.New("its hash does not match")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %.80q: %w", ErrBadKey, vkey, err)
	}
	return v, nil
}

// newVerifier returns the verifier of a public key, and its text.
func newVerifier(name string, kind byte, key ed25519.PublicKey) (v note.Verifier, text string, err error) {
	if kind == kindLog {
		if text, err = note.NewEd25519VerifierKey(name, key); err != nil {
			return nil, "", err
		}
		v, err = note.NewVerifier(text)
		return v, text, err
	}
	// This version of torchwood makes verifiers of cosignatures from signers alone.
	s, err := torchwood.NewCosignatureSigner(name, publicOnly(key))
	if err != nil {
		return nil, "", err
	}
	return s.Verifier(), s.Verifier().String(), nil
}

func kindName(kind byte) string {
	switch kind {
	case kindLog:
		return "a log's key"
	case kindCosigner:
		return "a witness's key"
	}
	return fmt.Sprintf("a key of type %d", kind)
}

// publicOnly is a signer that has no private key.
type publicOnly ed25519.PublicKey

func (k publicOnly) Public() crypto.PublicKey { return ed25519.PublicKey(k) }

func (publicOnly) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, errors.New("a public key can't sign")
}

// validName reports whether a key can have a name: what signed-note allows, within [MaxNameBytes].
func validName(name string) bool {
	return name != "" && len(name) <= MaxNameBytes && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool {
		return r == '+' || unicode.IsSpace(r) || unicode.IsControl(r)
	})
}
