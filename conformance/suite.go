package conformance

import (
	"slices"
	"strings"
)

// Trial is a check, and the function that makes it on what the suite has prepared.
type Trial[S any] struct {
	Check

	Try func(S)
}

// NewTrial makes a trial. The numbers of its guarantees have spaces between them.
func NewTrial[S any](name, guarantees, tries string, try func(S)) Trial[S] {
	return Trial[S]{Check{Name: name, Guarantees: strings.Fields(guarantees), Tries: tries}, try}
}

// Suite is trials, in order.
type Suite[S any] []Trial[S]

// Checks lists the checks of the suite.
func (s Suite[S]) Checks() []Check {
	var all []Check
	for _, x := range s {
		all = append(all, x.Check)
	}
	return all
}

// Run makes the checks of a suite, or only those that are named, each in a test of its own and on what prepare returns for it. Prepare calls
// Parallel where the checks may run beside each other.
func Run[T Test[T], S any](t T, s Suite[S], prepare func(t T, c Check) S, only ...string) {
	t.Helper()
	for _, x := range s {
		if len(only) == 0 || slices.Contains(only, x.Name) {
			t.Run(x.Name, func(t T) { x.Try(prepare(t, x.Check)) })
		}
	}
}
