package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/localpg"
)

// skipWithoutPostgres skips where no PostgreSQL is installed, but fails in CI.
func skipWithoutPostgres(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, localpg.ErrNoBinaries) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
}

// TestDemo runs the story as a user does, and reads its document.
func TestDemo(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	var out, errOut bytes.Buffer
	var r *Result
	d := Demo{Listen: "127.0.0.1:0", Exit: true, Out: &out, ErrOut: &errOut, Report: func(reported *Result) error { r = reported; return nil }}
	err := d.Run(t.Context())
	skipWithoutPostgres(t, err)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), errOut.String())
	}
	if errOut.Len() > 0 {
		t.Errorf("standard error: %s", errOut.String())
	}
	if r.Race.Buyers != 500 || r.Race.Bought != 210 || r.Race.SoldOut != 290 || r.Race.Other != 0 || r.Race.Requests != 540 ||
		r.Race.Replayed != 40 || r.Race.DifferentIn != 0 {
		t.Errorf("race: %+v", r.Race)
	}
	if !r.Proof.Valid || !r.Proof.AlteredRefused || !r.Proof.InclusionValid || len(r.Winners) != 6 {
		t.Errorf("proof: %+v, winners: %+v", r.Proof, r.Winners)
	}
	a := r.Auction
	extensions, winners, carried := 0, 0, 0
	for _, round := range a.Rounds {
		extensions, winners, carried = extensions+round.Extensions, winners+len(round.Winners), carried+round.CarriedOver
	}
	if len(a.Rounds) != 3 || winners != 6 || extensions == 0 || carried == 0 || a.Losers == 0 || a.Paid == 0 || a.Refunded == 0 {
		t.Errorf("auction: %+v", a)
	}
	if a.Countdowns == 0 || a.Events <= a.Bids || len(a.Refused) == 0 {
		t.Errorf("what was watched: %+v", a)
	}
	if !r.AllHeld || len(r.Guarantees) != 16 {
		t.Errorf("guarantees: %+v", r.Guarantees)
	}
}

