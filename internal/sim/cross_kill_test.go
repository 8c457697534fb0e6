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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/sim"
)

// doubtLimit is how soon after its coordinator's return nothing may be in doubt any more.
const doubtLimit = 30 * time.Second

// twoHouses are two ledgers on databases of their own: coordinators work on the first and know the second as eu; one server
// has the second for its own.
type twoHouses struct {
	own, other   string // databases
	coordinators []*sim.Server
	client       *sim.Client // of the coordinators
	history      *sim.History
	ends         []sim.CrossEnd
	brim         sim.CrossEnd // an account that takes no more
	total        *big.Int
}

func openHouses(t *testing.T, coordinators, accounts int) *twoHouses {
	t.Helper()
	h := &twoHouses{own: newDatabase(t), other: newDatabase(t), total: new(big.Int)}
	second := newServer(t, h.other)
	for range coordinators {
		h.coordinators = append(h.coordinators, newServer(t, h.own, "--ledger", "eu="+h.other))
	}
	h.client, h.history = newClient(t, h.coordinators...)
	secondClient, _ := newClient(t, second)
	const each = 500
	for ledger, client := range map[string]*sim.Client{"local": h.client, "eu": secondClient} {
		ids := names(ledger, accounts)
		if err := sim.OpenAccounts(within(t, patience), client, ids, each); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			h.ends = append(h.ends, sim.CrossEnd{Ledger: ledger, Account: id})
			h.total.Add(h.total, big.NewInt(each))
		}
	}
	h.brim = sim.CrossEnd{Ledger: "eu", Account: "brim"}
	fill(t, h.other, h.brim.Account)
	h.total.Add(h.total, big.NewInt(math.MaxInt64))
	return h
}

// fill opens an account with the largest balance there is, as deposits would make it.
func fill(t *testing.T, database, account string) {
	t.Helper()
	conn := connect(t, database)
	for _, sql := range []string{
		`INSERT INTO accounts (id, currency, available, held, version, created_at) VALUES ($1, 'SIM', 9223372036854775807, 0, 2, now())`,
		`INSERT INTO transfers (id, kind, source, destination, amount, currency, status, created_at)
			VALUES (md5($1)::uuid, 'deposit', 'outside/SIM', $1, 9223372036854775807, 'SIM', 'completed', now())`,
		`INSERT INTO entries (account, id, version, transfer, amount, currency, at)
			SELECT a, gen_random_uuid(), v, md5($1)::uuid, n, 'SIM', now()
			FROM (VALUES ($1, 2, 9223372036854775807), ('outside/SIM', 0, -9223372036854775807)) AS e (a, v, n)`,
	} {
		if _, err := conn.Exec(t.Context(), sql, account); err != nil {
			t.Fatal(err)
		}
	}
}

// traffic sends transfers of all kinds until it is stopped, and settles each.
func (h *twoHouses) traffic(t *testing.T, name string, seed uint64, workers int) (finish func()) {
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
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-ctx.Done():
					return
				default:
				}
				op := h.draw(fmt.Sprintf("%s-%d-%d", name, w, n), rng)
				limited, done := context.WithTimeout(ctx, 2*patience)
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
func (h *twoHouses) draw(key string, rng *rand.Rand) *sim.Op {
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
	return sim.NewCross(key, from, to, amount, []string{"saga", "twophase"}[rng.IntN(2)])
}

// close waits until every transfer has ended, which has a limit, and audits both ledgers.
func (h *twoHouses) close(t *testing.T, limit time.Duration) {
	t.Helper()
	own, other := connect(t, h.own), connect(t, h.other)
	const open = `SELECT (SELECT count(*) FROM sagas WHERE status = 'pending') + (SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'fairlead:%')`
	deadline, left := time.Now().Add(limit), 1
	for left > 0 && time.Now().Before(deadline) {
		if err := own.QueryRow(t.Context(), open).Scan(&left); err != nil {
			t.Fatal(err)
		}
	}
	if left > 0 {
		t.Fatalf("%d transfers are pending or in doubt after %v", left, limit)
	}
	complain(t, sim.AuditCross(within(t, patience), map[string]*pgx.Conn{"local": own, "eu": other}, h.total))
	replayed, err := h.history.Replay(within(t, 5*time.Minute), h.client, 8, func(i int) bool { return i%5 == 0 })
	complain(t, err)
	auditNow(t, h.own)
	auditNow(t, h.other)
	h.compare(t, own)
	t.Logf("%d transfers, %d replayed", len(h.history.Ops()), replayed)
}

