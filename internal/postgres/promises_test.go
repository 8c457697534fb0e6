package postgres

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

func transferOf(t *testing.T, s *ledger.Service, from, to string) error {
	t.Helper()
	return answerErr(s.Execute(t.Context(), own[ledger.Op](ledger.MakeTransfer{From: from, To: to, Amount: 1})))
}

// TestCommandsFailWhileTheirRowStaysLocked measures when. It is a moment and no bound, so that it is rounded.
func TestCommandsFailWhileTheirRowStaysLocked(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	s := newLedgerService(t, db)
	fund(t, s, 1000, "ann", "ben")
	stranger(t, db, strangeAccount, "ann")
	testpromise.CheckEach(t, []string{"row-locked"}, func(seen func(string, time.Duration)) {
		var group sync.WaitGroup
		for range testpromise.Tries {
			group.Go(func() {
				began := time.Now()
				err := transferOf(t, s, "ann", "ben")
				took := time.Since(began)
				if _, blocked := errors.AsType[*command.BlockedError](err); !blocked || took < command.BlockedFor {
					t.Errorf("after %v: %v", took, err)
				}
				seen("row-locked", took.Round(500*time.Millisecond))
			})
		}
		group.Wait()
	})
}

// TestOthersBesideALockedRow measures how long others take from the moment on at which a row is locked, also those that share a
// transaction with who meets it, and how soon the blocked ones go on.
func TestOthersBesideALockedRow(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	s := newLedgerService(t, db)
	fund(t, s, 1_000_000_000, "ann", "ben", "cid", "dan")
	testpromise.CheckEach(t, []string{"neighbours", "row-free"}, func(seen func(string, time.Duration)) {
		for _, account := range []string{"ann", "cid"} { // All are remembered.
			testwait.Must(t, transferOf(t, s, account, "dan"))
		}
		goAway := stranger(t, db, strangeAccount, "ann")
		stop := make(chan struct{})
		slowest := make(chan time.Duration, 1)
		go func() {
			var worst time.Duration
			for more := true; more; {
				began := time.Now()
				testwait.Check(t, transferOf(t, s, "cid", "dan"))
				worst = max(worst, time.Since(began))
				select {
				case <-stop:
					more = false
				default:
				}
			}
			slowest <- worst
		}()
		var blocked sync.WaitGroup
		var freed time.Time
		for range testpromise.Tries {
			blocked.Go(func() {
				testwait.Check(t, untilFree(func() error { return transferOf(t, s, "ann", "ben") })) // On a slow machine, it may give up before that.
				seen("row-free", time.Since(freed))
			})
		}
		testwait.Eventually(t, patience, "all wait", func() bool { _, commands := db.blocked.count(); return commands == testpromise.Tries })
		wait.For(t.Context(), 200*time.Millisecond) // So long that every delay of the others has been met.
		freed = time.Now()
		goAway()
		blocked.Wait()
		close(stop)
		seen("neighbours", <-slowest)
		nothingBlocked(t, db)
	})
}

// TestReadinessEndsInTime has databases fall silent, each under a server that is ready. A look ends at a moment, which is rounded.
func TestReadinessEndsInTime(t *testing.T) {
	t.Parallel()
	testpromise.CheckEach(t, []string{"not-ready"}, func(seen func(string, time.Duration)) {
		var group sync.WaitGroup
		for range testpromise.Tries {
			db, proxy, _, _ := absent(t, UnavailableAfter)
			testwait.Must(t, db.Ready(t.Context()))
			group.Go(func() {
				proxy.TakeAway(0, wire.Silent)
				defer proxy.GiveBack()
				began := time.Now()
				for db.Ready(t.Context()) == nil {
					wait.For(t.Context(), time.Millisecond)
				}
				seen("not-ready", time.Since(began).Round(100*time.Millisecond))
			})
		}
		group.Wait()
	})
}

// TestEventsAreFoundByPolling commits in one process and follows in another, which hears no notifications.
func TestEventsAreFoundByPolling(t *testing.T) {
	t.Parallel()
	url := database(t)
	_, deaf := wire.Through(t, url, wire.Options{Deaf: true})
	a, b := newProcess(t, url, live.Options{}), newProcess(t, deaf, live.Options{})
	s, id := lot(t, a.db, nil)
	next := b.follow(t, auction.Topic(id))
	for range 2 { // The auction was made and started.
		next()
	}
	amount := int64(10)
	rng, _ := testwait.Rand(t)
	testpromise.Check(t, "events-by-polling", func() time.Duration {
		amount++
		wait.For(t.Context(), time.Duration(rng.Int64N(int64(time.Second)))) // It may happen at any time between two polls.
		decide(t, s, id, auction.PlaceBid{Account: []string{"ann", "bob"}[amount%2], Amount: amount})
		began := time.Now()
		next()
		return time.Since(began)
	})
}
