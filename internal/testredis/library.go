package testredis

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/redisclient"
	"github.com/fairlead-dev/fairlead/redisclient/goredisclient"
	"github.com/fairlead-dev/fairlead/redisclient/rueidisclient"
)

// Library is a client library that the packages which keep state in Redis accept.
type Library int

// The libraries, with their usual settings; but clients of rueidis say at once that a server is not there.
const (
	Rueidis Library = iota
	GoRedis
)

// Main runs the tests of a package that opens clients of a cluster, and looks for leaked goroutines. A client of rueidis that is
// closed leaves one behind, which sleeps for up to a second before it would look at the cluster again.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

func (l Library) String() string { return [...]string{"rueidis", "go-redis"}[l] }

// Conn is a wrapped client. It ends with the test, or by Close.
type Conn struct {
	redisclient.Client

	Close func()
}

// Open returns a client of one server. The server is there.
func (l Library) Open(tb testing.TB, addr string) Conn { tb.Helper(); return l.open(tb, addr, true) }

// OpenCluster returns a client of a cluster.
func (l Library) OpenCluster(tb testing.TB, addr string) Conn {
	tb.Helper()
	return l.open(tb, addr, false)
}

func (l Library) open(tb testing.TB, addr string, single bool) (c Conn) {
	tb.Helper()
	switch {
	case l == Rueidis:
		testwait.Eventually(tb, patience, "the server is there", func() bool {
			r, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: single, DisableRetry: true})
			if err != nil {
				return false
			}
			c = Conn{rueidisclient.New(r), r.Close}
			return true
		})
	case single:
		r := redis.NewClient(&redis.Options{Addr: addr})
		c = Conn{goredisclient.New(r), func() { _ = r.Close() }}
	default:
		r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
		c = Conn{goredisclient.New(r), func() { _ = r.Close() }}
	}
	tb.Cleanup(c.Close)
	return c
}

// Each runs a test with each library.
func Each(t *testing.T, test func(t *testing.T, l Library)) {
	t.Helper()
	for _, l := range []Library{Rueidis, GoRedis} {
		t.Run(l.String(), func(t *testing.T) {
			t.Parallel()
			test(t, l)
		})
	}
}
