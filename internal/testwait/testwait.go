// Package testwait has what tests share: polling with a deadline, bounded contexts, the sizes of short and long runs, and
// repeatable randomness.
package testwait

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// poll is the first pause between two looks, and mostPoll the longest: each look may take a connection to a database, or a page of
// metrics, and what takes longer is as well seen a moment later.
const (
	poll     = 5 * time.Millisecond
	mostPoll = 25 * time.Millisecond
)

// Patience is for how long tests wait for what must come. It only ends tests that hang: a machine that is busy with other things may need some of it, a defect
// all. The tests of make promises measure what has to happen within a time.
const Patience = 5 * time.Minute

// Eventually polls until ok holds, and fails the test when it does not within the limit.
func Eventually(tb conformance.TB, limit time.Duration, what string, ok func() bool) {
	tb.Helper()
	most := mostPoll
	if Torture() || os.Getenv("FAIRLEAD_PROMISES") != "" { // They measure.
		most = poll
	}
	pause := poll
	for deadline := time.Now().Add(limit); !ok(); pause = min(pause+time.Millisecond, most) {
		if time.Now().After(deadline) {
			tb.Fatal(fmt.Errorf("%s: not within %v: %w", what, limit, context.DeadlineExceeded)) // What may be a slow server's fault, a conformance.T tells by that.
		}
		wait.For(context.Background(), pause)
	}
}

// Must ends the test when err is not nil.
func Must(tb interface {
	Helper()
	Fatal(args ...any)
}, err error,
) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Err is the error of a call whose result does not matter.
func Err[T any](_ T, err error) error { return err }

// Check fails the test when err is not nil, and lets it go on.
func Check(tb conformance.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Error(err)
	}
}

// Context returns a context that ends with the test, or after the limit.
func Context(tb conformance.TB, limit time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	tb.Cleanup(cancel)
	return ctx
}

// Torture reports whether FAIRLEAD_TORTURE asks for the long run.
func Torture() bool {
	on, err := strconv.ParseBool(os.Getenv("FAIRLEAD_TORTURE"))
	return err == nil && on
}

// Count is the size of a test: few in an ordinary run, many in a long one.
func Count(few, many int) int {
	if Torture() {
		return many
	}
	return few
}

// Rand returns the test's one source of randomness, and its seed: the test's own, that of FAIRLEAD_SEED, or a new one, which a failing
// test prints.
func Rand(tb conformance.TB) (*rand.Rand, uint64) {
	tb.Helper()
	seed := rand.Uint64() >> 16 //nolint:gosec // Tests need no secrecy.
	if seeded, ok := tb.(conformance.Seeded); ok {
		seed = seeded.Seed()
	} else if text := os.Getenv("FAIRLEAD_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			tb.Fatalf("FAIRLEAD_SEED: %v", err)
		}
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("to repeat: FAIRLEAD_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1)), seed //nolint:gosec // As above.
}
