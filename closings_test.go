package fairlead

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
)

// TestBookkeeperIsLate: closings and recounts are late when their period is over, and only in the process that makes them.
func TestBookkeeperIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bookkeeper{every: map[telemetry.BooksWork]time.Duration{telemetry.BooksClose: time.Minute, telemetry.BooksRecount: time.Hour}}
		b.forget()
		want := func(when string, closing, recount time.Duration) {
			t.Helper()
			if c, r := b.state(telemetry.BooksClose).Late, b.state(telemetry.BooksRecount).Late; c != closing || r != recount {
				t.Errorf("%s: a closing is late by %v, a recount by %v; want %v, %v", when, c, r, closing, recount)
			}
		}
		ago := func(d time.Duration) *time.Duration { return &d }
		want("another process keeps the books", 0, 0)
		b.dueAfter(telemetry.BooksClose, false, nil)
		b.dueAfter(telemetry.BooksRecount, true, nil)
		time.Sleep(2 * time.Hour)
		b.dueAfter(telemetry.BooksRecount, true, nil) // It is under way, or fails.
		want("before the first recount has ended", 0, 2*time.Hour)
		b.dueAfter(telemetry.BooksClose, true, ago(50*time.Second))
		b.dueAfter(telemetry.BooksRecount, true, ago(50*time.Second))
		time.Sleep(11 * time.Second)
		want("the last closing began 61 s ago", time.Second, 0)
		b.dueAfter(telemetry.BooksClose, false, ago(time.Hour))
		want("the ledger is small again", 0, 0)
		b.finds(telemetry.BooksClose, false)
		if !b.state(telemetry.BooksClose).Invalid || b.state(telemetry.BooksRecount).Invalid {
			t.Error("what a closing has found is not told, or by recounts")
		}
		b.forget()
		if b.state(telemetry.BooksClose).Invalid {
			t.Error("another process keeps the books, and this one tells what it had found")
		}
	})
}

func TestSoonerClosings(t *testing.T) {
	t.Parallel()
	ago := time.Minute
	for name, c := range map[string]struct {
		closed      bool
		before, now postgres.Books
		want        bool
	}{
		"much is new":                {true, postgres.Books{Size: 5}, postgres.Books{Size: 5 + closeGrowth}, true},
		"not so much":                {true, postgres.Books{Size: 5}, postgres.Books{Size: 4 + closeGrowth}, false},
		"a month was archived":       {true, postgres.Books{Size: 5 + closeGrowth}, postgres.Books{Size: 5}, false},
		"nothing to go on from":      {false, postgres.Books{}, postgres.Books{Size: 2 * closeGrowth}, false},
		"the first recount":          {false, postgres.Books{}, postgres.Books{Closed: &ago}, true},
		"a ledger that became small": {false, postgres.Books{Closed: &ago}, postgres.Books{Closed: &ago}, false},
	} {
		if got := sooner(c.closed, c.before, c.now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
