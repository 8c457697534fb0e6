package audit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim/audit"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// savepoints lets an audit run inside an open transaction, on what that transaction has changed and will undo.
type savepoints struct{ tx pgx.Tx }

func (s savepoints) BeginTx(ctx context.Context, _ pgx.TxOptions) (pgx.Tx, error) {
	return s.tx.Begin(ctx)
}

// world is a small database in which everything holds: money from the outside, a transfer, a failed one, an open and a
// captured hold; a completed campaign of two positions, a cancelled one, an active one; a key for some of it.
const world = `
INSERT INTO accounts (id, currency, available, held, version, created_at) VALUES
	('ann', 'SIM', 60, 10, 9, now()), ('bob', 'SIM', 15, 0, 9, now()), ('house', 'SIM', 10, 0, 9, now()),
	('escrow/1', 'SIM', 0, 0, 9, now()), ('escrow/2', 'SIM', 0, 0, 9, now()), ('escrow/3', 'SIM', 5, 0, 9, now());
INSERT INTO campaigns (id, name, status, draw_mode, base_length, currency, price, beneficiary, escrow, purchase_limit,
		total_positions, sold_positions, commitment, version, created_at, published_at, completed_at, cancelled_at) VALUES
	(u(101), 'one', 'completed', 'instant', NULL, 'SIM', 5, 'house', 'escrow/1', 1, 2, 2, sha256(b(1)), 1, now(), now(), now(), NULL),
	(u(102), 'two', 'cancelled', 'instant', 2, 'SIM', 5, 'house', 'escrow/2', NULL, 3, 1, sha256(b(2)), 1, now(), now(), NULL, now()),
	(u(103), 'three', 'active', 'instant', 2, 'SIM', 5, 'house', 'escrow/3', NULL, 3, 1, sha256(b(3)), 1, now(), now(), NULL, NULL);
INSERT INTO campaign_seeds VALUES (u(101), b(1)), (u(102), b(2)), (u(103), b(3));
INSERT INTO campaign_layers (campaign, layer, positions, price, sold) VALUES
	(u(101), 1, 2, 5, 2), (u(102), 1, 1, 5, 0), (u(102), 2, 2, 5, 1), (u(103), 1, 1, 5, 1), (u(103), 2, 2, 5, 0);
INSERT INTO campaign_prizes VALUES (u(101), 0, 'grand', NULL, 1), (u(101), 1, 'small', 1, 2), (u(102), 0, 'grand', NULL, 1),
	(u(103), 0, 'grand', NULL, 1);
INSERT INTO transfers (id, kind, source, destination, amount, currency, status, reason, created_at) VALUES
	(u(1), 'deposit', 'outside/SIM', 'ann', 100, 'SIM', 'completed', '', now()),
	(u(2), 'transfer', 'ann', 'bob', 20, 'SIM', 'completed', '', now()),
	(u(3), 'transfer', 'bob', 'ann', 9999, 'SIM', 'failed', 'insufficient_funds', now()),
	(u(4), 'capture', 'ann', 'bob', 5, 'SIM', 'completed', '', now()),
	(u(5), 'purchase', 'ann', 'escrow/1', 5, 'SIM', 'completed', '', now()),
	(u(6), 'purchase', 'bob', 'escrow/1', 5, 'SIM', 'completed', '', now()),
	(u(7), 'payout', 'escrow/1', 'house', 10, 'SIM', 'completed', '', now()),
	(u(8), 'purchase', 'ann', 'escrow/2', 5, 'SIM', 'completed', '', now()),
	(u(9), 'refund', 'escrow/2', 'ann', 5, 'SIM', 'completed', '', now()),
	(u(10), 'purchase', 'bob', 'escrow/3', 5, 'SIM', 'completed', '', now());
INSERT INTO entries (account, id, version, transfer, amount, currency, at)
	SELECT source, gen_random_uuid(), CASE WHEN kind = 'deposit' THEN 0 ELSE n END, id, -amount, currency, now()
	FROM (SELECT *, row_number() OVER (PARTITION BY source ORDER BY id) * 2 AS n FROM transfers WHERE status = 'completed') t
	UNION ALL
	SELECT destination, gen_random_uuid(), n, id, amount, currency, now()
	FROM (SELECT *, row_number() OVER (PARTITION BY destination ORDER BY id) * 2 - 1 AS n FROM transfers WHERE status = 'completed') t;
INSERT INTO holds (id, account, amount, captured, status, created_at, closed_at, transfer) VALUES
	(u(201), 'ann', 10, 0, 'open', now(), NULL, NULL),
	(u(202), 'ann', 7, 5, 'captured', now(), now(), u(4)),
	(u(203), 'ann', 7, 0, 'released', now(), now(), NULL);
INSERT INTO purchases (campaign, seq, id, account, layer, number, ordinal, price, transfer, at) VALUES
	(u(101), 1, u(301), 'ann', 1, 2, 1, 5, u(5), now()), (u(101), 2, u(302), 'bob', 1, 1, 0, 5, u(6), now()),
	(u(102), 1, u(303), 'ann', 2, 2, 2, 5, u(8), now()), (u(103), 1, u(304), 'bob', 1, 1, 0, 5, u(10), now());
INSERT INTO draws (campaign, root, winners, completed_at) VALUES (u(101), b(4), $$[
	{"prize":"grand","layer":1,"position":{"layer":1,"number":1},"account":"bob"},
	{"prize":"small","layer":1,"position":{"layer":1,"number":1},"account":"bob"},
	{"prize":"small","layer":1,"position":{"layer":1,"number":2},"account":"ann"}]$$, now());
INSERT INTO idempotency_keys (id, fingerprint, execution, status, body, created_at) VALUES
	(b(11), b(1), u(1), 201, convert_to('{"id":"' || u(1) || '"}', 'UTF8'), now()),
	(b(12), b(1), u(1), 402, convert_to('{"code":"insufficient_funds","transfer":"' || u(3) || '"}', 'UTF8'), now()),
	(b(13), b(1), u(1), 200, convert_to('{"campaign":"' || u(101) || '"}', 'UTF8'), now()),
	(b(14), b(1), u(1), 409, convert_to('{"code":"sold_out"}', 'UTF8'), now()),
	(b(15), b(1), u(1), 204, '', now());
`

