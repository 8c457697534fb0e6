package postgres

import (
	"errors"
	"fmt"
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

const strangeAccounts = `SELECT FROM accounts WHERE id LIKE 'ann-%' FOR UPDATE`

// annas are accounts of which [strangeAccounts] locks all.
func annas(t *testing.T, s *ledger.Service) []string {
	t.Helper()
	ids := make([]string, testpromise.Tries)
	for i := range ids {
		ids[i] = fmt.Sprint("ann-", i)
	}
	fund(t, s, 1000, ids...)
	return ids
}

func transferOf(t *testing.T, s *ledger.Service, from, to string) error {
	t.Helper()
	return answerErr(s.Execute(t.Context(), own[ledger.Op](ledger.MakeTransfer{From: from, To: to, Amount: 1})))
}

// TestCommandsFailWhileTheirRowStaysLocked measures when. It is a moment and no bound, so that it is rounded.
func TestCommandsFailWhileTheirRowStaysLocked(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	s := newLedgerService(t, db)
	from := annas(t, s)
	fund(t, s, 0, "ben")
	stranger(t, db, strangeAccounts)
	testpromise.CheckEach(t, []string{"row-locked"}, func(seen func(string, time.Duration)) {
		var group sync.WaitGroup
		for _, account := range from {
			group.Go(func() {
				began := time.Now()
				err := transferOf(t, s, account, "ben")
				took := time.Since(began)
				if _, blocked := errors.AsType[*command.BlockedError](err); !blocked || took < command.BlockedFor {
					t.Errorf("after %v: %v", took, err)
				}
				seen("row-locked", took.Round(100*time.Millisecond))
			})
		}
		group.Wait()
	})
}

// TestOthersBesideLockedRows measures how long others take from the moment on at which rows are locked, also those that share a
// transaction with who meets them, and how soon the blocked ones go on.
func TestOthersBesideLockedRows(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	s := newLedgerService(t, db)
	from := annas(t, s)
	fund(t, s, 1000, "ben", "cid", "dan")
	testpromise.CheckEach(t, []string{"neighbours", "row-free"}, func(seen func(string, time.Duration)) {
		for _, account := range append(from, "cid") { // All are remembered.
			testwait.Must(t, transferOf(t, s, account, "ben"))
		}
		goAway := stranger(t, db, strangeAccounts)
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
		for _, account := range from {
			blocked.Go(func() {
				testwait.Check(t, transferOf(t, s, account, "ben"))
				seen("row-free", time.Since(freed))
			})
		}
		testwait.Eventually(t, patience, "all wait", func() bool { _, commands := db.blocked.count(); return commands == len(from) })
		wait.For(t.Context(), 200*time.Millisecond) // So long that every delay of the others has been met.
		freed = time.Now()
		goAway()
		blocked.Wait()
		close(stop)
		seen("neighbours", <-slowest)
		nothingBlocked(t, db)
	})
}

// TestReadinessEndsInTime has databases fall silent, each under a server that is ready.
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
				seen("not-ready", time.Since(began))
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
	testpromise.Check(t, "events-by-polling", func() time.Duration {
		amount++
		decide(t, s, id, auction.PlaceBid{Account: []string{"ann", "bob"}[amount%2], Amount: amount})
		began := time.Now()
		next()
		return time.Since(began)
	})
}
