//go:build !linux

package pglock

import (
	"os/exec"
	"testing"
)

// unprivileged lets a program run that refuses root; here tests are not run as root.
func unprivileged(*testing.T, *exec.Cmd, string) {}
