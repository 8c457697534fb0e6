package witness_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// patience is how long a test waits for what must come.
const patience = testwait.Patience

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		os.Exit(child(dir))
	}
	goleak.VerifyTestMain(m)
}
