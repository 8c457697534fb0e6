//go:build unix

package explore

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
)

func TestMain(m *testing.M) {
	// Goroutines that go on at one moment come to what they share one after the other. With more processors, the machine would choose
	// their order.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400) // Schedules leave much behind, and little stays.
	takeChances()
	os.Exit(pgtest.Main(m))
}
