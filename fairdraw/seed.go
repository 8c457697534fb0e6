package fairdraw

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// redacted stands for a seed wherever one is printed.
const redacted = "[redacted seed]"

// Seed is the server seed of a draw: 32 secret bytes, committed to before the first sale and revealed with the proof.
// Anyone who has it before the sale ends can compute how each sale would change the winners.
//
// Printing, logging or encoding a Seed gives a placeholder, so that it is not disclosed by accident; Hex and s[:] give it
// on purpose and are what to store. (The fmt package cannot call methods on unexported fields: a Seed in one is not
// protected from %v of the struct round it.)
type Seed [32]byte

// NewSeed reads a seed from r, which must be a cryptographic source such as crypto/rand.Reader. It returns r's error when
// 32 bytes can't be read.
func NewSeed(r io.Reader) (Seed, error) {
	var s Seed
	if _, err := io.ReadFull(r, s[:]); err != nil {
		return Seed{}, fmt.Errorf("read a seed: %w", err)
	}
	return s, nil
}

// ParseSeed reads the form that Hex writes: 64 lower-case hexadecimal digits. Any other string is an [*InputError], which
// does not quote it.
func ParseSeed(text string) (Seed, error) {
	var s Seed
	if !decodeHex(s[:], text) {
		return Seed{}, badInput("seed", "not %d lower-case hexadecimal digits", 2*len(s))
	}
	return s, nil
}

// Hex discloses the seed as 64 lower-case hexadecimal digits.
func (s Seed) Hex() string { return hex.EncodeToString(s[:]) }

// Commitment is what is published at the start: the SHA-256 of the 32 seed bytes, as 64 lower-case hexadecimal digits.
func (s Seed) Commitment() string {
	sum := sha256.Sum256(s[:])
	return hex.EncodeToString(sum[:])
}

// IsZero reports whether the seed was never set.
func (s Seed) IsZero() bool { return s == Seed{} }

// String gives a placeholder, not the seed.
func (s Seed) String() string { return redacted }

// Format writes a placeholder for every verb, %x and %d included.
func (s Seed) Format(state fmt.State, _ rune) {
	// A fmt.State has nowhere to report a failed write to.
	_, _ = io.WriteString(state, redacted)
}

// LogValue gives a placeholder, not the seed.
func (s Seed) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText gives a placeholder, not the seed, in JSON too.
func (s Seed) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// errSeedEncoding is why a seed can't be decoded from JSON or text.
var errSeedEncoding = errors.New("a seed is never encoded; use ParseSeed on its Hex form")

// UnmarshalText always fails, so that a placeholder that was stored by mistake is found at once.
func (s *Seed) UnmarshalText([]byte) error { return errSeedEncoding }

// UnmarshalJSON always fails, for the reason that UnmarshalText does.
func (s *Seed) UnmarshalJSON([]byte) error { return errSeedEncoding }

// decodeHex fills dst from lower-case hexadecimal, or returns false and leaves dst alone.
func decodeHex(dst []byte, text string) bool {
	if !isHex(text, len(dst)) {
		return false
	}
	_, err := hex.Decode(dst, []byte(text))
	return err == nil
}

// isHex reports whether text is size bytes in lower-case hexadecimal.
func isHex(text string, size int) bool {
	if len(text) != 2*size {
		return false
	}
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
