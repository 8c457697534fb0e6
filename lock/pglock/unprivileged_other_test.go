//go:build !linux

package pglock

import "os/exec"

// unprivileged lets a program run that refuses root; here tests are not run as root.
func unprivileged(*exec.Cmd) {}
