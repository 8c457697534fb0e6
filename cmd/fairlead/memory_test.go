package main

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// TestMemoryLimits does not run beside others, whose memory it limits.
func TestMemoryLimits(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for _, c := range []struct {
		why     string
		allowed memlimit.Provider
		want    int64
	}{
		{"no limit", func() (uint64, error) { return 0, memlimit.ErrNoLimit }, before},
		{"more than there can be", memlimit.Limit(math.MaxUint64), before},
		{"10 GB", memlimit.Limit(10 << 30), 9 << 30},
	} {
		limitMemory(c.allowed)
		if limit := debug.SetMemoryLimit(-1); limit != c.want {
			t.Errorf("%s: %d bytes, want %d", c.why, limit, c.want)
		}
	}
}