// helpers make identifiers out of small numbers, for the length of a session.
const helpers = `
CREATE FUNCTION pg_temp.u(n int) RETURNS uuid LANGUAGE sql IMMUTABLE AS
	$$ SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid $$;
CREATE FUNCTION pg_temp.b(n int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$ SELECT sha256(n::text::bytea) $$;
`

func openWorld(t *testing.T) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, pgtest.NewDatabase(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	migrations, err := filepath.Glob("../../../postgres/migrations/*.sql")
	if err != nil || len(migrations) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	for _, path := range migrations {
		sql, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(sql), "-- +goose Down")
		mustExec(ctx, t, conn, up)
	}
	mustExec(ctx, t, conn, helpers)
	mustExec(ctx, t, conn, calls(world))
	return conn
}

// calls gives the helpers their schema, which is never searched for functions.
func calls(sql string) string {
	return strings.NewReplacer(" u(", " pg_temp.u(", "(u(", "(pg_temp.u(", " b(", " pg_temp.b(", "(b(", "(pg_temp.b(").Replace(sql)
}

func mustExec(ctx context.Context, t *testing.T, conn interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string,
) {
	t.Helper()
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
}

func TestAuditFindsNothingWrongInASoundWorld(t *testing.T) {
	conn := openWorld(t)
	if err := audit.Audit(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	results, err := audit.Report(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	groups := map[audit.Guarantee]int{}
	for _, r := range results {
		groups[r.Guarantee]++
	}
	if groups[audit.Money] == 0 || groups[audit.Lottery] == 0 || groups[audit.Keys] == 0 {
		t.Fatalf("checks by group: %v", groups)
	}
}

// TestAuditNamesEveryViolation breaks the sound world in one way at a time. Constraints that would refuse the damage
// are dropped first: the auditor must not rest on what it audits.
func TestAuditNamesEveryViolation(t *testing.T) {
	conn := openWorld(t)
	tests := []struct{ name, damage, promise string }{
		{"entry lost", `DELETE FROM entries WHERE transfer = u(2) AND amount > 0`, "sum to zero"},
		{"entry doubled", `INSERT INTO entries SELECT account, gen_random_uuid(), version + 100, transfer, amount, currency, at FROM entries WHERE transfer = u(2)`, "exactly its two entries"},
		{"entries of a failed transfer", `UPDATE entries SET transfer = u(3) WHERE transfer = u(2)`, "no entry without a completed transfer"},
		{"failure without a reason", `UPDATE transfers SET reason = '' WHERE id = u(3)`, "says why"},
		{"balance forged", `UPDATE accounts SET available = available + 1 WHERE id = 'bob'`, "sum of its entries"},
		{"balance forged against the outside", `UPDATE accounts SET available = available + 1 WHERE id = 'bob'`, "deposits minus withdrawals"},
		{"entry in another currency", `UPDATE entries SET currency = 'XXX' WHERE transfer = u(2)`, "of their currency"},
		{"deposit from inside", `UPDATE transfers SET source = 'bob' WHERE id = u(1)`, "come from the outside"},
		{"hold forgotten", `DELETE FROM holds WHERE id = u(201)`, "sum of the open holds"},
		{"hold of nobody", `UPDATE holds SET account = 'nobody' WHERE id = u(201)`, "sum of the open holds"},
		{"overdraft", `ALTER TABLE accounts DROP CONSTRAINT accounts_available_check; UPDATE accounts SET available = -1 WHERE id = 'bob'`, "is negative"},
		{"version repeated", `UPDATE entries SET version = 4 WHERE account = 'ann'`, "distinct versions"},
		{"version ahead", `UPDATE accounts SET version = 1 WHERE id = 'ann'`, "distinct versions"},
		{"capture without a hold", `UPDATE holds SET transfer = NULL WHERE id = u(202)`, "a capture its one hold"},
		{"count forged", `UPDATE campaigns SET sold_positions = 2 WHERE id = u(103)`, "are the purchases"},
		{"layer count forged", `UPDATE campaign_layers SET sold = 1 WHERE campaign = u(103) AND layer = 2`, "count their own purchases"},
		{"not a triangle", `UPDATE campaign_layers SET positions = 1 WHERE campaign = u(103) AND layer = 2`, "layers sum to the campaign"},
		{"gap in the sales", `UPDATE purchases SET seq = 3 WHERE id = u(302)`, "without a gap"},
		{"position sold twice", `ALTER TABLE purchases DROP CONSTRAINT purchases_campaign_ordinal_key; UPDATE purchases SET ordinal = 0, number = 1 WHERE campaign = u(101)`, "at most once"},
		{"ordinal elsewhere", `UPDATE purchases SET ordinal = 2 WHERE id = u(304)`, "where its ordinal says"},
		{"purchase id repeated", `UPDATE purchases SET id = u(301)`, "ids are distinct"},
		{"wrong price", `UPDATE purchases SET price = 4 WHERE id = u(304)`, "layer's price"},
		{"paid by another", `UPDATE purchases SET account = 'ann' WHERE id = u(304)`, "paid once into the escrow"},
		{"one payment for two purchases", `UPDATE purchases SET transfer = u(5) WHERE campaign = u(101)`, "paid once into the escrow"},
		{"over the limit", `UPDATE purchases SET account = 'ann' WHERE campaign = u(101)`, "purchase limit"},
		{"escrow robbed", `UPDATE accounts SET available = 0 WHERE id = 'escrow/3'`, "escrow holds the takings"},
		{"paid out twice", `INSERT INTO transfers SELECT u(99), kind, source, destination, amount, currency, status, reason, memo, created_at FROM transfers WHERE id = u(7)`, "beneficiary got the takings"},
		{"refund forgotten", `UPDATE transfers SET kind = 'transfer' WHERE id = u(9)`, "have back what they paid"},
		{"refund to another", `UPDATE transfers SET destination = 'bob' WHERE id = u(9)`, "have back what they paid"},
		{"escrow used otherwise", `UPDATE transfers SET kind = 'transfer' WHERE id = u(10)`, "alone"},
		{"draw lost", `DELETE FROM draws`, "exactly if it is completed"},
		{"draw too early", `INSERT INTO draws SELECT u(103), root, NULL, winners, now() FROM draws`, "exactly if it is completed"},
		{"sold out and never drawn", `UPDATE campaigns SET status = 'active', completed_at = NULL WHERE id = u(101)`, "agrees with its sales"},
		{"seed exchanged", `UPDATE campaign_seeds SET seed = b(9) WHERE campaign = u(101)`, "commitment"},
		{"seed lost", `DELETE FROM campaign_seeds WHERE campaign = u(101)`, "commitment"},
		{"winner unsold", `UPDATE draws SET winners = replace(winners, '"number":2', '"number":3')`, "winners are sold positions"},
		{"winner twice", `UPDATE draws SET winners = replace(replace(winners, '"number":2', '"number":1'), '"ann"', '"bob"')`, "winners are sold positions"},
		{"winner another's", `UPDATE draws SET winners = replace(winners, 'bob', 'ann')`, "winners are sold positions"},
		{"too few winners", `UPDATE campaign_prizes SET quantity = 3 WHERE name = 'small'`, "winners are sold positions"},
		{"winner of another layer", `UPDATE campaign_prizes SET layer = 2 WHERE name = 'small'`, "winners are sold positions"},
		{"winners unreadable", `UPDATE draws SET winners = 'nobody'`, "winners are sold positions"},
		{"key without an effect", `UPDATE idempotency_keys SET body = convert_to('{"id":"' || u(777) || '"}', 'UTF8') WHERE status = 201`, "has its effect"},
		{"refusal without an intent", `UPDATE idempotency_keys SET body = convert_to('{"transfer":"' || u(1) || '"}', 'UTF8') WHERE status = 402`, "has its effect"},
		{"key of a retryable answer", `UPDATE idempotency_keys SET body = convert_to('{"retryable":true}', 'UTF8') WHERE status = 409`, "told to try again"},
		{"key of a failure", `UPDATE idempotency_keys SET status = 500 WHERE status = 409`, "is an answer"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := tx.Rollback(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			mustExec(t.Context(), t, tx, calls(test.damage))
			err = audit.Audit(t.Context(), savepoints{tx})
			var violations *audit.ViolationsError
			if !errors.As(err, &violations) {
				t.Fatalf("audit: %v", err)
			}
			for _, r := range violations.Broken {
				if strings.Contains(r.Promise, test.promise) && len(r.Violations) > 0 {
					return
				}
			}
			t.Fatalf("no violation of %q in: %v", test.promise, err)
		})
	}
}

func TestAuditSaysThatItCouldNotAsk(t *testing.T) {
	conn := openWorld(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("nobody waits"))
	err := audit.Audit(ctx, conn)
	var violations *audit.ViolationsError
	if err == nil || errors.As(err, &violations) {
		t.Fatalf("audit with an ended context: %v", err)
	}
}
