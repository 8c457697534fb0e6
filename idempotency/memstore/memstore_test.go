package memstore_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/memstore"
	"github.com/fairlead-dev/fairlead/idempotency/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, _ bool) storetest.Harness {
		t.Helper()
		s := memstore.New()
		return storetest.Harness{Open: func() idempotency.Store { return s }}
	})
}
