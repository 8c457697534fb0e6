package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Program finds a program that a test needs besides PostgreSQL. Without it the test fails in CI, and is skipped with a loud
// message elsewhere; scripts/setup.sh test installs all of them.
func Program(tb testing.TB, name string) (path string) {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	missing := fmt.Sprintf("%s is not installed (scripts/setup.sh test does that)", name)
	if os.Getenv("CI") == "true" {
		tb.Fatal(missing)
	}
	fmt.Fprintf(os.Stderr, "\n*** NOT TESTED: %s: %s\n\n", tb.Name(), missing)
	tb.Skip(missing)
	return ""
}
