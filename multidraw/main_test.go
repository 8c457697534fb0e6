package multidraw_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childRedis) != "" {
		os.Exit(drawAsChild())
	}
	goleak.VerifyTestMain(m)
}
