package server

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// exhausted are the SQLSTATEs with which PostgreSQL says that it has run out of something, ends, can't use its disk, or denies something to the role.
func exhausted() []string {
	return []string{
		"53000", "53100", "53200", "53300", "53400", "57P01", "57P02", "57P03", "57P04", "57P05", "58000", "58030", "42501", "58P01", "58P02",
	}
}

// runOut makes a function of PostgreSQL that fails with a code.
func (e *env) runOut(conn *pgx.Conn, code string) {
	e.t.Helper()
	for _, head := range []string{"runs_out() RETURNS trigger", "has_run_out() RETURNS boolean"} {
		_, err := conn.Exec(e.t.Context(), `CREATE OR REPLACE FUNCTION `+head+` LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'there is nothing left' USING ERRCODE = '`+code+`'; END $$`)
		must(e.t, err)
	}
}

// exhaust sends requests at once while PostgreSQL fails with a code where the answer is to be written, after the key was read. It
// returns what the server said, and fails unless each was refused for now.
func (e *env) exhaust(conn *pgx.Conn, code string, requests []send) (said []*reply) {
	e.t.Helper()
	e.runOut(conn, code)
	_, err := conn.Exec(e.t.Context(), `CREATE TRIGGER runs_out BEFORE INSERT ON idempotency_keys EXECUTE FUNCTION runs_out()`)
	must(e.t, err)
	answers, errs := make([]*http.Response, len(requests)), make([]error, len(requests))
	var group sync.WaitGroup
	for i, s := range requests {
		group.Go(func() { answers[i], errs[i] = e.trySend(s) })
	}
	group.Wait()
	_, err = conn.Exec(e.t.Context(), `DROP TRIGGER runs_out ON idempotency_keys`)
	must(e.t, err)
	for i, s := range requests {
		must(e.t, errs[i])
		r := e.received(s.method, s.path, s.body, answers[i])
		if said = append(said, r); r.status != http.StatusServiceUnavailable {
			e.t.Errorf("%s: %s: %d %s", code, r.what, r.status, r.body)
		} else if r.equal(`{"retryable":true}`); r.str("outcome") != notApplied && r.str("outcome") != outcomeUnknown {
			e.t.Errorf("%s: %s: %s", code, r.what, r.body)
		}
	}
	return said
}

// TestAServerThatRunsOutIsNoError has PostgreSQL answer kinds of requests with codes. It is no error of the request: the server refuses
// it for now, and carries it out under its key later. What a code means does not depend on the kind, so each kind meets some of the
// codes, and each code some of the kinds; with FAIRLEAD_TORTURE all meet.
func TestAServerThatRunsOutIsNoError(t *testing.T) {
	t.Parallel()
	e := newEnvForKinds(t, outage)
	conn := e.connect()
	stride := testwait.Count(7, 1)
	for n, code := range exhausted() {
		var requests []send
		for i, kind := range kindsOfRequests() {
			if (i+n)%stride > 0 {
				continue
			}
			s := e.patiently(kind)
			s.key = newUUID()
			requests = append(requests, s)
		}
		for i, said := range e.exhaust(conn, code, requests) {
			e.settles(requests[i], said, nil, code+": "+said.what)
		}
	}
}

// TestARefusedStatementSettlesTheOutcome has PostgreSQL refuse a write after the key was read. The server then knows that nothing was
// applied, and says so, unless the command may have had an effect in an earlier transaction: that of a run, or of a lock's grant.
func TestARefusedStatementSettlesTheOutcome(t *testing.T) {
	t.Parallel()
	e := newEnvForKinds(t, outage)
	conn := e.connect()
	open := []string{"draws at once", "draws by a run", "rollback of draws", "lock", "transfer between ledgers", "leg of another server's transfer"}
	kinds := slices.DeleteFunc(kindsOfRequests(), func(k kindOfRequest) bool { return slices.Contains(open, k.name) })
	// The ledger's commands have one lane, and are the first. No two of them are sent at once, so that none waits behind another until
	// the server has given up.
	ledgers := slices.IndexFunc(kinds, func(k kindOfRequest) bool { return k.name == "campaign" })
	for first := range ledgers {
		// A slow machine may need a second try, if the server has heard nothing of the database for too long.
		const tries = 5
		var waiting []kindOfRequest
		for i := first; i < len(kinds); i += ledgers {
			waiting = append(waiting, kinds[i])
		}
		for try := 0; len(waiting) > 0; try++ {
			var requests []send
			for _, kind := range waiting {
				s := e.patiently(kind)
				s.key = newUUID()
				requests = append(requests, s)
			}
			before := e.snapshot()
			said := e.exhaust(conn, exhausted()[(first+try)%len(exhausted())], requests)
			e.unchanged(before)
			var again []kindOfRequest
			for i, r := range said {
				if r.str("outcome") != notApplied {
					t.Logf("%s, try %d: %s", waiting[i].name, try+1, r.body)
					again = append(again, waiting[i])
				}
				e.settles(requests[i], r, nil, waiting[i].name)
			}
			if waiting = again; len(waiting) > 0 && try+1 == tries {
				t.Fatalf("%s: the outcome was never settled", waiting[0].name)
			}
		}
	}
}

