package pglock

import (
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
)

// contendURL tells the processes of TestNoLostWakeUp where the database is.
const contendURL = "FAIRLEAD_TEST_CONTEND_URL"

func TestContender(t *testing.T) {
	locktest.Contend(t, func(t *testing.T) lock.Backend {
		t.Helper()
		b, _ := open(t, os.Getenv(contendURL), Options{})
		return b
	})
}

func TestNoLostWakeUp(t *testing.T) {
	locktest.WakeUps(t, "TestContender", contendURL+"="+database(t))
}
