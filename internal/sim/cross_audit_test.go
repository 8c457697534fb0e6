//go:build unix

package sim_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// crossLeg is the mark of a leg in the ledger where it had its effect.
type crossLeg struct {
	ledger, outcome, kind, source, destination, gid string
	amount                                          int64
}

// crossEnded is a transfer as the log has it.
type crossEnded struct {
	id, status, mode string
	decided          int64 // the term of the decision to commit
	q                client.CrossTransferRequest
}

// auditCross compares the log of transfers between ledgers, in the coordinator's database, with what has happened in each
// ledger, the coordinator's own, local, among them. While transfers are under way it must not be called. What breaks a promise is
// a transfer that has not ended, one whose legs are not those of its end, a leg without a transfer, money that was made or lost, a
// prepared transaction that was left.
func auditCross(t *testing.T, ledgers map[string]*pgx.Conn, total *big.Int) {
	t.Helper()
	ctx := testwait.Context(t, patience)
	legs := map[string]map[string]crossLeg{} // by saga and step
	sum := new(big.Int)
	for name, conn := range ledgers {
		rows, err := conn.Query(ctx, `SELECT l.saga::text, l.step, l.outcome, coalesce(t.kind, ''), coalesce(t.source, ''), coalesce(t.destination, ''), coalesce(t.amount, 0), coalesce(l.gid, '')
			FROM saga_legs l LEFT JOIN transfers t ON t.id = l.transfer`)
		testwait.Must(t, err)
		var id, step string
		l := crossLeg{ledger: name}
		_, err = pgx.ForEachRow(rows, []any{&id, &step, &l.outcome, &l.kind, &l.source, &l.destination, &l.amount, &l.gid}, func() error {
			if legs[id] == nil {
				legs[id] = map[string]crossLeg{}
			}
			if other, twice := legs[id][step]; twice {
				t.Errorf("%s: %s in %s and in %s", id, step, other.ledger, name)
			}
			legs[id][step] = l
			return nil
		})
		testwait.Must(t, err)
		var text string
		var left int
		testwait.Must(t, conn.QueryRow(ctx, `SELECT coalesce(sum(available::numeric + held), 0)::text,
			(SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()) FROM accounts`).Scan(&text, &left))
		part, ok := new(big.Int).SetString(text, 10)
		if !ok || left > 0 {
			t.Errorf("%s has %q, and %d prepared transactions are left", name, text, left)
			continue
		}
		sum.Add(sum, part)
	}
	if sum.Cmp(total) != 0 {
		t.Errorf("the ledgers have %s in all, not %s", sum, total)
	}
	rows, err := ledgers["local"].Query(ctx, `SELECT id::text, status, protocol, decided, input FROM sagas`)
	testwait.Must(t, err)
	var (
		e     crossEnded
		input string
	)
	_, err = pgx.ForEachRow(rows, []any{&e.id, &e.status, &e.mode, &e.decided, &input}, func() error {
		e.q = client.CrossTransferRequest{}
		if err := json.Unmarshal([]byte(input), &e.q); err != nil {
			return err
		}
		checkEnd(&e, legs[e.id], t.Errorf)
		if e.mode == "twophase" && e.q.From.Ledger != e.q.To.Ledger {
			checkDecision(&e, legs[e.id], t.Errorf)
		}
		delete(legs, e.id)
		return nil
	})
	testwait.Must(t, err)
	for id := range legs {
		t.Errorf("there are legs of %s, which is not in the log", id)
	}
}

// checkDecision makes sure that a two-phase transfer was decided once: either it was decided to commit, and both legs were
// committed as they had been prepared in the term of the decision, or there is no leg.
func checkDecision(e *crossEnded, legs map[string]crossLeg, report func(string, ...any)) {
	if (e.decided != 0) != (e.status == "completed") || e.status == "compensated" {
		report("%s is %s, and was decided to commit in term %d", e.id, e.status, e.decided)
	}
	for step, l := range legs {
		if want := fmt.Sprintf(":%s:%d:", e.id, e.decided); !strings.Contains(l.gid, want) {
			report("%s: %s was prepared as %q, decided was term %d", e.id, step, l.gid, e.decided)
		}
	}
}

// checkEnd compares a transfer's end with its legs.
func checkEnd(e *crossEnded, legs map[string]crossLeg, report func(string, ...any)) {
	id, status, q := e.id, e.status, &e.q
	var done []string
	for step, l := range legs {
		if l.outcome != "done" {
			continue
		}
		done = append(done, step)
		want := crossLeg{ledger: q.From.Ledger, outcome: "done", kind: "cross", amount: q.Amount}
		switch step {
		case "debit":
			want.source, want.destination = q.From.Account, "transit/"+q.To.Ledger
		case "undo.debit":
			want.source, want.destination = "transit/"+q.To.Ledger, q.From.Account
		case "credit":
			want.ledger, want.source, want.destination = q.To.Ledger, "transit/"+q.From.Ledger, q.To.Account
		case "transfer":
			want.source, want.destination = q.From.Account, q.To.Account
		}
		if want.gid = l.gid; l != want {
			report("%s: %s is %+v, not %+v", id, step, l, want)
		}
	}
	has := func(steps ...string) bool {
		for _, step := range steps {
			if legs[step].outcome != "done" {
				return false
			}
		}
		return len(done) == len(steps)
	}
	kept := false
	switch status {
	case "completed":
		kept = has("debit", "credit") || has("transfer")
	case "failed":
		kept = has()
	case "compensated":
		kept = has("debit", "undo.debit")
	}
	if !kept {
		report("%s is %s, with %v done", id, status, done)
	}
}
