package audit_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/audit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// savepoints lets an audit run inside an open transaction, on what that transaction has changed and will undo.
type savepoints struct{ tx pgx.Tx }

func (s savepoints) BeginTx(ctx context.Context, _ pgx.TxOptions) (pgx.Tx, error) {
	return s.tx.Begin(ctx)
}

// world is a small database in which everything holds: money from the outside, a transfer, a failed one, an open and a
// captured hold; a completed campaign of two positions, a cancelled one, an active one; a completed auction of two rounds,
// one extended, an active one, a cancelled one, a pending one; a key for some of it.
const world = `
INSERT INTO accounts (id, currency, available, held, version, created_at) VALUES
	('ann', 'SIM', 60, 10, 9, now()), ('bob', 'SIM', 15, 0, 9, now()), ('house', 'SIM', 10, 0, 9, now()),
	('escrow/1', 'SIM', 0, 0, 9, now()), ('escrow/2', 'SIM', 0, 0, 9, now()), ('escrow/3', 'SIM', 5, 0, 9, now()),
	('sel', 'SIM', 45, 0, 9, now()), ('bx', 'SIM', 45, 30, 9, now()), ('by', 'SIM', 40, 40, 9, now());
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
	(u(10), 'purchase', 'bob', 'escrow/3', 5, 'SIM', 'completed', '', now()),
	(u(21), 'deposit', 'outside/SIM', 'bx', 100, 'SIM', 'completed', '', now()),
	(u(22), 'deposit', 'outside/SIM', 'by', 100, 'SIM', 'completed', '', now()),
	(u(31), 'capture', 'by', 'sel', 20, 'SIM', 'completed', '', now()),
	(u(32), 'capture', 'bx', 'sel', 25, 'SIM', 'completed', '', now());
INSERT INTO entries (account, id, version, transfer, amount, currency, at)
	SELECT source, gen_random_uuid(), CASE WHEN kind = 'deposit' THEN 0 ELSE n END, id, -amount, currency, now()
	FROM (SELECT *, row_number() OVER (PARTITION BY source ORDER BY id) * 2 AS n FROM transfers WHERE status = 'completed') t
	UNION ALL
	SELECT destination, gen_random_uuid(), n, id, amount, currency, now()
	FROM (SELECT *, row_number() OVER (PARTITION BY destination ORDER BY id) * 2 - 1 AS n FROM transfers WHERE status = 'completed') t;
INSERT INTO hold_rows (id, account, amount, captured, status, created_at, closed_at, transfer) VALUES
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
	(b(15), b(1), u(1), 204, '', now()),
	(b(16), b(1), u(1), 201, convert_to('{"auction":"' || u(402) || '","account":"bx","amount":30,"seq":3}', 'UTF8'), now()),
	(b(17), b(1), u(1), 201, convert_to('{"id":"' || u(404) || '"}', 'UTF8'), now()),
	(b(18), b(1), u(1), 201, convert_to('{"id":"' || u(501) || '","tokens":{"door":3,"gate":1}}', 'UTF8'), now());
INSERT INTO lock_keys (key, token) VALUES ('door', 4), ('gate', 1);
INSERT INTO auctions (id, title, status, currency, seller, current_round, min_bid, min_increment, snipe_window, snipe_extension, snipe_max,
		cooldown, unique_amounts, total_bids, seq, version, revision, created_at, started_at, ended_at) VALUES
	(u(401), 'one', 'completed', 'SIM', 'sel', 2, 5, 5, 10000000, 60000000, 2, 1000000, true, 5, 13, 9, u(1), s(0), s(0), s(1261)),
	(u(402), 'two', 'active', 'SIM', 'sel', 1, 5, 5, 0, 0, 0, 1000000, true, 2, 4, 9, u(1), s(0), s(0), NULL),
	(u(403), 'three', 'cancelled', 'SIM', 'sel', 1, 5, 5, 0, 0, 0, 1000000, true, 1, 4, 9, u(1), s(0), s(0), s(9)),
	(u(404), 'four', 'pending', 'SIM', 'sel', 0, 5, 5, 0, 0, 0, 0, true, 0, 0, 9, u(1), s(0), NULL, NULL);
INSERT INTO auction_rounds (auction, round, winners, duration, status, extensions, started_at, ends_at, ended_at) VALUES
	(u(401), 1, 1, 600000000, 'completed', 1, s(0), s(660), s(660)), (u(401), 2, 1, 600000000, 'completed', 0, s(660), s(1260), s(1261)),
	(u(402), 1, 1, 600000000, 'active', 0, s(0), s(600), NULL), (u(402), 2, 1, 600000000, 'pending', 0, NULL, NULL, NULL),
	(u(403), 1, 1, 600000000, 'completed', 0, s(0), s(600), s(9)), (u(403), 2, 1, 600000000, 'pending', 0, NULL, NULL, NULL),
	(u(404), 1, 1, 600000000, 'pending', 0, NULL, NULL, NULL);
INSERT INTO auction_bids (auction, seq, account, amount, previous_amount, round, rank, at, hold) VALUES
	(u(401), 3, 'bx', 10, 0, 1, 1, s(5), u(211)), (u(401), 4, 'by', 20, 0, 1, 1, s(6), u(212)), (u(401), 5, 'bx', 15, 10, 1, 2, s(595), u(211)),
	(u(401), 10, 'by', 12, 0, 2, 2, s(700), u(213)), (u(401), 11, 'bx', 25, 15, 2, 1, s(701), u(211)),
	(u(402), 3, 'bx', 30, 0, 1, 1, s(5), u(214)), (u(402), 4, 'by', 40, 0, 1, 1, s(6), u(215)), (u(403), 3, 'bx', 7, 0, 1, 1, s(5), u(216));
INSERT INTO auction_events (auction, seq, type, at, data)
	SELECT auction, seq, type, now(), '{}' FROM (VALUES
		(u(401), 1, 'auction.started'), (u(401), 2, 'round.started'), (u(401), 6, 'round.extended'), (u(401), 7, 'round.completed'),
		(u(401), 8, 'bid.carried_over'), (u(401), 9, 'round.started'), (u(401), 12, 'round.completed'), (u(401), 13, 'auction.completed'),
		(u(402), 1, 'auction.started'), (u(402), 2, 'round.started'), (u(403), 1, 'auction.started'), (u(403), 2, 'round.started'),
		(u(403), 4, 'auction.cancelled')) AS e (auction, seq, type);
UPDATE auction_bids SET began_at = at, outbid = NULL;
UPDATE auction_bids SET outbid = 3, floor = amount + 1 WHERE seq = 4;
UPDATE auction_events SET data = json_build_object('round', 1, 'ends_at', s(660), 'extensions', 1) WHERE type = 'round.extended';
INSERT INTO auction_standing (auction, account, amount, unique_amount, round, seq, at, hold, active) VALUES
	(u(401), 'by', 12, NULL, 2, 10, s(700), u(213), false), (u(402), 'bx', 30, 30, 1, 3, s(5), u(214), true),
	(u(402), 'by', 40, 40, 1, 4, s(6), u(215), true), (u(403), 'bx', 7, NULL, 1, 3, s(5), u(216), false);
INSERT INTO auction_winners (auction, round, rank, account, amount, transfer) VALUES
	(u(401), 1, 1, 'by', 20, u(31)), (u(401), 2, 1, 'bx', 25, u(32));
INSERT INTO hold_rows (id, account, amount, captured, status, created_at, closed_at, transfer, owner) VALUES
	(u(211), 'bx', 25, 25, 'captured', now(), now(), u(32), 'auction:' || u(401)),
	(u(212), 'by', 20, 20, 'captured', now(), now(), u(31), 'auction:' || u(401)),
	(u(213), 'by', 12, 0, 'released', now(), now(), NULL, 'auction:' || u(401)),
	(u(214), 'bx', NULL, 0, 'open', now(), NULL, NULL, 'auction:' || u(402)),
	(u(215), 'by', NULL, 0, 'open', now(), NULL, NULL, 'auction:' || u(402)),
	(u(216), 'bx', 7, 0, 'released', now(), now(), NULL, 'auction:' || u(403));
`

