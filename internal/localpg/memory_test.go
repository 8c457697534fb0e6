package localpg

import (
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestSharedBuffers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why    string
		memory memlimit.Provider
		want   uint64
	}{
		{"a small container", memlimit.Limit(512 << 20), 128},
		{"the least", memlimit.Limit(1 << 30), 128},
		{"a little more", memlimit.Limit(1<<30 + 8<<20), 129},
		{"8 GB", memlimit.Limit(8 << 30), 1024},
		{"the most", memlimit.Limit(16 << 30), 2048},
		{"a large machine", memlimit.Limit(1 << 40), 2048},
		{"unknown", func() (uint64, error) { return 0, memlimit.ErrNoLimit }, 128},
	} {
		if n := sharedBuffers(c.memory); n != c.want {
			t.Errorf("%s: %d MB, want %d", c.why, n, c.want)
		}
	}
}
