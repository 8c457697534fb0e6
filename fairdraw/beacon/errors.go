package beacon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
)

// What can be wrong with a round, or with those who were asked for it.
var (
	// ErrBadSignature is returned when a signature is not the chain's of that round, or not in its canonical encoding.
	ErrBadSignature = errors.New("the signature is not the chain's of this round")
	// ErrUnknownScheme is returned for a chain whose way of signing this package does not know.
	ErrUnknownScheme = errors.New("the chain's scheme is not known")
	// ErrUntrusted is returned for a chain that is neither known nor was named as trusted. Whoever has its key may know its
	// rounds in advance.
	ErrUntrusted = errors.New("the chain is not one of those that are trusted")
	// ErrNotPublished is returned when every relay that answered says that it does not have the round.
	ErrNotPublished = errors.New("the round is not published")
	// ErrUnknownChain is returned when a relay does not serve the chain.
	ErrUnknownChain = errors.New("the relay does not serve this chain")
	// ErrWrongRound is returned when a relay answers with another round.
	ErrWrongRound = errors.New("the answer is another round")
	// ErrMalformed is returned when a relay's answer is not a round.
	ErrMalformed = errors.New("the answer is not a round")
	// ErrTooLarge is returned when a relay's answer is longer than any round.
	ErrTooLarge = errors.New("the answer is too large")
	// ErrRefused is returned when a relay answers with a status that is neither success nor absence.
	ErrRefused = errors.New("the relay refused")
	// ErrTimeout is returned when a relay did not answer in time.
	ErrTimeout = errors.New("the relay did not answer in time")
	// ErrUnreachable is returned when no relay could be reached.
	ErrUnreachable = errors.New("the relay could not be reached")
)

// RelayError is one relay's failure. It unwraps to one of the errors above.
type RelayError struct {
	// Relay is the base URL.
	Relay string
	Err   error
}

// Error implements error.
func (e *RelayError) Error() string { return fmt.Sprintf("%s: %v", e.Relay, e.Err) }

// Unwrap gives the failure.
func (e *RelayError) Unwrap() error { return e.Err }

// Failure returns a short, stable name of what went wrong, without a relay's address or words, so that anybody may see it:
// "bad_signature", "wrong_round", "malformed", "too_large", "unknown_scheme", "untrusted", "not_published", "unknown_chain",
// "refused", "timeout", "unreachable", or "other". It is empty for nil. Of several failures it names the first of this list:
// a relay that lies matters more than one that is down.
func Failure(err error) string {
	if err == nil {
		return ""
	}
	for _, f := range []struct {
		err  error
		name string
	}{
		{ErrBadSignature, "bad_signature"},
		{ErrWrongRound, "wrong_round"},
		{ErrMalformed, "malformed"},
		{ErrTooLarge, "too_large"},
		{ErrUnknownScheme, "unknown_scheme"},
		{ErrUntrusted, "untrusted"},
		{ErrNotPublished, "not_published"},
		{ErrUnknownChain, "unknown_chain"},
		{ErrRefused, "refused"},
		{ErrTimeout, "timeout"},
		{ErrUnreachable, "unreachable"},
	} {
		if errors.Is(err, f.err) {
			return f.name
		}
	}
	return "other"
}

// transportError sorts the ways in which a request can fail to be answered.
func transportError(err error) error {
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		(errors.As(err, &timeout) && timeout.Timeout()) {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}
