package rueidisclient_test

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/redisclient"
	"github.com/fairlead-dev/fairlead/redisclient/clienttest"
)

func TestMain(m *testing.M) { testredis.Main(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	clienttest.Run(t, func(tb testing.TB, addr string, cluster bool) (redisclient.Client, func()) {
		tb.Helper()
		open := testredis.Rueidis.Open
		if cluster {
			open = testredis.Rueidis.OpenCluster
		}
		c := open(tb, addr)
		return c, c.Close
	})
}
