//go:build unix

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// twoLedgers are two ledgers on databases of their own: coordinators work on the first and know the second as eu; one server
// has the second for its own.
type twoLedgers struct {
	own, other   string   // databases
	clusters     []string // the data directories of their PostgreSQL
	mode         string   // of all transfers; empty: of both
	coordinators []*sim.Server
	client       *sim.Client // of the coordinators
	history      *sim.History
	ends         []client.CrossEnd
	brim         client.CrossEnd // an account that takes no more
	total        *big.Int
}

func openLedgers(t *testing.T, coordinators, accounts int) *twoLedgers {
	t.Helper()
	h := &twoLedgers{own: newDatabase(t)}
	second := newServer(t, "") // Its database is on a PostgreSQL of its own, which dies alone.
	var err error
	if h.other, err = localpg.URLOf(second.DataDir()); err != nil {
		t.Fatal(err)
	}
	h.clusters = []string{sharedData(), second.DataDir()}
	for range coordinators {
		h.coordinators = append(h.coordinators, newServer(t, h.own, "--ledger", "eu="+h.other))
	}
	h.fund(t, second, accounts)
	return h
}

// fund opens accounts in both ledgers. second is the other one's own server.
func (h *twoLedgers) fund(t *testing.T, second *sim.Server, accounts int) {
	t.Helper()
	h.client, h.history = newClient(t, h.coordinators...)
	h.total = new(big.Int)
	secondClient, _ := newClient(t, second)
	const each = 500
	for ledger, c := range map[string]*sim.Client{"local": h.client, "eu": secondClient} {
		ids := names(ledger, accounts)
		testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), c, ids, each))
		for _, id := range ids {
			h.ends = append(h.ends, client.CrossEnd{Ledger: ledger, Account: id})
			h.total.Add(h.total, big.NewInt(each))
		}
	}
	h.brim = client.CrossEnd{Ledger: "eu", Account: "brim"}
	fill(t, h.other, h.brim.Account)
	h.total.Add(h.total, big.NewInt(math.MaxInt64))
}

// fill opens an account with the largest balance there is, as deposits would make it.
func fill(t *testing.T, database, account string) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	for _, sql := range []string{
		`INSERT INTO accounts (id, currency, available, held, version, created_at) VALUES ($1, 'SIM', 9223372036854775807, 0, 2, now())`,
		`INSERT INTO transfers (id, kind, source, destination, amount, currency, status, created_at)
			VALUES (md5($1)::uuid, 'deposit', 'outside/SIM', $1, 9223372036854775807, 'SIM', 'completed', now())`,
		`INSERT INTO entries (account, id, version, transfer, amount, currency, at)
			SELECT a, gen_random_uuid(), v, md5($1)::uuid, n, 'SIM', now()
			FROM (VALUES ($1, 2, 9223372036854775807), ('outside/SIM', 0, -9223372036854775807)) AS e (a, v, n)`,
	} {
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sql, account)))
	}
}

