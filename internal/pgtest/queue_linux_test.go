package pgtest_test

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestConnectsThroughAFullQueue stops a PostgreSQL until its queue takes no further connection.
func TestConnectsThroughAFullQueue(t *testing.T) {
	t.Parallel()
	i := pgtest.Server(t)
	config, err := pgx.ParseConfig(i.URL())
	testwait.Must(t, err)
	socket := filepath.Join(config.Host, fmt.Sprintf(".s.PGSQL.%d", config.Port))
	testwait.Must(t, syscall.Kill(i.PID(), syscall.SIGSTOP))
	goOn := sync.OnceFunc(func() { _ = syscall.Kill(i.PID(), syscall.SIGCONT) })
	t.Cleanup(goOn)
	var waiting []net.Conn
	for {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
		if errors.Is(err, syscall.EAGAIN) {
			t.Logf("%d connections wait", len(waiting))
			break
		}
		testwait.Must(t, err)
		waiting = append(waiting, conn)
		if len(waiting) > 5000 {
			t.Fatal("the queue does not fill, which is twice as long as the sessions are many")
		}
	}
	if conn, err := pgx.Connect(t.Context(), i.URL()); !errors.Is(err, syscall.EAGAIN) {
		t.Fatalf("connected to %v with %v; want a queue that is full", conn, err)
	}
	for _, conn := range waiting {
		testwait.Must(t, conn.Close()) // They stay in the queue.
	}
	time.AfterFunc(200*time.Millisecond, goOn) // Sooner or later: that Connect tries again is what is tested.
	testwait.Must(t, testwait.Err(pgtest.Connect(t, i.URL()).Exec(t.Context(), "SELECT 1")))
}
