package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// seedOf finds a seed with which the proxy gives the first commit the given fate and lets the next ones pass, as long
// as it draws them in the way it does; each test looks at the proxy's statistics to be sure.
func seedOf(t *testing.T, fate wire.Fate, oneIn int) uint64 {
	t.Helper()
	for seed := range uint64(10_000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		if rng.IntN(oneIn) > 0 {
			continue
		}
		drawn := wire.AnswerLost
		switch rng.IntN(5) {
		case 0:
			drawn = wire.OutcomeOpen
		case 1:
			drawn = wire.CommitLost
		}
		if drawn == fate && rng.IntN(oneIn) > 0 && rng.IntN(oneIn) > 0 {
			return seed
		}
	}
	t.Fatal("no seed")
	return 0
}

// throughProxy makes a funded database and a service whose commits go through a proxy that loses the first one.
func throughProxy(t *testing.T, fate wire.Fate) (s *ledger.Service, proxy *wire.Proxy, seen *recorder, around *DB) {
	t.Helper()
	direct := database(t)
	around = open(t, Options{URL: direct})
	fund(t, newLedgerService(t, around), 100, "ann", "ben")
	db, proxy, seen := behindProxy(t, direct, fate)
	return newLedgerService(t, db), proxy, seen, around
}

// behindProxy opens a database through a proxy that loses the first commit once it is armed.
func behindProxy(t *testing.T, direct string, fate wire.Fate) (db *DB, proxy *wire.Proxy, seen *recorder) {
	t.Helper()
	const oneIn = 2
	proxy, through := wire.Through(t, direct, wire.Options{Seed: seedOf(t, fate, oneIn), LoseOneIn: oneIn})
	seen = &recorder{}
	return open(t, Options{URL: through, Observer: seen}), proxy, seen
}

// checkOneTransfer makes sure that ann paid ben 30, once, and that it is recorded once.
func checkOneTransfer(t *testing.T, around *DB, answer command.Answer) {
	t.Helper()
	if v := ask[int64](t, around, `SELECT available FROM accounts WHERE id = 'ann'`); v != 70 {
		t.Errorf("ann has %d", v)
	}
	ids := ask[[]string](t, around, `SELECT array_agg(id::text) FROM transfers WHERE kind = 'transfer'`)
	if len(ids) != 1 || answer.Status != 201 || string(answer.Body) != `{"id":"`+ids[0]+`"}` {
		t.Errorf("transfers %v, answer %d %s", ids, answer.Status, answer.Body)
	}
	if n := ask[int](t, around, `SELECT count(*) FROM idempotency_keys`); n != 1 {
		t.Errorf("%d keys", n)
	}
}

func TestTheOutcomeOfALostCommitIsFound(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]wire.Fate{
		"applied": wire.AnswerLost, "not applied": wire.CommitLost, "open": wire.OutcomeOpen,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, proxy, seen, around := throughProxy(t, fate)
			proxy.Arm(true)
			c := keyed[ledger.Op](ledger.MakeTransfer{From: "ann", To: "ben", Amount: 30}, "once", "")
			answer, err := s.Execute(t.Context(), c)
			testwait.Must(t, err)
			if answer.Replayed {
				t.Error("the executing request was told that it is a repeat")
			}
			checkOneTransfer(t, around, answer)
			expectRuns(t, seen, "committed", "commit_unknown")
			stats := proxy.Stats()
			want := map[wire.Fate]int{wire.AnswerLost: stats.AnswerLost, wire.CommitLost: stats.CommitLost, wire.OutcomeOpen: stats.OutcomeOpen}
			if want[fate] != 1 || stats.Lost() != 1 {
				t.Errorf("the proxy did %+v", stats)
			}
			proxy.Arm(false)
			again, err := s.Execute(t.Context(), keyed[ledger.Op](c.Op, "once", ""))
			if err != nil || !again.Replayed || string(again.Body) != string(answer.Body) {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}

// TestADatabaseThatStaysAwayLeavesTheOutcomeUnknown loses a commit and then every connection.
func TestADatabaseThatStaysAwayLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]wire.Fate{"applied": wire.AnswerLost, "not applied": wire.CommitLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, proxy, seen, around := throughProxy(t, fate)
			seen.onRetry = func(string) { _ = proxy.Close() }
			proxy.Arm(true)
			c := keyed[ledger.Op](ledger.MakeTransfer{From: "ann", To: "ben", Amount: 30}, "once", "")
			failed := make(chan error, 1)
			go func() {
				_, err := s.Execute(t.Context(), c)
				failed <- err
			}()
			testwait.Eventually(t, patience, "reruns", func() bool { reasons, _, _ := seen.seen(); return len(reasons) > 2 })
			// The lane's context ends with the service; nobody should have to wait for the loop's own limit.
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := s.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) { // The loop may end at once.
				t.Errorf("close: %v", err)
			}
			if err := <-failed; !errors.Is(err, command.ErrUnknownOutcome) || errors.Is(err, command.ErrUnavailable) {
				t.Errorf("outcome: %v", err)
			}
			reasons, outcomes, _ := seen.seen()
			if reasons[0] != "commit_unknown" || len(outcomes) != 1 || outcomes[0] != "unknown" {
				t.Errorf("reruns for %v, ended %v", reasons, outcomes)
			}
			// Whatever happened, the same key settles it, here by another process.
			other := newLedgerService(t, around)
			answer, err := other.Execute(t.Context(), keyed[ledger.Op](c.Op, "once", ""))
			if err != nil || answer.Replayed != (fate == wire.AnswerLost) {
				t.Errorf("settled: %+v, %v", answer, err)
			}
			checkOneTransfer(t, around, answer)
		})
	}
}
