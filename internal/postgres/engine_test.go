package postgres

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// replaceable are all capabilities that have something in their place.
func replaceable() []pgkit.Capability {
	return []pgkit.Capability{
		pgkit.Notify, pgkit.AdvisoryLocks, pgkit.RowPlaces, pgkit.RowVersions, pgkit.Functions, pgkit.Deferrable, pgkit.Batches, pgkit.Prepare,
	}
}

// lacking is a database of an engine that lacks capabilities, on which all promises are audited when the test ends.
func lacking(t *testing.T, off ...pgkit.Capability) string {
	t.Helper()
	url := unaudited(t, off...)
	t.Cleanup(func() { auditDatabase(t, url) })
	return url
}

// unaudited is lacking for rows that no command has made.
func unaudited(t *testing.T, off ...pgkit.Capability) string {
	t.Helper()
	url := pgtest.Without(t, pgtest.NewDatabase(t, nil), off...)
	testwait.Must(t, migrated(t.Context(), url))
	return url
}

// TestEngineIsProbedByWhatItDoes has PostgreSQL accept and not do, or refuse, what another engine may.
func TestEngineIsProbedByWhatItDoes(t *testing.T) {
	t.Parallel()
	url := pgtest.Without(t, pgtest.NewDatabase(t, nil))
	if missing := open(t, Options{URL: url}).Missing(); len(missing) > 0 {
		t.Errorf("PostgreSQL has no %q", missing)
	}
	expectEngine(t, open(t, Options{URL: url}))
	pgtest.Shadow(t, url, `CREATE FUNCTION skew.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT';
		CREATE FUNCTION skew.pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE sql AS 'SELECT'`)
	exec(t, open(t, Options{URL: url}), `DROP EXTENSION plpgsql`)
	db := open(t, Options{URL: url})
	if missing := db.Missing(); !slices.Equal(missing, []string{"notify", "advisory-locks", "functions"}) {
		t.Errorf("it has no %q", missing)
	}
	expectEngine(t, db, "engine", "engine", "engine")
	if db.Wire() != nil {
		t.Error("hints go where nobody hears them")
	}
}

// expectEngine looks at the findings that are about the engine.
func expectEngine(t *testing.T, db *DB, want ...string) {
	t.Helper()
	findings, err := db.Check(t.Context())
	testwait.Must(t, err)
	got := slices.DeleteFunc(names(findings), func(name string) bool { return name != "engine" && name != "engine!" })
	if !slices.Equal(got, want) {
		t.Errorf("found %+v, want %q", findings, want)
	}
}

// TestEngineWithoutReadCommittedIsRefused: what is read behind a lock would be older than the lock.
func TestEngineWithoutReadCommittedIsRefused(t *testing.T) {
	t.Parallel()
	expectEngine(t, open(t, Options{URL: pgtest.Without(t, pgtest.NewDatabase(t, nil), pgkit.ReadCommitted)}), "engine!")
}

// TestEngineThatLacksAll has two processes work on a database without anything that has something in its place.
func TestEngineThatLacksAll(t *testing.T) {
	t.Parallel()
	url := lacking(t, replaceable()...)
	a := newWireless(t, url)
	b := newWireless(t, url)
	expectEngine(t, a.db, "engine", "engine", "engine", "engine", "engine", "engine", "engine")
	s, id := lot(t, a.db, func(id uuid.UUID, events []auction.Event) {
		a.hub.Committed(auction.Topic(id), events[len(events)-1].Seq, func() []live.Event { return LiveEvents(events) })
	})
	next := b.follow(t, auction.Topic(id))
	for i := range int64(10) {
		decide(t, s, id, auction.PlaceBid{Account: []string{"ann", "bob"}[i%2], Amount: 10 + i})
	}
	for seq := range int64(12) {
		if m := next(); m.Seq != seq+1 {
			t.Fatalf("want event %d, got %s", seq+1, m.JSON)
		}
	}
	for what, sql := range map[string]string{
		"functions":             `SELECT count(*) FROM pg_proc WHERE pronamespace IN ('public'::regnamespace, 'fairlead_elections'::regnamespace)`,
		"deferrable constraint": `SELECT count(*) FROM pg_constraint WHERE condeferrable AND connamespace = 'public'::regnamespace`,
		"listening sessions":    `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`,
	} {
		if n := ask[int](t, a.db, sql); n > 0 {
			t.Errorf("%s: %d", what, n)
		}
	}
	if err := NewCrossLedger(a.db).CanPrepare(t.Context()); err == nil {
		t.Error("it can prepare")
	}
}

