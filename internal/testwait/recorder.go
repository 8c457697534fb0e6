package testwait

import (
	"os"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tally"
)

//nolint:gochecknoglobals // A test's helpers share its recorder by the test's name.
var recorders sync.Map

// Recorder returns the test's one recorder of faults. When the test ends, what it counted is added to the file that FAIRLEAD_TALLY
// names, as make torture does; without one it is forgotten.
func Recorder(tb testing.TB) *tally.Recorder {
	tb.Helper()
	known, old := recorders.LoadOrStore(tb.Name(), new(tally.Recorder))
	r := known.(*tally.Recorder) //nolint:errcheck,forcetypeassert // Nothing else is stored.
	if old {
		return r
	}
	tb.Cleanup(func() {
		recorders.Delete(tb.Name())
		path, counts := os.Getenv("FAIRLEAD_TALLY"), r.Counts()
		if path == "" || len(counts) == 0 || tb.Skipped() {
			return
		}
		for i := range counts {
			if tb.Failed() {
				counts[i].Failed = 1
			}
		}
		Check(tb, tally.Append(path, counts))
	})
	return r
}