// compare holds what clients were told against the log.
func (h *twoHouses) compare(t *testing.T, own *pgx.Conn) {
	t.Helper()
	ends := map[string]string{}
	rows, err := own.Query(t.Context(), `SELECT id::text, status FROM sagas`)
	if err != nil {
		t.Fatal(err)
	}
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

// TestCrossCoordinatorDiesAtEveryCrashPoint lets the only coordinator kill itself at each named place. When it is back,
// nothing is in doubt for long, and what was promised holds in both ledgers.
func TestCrossCoordinatorDiesAtEveryCrashPoint(t *testing.T) {
	sessions(t, 5, crossCoordinatorDiesAtEveryCrashPoint)
}

func crossCoordinatorDiesAtEveryCrashPoint(t *testing.T) {
	t.Helper()
	rng, seed := newRand(t)
	h := openHouses(t, 1, 3)
	server := h.coordinators[0]
	points := []string{
		"cross.intent", "cross.debited", "cross.credited", "cross.undone", "cross.prepared", "cross.ready", "cross.decided", "cross.committed", "cross.unlogged",
	}
	for run := range scale(1, 3) {
		for i, point := range points {
			if err := server.Kill(within(t, patience)); err != nil {
				t.Fatal(err)
			}
			env := fmt.Sprintf("FAIRLEAD_CRASH_AT=%s:%d", point, 1+rng.IntN(12))
			finish := h.traffic(t, fmt.Sprintf("%d-%s", run, point), seed+uint64(100*run+i), 6)
			// It may die before anybody saw it ready; what matters is where.
			if _, err := server.Start(within(t, patience), env); err != nil && (server.Running() || server.KilledBy() != syscall.SIGKILL) {
				t.Fatal(err)
			}
			await(t, "death at "+env, server.Exited())
			if by := server.KilledBy(); by != syscall.SIGKILL {
				t.Fatalf("%s: ended by %v, code %d", env, by, server.ExitCode())
			}
			start(t, server)
			await(t, "answers after "+env, h.history.After(10))
			finish()
			h.close(t, doubtLimit)
			if t.Failed() {
				t.Fatalf("run %d, %s", run, env)
			}
		}
	}
}

// TestCrossCoordinatorsTakeOver kills one of two coordinators on one log again and again; the other goes on with what it
// has left, while clients go on with either.
func TestCrossCoordinatorsTakeOver(t *testing.T) { sessions(t, 5, crossCoordinatorsTakeOver) }

func crossCoordinatorsTakeOver(t *testing.T) {
	t.Helper()
	rng, seed := newRand(t)
	h := openHouses(t, 2, 2)
	finish := h.traffic(t, "over", seed, 8)
	for i := range scale(3, 10) {
		await(t, "answers", h.history.After(15))
		pause(t, rng, 200*time.Millisecond)
		if err := h.coordinators[i%2].Kill(within(t, patience)); err != nil {
			t.Fatal(err)
		}
		await(t, "answers of the other", h.history.After(10))
		start(t, h.coordinators[i%2])
		if i%3 == 1 {
			// Both ledgers' databases at once; they come back by themselves.
			if err := sim.KillPostgres(shared.dir+"/pg", true); err != nil {
				t.Fatal(err)
			}
			await(t, "answers after the databases' death", h.history.After(10))
		}
	}
	finish()
	h.close(t, doubtLimit)
}
