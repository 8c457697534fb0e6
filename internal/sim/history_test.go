//go:build unix

package sim_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// address is a target that does not move.
type address string

func (a address) URL() string { return string(a) }

// scripted answers the n-th request, from 1, by the n-th line of a script, and the last line from then on. It takes no batches, so that
// every attempt is a request of its own.
func scripted(t *testing.T, script ...func(http.ResponseWriter, *http.Request)) (*sim.Client, *sim.History) {
	t.Helper()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/commands" {
			http.NotFound(w, r)
			return
		}
		script[min(int(n.Add(1)), len(script))-1](w, r)
	}))
	t.Cleanup(server.Close)
	history := sim.NewHistory()
	client := sim.NewClient(history, sim.AdminKey, address(server.URL))
	t.Cleanup(client.Close)
	return client, history
}

func says(status int, body string, headers ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	}
}

func hangsUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func TestSettleRepeatsUntilTheAnswerIsFinal(t *testing.T) {
	var keys []string
	note := func(next func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			next(w, r)
		}
	}
	client, history := scripted(t,
		note(hangsUp),
		note(says(503, `{"code":"overloaded","retryable":true}`)),
		note(says(409, `{"code":"in_flight","retryable":true}`)),
		note(says(409, `{"code":"sold_out","retryable":false}`)),
	)
	op := sim.NewPurchase("k", "c", "ann", 0)
	signal := history.After(1)
	answer, err := client.Settle(t.Context(), op)
	if err != nil || answer.Code() != "sold_out" {
		t.Fatalf("%v, %v", answer, err)
	}
	if len(op.Answers()) != 4 || strings.Join(keys, "") != "kkkk" {
		t.Errorf("%d answers with the keys %v", len(op.Answers()), keys)
	}
	select {
	case <-signal:
	default:
		t.Error("one final answer, and those who wait for one were not told")
	}
	testwait.Check(t, history.CheckReplies())
}

func TestSettleTellsInternalErrors(t *testing.T) {
	client, _ := scripted(t, says(500, `{"code":"internal","retryable":false}`))
	if _, err := client.Settle(t.Context(), sim.NewPurchase("k", "c", "ann", 0)); !errors.Is(err, sim.ErrProtocol) {
		t.Errorf("a 500 that is not to be retried: %v", err)
	}
}

func TestReplayChecksTheAnswers(t *testing.T) {
	const first = `{"id":"1"}`
	mark := []string{"Idempotent-Replayed", "true"}
	tests := []struct {
		name   string
		second func(http.ResponseWriter, *http.Request)
		sound  bool
	}{
		{"the same, marked", says(201, first, mark...), true},
		{"the same, not marked", says(201, first), false},
		{"another body", says(201, `{"id":"2"}`, mark...), false},
		{"another status", says(200, first, mark...), false},
		{"another type", says(201, first, append([]string{"Content-Type", "text/html"}, mark...)...), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			client, history := scripted(t, says(201, first), test.second)
			testwait.Must(t, testwait.Err(client.Settle(t.Context(), sim.NewDeposit("k", "ann", 1))))
			if err := history.CheckReplies(); err != nil {
				t.Fatalf("before the replay: %v", err)
			}
			replayed, err := history.Replay(t.Context(), client, 2, nil)
			if err = errors.Join(err, history.CheckReplies()); replayed != 1 || (err == nil) != test.sound {
				t.Errorf("%d replayed: %v", replayed, err)
			}
		})
	}
}

func TestUnansweredCommandsAreTold(t *testing.T) {
	client, history := scripted(t, hangsUp)
	client.Once(t.Context(), sim.NewDeposit("k", "ann", 1))
	if err := history.CheckReplies(); !errors.Is(err, sim.ErrUnsettled) {
		t.Errorf("a command without an answer: %v", err)
	}
}

// addRareThings sees to it that the history has a campaign that is completed, one that is cancelled, and a transfer by legs.
func addRareThings(t *testing.T, c *sim.Client, beneficiary string) {
	t.Helper()
	testwait.Must(t, sim.OpenAccounts(t.Context(), c, []string{"ann"}, 100))
	there, back := client.LegRequest{From: "ann", To: beneficiary, Amount: 1}, client.LegRequest{From: beneficiary, To: "ann", Amount: 1}
	if answer, err := c.Settle(t.Context(), sim.NewLegs("legs", there, back)); err != nil || answer.Status != http.StatusCreated {
		t.Fatalf("legs: %v %v", answer, err)
	}
	for _, name := range []string{"completed", "cancelled"} {
		campaign, err := sim.Launch(t.Context(), c, name, small(name, beneficiary, 1, 1))
		testwait.Must(t, err)
		op, status := sim.NewPurchase("buy", campaign.ID, "ann", 1), http.StatusCreated
		if name == "cancelled" {
			op, status = sim.NewCancel("cancel", campaign.ID), http.StatusOK
		}
		if answer, err := c.Settle(t.Context(), op); err != nil || answer.Status != status {
			t.Fatalf("%s: %v %v", op, answer, err)
		}
	}
}

