//go:build !linux

package pgtest

import "os"

//nolint:gochecknoglobals // A constant elsewhere.
var memory = os.TempDir()

func roomInMemory() bool { return false }