// TestDemoSeesDamage breaks the guarantees in the database one by one, behind the back of the server that has answered
// everything rightly, and wants the table to say so, and the exit status.
func TestDemoSeesDamage(t *testing.T) {
	damages := []struct {
		name, sql string
		rows      []string // that say so
	}{
		{"a sale lost", `DELETE FROM purchases WHERE seq = 1`, []string{"no position twice, none too many", "every acknowledged sale is there", "audit of all lottery"}},
		{"a sale under another name", `UPDATE purchases SET account = 'organiser' WHERE seq = 1`, []string{"every acknowledged sale is there"}},
		{"a position twice", `UPDATE purchases SET layer = 1, number = 1 WHERE seq IN (1, 2)`, []string{"no position twice, none too many"}},
		{"a refusal lost", `DELETE FROM idempotency_keys WHERE id = (SELECT id FROM idempotency_keys WHERE status = 409 LIMIT 1)`, []string{"all others refused, none charged"}},
		{"a refused buyer charged", `
			INSERT INTO transfers (id, kind, source, destination, amount, currency, status, created_at)
			SELECT gen_random_uuid(), 'purchase', a.id, c.escrow, 1, 'EUR', 'completed', now() FROM accounts a, campaigns c
			WHERE a.id LIKE 'buyer-%' AND a.id NOT IN (SELECT account FROM purchases) LIMIT 1`, []string{"all others refused, none charged"}},
		{"the draw lost", `DELETE FROM draws`, []string{"public data alone gives the draw"}},
		{"another winner", `UPDATE draws SET winners = replace(winners, 'buyer', 'winner')`, []string{"public data alone gives the draw", "audit of all lottery"}},
		{"another order of prizes", `UPDATE draws SET winners = replace(winners, 'Car', 'Cart')`, []string{"public data alone gives the draw"}},
		{"an effect without its key", `DELETE FROM idempotency_keys WHERE id = (SELECT id FROM idempotency_keys WHERE body LIKE '%"position"%' LIMIT 1)`, []string{"one key, at most one effect"}},
		{"other bytes", `UPDATE idempotency_keys SET body = body || ' '::bytea`, []string{"one key, the same bytes always"}},
		{"an entry changed", `UPDATE entries SET amount = amount + 1 WHERE account = 'organiser'`, []string{"audit of all money"}},
		{"money held for nothing", `UPDATE accounts SET held = held + 1, available = available - 1 WHERE id = 'organiser'`, []string{"audit of all money"}},
		{"an event lost", `DELETE FROM auction_events WHERE type = 'round.extended' AND seq = (SELECT max(seq) FROM auction_events WHERE type = 'round.extended')`, []string{"event numbers without a gap", "audit of all auctions"}},
		{"an event of another kind", `UPDATE auction_events SET type = 'round.started' WHERE type = 'round.extended'`, []string{"event numbers without a gap"}},
		{"a bid lost", `DELETE FROM auction_bids WHERE seq = (SELECT max(seq) FROM auction_bids)`, []string{"event numbers without a gap", "every acknowledged bid is there"}},
		{"a bid of another amount", `UPDATE auction_bids SET amount = amount + 1 WHERE seq = (SELECT max(seq) FROM auction_bids)`, []string{"every acknowledged bid is there"}},
		{"a bid nobody was told of", `INSERT INTO auction_bids SELECT auction, seq + 1, account, amount, previous_amount, round, rank, at, hold FROM auction_bids ORDER BY seq DESC LIMIT 1`, []string{"every acknowledged bid is there"}},
		{"another winner of a round", `UPDATE auction_winners SET account = 'organiser' WHERE round = 1 AND rank = 1`, []string{"a replay gives the same winners", "audit of all auctions"}},
		{"a bidder who paid for nothing", `UPDATE accounts SET available = available - 1 WHERE id = 'bidder-01'`, []string{"a replay gives the same balances"}},
		{"a bid that stands for ever", `UPDATE auction_standing SET active = true`, []string{"audit of all auctions"}},
	}
	tables := []string{
		"purchases", "draws", "idempotency_keys", "entries", "accounts", "transfers", "auction_bids", "auction_events", "auction_winners", "auction_standing",
	}
	var out bytes.Buffer
	d := Demo{Exit: true, Listen: "127.0.0.1:0", Out: &out, ErrOut: &out}
	d.beforeCheck = func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, d.server.DatabaseURL())
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		exec := func(sql string) {
			if _, err := conn.Exec(ctx, sql); err != nil {
				t.Fatalf("%v\n%s", err, sql)
			}
		}
		exec("CREATE SCHEMA kept")
		columns := map[string]string{} // without those that are computed from others
		for _, table := range tables {
			exec("CREATE TABLE kept." + table + " AS TABLE " + table)
			var names string
			if err := conn.QueryRow(ctx, `SELECT string_agg(attname, ', ') FROM pg_attribute
				WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`, table).Scan(&names); err != nil {
				t.Fatal(err)
			}
			columns[table] = names
		}
		for _, damage := range damages {
			exec(damage.sql)
			if err := d.check(ctx); err != nil {
				t.Errorf("%s: %v", damage.name, err)
			}
			for _, row := range damage.rows {
				if d.result.AllHeld || rowHeld(t, &d, row) {
					t.Errorf("%s: %q is said to hold\n%s", damage.name, row, out.String())
				}
			}
			for _, table := range tables {
				exec("DELETE FROM " + table)
				exec("INSERT INTO " + table + " (" + columns[table] + ") SELECT " + columns[table] + " FROM kept." + table)
			}
		}
		if err := d.check(ctx); err != nil || !d.result.AllHeld {
			t.Errorf("restored: %v, %+v", err, d.result.Guarantees)
		}
		// What was seen on the way cannot be broken in the database.
		d.events[2].Bid.Rank++
		if err := d.check(ctx); err != nil || d.result.AllHeld || rowHeld(t, &d, "a replay gives the same winners") {
			t.Errorf("an event that was told otherwise is said to hold, %v\n%s", err, out.String())
		}
		d.events[2].Bid.Rank--
		out.Reset()
		exec(damages[0].sql)
		return nil
	}
	err := d.Run(t.Context())
	skipWithoutPostgres(t, err)
	if !errors.Is(err, ErrBroken) {
		t.Errorf("ended with %v", err)
	}
	if !strings.Contains(out.String(), "BROKEN: 209 sold of 210") || !strings.Contains(out.String(), "NOT EVERY GUARANTEE HELD") {
		t.Error(out.String())
	}
	if strings.Contains(out.String(), "\x1b") || strings.Contains(out.String(), "\r") {
		t.Errorf("there is no terminal, and yet: %q", out.String())
	}
	if _, err := os.Stat(d.Data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary directory %s is left: %v", d.Data, err)
	}
}

func rowHeld(t *testing.T, d *Demo, promise string) bool {
	t.Helper()
	for _, g := range d.result.Guarantees {
		if g.Promise == promise {
			return g.Held
		}
	}
	t.Fatalf("no row %q in %+v", promise, d.result.Guarantees)
	return false
}

func TestDemoLeavesForeignDataAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "admin.key"), []byte("somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := Demo{Data: dir, Exit: true, Out: io.Discard, ErrOut: io.Discard}
	if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no demo made") {
		t.Errorf("ended with %v", err)
	}
}

func TestDemoSaysWhatToInstall(t *testing.T) {
	t.Setenv("FAIRLEAD_PG_BIN", t.TempDir())
	var out bytes.Buffer
	d := Demo{Exit: true, Listen: "127.0.0.1:0", Out: &out, ErrOut: &out}
	err := d.Run(t.Context())
	if !errors.Is(err, localpg.ErrNoBinaries) {
		t.Fatalf("ended with %v", err)
	}
	if _, err := os.Stat(d.Data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary directory %s is left: %v", d.Data, err)
	}
}
