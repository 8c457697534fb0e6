package server

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
)

// takeTurns has clients lock and unlock a key each, so many times, and checks tokens and repeats.
func (e *env) takeTurns(clients, times int) {
	e.t.Helper()
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			other := *e
			key := fmt.Sprint("key ", client)
			for n := range times {
				idempotencyKey, body := newUUID(), lockBody(fmt.Sprint("client ", client), "1h", "", key)
				first := other.keyed(idempotencyKey, "/v1/locks", body)
				if first.status != http.StatusCreated {
					e.t.Errorf("%s: %s", key, first.body)
					return
				}
				if token := first.decoded["tokens"].(map[string]any)[key]; fmt.Sprint(token) != fmt.Sprint(n+1) { //nolint:errcheck // Else it panics.
					e.t.Errorf("%s: token %v of grant %d", key, token, n+1)
				}
				unlock := send{method: http.MethodDelete, path: "/v1/locks/" + first.str("id"), key: newUUID()}
				if r := other.send(unlock); r.status != http.StatusNoContent {
					e.t.Errorf("%s: %s", key, r.body)
				}
				if again := other.keyed(idempotencyKey, "/v1/locks", body); !bytes.Equal(again.body, first.body) || again.header.Get("Idempotent-Replayed") != "true" {
					e.t.Errorf("%s: repeated: %s", key, again.body)
				}
				if again := other.send(unlock); again.status != http.StatusNoContent || again.header.Get("Idempotent-Replayed") != "true" {
					e.t.Errorf("%s: unlocked again: %s", key, again.body)
				}
			}
		})
	}
	all.Wait()
}

func TestLocksOfDifferentKeysShareTransactions(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Functions, pgkit.RowVersions)
	e := newEnv(t)
	const clients, times = 24, 10
	e.takeTurns(clients, times)
	const commands = 2 * clients * times
	// Each command leaves its key, in its own transaction or a shared one.
	if n := e.count(`idempotency_keys`); n < commands {
		t.Errorf("%d keys of %d commands", n, commands)
	}
	var used int
	if e.sql(&used, `SELECT count(DISTINCT xmin::text) FROM idempotency_keys`); used > commands/2 {
		t.Errorf("%d transactions for %d commands", used, commands)
	}
	if n := e.count(`lock_grants`); n != 0 {
		t.Errorf("%d locks are held", n)
	}
	if n := e.count(`audit_log WHERE action = 'lock.release'`); n != clients*times {
		t.Errorf("%d releases of an operator are in the audit log, want %d", n, clients*times)
	}
}

// TestASharedTransactionPassesOverLockedRows: a foreign session has locked the row of a key, or of a lock. Those who need it wait, and no
// others do.
func TestASharedTransactionPassesOverLockedRows(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.lock("ann", "1h", "", "blocked key").want(http.StatusCreated)
	e.unlock(e.lock("ann", "1h", "", "blocked key 2").want(http.StatusCreated).str("id")).want(http.StatusNoContent)
	held := e.lock("ann", "1h", "", "blocked lock").want(http.StatusCreated).str("id")
	stranger, err := pgx.Connect(t.Context(), e.dbURL)
	must(t, err)
	defer func() { _ = stranger.Close(context.WithoutCancel(t.Context())) }()
	_, err = stranger.Exec(t.Context(), `BEGIN; SELECT FROM lock_keys WHERE key = 'blocked key 2' FOR UPDATE`)
	must(t, err)
	_, err = stranger.Exec(t.Context(), `SELECT FROM lock_grants WHERE id = $1 FOR UPDATE`, held)
	must(t, err)
	replies := make(chan *reply, 2)
	go func() {
		other := *e
		replies <- other.lock("bo", "1h", "", "blocked key 2")
	}()
	go func() {
		other := *e
		replies <- other.unlock(held)
	}()
	e.takeTurns(8, 5)
	_, err = stranger.Exec(t.Context(), `ROLLBACK`)
	must(t, err)
	for range cap(replies) {
		r := <-replies
		switch r.status {
		case http.StatusCreated, http.StatusNoContent:
		case http.StatusServiceUnavailable: // The turns took longer than a command waits for a row.
			if r.str("code") != "row_locked" || r.str("outcome") != "not_applied" {
				t.Errorf("%s", r.body)
			}
		default:
			t.Errorf("%s", r.body)
		}
	}
}
