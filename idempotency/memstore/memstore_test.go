package memstore_test

import (
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/memstore"
	"github.com/fairlead-dev/fairlead/idempotency/storetest"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, _ bool) storetest.Harness {
		t.Helper()
		s := memstore.New()
		return storetest.Harness{Open: func() idempotency.Store { return s }}
	})
}
