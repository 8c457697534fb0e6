package postgres

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// TestALockedTableTakesFewConnections: commands that wait for a table take turns with a few connections, and all others have the rest.
func TestALockedTableTakesFewConnections(t *testing.T) {
	t.Parallel()
	const conns = 8
	db := open(t, Options{URL: database(t), MaxConns: conns})
	draws, money := newMultidraws(t, NewMultidraws(db), multidraw.Options{}), newLedgerService(t, db)
	fund(t, money, 1000, "ann", "ben")
	goAway := stranger(t, db, `LOCK TABLE multidraws IN ACCESS EXCLUSIVE MODE`)
	admin := sessionOf(t, db)
	var starts []<-chan error
	for i := range 4 * conns {
		start := func() error {
			return answerErr(draws.Create(t.Context(), own[multidraw.Op](inRange(fmt.Sprint("dice ", i), 2, false))))
		}
		starts = append(starts, later(func() error { return untilFree(start) }))
	}
	few := func() bool {
		var waiting int
		testwait.Must(t, admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE relation = 'multidraws'::regclass AND NOT granted`).Scan(&waiting))
		return waiting > 0 && waiting <= conns/4
	}
	testwait.Eventually(t, patience, "few connections wait for the table, time and again", func() bool {
		for range 20 {
			if !few() {
				return false
			}
			time.Sleep(10 * time.Millisecond) // Nothing is waited for: these are samples.
		}
		return true
	})
	neighbour(t, "a transfer", func() error {
		return answerErr(money.Execute(t.Context(), own[ledger.Op](ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1})))
	})
	goAway()
	for _, done := range starts {
		testwait.Check(t, <-done)
	}
}

// TestWhatWaitedBehindALockedTableIsRefused: commands that have queued behind some that were given up do not wait as long again.
func TestWhatWaitedBehindALockedTableIsRefused(t *testing.T) {
	t.Parallel()
	seen := &recorder{}
	p := newPress(t)
	db := open(t, Options{URL: p.db.url, Observer: seen})
	s := publish.NewService(NewPublications(db), publish.Options{Vault: p.vault})
	t.Cleanup(func() { closing(t, s.Close) })
	create := func() error {
		return answerErr(s.Create(t.Context(), own[publish.Op](publish.CreateTarget{Name: newID().String(), Kind: publish.KindWebhook, URL: "https://example.com/", Timeout: publish.MaxTimeout})))
	}
	testwait.Must(t, create())
	stranger(t, db, `LOCK TABLE targets IN ACCESS EXCLUSIVE MODE`)
	db.stuck.hopelessFor = time.Hour
	db.stuck.meet("publish.targets", true)
	if err := create(); !isBlocked(err) {
		t.Error(err)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if n := seen.attempts[len(seen.attempts)-1]; n > 2 {
		t.Errorf("it was tried %d times", n)
	}
}

// TestAStuckTransactionHasItsTime: while others have all of the few connections, it is given up after its time; those of other names need none of these.
func TestAStuckTransactionHasItsTime(t *testing.T) {
	t.Parallel()
	s := newStuckTransactions(1)
	s.by["stuck"] = &stuckTransaction{met: time.Now().Add(time.Hour)}
	leave, err := s.gate(t.Context(), "stuck", time.Now())
	testwait.Must(t, err)
	if _, err := s.gate(t.Context(), "stuck", time.Now().Add(-command.BlockedFor)); !errors.Is(err, errNoTry) {
		t.Errorf("no connection is free: %v", err)
	}
	_, err = s.gate(t.Context(), "another", time.Now().Add(-command.BlockedFor))
	testwait.Check(t, err)
	leave()
	again, err := s.gate(t.Context(), "stuck", time.Now())
	testwait.Must(t, err)
	again()
}