// TestModelNoticesEveryDifference runs a sound load on a real server, and then damages the database in one way at a
// time, undoing each.
func TestModelNoticesEveryDifference(t *testing.T) { //nolint:tparallel // Its parts take turns, beside other tests.
	beside(t)
	_, seed := testwait.Rand(t)
	database := newDatabase(t)
	server := newServer(t, database)
	client, history := newClient(t, server)
	l := startLoad(t, client, sim.WorkloadOptions{Seed: seed, Prefix: "model", Accounts: 6, Workers: 4, Mix: sim.DefaultMix()})
	await(t, "answers", history.After(400))
	l.finish(t)
	addRareThings(t, client, l.Accounts()[0])
	closeBooks(t, database, client, history, 1)
	if t.Failed() {
		t.FailNow()
	}
	conn := pgtest.Connect(t, database)
	history.Recorder = new(tally.Recorder) // What is found here is none of the program's.
	history.Recorder.Fault("damage", time.Now())
	counted := history.Recorder.Counts()[0]
	for name, damage := range map[string]string{
		"account lost":          `DELETE FROM accounts WHERE id = 'model-account-0'`,
		"account unknown":       `INSERT INTO accounts VALUES ('stranger', 'SIM', 0, 0, 1, now())`,
		"balance":               `UPDATE accounts SET available = available + 1 WHERE id = 'model-account-0'`,
		"transfer lost":         `DELETE FROM transfers WHERE id = (SELECT id FROM transfers WHERE kind = 'transfer' LIMIT 1)`,
		"deposit lost":          `DELETE FROM transfers WHERE id = (SELECT id FROM transfers WHERE kind = 'deposit' LIMIT 1)`,
		"transfer doubled":      `INSERT INTO transfers SELECT gen_random_uuid(), kind, source, destination, amount, currency, status, reason, memo, created_at FROM transfers WHERE kind = 'transfer' LIMIT 1`,
		"transfer undone":       `UPDATE transfers SET status = 'failed' WHERE id = (SELECT id FROM transfers WHERE kind = 'transfer' AND status = 'completed' LIMIT 1)`,
		"leg lost":              `DELETE FROM transfers WHERE id = (SELECT part FROM transfer_legs WHERE leg > 0 AND part IS NOT NULL LIMIT 1)`,
		"leg of another amount": `UPDATE transfers SET amount = amount + 1 WHERE id = (SELECT part FROM transfer_legs WHERE leg > 0 AND part IS NOT NULL LIMIT 1)`,
		"leg unknown":           `DELETE FROM transfer_legs WHERE part = (SELECT part FROM transfer_legs WHERE leg > 0 AND part IS NOT NULL LIMIT 1)`,
		"hold lost":             `DELETE FROM hold_rows WHERE id = (SELECT id FROM holds LIMIT 1)`,
		"hold doubled":          `INSERT INTO hold_rows SELECT gen_random_uuid(), account, amount, captured, status, expires_at, created_at, closed_at, transfer FROM holds LIMIT 1`,
		"hold reopened":         `UPDATE hold_rows SET status = 'open', captured = 0, closed_at = NULL WHERE id = (SELECT id FROM holds WHERE status <> 'open' LIMIT 1)`,
		"purchase lost":         `DELETE FROM purchases WHERE id = (SELECT id FROM purchases LIMIT 1)`,
		"purchase of another":   `UPDATE purchases SET account = 'stranger' WHERE id = (SELECT id FROM purchases LIMIT 1)`,
		"purchase unknown":      `UPDATE purchases SET id = gen_random_uuid() WHERE id = (SELECT id FROM purchases LIMIT 1)`,
		"draw lost":             `DELETE FROM draws WHERE campaign = (SELECT campaign FROM draws LIMIT 1)`,
		"cancellation undone":   `UPDATE campaigns SET status = 'active' WHERE id = (SELECT id FROM campaigns WHERE status = 'cancelled' LIMIT 1)`,
		"key lost":              `DELETE FROM idempotency_keys WHERE id = (SELECT id FROM idempotency_keys LIMIT 1)`,
		"key doubled":           `INSERT INTO idempotency_keys SELECT sha256(id), fingerprint, execution, status, body, created_at FROM idempotency_keys LIMIT 1`,
		"stored answer altered": `UPDATE idempotency_keys SET body = body || ' '::bytea WHERE id = (SELECT id FROM idempotency_keys LIMIT 1)`,
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := conn.Begin(t.Context())
			testwait.Must(t, err)
			tag, err := tx.Exec(t.Context(), damage)
			if err != nil || tag.RowsAffected() != 1 {
				t.Fatalf("%d rows damaged: %v", tag.RowsAffected(), err)
			}
			err = history.Check(t.Context(), savepoints{tx})
			if !errors.Is(err, sim.ErrModel) {
				t.Errorf("the model says %v", err)
			}
			lost, doubled := history.Recorder.Counts()[0].Lost-counted.Lost, history.Recorder.Counts()[0].Doubled-counted.Doubled
			counted = history.Recorder.Counts()[0]
			if strings.Contains(name, "lost") && lost == 0 || strings.Contains(name, "doubled") && doubled == 0 || lost+doubled == 0 {
				t.Errorf("%d lost, %d doubled: %v", lost, doubled, err)
			}
			testwait.Check(t, tx.Rollback(t.Context()))
		})
	}
}
