package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
)

// MaxKeyLength is the longest key that [ParseKey] takes, in characters, quotes and escapes not counted.
const MaxKeyLength = 255

// ErrMalformedKey is returned by [ParseKey] when the header is absent, empty, too long, or holds anything but visible ASCII.
var ErrMalformedKey = errors.New("one idempotency key is needed, of 1 to 255 visible ASCII characters, quoted or bare")

// ErrKeyReused is returned when a key that already names one request is sent with a different one.
var ErrKeyReused = errors.New("idempotency key was already used with a different request")

// ParseKey reads the value of an Idempotency-Key header. A structured-field string ("…", RFC 9651 §3.3.3) and the bare
// value inside it are the same key. It returns [ErrMalformedKey] for everything else.
func ParseKey(header string) (string, error) {
	key := strings.Trim(header, " \t")
	if strings.HasPrefix(key, `"`) {
		var ok bool
		if key, ok = unquote(key); !ok {
			return "", ErrMalformedKey
		}
	}
	if len(key) == 0 || len(key) > MaxKeyLength {
		return "", ErrMalformedKey
	}
	for i := range len(key) {
		if key[i] < 0x21 || key[i] > 0x7e {
			return "", ErrMalformedKey
		}
	}
	return key, nil
}

// unquote reads a structured-field string, in which only the quote and the backslash are escaped.
func unquote(s string) (string, bool) {
	if len(s) < 2 || s[len(s)-1] != '"' {
		return "", false
	}
	s = s[1 : len(s)-1]
	if !strings.ContainsAny(s, `"\`) {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return "", false
		case '\\':
			i++
			if i == len(s) || (s[i] != '"' && s[i] != '\\') {
				return "", false
			}
		}
		b.WriteByte(s[i])
	}
	return b.String(), true
}

// ID names one request for ever: the SHA-256 of its scope and key.
type ID [sha256.Size]byte

// NewID binds key to its scope. Each part is preceded by its length, so that no two scopes can collide.
func NewID(principal, method, path, key string) ID {
	b := make([]byte, 0, 32+len(principal)+len(method)+len(path)+len(key))
	for _, part := range [...]string{principal, method, path, key} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part))) //nolint:gosec // Header and path sizes are far below 4 GiB.
		b = append(b, part...)
	}
	return sha256.Sum256(b)
}

// Fingerprint is the SHA-256 of what a request asks for: two requests under one key are the same request if and only
// if their fingerprints are equal.
type Fingerprint [sha256.Size]byte

// NewFingerprint computes the fingerprint of a request's content. Callers pass a canonical form, so that a retry that
// spells the same request differently (white space, member order) is recognised.
func NewFingerprint(canonical []byte) Fingerprint { return sha256.Sum256(canonical) }