// helpers make identifiers out of small numbers, for the length of a session.
const helpers = `
CREATE FUNCTION pg_temp.u(n int) RETURNS uuid LANGUAGE sql IMMUTABLE AS
	$$ SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid $$;
CREATE FUNCTION pg_temp.b(n int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$ SELECT sha256(n::text::bytea) $$;
CREATE FUNCTION pg_temp.s(n numeric) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS
	$$ SELECT timestamptz '2026-01-01 00:00:00Z' + n * interval '1 second' $$;
`

func migrated(ctx context.Context, url string) error {
	_, err := postgres.Migrate(ctx, url)
	return err
}

func openWorld(t *testing.T) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, pgtest.NewDatabase(t, migrated))
	testwait.Must(t, err)
	t.Cleanup(func() {
		testwait.Check(t, conn.Close(context.Background()))
	})
	mustExec(ctx, t, conn, helpers)
	mustExec(ctx, t, conn, calls(world))
	return conn
}

// calls gives the helpers their schema, which is never searched for functions.
func calls(sql string) string {
	return strings.NewReplacer(" u(", " pg_temp.u(", "(u(", "(pg_temp.u(", " s(", " pg_temp.s(", "(s(", "(pg_temp.s(", " b(", " pg_temp.b(", "(b(", "(pg_temp.b(").Replace(sql)
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
	testwait.Must(t, audit.Audit(t.Context(), conn))
	results, err := audit.Report(t.Context(), conn)
	testwait.Must(t, err)
	groups := map[audit.Guarantee]int{}
	for _, r := range results {
		groups[r.Guarantee]++
	}
	if groups[audit.Money] == 0 || groups[audit.Lottery] == 0 || groups[audit.Auctions] == 0 || groups[audit.Keys] == 0 {
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
		{"hold forgotten", `DELETE FROM hold_rows WHERE id = u(201)`, "sum of the open holds"},
		{"hold of nobody", `UPDATE hold_rows SET account = 'nobody' WHERE id = u(201)`, "sum of the open holds"},
		{"overdraft", `ALTER TABLE accounts DROP CONSTRAINT accounts_available_check; UPDATE accounts SET available = -1 WHERE id = 'bob'`, "is negative"},
		{"version repeated", `UPDATE entries SET version = 4 WHERE account = 'ann'`, "distinct versions"},
		{"version ahead", `UPDATE accounts SET version = 1 WHERE id = 'ann'`, "distinct versions"},
		{"capture without a hold", `UPDATE hold_rows SET transfer = NULL WHERE id = u(202)`, "a capture its one hold"},
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
		{"seed lost", `ALTER TABLE draws DROP CONSTRAINT draws_campaign_fkey; DELETE FROM campaign_seeds WHERE campaign = u(101)`, "commitment"},
		{"winner unsold", `UPDATE draws SET winners = replace(winners, '"number":2', '"number":3')`, "winners are sold positions"},
		{"winner twice", `UPDATE draws SET winners = replace(replace(winners, '"number":2', '"number":1'), '"ann"', '"bob"')`, "winners are sold positions"},
		{"winner another's", `UPDATE draws SET winners = replace(winners, 'bob', 'ann')`, "winners are sold positions"},
		{"too few winners", `UPDATE campaign_prizes SET quantity = 3 WHERE name = 'small'`, "winners are sold positions"},
		{"winner of another layer", `UPDATE campaign_prizes SET layer = 2 WHERE name = 'small'`, "winners are sold positions"},
		{"winners unreadable", `UPDATE draws SET winners = 'nobody'`, "winners are sold positions"},
		{"beacon lost", `UPDATE campaigns SET draw_mode = 'beacon' WHERE id = u(101)`, "has its beacon"},
		{"beacon of an instant draw", `UPDATE campaigns SET draw_mode = 'instant' WHERE id = u(101); UPDATE draws SET beacon = 'x', beacon_round = 2; INSERT INTO campaign_beacons (campaign, chain, root, round, sealed_at, due_at, next_attempt_at) VALUES (u(101), '{"period":3,"genesis_time":1000}', b(4), 2, to_timestamp(1000), to_timestamp(1003), NULL)`, "has its beacon"},
		{"drawn without a seal", `UPDATE campaigns SET draw_mode = 'beacon' WHERE id = u(101); UPDATE draws SET beacon = 'x', beacon_round = 2; INSERT INTO campaign_beacons (campaign, chain, root, round, sealed_at, due_at, next_attempt_at) VALUES (u(101), '{"period":3,"genesis_time":1000}', NULL, NULL, NULL, NULL, NULL)`, "is sealed exactly if"},
		{"waits for ever", `UPDATE campaigns SET draw_mode = 'beacon' WHERE id = u(101); UPDATE draws SET beacon = 'x', beacon_round = 2; INSERT INTO campaign_beacons (campaign, chain, root, round, sealed_at, due_at, next_attempt_at) VALUES (u(101), '{"period":3,"genesis_time":1000}', b(4), 2, to_timestamp(1000), to_timestamp(1003), now())`, "is sealed exactly if"},
		{"round too near", `UPDATE campaigns SET draw_mode = 'beacon' WHERE id = u(101); UPDATE draws SET beacon = 'x', beacon_round = 2; INSERT INTO campaign_beacons (campaign, chain, root, round, sealed_at, due_at, next_attempt_at) VALUES (u(101), '{"period":3,"genesis_time":1000}', b(4), 2, to_timestamp(1000.5), to_timestamp(1003), NULL)`, "a period or more after its seal"},
		{"round at another time", `UPDATE campaigns SET draw_mode = 'beacon' WHERE id = u(101); UPDATE draws SET beacon = 'x', beacon_round = 2; INSERT INTO campaign_beacons (campaign, chain, root, round, sealed_at, due_at, next_attempt_at) VALUES (u(101), '{"period":3,"genesis_time":1000}', b(4), 2, to_timestamp(1000), to_timestamp(1004), NULL)`, "a period or more after its seal"},
		{"draw of another round", `UPDATE campaigns SET draw_mode = 'beacon' WHERE id = u(101); UPDATE draws SET beacon = 'x', beacon_round = 2; INSERT INTO campaign_beacons (campaign, chain, root, round, sealed_at, due_at, next_attempt_at) VALUES (u(101), '{"period":3,"genesis_time":1000}', b(4), 3, to_timestamp(1000), to_timestamp(1006), NULL)`, "of the sealed root and the named round"},
		{"draw of another list", `UPDATE campaigns SET draw_mode = 'beacon' WHERE id = u(101); UPDATE draws SET beacon = 'x', beacon_round = 2; INSERT INTO campaign_beacons (campaign, chain, root, round, sealed_at, due_at, next_attempt_at) VALUES (u(101), '{"period":3,"genesis_time":1000}', b(5), 2, to_timestamp(1000), to_timestamp(1003), NULL)`, "of the sealed root and the named round"},
		{"draw of no round", `UPDATE campaigns SET draw_mode = 'beacon' WHERE id = u(101); UPDATE draws SET beacon = 'x', beacon_round = 2; INSERT INTO campaign_beacons (campaign, chain, root, round, sealed_at, due_at, next_attempt_at) VALUES (u(101), '{"period":3,"genesis_time":1000}', b(4), 2, to_timestamp(1000), to_timestamp(1003), NULL); UPDATE draws SET beacon = NULL, beacon_round = NULL`, "of the sealed root and the named round"},
		{"hold of a bid lost", `UPDATE hold_rows SET status = 'released', amount = 30, closed_at = now() WHERE id = u(214)`, "the sum of its active bids"},
		{"bid of less than is held", `UPDATE auction_standing SET amount = 29, unique_amount = 29 WHERE hold = u(214)`, "sum of the open holds"},
		{"hold of another account", `UPDATE hold_rows SET account = 'ann' WHERE id = u(214)`, "its one hold"},
		{"hold of another auction", `UPDATE hold_rows SET owner = 'auction:' || u(401) WHERE id = u(214)`, "its one hold"},
		{"hold of a bid expires", `UPDATE hold_rows SET expires_at = now() WHERE id = u(214)`, "its one hold"},
		{"one hold for two bids", `UPDATE auction_standing SET hold = u(214) WHERE auction = u(402)`, "its one hold"},
		{"loser not given back", `UPDATE hold_rows SET status = 'open', amount = NULL, closed_at = NULL WHERE id = u(213)`, "holds nothing"},
		{"not refunded when cancelled", `UPDATE hold_rows SET status = 'open', amount = NULL, closed_at = NULL WHERE id = u(216)`, "holds nothing"},
		{"event lost", `DELETE FROM auction_events WHERE auction = u(401) AND seq = 8`, "without a gap"},
		{"last event lost", `DELETE FROM auction_events WHERE auction = u(401) AND seq = 13`, "without a gap"},
		{"event doubled", `INSERT INTO auction_events SELECT auction, 3, type, at, data FROM auction_events WHERE auction = u(402) AND seq = 1`, "without a gap"},
		{"event after the last", `INSERT INTO auction_events SELECT auction, 5, type, at, data FROM auction_events WHERE auction = u(402) AND seq = 1`, "without a gap"},
		{"seq forged", `UPDATE auctions SET seq = 5 WHERE id = u(402)`, "without a gap"},
		{"clock set back", `UPDATE auction_bids SET at = s(4.5) WHERE auction = u(402) AND seq = 4`, "run backwards"},
		{"bid uncounted", `UPDATE auctions SET total_bids = 1 WHERE id = u(402)`, "are the bids"},
		{"raise too small", `UPDATE auctions SET min_increment = 11 WHERE id = u(401)`, "only rises"},
		{"first bid too small", `UPDATE auctions SET min_bid = 31 WHERE id = u(402)`, "only rises"},
		{"bid fell", `UPDATE auction_bids SET amount = 9, previous_amount = 8 WHERE auction = u(401) AND seq = 5`, "only rises"},
		{"raise that forgot the bid before", `UPDATE auction_bids SET previous_amount = 0 WHERE auction = u(401) AND seq = 5`, "only rises"},
		{"raise under another hold", `UPDATE auction_bids SET hold = u(214) WHERE auction = u(401) AND seq = 5`, "only rises"},
		{"winner's old bid raised", `UPDATE auction_bids SET previous_amount = 11 WHERE auction = u(401) AND seq = 10`, "only rises"},
		{"too hasty", `UPDATE auctions SET cooldown = 590000001 WHERE id = u(401)`, "cooldown"},
		{"before the round", `UPDATE auction_bids SET at = s(659) WHERE auction = u(401) AND seq = 10`, "round is open"},
		{"at the round's end", `UPDATE auction_bids SET at = s(1260) WHERE auction = u(401) AND seq = 11`, "round is open"},
		{"written at the round's end", `UPDATE auction_bids SET began_at = s(1260) WHERE auction = u(401) AND seq = 11`, "by the database's own clock"},
		{"written past the end that it moved", `UPDATE auction_bids SET began_at = s(601) WHERE auction = u(401) AND seq = 5`, "by the database's own clock"},
		{"after the cancellation", `UPDATE auction_bids SET at = s(10) WHERE auction = u(403)`, "round is open"},
		{"in a round that there is not", `UPDATE auction_bids SET round = 3 WHERE auction = u(402)`, "round is open"},
		{"seller's bid", `UPDATE auction_bids SET account = 'sel' WHERE auction = u(402) AND seq = 3`, "not by the seller"},
		{"standing bid forgotten", `DELETE FROM auction_standing WHERE auction = u(402) AND account = 'bx'`, "standing bid"},
		{"standing bid is an old one", `UPDATE auction_standing SET seq = 2 WHERE auction = u(402) AND account = 'bx'`, "standing bid"},
		{"standing after the end", `UPDATE auction_standing SET active = true WHERE auction = u(403)`, "standing bid"},
		{"not standing while it runs", `UPDATE auction_standing SET active = false WHERE auction = u(402)`, "standing bid"},
		{"winner stands", `INSERT INTO auction_standing SELECT auction, account, amount, NULL, round, seq, at, hold, false FROM auction_bids WHERE auction = u(401) AND seq = 11`, "standing bid"},
		{"outbid by a bid behind the winners", `UPDATE auction_bids SET outbid = 3, floor = 11 WHERE auction = u(401) AND seq = 5`, "a bid outbids"},
		{"outbid itself", `UPDATE auction_bids SET outbid = 5, floor = 26 WHERE auction = u(401) AND seq = 11`, "a bid outbids"},
		{"outbid by a lower bid", `UPDATE auction_bids SET floor = 10 WHERE auction = u(401) AND seq = 4`, "a bid outbids"},
		{"outbid number that there is not", `UPDATE auction_bids SET outbid = 2 WHERE auction = u(401) AND seq = 4`, "a bid outbids"},
		{"outbid after it won", `UPDATE auction_bids SET outbid = 4, floor = 26 WHERE auction = u(401) AND seq = 11`, "a bid outbids"},
		{"outbid with an old bid", `UPDATE auction_bids SET outbid = 3, floor = 13, rank = 1 WHERE auction = u(401) AND seq = 10`, "a bid outbids"},
		{"amount twice", `UPDATE auction_standing SET amount = 40, unique_amount = NULL WHERE auction = u(402)`, "one amount"},
		{"round skipped", `UPDATE auction_rounds SET status = 'pending', ended_at = NULL WHERE auction = u(401) AND round = 1`, "with its rounds"},
		{"two rounds open", `DROP INDEX auction_rounds_active; UPDATE auction_rounds SET status = 'active' WHERE auction = u(402)`, "with its rounds"},
		{"completed too early", `UPDATE auctions SET current_round = 1 WHERE id = u(401)`, "with its rounds"},
		{"ended without a date", `UPDATE auctions SET ended_at = NULL WHERE id = u(401)`, "with its rounds"},
		{"started without a date", `UPDATE auctions SET started_at = NULL WHERE id = u(402)`, "with its rounds"},
		{"rounds lost", `DELETE FROM auction_rounds WHERE auction = u(404)`, "with its rounds"},
		{"extension lost", `UPDATE auction_rounds SET ends_at = s(600) WHERE auction = u(401) AND round = 1`, "its extensions"},
		{"extension too long", `UPDATE auction_rounds SET ends_at = s(660.000001) WHERE auction = u(401) AND round = 1`, "its extensions"},
		{"too many extensions", `UPDATE auctions SET snipe_max = 0 WHERE id = u(401)`, "its extensions"},
		{"extended though off", `UPDATE auctions SET snipe_window = 0 WHERE id = u(401)`, "its extensions"},
		{"closed before its end", `UPDATE auction_rounds SET ended_at = s(1259) WHERE auction = u(401) AND round = 2`, "its extensions"},
		{"opened late", `UPDATE auction_rounds SET started_at = s(661), ends_at = s(1261) WHERE auction = u(401) AND round = 2`, "its extensions"},
		{"extension without an event", `UPDATE auction_events SET type = 'round.started' WHERE auction = u(401) AND seq = 6`, "has its event"},
		{"winner lost", `DELETE FROM auction_winners WHERE round = 2`, "best of its candidates"},
		{"wrong winner", `UPDATE auction_winners SET account = 'bx' WHERE round = 1`, "best of its candidates"},
		{"wrong price won", `UPDATE auction_winners SET amount = 24 WHERE round = 2`, "best of its candidates"},
		{"too many winners", `INSERT INTO auction_winners VALUES (u(401), 2, 2, 'by', 12, u(31))`, "best of its candidates"},
		{"winner of an open round", `INSERT INTO auction_winners VALUES (u(402), 1, 1, 'by', 40, u(31))`, "best of its candidates"},
		{"winner of a cancelled round", `INSERT INTO auction_winners VALUES (u(403), 1, 1, 'bx', 7, u(31))`, "best of its candidates"},
		{"rank skipped", `UPDATE auction_winners SET rank = 2 WHERE round = 2`, "best of its candidates"},
		{"paid to another", `UPDATE auctions SET seller = 'bob' WHERE id = u(401)`, "paid the seller once"},
		{"paid too little", `UPDATE transfers SET amount = 19 WHERE id = u(31)`, "paid the seller once"},
		{"paid by another", `UPDATE auction_winners SET transfer = u(31) WHERE round = 2`, "paid the seller once"},
		{"paid outside the auction", `UPDATE hold_rows SET owner = '' WHERE id = u(211)`, "paid the seller once"},
		{"paid for nothing", `DELETE FROM auction_winners WHERE round = 1`, "what a seller got"},
		{"bid that was never placed", `UPDATE idempotency_keys SET body = convert_to('{"auction":"' || u(402) || '","account":"bx","amount":31,"seq":3}', 'UTF8') WHERE id = b(16)`, "has its effect"},
		{"auction that was never made", `UPDATE idempotency_keys SET body = convert_to('{"id":"' || u(405) || '"}', 'UTF8') WHERE id = b(17)`, "has its effect"},
		{"lock that was never granted", `UPDATE lock_keys SET token = 2 WHERE key = 'door'`, "has its effect"},
		{"lock key with two rows", `ALTER TABLE lock_keys DROP CONSTRAINT lock_keys_pkey, DISABLE TRIGGER USER; INSERT INTO lock_keys (key, token) VALUES ('door', 1)`, "has its effect"},
		{"lock key that is forgotten", `DELETE FROM lock_keys WHERE key = 'gate'`, "has its effect"},
		{"key without an effect", `UPDATE idempotency_keys SET body = convert_to('{"id":"' || u(777) || '"}', 'UTF8') WHERE status = 201`, "has its effect"},
		{"refusal without an intent", `UPDATE idempotency_keys SET body = convert_to('{"transfer":"' || u(1) || '"}', 'UTF8') WHERE status = 402`, "has its effect"},
		{"key of a retryable answer", `UPDATE idempotency_keys SET body = convert_to('{"retryable":true}', 'UTF8') WHERE status = 409`, "told to try again"},
		{"key in both slots", `INSERT INTO idempotency_keys_1 SELECT id, fingerprint, execution, status, body, created_at FROM idempotency_keys LIMIT 1`, "one answer"},
		{"key of a failure", `UPDATE idempotency_keys SET status = 500 WHERE status = 409`, "is an answer"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tx, err := conn.Begin(t.Context())
			testwait.Must(t, err)
			defer func() {
				testwait.Check(t, tx.Rollback(t.Context()))
			}()
			mustExec(t.Context(), t, tx, calls(test.damage))
			results, err := audit.Report(t.Context(), savepoints{tx})
			testwait.Must(t, err)
			for _, r := range results {
				if strings.Contains(r.Promise, test.promise) && len(r.Violations) > 0 {
					return
				}
			}
			t.Fatalf("no violation of %q in: %+v", test.promise, results)
		})
	}
}

func TestAuditSaysThatItCouldNotAsk(t *testing.T) {
	conn := openWorld(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("nobody waits"))
	if results, err := audit.Report(ctx, conn); err == nil {
		t.Fatalf("audit with an ended context: %v", results)
	}
}
