package witness_test

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		os.Exit(child(dir))
	}
	goleak.VerifyTestMain(m)
}
