//go:build !linux

package pgtest

import (
	"os/exec"
	"testing"
)

// unprivileged lets a program run that refuses root; here tests are not run as root.
func unprivileged(testing.TB, *exec.Cmd, string) {}