// TestARepeatIsNotCalledNotApplied sends a request that was carried out before together with a new one, in a transaction that
// PostgreSQL refuses. The first one's effect is there.
func TestARepeatIsNotCalledNotApplied(t *testing.T) {
	t.Parallel()
	e := newEnvForKinds(t, outage)
	conn := e.connect()
	const path, body = "/v1/deposits", `{"account":"alice","amount":5}`
	earlier := listed(path, body)
	first := e.send(batchSend(earlier)).want(http.StatusOK).results(1)[0]
	e.runOut(conn, "53100")
	_, err := conn.Exec(t.Context(), `CREATE TRIGGER runs_out BEFORE INSERT ON idempotency_keys EXECUTE FUNCTION runs_out()`)
	must(t, err)
	for _, r := range e.send(batchSend(earlier, listed(path, body))).want(http.StatusOK).results(2) {
		if p := r.problem(t, http.StatusServiceUnavailable, "unavailable"); p.Outcome != outcomeUnknown {
			t.Errorf("%s", r.Body)
		}
	}
	_, err = conn.Exec(t.Context(), `DROP TRIGGER runs_out ON idempotency_keys`)
	must(t, err)
	var again batchResult
	eventually(t, patience, "the database is back", func() bool {
		again = e.send(batchSend(earlier)).want(http.StatusOK).results(1)[0]
		return again.Status != http.StatusServiceUnavailable
	})
	if !again.Replayed || !bytes.Equal(again.Body, first.Body) {
		t.Errorf("%s, was %s", again.Body, first.Body)
	}
}

// TestReadsOfAServerThatRunsOut has PostgreSQL refuse reads with each of the codes.
func TestReadsOfAServerThatRunsOut(t *testing.T) {
	t.Parallel()
	e := newEnvForKinds(t, outage)
	conn := e.connect()
	e.patient = true
	campaign, auction := e.onSale(`"base_length":2`, ""), e.started(twoRounds, "")
	publication := e.post("/v1/publications", `{"target":"shop","payload":1}`).str("id")
	e.patient = false
	reads := map[string][]string{ // by the table that they read
		"accounts":     {"/v1/accounts/alice"},
		"campaigns":    {"/v1/campaigns/" + campaign, "/v1/campaigns"},
		"auctions":     {"/v1/auctions/" + auction, "/v1/auctions"},
		"publications": {"/v1/publications/" + publication, "/v1/publications"},
	}
	for _, code := range exhausted() {
		e.runOut(conn, code)
		for table, paths := range reads {
			tx, err := conn.Begin(t.Context())
			must(t, err)
			for _, sql := range []string{
				`ALTER TABLE ` + table + ` RENAME TO kept`, `CREATE VIEW ` + table + ` AS SELECT * FROM kept WHERE has_run_out()`,
			} {
				_, err := tx.Exec(t.Context(), sql)
				must(t, err)
			}
			must(t, tx.Commit(context.Background()))
			for _, path := range paths {
				if r := e.get(path); r.status != http.StatusServiceUnavailable {
					t.Errorf("%s: %s: %d %s", code, r.what, r.status, r.body)
				} else {
					r.equal(`{"retryable":true}`)
				}
			}
			_, err = conn.Exec(t.Context(), `DROP VIEW `+table+`; ALTER TABLE kept RENAME TO `+table)
			must(t, err)
			for _, path := range paths {
				e.get(path).want(http.StatusOK)
			}
		}
	}
}
