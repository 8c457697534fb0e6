package pglock

import (
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
)

// contendURL tells the processes of TestNoLostWakeUp where the database is.
const contendURL = "FAIRLEAD_TEST_CONTEND_URL"

func TestContender(t *testing.T) {
	locktest.Contend(t, func() lock.Backend {
		p := pool(t, os.Getenv(contendURL))
		// All at once, so that none has to be made later: a caller waits for a new one, though others are free again.
		for range p.Config().MaxConns {
			c, err := p.Acquire(t.Context())
			testwait.Must(t, err)
			defer c.Release()
		}
		b := New(p, Options{Schema: testSchema})
		t.Cleanup(b.Close)
		return b
	})
}

func TestNoLostWakeUp(t *testing.T) {
	locktest.WakeUps(t, "TestContender", contendURL+"="+database(t))
}