func newWireless(t *testing.T, url string) *process {
	t.Helper()
	p := &process{db: open(t, Options{URL: url, MaxConns: 4})}
	if p.db.Wire() != nil {
		t.Fatal("there is a wire")
	}
	return p.run(t, live.Options{Log: NewEvents(p.db, testViews()), PollEvery: 20 * time.Millisecond})
}

// TestGatesOfRows has a purchase and a multi-draw wait for the rows that stand for advisory locks.
func TestGatesOfRows(t *testing.T) {
	t.Parallel()
	url := lacking(t, pgkit.AdvisoryLocks)
	v := enter(t, url, lottery.Options{})
	s := newLedgerService(t, v.db)
	fund(t, s, 100, "ann")
	fund(t, s, 0, "house")
	id := v.create(t, 2)
	draws := newMultidraws(t, NewMultidraws(v.db), multidraw.Options{})
	key := keyed[multidraw.Op](inRange("k", 10, false), "same", "body")
	for what, c := range map[string]struct {
		gate int32
		do   func() error
	}{
		"purchase": {pgkit.GateOf(id[14], id[15]), func() error {
			a, err := v.Execute(t.Context(), id, own[lottery.Op](lottery.Buy{Account: "ann"}))
			return errors.Join(err, a.Err)
		}},
		"multi-draw": {pgkit.GateOf(key.Key.ID[0], key.Key.ID[1]), func() error {
			a, err := draws.Create(t.Context(), key)
			return errors.Join(err, a.Err)
		}},
	} {
		tx, err := sessionOf(t, v.db).Begin(t.Context())
		testwait.Must(t, err)
		testwait.Must(t, testwait.Err(tx.Exec(t.Context(), pgkit.In("", pgkit.GateRow), c.gate)))
		ended := make(chan error, 1)
		var all sync.WaitGroup
		all.Go(func() { ended <- untilFree(c.do) })
		testwait.Eventually(t, patience, what+" waits for its gate", func() bool {
			return ask[int](t, v.db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
				AND query LIKE '%fairlead_gates%'`) > 0 || len(ended) > 0
		})
		if len(ended) > 0 {
			t.Errorf("%s passed a gate that another session has", what)
		}
		testwait.Must(t, tx.Rollback(t.Context()))
		all.Wait()
		testwait.Check(t, <-ended)
	}
	if n := ask[int](t, v.db, `SELECT count(*) FROM fairlead_gates`); n != 1024 {
		t.Errorf("%d gates", n)
	}
}

// TestExplicitPipelines has transactions of a pipeline rest on each other, and the first of them fail, where each has BEGIN and COMMIT.
func TestExplicitPipelines(t *testing.T) {
	t.Parallel()
	seen := &recorder{}
	db := open(t, Options{URL: lacking(t, pgkit.Batches), Observer: seen})
	waitLong(db)
	fund(t, newLedgerService(t, db), 100, "ann", "ben", "cid", "dan")
	l := NewLedger(db)
	knowTheTime(t, db)
	testwait.Must(t, new(decided).transfer(t, l, "ann", "ben", 1)) // It connects.
	tx := lockAnn(t, sessionOf(t, db))
	ended := sentBehind(t, l)
	testwait.Must(t, tx.Rollback(t.Context()))
	for range 3 {
		testwait.Check(t, <-ended)
	}
	if got := balances(t, l); !slices.Equal(got, []int64{49, 11, 239, 101}) {
		t.Errorf("balances %v", got)
	}
	if reasons, _, _ := seen.seen(); len(reasons) != 0 {
		t.Errorf("reruns for %v", reasons)
	}
	// Somebody else changes an account: the guard refuses, nothing of the transaction stays, and the next one is not in its way.
	exec(t, db, `UPDATE accounts SET version = version + 1 WHERE id = 'ann'`)
	knowTheTime(t, db)
	testwait.Check(t, new(decided).transfer(t, l, "ann", "ben", 9))
	testwait.Check(t, new(decided).transfer(t, l, "cid", "dan", 9))
	if got := balances(t, l); !slices.Equal(got, []int64{40, 20, 230, 110}) {
		t.Errorf("balances %v", got)
	}
	if seen.fallbacks()["stale"] != 1 {
		t.Errorf("fallbacks %v", seen.fallbacks())
	}
}

// TestSweepKeysWithoutPlaces goes through more records than one statement looks at, one of which another session has locked.
func TestSweepKeysWithoutPlaces(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: lacking(t, pgkit.RowPlaces)})
	const old = 2*sweepRange + 1
	exec(t, db, `INSERT INTO idempotency_keys (id, fingerprint, execution, status, body, created_at)
		SELECT sha256(n::text::bytea), sha256(''), gen_random_uuid(), 200, '', clock_timestamp() - CASE WHEN n > 10 THEN '24 h' ELSE '23:59' END::interval
		FROM generate_series(1, $1::integer) AS n`, old+10)
	around := sessionOf(t, db)
	tx, err := around.Begin(t.Context())
	testwait.Must(t, err)
	testwait.Must(t, testwait.Err(tx.Exec(t.Context(), `SELECT FROM idempotency_keys WHERE id = sha256('11') FOR UPDATE`)))
	for _, want := range []int64{old - 1, 1, 0} {
		if n, err := db.SweepKeys(t.Context(), 24*time.Hour); n != want || err != nil {
			t.Errorf("swept %d, %v; want %d", n, err, want)
		}
		testwait.Must(t, tx.Rollback(t.Context()))
		tx, err = around.Begin(t.Context())
		testwait.Must(t, err)
	}
	if left := ask[int](t, db, `SELECT count(*) FROM idempotency_keys`); left != 10 {
		t.Errorf("%d left", left)
	}
}

// TestRaisesInTurns: in whatever order the raises of a turn are written, no amount is there twice.
func TestRaisesInTurns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SliceOfNDistinct(rapid.Int64Range(1, 12), 0, 8, rapid.ID).Draw(t, "before")
		after := rapid.Permutation(rapid.SliceOfNDistinct(rapid.Int64Range(1, 12), len(before), len(before), rapid.ID).Draw(t, "after")).Draw(t, "order")
		raised := make([]auction.Raise, len(before))
		for i := range raised {
			raised[i] = auction.Raise{Bid: auction.Bid{Account: fmt.Sprint(i), Amount: after[i]}, Before: before[i]}
		}
		turns, fallen := inTurns(raised)
		there := map[int64]string{}
		for i := range raised {
			there[before[i]] = raised[i].Account
		}
		take := func(r auction.Raise) {
			if there[r.Before] == r.Account {
				delete(there, r.Before)
			}
		}
		put := func(r auction.Raise) {
			if other, taken := there[r.Amount]; taken {
				t.Fatalf("%d is still %s's when %s takes it: %+v", r.Amount, other, r.Account, turns)
			}
			there[r.Amount] = r.Account
		}
		for _, r := range fallen {
			take(r)
		}
		n := len(fallen)
		for _, turn := range turns {
			n += len(turn)
			for _, r := range rapid.Permutation(turn).Draw(t, "turn") {
				take(r)
				put(r)
			}
		}
		for _, r := range fallen {
			put(r)
		}
		if n != len(raised) || len(there) != len(raised) {
			t.Fatalf("%d raises of %d were written", n, len(raised))
		}
	})
}

// TestRaisesPassAmountsOnRowByRow writes a chain of raises, each of which takes what the next one gives up, where the constraint is not
// deferrable.
func TestRaisesPassAmountsOnRowByRow(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: unaudited(t, pgkit.Deferrable)})
	id := uuid.New()
	const bidders = 20
	raised := make([]auction.Raise, bidders)
	for i := range raised {
		raised[i] = auction.Raise{Before: int64(i + 1), Bid: auction.Bid{Account: fmt.Sprint(i), Amount: int64(i + 2), Round: 1, At: time.Now(), Hold: uuid.New()}}
		exec(t, db, `INSERT INTO auction_standing (auction, account, amount, unique_amount, round, seq, at, hold, active)
			VALUES ($1, $2, $3, $3, 1, 1, now(), $4, true)`, id, raised[i].Account, raised[i].Before, raised[i].Hold)
	}
	slices.Reverse(raised[bidders/2:])
	turns, fallen := inTurns(raised)
	var b pgx.Batch
	a := &auction.Auction{ID: id, UniqueAmounts: true}
	for _, turn := range turns {
		queueRaises(&b, a, turn, countedWrites, db.raising())
	}
	testwait.Must(t, db.pool.SendBatch(t.Context(), &b).Close())
	if got := ask[[]int64](t, db, `SELECT array_agg(amount - 1 ORDER BY account::integer) FROM auction_standing`); len(fallen) > 0 || len(got) != bidders ||
		!slices.IsSorted(got) || got[0] != 1 || got[bidders-1] != bidders {
		t.Errorf("amounts %v, fallen %v", got, fallen)
	}
}
