// Package conformance runs the suites of Fairlead's primitives outside of go test, as the verb fairlead conformance does on the servers of a
// user. Its types are what a suite needs of a test.
//
// A suite is a function such as [github.com/fairlead-dev/fairlead/lock/locktest.Run]. In a test it is called with the *testing.T, and
// each of its checks is a subtest. A program calls it with a [T] of a [Runner], and gets a [Result] for each check. There is
// one suite for both, and it does not import package testing.
package conformance

import (
	"context"
	"time"
)

// TB is what one check needs of the test that it is in. A testing.TB has it, and so has a [T].
type TB interface {
	Helper()
	Name() string
	// Context ends before the functions given to Cleanup are called.
	Context() context.Context
	Cleanup(f func())
	Log(args ...any)
	Logf(format string, args ...any)
	Error(args ...any)
	Errorf(format string, args ...any)
	Failed() bool
	// FailNow, Fatal, Fatalf, Skip and Skipf end the check, and are called by its own goroutine alone.
	FailNow()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skip(args ...any)
	Skipf(format string, args ...any)
}

// Test is what a suite needs of the test that it is in. A *testing.T has it, and so has a [*T].
type Test[T any] interface {
	TB
	// Run runs f as a check of its own. After f has called Parallel, or has ended, Run returns.
	Run(name string, f func(T)) bool
	Parallel()
}

// Check is one check of a suite.
type Check struct {
	// Name is that of the subtest.
	Name string
	// Guarantees are the numbers of docs/guarantees.md for which the check looks, such as "L1".
	Guarantees []string
	// Tries says what is tried, as one clause without a full stop.
	Tries string
}

// Judge is a [TB] that judges promises about time by itself. Tests leave that to make promises, since they share their machine.
type Judge interface {
	TB
	// Took is told how long what a named promise bounds took, and whether the machine that has measured it was delayed so that this may be why
	// a limit was missed. It reports whether the measurement is good enough: a miss is worth another try, unless there were too many.
	Took(promise string, took time.Duration, delayed func(limit time.Duration) bool) (enough bool)
}

// Seeded is a [TB] that says which seed its random choices come from.
type Seeded interface {
	TB
	Seed() uint64
}