// traffic sends transfers of all kinds until it is stopped, and settles each.
func (h *twoLedgers) traffic(t *testing.T, name string, seed uint64, workers int) (finish func()) {
	t.Helper()
	stop := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		wrong []error
	)
	for w := range workers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for n := 0; sim.GoesOn(ctx, stop); n++ {
				op := h.draw(fmt.Sprintf("%s-%d-%d", name, w, n), rng)
				limited, done := context.WithTimeout(ctx, time.Duration(testwait.Count(2, 8))*patience)
				a, err := h.client.Settle(limited, op)
				done()
				if err == nil && a.Status != http.StatusCreated && a.Code() != "insufficient_funds" {
					err = fmt.Errorf("%s: %v", op, a)
				}
				if err != nil && ctx.Err() == nil {
					mu.Lock()
					wrong = append(wrong, err)
					mu.Unlock()
					return
				}
				if !testwait.Torture() {
					sim.Rest(ctx, rng, workerRest)
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return func() {
		t.Helper()
		close(stop)
		group.Wait()
		complain(t, errors.Join(wrong...))
	}
}

// draw makes a transfer. Few accounts and both directions let transfers oppose each other; now and then there is too little.
func (h *twoLedgers) draw(key string, rng *rand.Rand) *sim.Op {
	from := h.ends[rng.IntN(len(h.ends))]
	to := h.ends[rng.IntN(len(h.ends))]
	for to == from {
		to = h.ends[rng.IntN(len(h.ends))]
	}
	if rng.IntN(4) == 0 {
		if from = h.ends[rng.IntN(len(h.ends))]; from.Ledger == "local" {
			to = h.brim
		}
	}
	for to == from {
		to = h.ends[rng.IntN(len(h.ends))]
	}
	amount := 1 + rng.Int64N(40)
	if rng.IntN(12) == 0 {
		amount = 1_000_000
	}
	mode := []string{"saga", "twophase"}[rng.IntN(2)]
	if pgtest.Off(pgkit.Prepare, pgkit.AdvisoryLocks) {
		mode = "saga"
	}
	if h.mode != "" {
		mode = h.mode
	}
	return sim.NewOp(sim.KindCross, "/v1/cross-transfers", key, client.CrossTransferRequest{
		From: from, To: to, Amount: amount, Mode: client.CrossTransferRequestMode(mode),
	})
}

// close waits until every transfer has ended, which has a limit, and audits both ledgers.
func (h *twoLedgers) close(t *testing.T) {
	t.Helper()
	own, other := pgtest.Connect(t, h.own), pgtest.Connect(t, h.other)
	h.settled(t, own, other)
	auditCross(t, map[string]*pgx.Conn{"local": own, "eu": other}, h.total)
	replayed, err := h.history.Replay(testwait.Context(t, 5*time.Minute), h.client, 8, func(i int) bool { return i%5 == 0 })
	complain(t, err)
	auditNow(t, h.own)
	auditNow(t, h.other)
	h.compare(t, own)
	t.Logf("%d transfers, %d replayed", len(h.history.Ops()), replayed)
}

// settled waits until no transfer is pending and nothing in doubt.
func (h *twoLedgers) settled(t *testing.T, own, other *pgx.Conn) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		var pending, here, there int
		const doubts = `SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'fairlead:%'`
		err := errors.Join(own.QueryRow(t.Context(), `SELECT count(*) FROM sagas WHERE status = 'pending'`).Scan(&pending),
			own.QueryRow(t.Context(), doubts).Scan(&here), other.QueryRow(t.Context(), doubts).Scan(&there))
		testwait.Must(t, err)
		if pending+here+there == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d transfers are pending, %d and %d in doubt after %v", pending, here, there, patience)
		}
		wait.For(t.Context(), 20*time.Millisecond)
	}
}

// doubts lists what is prepared in either database. A database that is coming back is asked until it answers.
func (h *twoLedgers) doubts(t *testing.T) (gids []string) {
	t.Helper()
	ctx := testwait.Context(t, patience)
	for _, url := range []string{h.own, h.other} {
		for {
			found, err := prepared(ctx, url)
			if err == nil {
				gids = append(gids, found...)
				break
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
			wait.For(ctx, 50*time.Millisecond)
		}
	}
	return gids
}

func prepared(ctx context.Context, url string) ([]string, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, `SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'fairlead:%'`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// outOfDoubt waits until nothing of what a dead coordinator had left is in doubt, and returns how long that took.
func (h *twoLedgers) outOfDoubt(t *testing.T, left []string) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		now := h.doubts(t)
		if !slices.ContainsFunc(left, func(gid string) bool { return slices.Contains(now, gid) }) {
			return time.Since(began)
		}
		if took := time.Since(began); took > patience {
			t.Fatalf("in doubt after %v: %v of %v", took, now, left)
		}
		wait.For(t.Context(), 100*time.Millisecond)
	}
}

