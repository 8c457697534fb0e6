package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/remoteledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/saga"
)

// startCross makes the service of transfers between ledgers, and tends it until the test ends.
func (e *env) startCross(db *postgres.DB, others map[string]string, away time.Duration, logger *slog.Logger) {
	e.t.Helper()
	log := postgres.NewSagas(db)
	coordinator, err := log.Coordinator(e.t.Context())
	if errors.Is(err, command.ErrUnavailable) { // A busy machine, and a server without patience.
		eventually(e.t, patience, "the log's coordinator", func() bool {
			coordinator, err = log.Coordinator(e.t.Context())
			return !errors.Is(err, command.ErrUnavailable)
		})
	}
	must(e.t, err)
	ledgers := map[string]cross.Ledger{cross.Local: postgres.NewCrossLedger(db)}
	for name, url := range others {
		if base, key, remote := strings.Cut(url, " "); remote {
			c, err := client.New(base, key, client.WithRetry(client.Retry{Attempts: 1}))
			must(e.t, err)
			ledgers[name] = remoteledger.New(c, "house")
			continue
		}
		other, err := postgres.Open(e.t.Context(), postgres.Options{URL: url, MaxConns: 8, Patience: patience, UnavailableAfter: away, Logger: logger})
		must(e.t, err)
		e.t.Cleanup(other.Close)
		ledgers[name] = postgres.NewCrossLedger(other)
	}
	e.cross = cross.NewService(log, ledgers, saga.Options{Coordinator: coordinator, Logger: logger, MaxPause: 200 * time.Millisecond})
	tending, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		e.cross.Reconcile(tending)
	}()
	// Runs before the databases are closed, which were cleaned up for earlier.
	e.t.Cleanup(func() {
		stop()
		<-stopped
		if err := e.cross.Close(context.Background()); err != nil {
			e.t.Errorf("close the transfers between ledgers: %v", err)
		}
	})
}

// waitingCross makes a transfer that waits for its next try for a long time, and returns its path.
func (e *env) waitingCross(from, to string) string {
	e.t.Helper()
	conn := e.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	id := newUUID()
	_, err := conn.Exec(e.t.Context(), `INSERT INTO sagas (id, name, protocol, input, status, reason, steps, decided, coordinator, cancelled, owner,
			term, lease_expires_at, version, next_at, attempts, last_error, created_at, updated_at)
		VALUES ($1, 'cross-transfer', 'saga', $2, 'pending', '', '[{"name":"transfer","status":"pending"}]', 0, 'fairlead:test', false, $1,
			1, to_timestamp(0), 1, now() + interval '1 hour', 12, 'the ledger was away', now(), now())`,
		id, `{"from":{"ledger":"local","account":"`+from+`"},"to":{"ledger":"local","account":"`+to+`"},"amount":1,"currency":"EUR"}`)
	must(e.t, err)
	return "/v1/cross-transfers/" + id
}

// useCross uses every route of transfers between ledgers with success.
func (e *env) useCross(from, to string) {
	e.t.Helper()
	tried, given := e.waitingCross(from, to), e.waitingCross(from, to)
	if items := e.get("/v1/cross-transfers?stuck=true&limit=10").want(200).items(); len(items) < 2 {
		e.t.Errorf("stuck: %v", items)
	}
	e.post(tried+"/retry", "").want(200)
	e.post(given+"/compensate", "").want(200)
	for path, end := range map[string]string{tried: "completed", given: "failed"} {
		eventually(e.t, patience, path+" "+end, func() bool { return e.get(path).shows("status", end) })
	}
	e.get("/v1/cross-transfers?limit=1").want(200)
	tried, given = e.waitingCross(from, to), e.waitingCross(from, to)
	if items := e.get("/v1/sagas?stuck=true&limit=10&name=cross-transfer&status=pending").want(200).items(); len(items) < 2 {
		e.t.Errorf("stuck: %v", items)
	}
	asSaga := func(path string) string { return strings.Replace(path, "cross-transfers", "sagas", 1) }
	e.post(asSaga(tried)+"/retry", "").want(200)
	e.post(asSaga(given)+"/compensate", "").want(200)
	for path, end := range map[string]string{tried: "completed", given: "failed"} {
		eventually(e.t, patience, path+" "+end, func() bool { return e.get(asSaga(path)).shows("status", end) })
	}
	e.get("/v1/sagas?limit=1").want(200)
	e.get("/v1/in-doubt").want(200)
	e.post("/v1/in-doubt/adopt", "").want(200)
	e.post("/v1/cross-legs", legBody(newUUID(), "debit", from, 1, "")).want(200)
}

// legBody is a leg of another server's transfer from or to an account of this ledger.
func legBody(saga, step, account string, amount int, rest string) string {
	own, other := `{"ledger":"local","account":"`+account+`"}`, `{"ledger":"house","account":"hal"}`
	from, to := own, other
	if step == "credit" {
		from, to = other, own
	}
	return fmt.Sprintf(`{"saga":%q,"step":%q,"from":%s,"to":%s,"amount":%d,"currency":"EUR"%s}`, saga, step, from, to, amount, rest)
}
