package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
)

// TestPrunedTransfers forgets transfers between ledgers after a retention: the money stays where it is, the answer under
// their keys lasts as long as all answers do, and then a key is a new one.
func TestPrunedTransfers(t *testing.T) {
	t.Parallel()
	e, other := twoLedgers(t)
	e.account("alice", "EUR", 100)
	other.account("bob", "EUR", 0)
	body := map[string]string{}
	first := map[string]*reply{}
	for _, mode := range modes() {
		body[mode] = crossBody("local", "alice", "eu", "bob", 10, mode)
		first[mode] = e.keyed("key-"+mode, "/v1/cross-transfers", body[mode]).want(201)
	}
	waiting := e.waitingCross("alice", "alice")
	ctx := context.Background()
	conn := e.connect()
	defer func() { _ = conn.Close(ctx) }()
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := conn.Exec(ctx, sql, args...)
		must(t, err)
	}
	prune := func(want int) {
		t.Helper()
		n, err := e.cross.Prune(t.Context(), 24*time.Hour)
		if err != nil || n != want {
			t.Errorf("pruned %d, %v; want %d", n, err, want)
		}
	}
	prune(0)
	// The one that has not ended is older than both, and stays.
	exec(`UPDATE sagas SET created_at = created_at - interval '25 hours', ended_at = ended_at - interval '25 hours'`)
	exec(`INSERT INTO saga_legs (saga, step, outcome, reason, at) VALUES ($1, 'debit', 'refused', 'another server''s', now() - interval '1 year')`, newUUID())
	prune(len(modes()))
	for _, mode := range modes() {
		e.get("/v1/cross-transfers/"+first[mode].str("id")).problem(404, "not_found")
		again := e.keyed("key-"+mode, "/v1/cross-transfers", body[mode])
		if again.want(201); string(again.body) != string(first[mode].body) {
			t.Errorf("%s: the key is kept with another answer: %s", mode, again.body)
		}
	}
	e.get(waiting).want(200)
	moved := int64(10 * len(modes()))
	e.wantBalance("alice", 100-moved)
	other.wantBalance("bob", moved)
	if here, there := e.count("saga_legs"), other.count("saga_legs"); here != 1 || there != 0 {
		t.Errorf("%d and %d marks are left, want that of another server's alone", here, there)
	}
	// The keys are swept as all others are. From then on they are new.
	exec(`UPDATE idempotency_keys SET created_at = created_at - interval '25 hours'`)
	db, err := postgres.Open(t.Context(), postgres.Options{URL: e.dbURL, MaxConns: 2, Patience: patience, UnavailableAfter: patience})
	must(t, err)
	defer db.Close()
	for range 2 { // The slot is left, and then emptied.
		exec(`UPDATE key_slots SET since = since - interval '25 hours', left_at = left_at - interval '25 hours'`)
		if _, err := db.SweepKeys(t.Context(), 24*time.Hour); err != nil {
			t.Error(err)
		}
	}
	for _, mode := range modes() {
		if again := e.keyed("key-"+mode, "/v1/cross-transfers", body[mode]).want(201); again.str("id") == first[mode].str("id") {
			t.Errorf("%s: the pruned transfer is back", mode)
		}
	}
	e.wantBalance("alice", 100-2*moved)
	other.wantBalance("bob", 2*moved)
	// One whose client went away before the answer has the key itself: it behaves likewise.
	exec(`UPDATE sagas SET key = sha256('gone'), fingerprint = sha256('gone'), execution = id, ended_at = ended_at - interval '25 hours' WHERE protocol = 'saga' AND status = 'completed'`)
	prune(1)
	exec(`DELETE FROM sagas WHERE status = 'pending'`)
}

// TestInDoubtMetrics samples a prepared transaction in one ledger's database, its end, and a database that went away.
func TestInDoubtMetrics(t *testing.T) {
	t.Parallel()
	e, other := twoLedgers(t)
	registry := prometheus.NewPedanticRegistry()
	metrics := telemetry.NewSagas(registry)
	sample := func() map[string]float64 {
		t.Helper()
		found, failures := e.cross.InDoubt(t.Context())
		metrics.Sample(e.cross.Participants(), found, failures, time.Now())
		families, err := registry.Gather()
		must(t, err)
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if name, ok := strings.CutPrefix(f.GetName(), "fairlead_saga_"); ok && len(m.GetLabel()) == 1 && m.GetLabel()[0].GetName() == "ledger" {
					got[name+" "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
		return got
	}
	for name, value := range sample() {
		if value != 0 {
			t.Errorf("%s is %v when nothing is in doubt", name, value)
		}
	}
	path := e.waitingCross("alice", "alice")
	id := strings.TrimPrefix(path, "/v1/cross-transfers/")
	own := pgtest.Connect(t, e.dbURL)
	// Its saga is at work on it, says the log: it is left alone.
	_, err := own.Exec(t.Context(), `UPDATE sagas SET protocol = 'twophase', lease_expires_at = now() + interval '1 hour' WHERE id = $1`, id)
	must(t, err)
	conn := pgtest.Connect(t, other.dbURL)
	for _, sql := range []string{"BEGIN", "SELECT pg_advisory_xact_lock(1)", "PREPARE TRANSACTION '" + coordinatorOf(t, e) + ":" + id + ":1:0'"} {
		_, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		must(t, err)
	}
	var before float64
	eventually(t, patience, "a growing age", func() bool {
		got := sample()
		if got["in_doubt eu"] != 1 || got["in_doubt local"] != 0 || got["in_doubt_oldest_seconds local"] != 0 || got["ledger_unreachable eu"] != 0 {
			t.Fatalf("%v", got)
		}
		grown := before > 0 && got["in_doubt_oldest_seconds eu"] > before
		before = got["in_doubt_oldest_seconds eu"]
		return grown
	})
	// Given up, it is rolled back by the resolver.
	_, err = own.Exec(t.Context(), `UPDATE sagas SET lease_expires_at = to_timestamp(0) WHERE id = $1`, id)
	must(t, err)
	eventually(t, patience, "the rollback", func() bool {
		got := sample()
		return got["in_doubt eu"] == 0 && got["in_doubt_oldest_seconds eu"] == 0
	})
	_, err = own.Exec(t.Context(), `DELETE FROM sagas WHERE id = $1`, id)
	must(t, err)
}

// coordinatorOf is the beginning of the identifiers of what a server prepares.
func coordinatorOf(t *testing.T, e *env) string {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: e.dbURL, MaxConns: 2, Patience: patience, UnavailableAfter: patience})
	must(t, err)
	defer db.Close()
	coordinator, err := postgres.NewSagas(db).Coordinator(t.Context())
	must(t, err)
	return coordinator
}
