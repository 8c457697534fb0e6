package goredisclient_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/redisclient"
	"github.com/fairlead-dev/fairlead/redisclient/clienttest"
	"github.com/fairlead-dev/fairlead/redisclient/goredisclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	clienttest.Run(t, func(tb testing.TB, addr string, cluster bool) (redisclient.Client, func()) {
		tb.Helper()
		open := testredis.GoRedis.Open
		if cluster {
			open = testredis.GoRedis.OpenCluster
		}
		c := open(tb, addr)
		return c, c.Close
	})
}

// TestPatience calls a silent server through clients of several settings: a call ends at its deadline if the client heeds it, and
// also if the client would wait for ever.
func TestPatience(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]redis.Options{
		"deadlines":              {ContextTimeoutEnabled: true, ReadTimeout: time.Hour},
		"no timeout":             {ReadTimeout: -1},
		"deadlines, but no time": {ContextTimeoutEnabled: true, ReadTimeout: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			o.Addr = server.Addr()
			r := redis.NewClient(&o)
			t.Cleanup(func() { server.Kill(); _ = r.Close() })
			c, admin := goredisclient.New(r), server.Client(t)
			testwait.Must(t, testwait.Err(c.Eval(t.Context(), "return 1", nil, nil)))
			testwait.Must(t, admin.Do(t.Context(), admin.B().ClientPause().Timeout(600_000).All().Build()).Error())
			soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			cancelled, end := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, end)
			for _, ctx := range []context.Context{soon, cancelled} {
				if _, err := c.Eval(ctx, "return 1", nil, nil); err == nil {
					t.Error("a silent server answered")
				}
			}
		})
	}
}
