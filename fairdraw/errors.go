package fairdraw

import (
	"errors"
	"fmt"
)

// ErrBadInput is returned, inside an [*InputError], when an argument breaks a rule of the package: a limit, an order, a
// form, a missing value.
var ErrBadInput = errors.New("bad input")

// ErrTooManyPrizes is returned, inside an [*InputError], when a prize has a larger quantity than there are positions that
// could win it.
var ErrTooManyPrizes = errors.New("more prizes than eligible positions")

// ErrNotCanonical is returned, inside a [*FormatError], when a document is not in the one form that the package accepts.
var ErrNotCanonical = errors.New("document refused")

// ErrBeaconUnverified is returned for a document whose beacon's signature was not verified: by [Proof.Verify], which
// verifies none, and by [Proof.VerifyBeacon] where the document does not say what to verify.
var ErrBeaconUnverified = errors.New("the beacon's signature is not verified")

// InputError says which argument broke a rule, and which rule. It unwraps to [ErrBadInput] or [ErrTooManyPrizes].
type InputError struct {
	Field  string // the path of the argument, such as "positions[3].id"
	Reason string // the rule that it broke
	Err    error  // ErrBadInput or ErrTooManyPrizes
}

func (e *InputError) Error() string { return e.Field + ": " + e.Reason }

func (e *InputError) Unwrap() error { return e.Err }

func badInput(field, format string, args ...any) error {
	return &InputError{Field: field, Reason: fmt.Sprintf(format, args...), Err: ErrBadInput}
}

// FormatError says where a document was refused by [ParseProof] or [ParseInclusionProof], and why. It unwraps to
// [ErrNotCanonical].
type FormatError struct {
	Path   string // the field, such as "winners[2].position.id"; empty at the top
	Offset int    // the position in the document, in bytes from its start
	Reason string // the rule that was broken
}

func (e *FormatError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("byte %d: %s", e.Offset, e.Reason)
	}
	return fmt.Sprintf("%s (byte %d): %s", e.Path, e.Offset, e.Reason)
}

func (e *FormatError) Unwrap() error { return ErrNotCanonical }

// Difference names the first field of a proof that is not what recomputation gives. It is returned by the Verify methods.
type Difference struct {
	Field string // the path of the field, such as "winners[2].account"
	Want  string // the recomputed value
	Got   string // the value that the document claims
}

// differs returns a [*Difference] unless a field is what it must be.
func differs(field, want, got string) error {
	if want == got {
		return nil
	}
	return &Difference{Field: field, Want: want, Got: got}
}

func (d *Difference) Error() string {
	return fmt.Sprintf("%s differs: want %q, got %q", d.Field, d.Want, d.Got)
}
