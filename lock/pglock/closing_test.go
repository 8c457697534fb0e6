package pglock

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// TestClosingSendsWhatIsToBeSent: a process that releases a lock and ends tells the next in line, in another process.
func TestClosingSendsWhatIsToBeSent(t *testing.T) {
	t.Parallel()
	url := database(t)
	heard, err := pgx.Connect(t.Context(), url)
	testwait.Must(t, err)
	defer func() { _ = heard.Close(context.Background()) }()
	testwait.Must(t, testwait.Err(heard.Exec(t.Context(), "LISTEN "+channel)))
	b := open(t, url, Options{})
	l := lock.New(b, lock.LockerOptions{})
	for range 4 {
		a := open(t, url, Options{})
		h := acquire(t, lock.New(a, lock.LockerOptions{}), "k", lock.Options{Wait: testwait.Patience})
		done := make(chan error, 1)
		go func() {
			next, err := l.Acquire(t.Context(), []string{"k"}, lock.Options{Wait: testwait.Patience})
			if err == nil {
				err = next.Release(t.Context())
			}
			done <- err
		}()
		oneWaits(t, b)
		testwait.Must(t, h.Release(t.Context()))
		a.Close()
		ctx, cancel := context.WithTimeout(t.Context(), testwait.Patience)
		for told := false; !told; {
			n, err := heard.WaitForNotification(ctx)
			if err != nil {
				t.Fatalf("nothing was sent: %v", err)
			}
			told = !strings.HasPrefix(n.Payload, "probe")
		}
		cancel()
		testwait.Must(t, <-done)
	}
}