// compare holds what clients were told against the log.
func (h *twoLedgers) compare(t *testing.T, own *pgx.Conn) {
	t.Helper()
	ends := map[string]string{}
	rows, err := own.Query(t.Context(), `SELECT id::text, status FROM sagas`)
	testwait.Must(t, err)
	var id, status string
	if _, err := pgx.ForEachRow(rows, []any{&id, &status}, func() error { ends[id] = status; return nil }); err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	for _, op := range h.history.Ops() {
		a, ok := op.Final()
		if !ok || op.Kind != sim.KindCross {
			continue
		}
		body := struct{ ID, Status string }{a.Problem().Transfer, "failed"}
		if a.Status != http.StatusPaymentRequired {
			if err := a.JSON(&body); err != nil {
				t.Errorf("%s: %v", op, err)
				continue
			}
		}
		told[body.Status]++
		if was := ends[body.ID]; was != body.Status && body.Status != "pending" {
			t.Errorf("%s: was told %s, is %q", op, body.Status, was)
		}
		delete(ends, body.ID)
	}
	for id, status := range ends {
		t.Errorf("%s is %s, and nobody asked for it", id, status)
	}
	t.Logf("told: %v", told)
}

// TestCrossCoordinatorDiesAtEveryCrashPoint lets the only coordinator kill itself at each named place while many transfers
// are under way, and kills a database with it, each in turn. When it is back, nothing that it had left is in doubt for long;
// in the end, what was promised holds in both ledgers. Each run takes some of the places, in any order; a long one takes all.
func TestCrossCoordinatorDiesAtEveryCrashPoint(t *testing.T) {
	for mode, points := range map[string][]string{
		"saga":     {"cross.intent", "cross.debited", "cross.credited", "cross.undone"},
		"twophase": {"cross.intent", "cross.prepared", "cross.ready", "cross.decided", "cross.committed", "cross.unlogged"},
	} {
		t.Run(mode, func(t *testing.T) {
			if mode == "twophase" {
				pgtest.Needs(t, pgkit.Prepare, pgkit.AdvisoryLocks)
			}
			crossCoordinatorDies(t, mode, points)
		})
	}
}

func crossCoordinatorDies(t *testing.T, mode string, points []string) {
	t.Helper()
	rng, seed := testwait.Rand(t)
	h := openLedgers(t, 1, testwait.Count(3, 40))
	h.mode = mode
	server := h.coordinators[0]
	rng.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	points = points[:testwait.Count(2, len(points))]
	finish := h.traffic(t, mode, seed, testwait.Count(8, 1000))
	dieAt := func(i int, point string) time.Duration {
		await(t, "answers before "+point, h.history.After(5))
		at := fmt.Sprintf("%s:%d", point, 1+rng.IntN(8))
		willDie(t, server, at)
		dies(t, server, at)
		database := "no"
		if testwait.Count(0, 1) == 1 || i == len(points)/2 {
			n := i % len(h.clusters)
			database = []string{"own", "other"}[n]
			testwait.Must(t, sim.KillPostgres(h.clusters[n], rng.IntN(2) == 0))
		}
		left := h.doubts(t)
		start(t, server)
		took := h.outOfDoubt(t, left)
		h.history.Recorder.Also(tally.BranchOrphaned, len(left), took)
		t.Logf("%s, and %s database: %d left in doubt, settled after %v", at, database, len(left), took)
		return took
	}
	testpromise.CheckEach(t, []string{"in-doubt"}, func(seen func(string, time.Duration)) {
		for i, point := range points {
			seen("in-doubt", dieAt(i, point))
		}
	})
	await(t, "answers after all deaths", h.history.After(testwait.Count(20, 1000)))
	finish()
	h.close(t)
}

// TestCrossCoordinatorsTakeOver kills one of two coordinators on one log again and again; the other goes on with what it
// has left, while clients go on with either.
func TestCrossCoordinatorsTakeOver(t *testing.T) {
	sessions(t, 5, func(t *testing.T) {
		t.Helper()
		rng, seed := testwait.Rand(t)
		h := openLedgers(t, 2, 2)
		finish := h.traffic(t, "over", seed, 8)
		for i := range testwait.Count(2, 10) {
			await(t, "answers", h.history.After(15))
			pause(t, rng, 200*time.Millisecond)
			testwait.Must(t, h.coordinators[i%2].Kill(testwait.Context(t, patience)))
			await(t, "answers of the other", h.history.After(10))
			start(t, h.coordinators[i%2])
			if i%3 == 1 {
				// Both ledgers' databases at once; they come back by themselves.
				for _, cluster := range h.clusters {
					testwait.Must(t, sim.KillPostgres(cluster, true))
				}
				await(t, "answers after the databases' death", h.history.After(10))
			}
		}
		finish()
		h.close(t)
	})
}
