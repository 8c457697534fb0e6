package demo

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// skipWithoutPostgres skips where no PostgreSQL is installed, but fails in CI.
func skipWithoutPostgres(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, localpg.ErrNoBinaries) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
}

// TestDemo runs the story as a user does, and measures it. In short runs [TestDemoOnAGivenDatabase] has all of it but that, and
// [TestDemoSeesDamage] the private PostgreSQL.
func TestDemo(t *testing.T) {
	if !testwait.Torture() {
		t.Skip("a measurement: set FAIRLEAD_TORTURE")
	}
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	d := Demo{Listen: "127.0.0.1:0", Exit: true, slack: slowMachine}
	if r := told(t, &d); r != nil && r.TotalMS > time.Minute.Milliseconds() {
		t.Errorf("it took %d ms", r.TotalMS)
	}
}

// told runs the story and reads its document. The result is nil if there is no PostgreSQL, or the story fails.
func told(t *testing.T, d *Demo) *Result {
	t.Helper()
	var out, errOut bytes.Buffer
	var r *Result
	d.Out, d.ErrOut, d.Report = &out, &errOut, func(reported *Result) error { r = reported; return nil }
	err := d.Run(t.Context())
	skipWithoutPostgres(t, err)
	if err != nil {
		t.Errorf("%v\n%s\n%s", err, out.String(), errOut.String())
		return nil
	}
	if errOut.Len() > 0 && d.DatabaseURL == "" { // A server says so when another one has signed the public log.
		t.Errorf("standard error: %s", errOut.String())
	}
	wantStory(t, d)
	if r.TotalMS <= r.StartMS {
		t.Errorf("it took %d ms to start and %d ms in all", r.StartMS, r.TotalMS)
	}
	if !strings.Contains(out.String(), "All of this took ") {
		t.Errorf("the total time is not told: %s", out.String())
	}
	return r
}

// wantStory reads what the story came to, and the table.
func wantStory(t *testing.T, d *Demo) {
	t.Helper()
	r := &d.result
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
	c := r.Crash
	// Other servers send again what the killed ones were sending, and what a stalled server has lost its claims to. Where
	// another demo uses the database, its servers publish these posts, too.
	sentAgain := c.SentAgain >= d.helpers()*demoPerTarget || d.DatabaseURL != ""
	if c.Workers != d.helpers()+1 || c.Posts == 0 || !sentAgain || c.LostAnswers == 0 || c.Transfers < len(d.modes())*demoPayers*demoAnswered {
		t.Errorf("crash: %+v", c)
	}
	if c.Interrupted == 0 || c.Interrupted >= demoDraws || c.RolledBack == 0 || c.RolledBack >= demoUndone {
		t.Errorf("draws: %+v", c)
	}
	rows, kinds := 26, "A1 A2 C1 I1 I2 I3 L1 L2 L3 L4 P1 P2 S1 T1 U1 W1"
	if d.DatabaseURL != "" { // There are no two ledgers.
		rows, kinds = 24, "A1 A2 C1 I1 I2 I3 L1 L2 L3 L4 P1 P2 U1 W1"
	}
	if !r.AllHeld || len(r.Guarantees) != rows {
		t.Errorf("guarantees: %+v", r.Guarantees)
	}
	for id := range strings.FieldsSeq(kinds) {
		if !slices.ContainsFunc(r.Guarantees, func(g Guarantee) bool { return g.ID == id }) {
			t.Errorf("there is no row of %s", id)
		}
	}
}

// TestDemoOnAGivenDatabase runs two demos on one database at a time, one of them through a pooler in session mode. It is fuller than
// that of a demo of one's own, and nobody keeps the keys.
func TestDemoOnAGivenDatabase(t *testing.T) {
	url := pgtest.LargeServer(t).URL()
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	// The two servers of each demo may need 60 connections, and it has some of its own.
	pooled := pgtest.PgBouncer(t, url, "pool_mode = session", "default_pool_size = 75").Through(t, url)
	var both sync.WaitGroup
	for _, url := range []string{url, pooled} {
		both.Go(func() {
			d := Demo{DatabaseURL: url, Listen: "127.0.0.1:0", Exit: true, slack: slowMachine}
			told(t, &d)
			if _, err := os.Stat(d.Data); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the temporary directory %s is left: %v", d.Data, err)
			}
		})
	}
	both.Wait()
	conn := pgtest.Connect(t, url)
	var campaigns, keys, inForce, left int
	if err := conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM campaigns WHERE status = 'completed'), count(*), count(*) FILTER (WHERE revoked_at IS NULL),
		(SELECT count(*) FROM pg_tables WHERE tablename LIKE 'fairlead_demo%')
		FROM api_keys`).Scan(&campaigns, &keys, &inForce, &left); err != nil {
		t.Fatal(err)
	}
	if campaigns != 2 || keys != 2 || inForce != 0 || left != 0 {
		t.Errorf("%d campaigns, %d keys, %d of them in force; %d tables are left", campaigns, keys, inForce, left)
	}
}

// TestDemoSeesDamage breaks the guarantees in the database one by one, behind the back of the server that has answered
// everything rightly, and wants the table to say so, and the exit status.
func TestDemoSeesDamage(t *testing.T) {
	pgtest.Needs(t, pgkit.Prepare, pgkit.AdvisoryLocks)
	damages := []struct {
		name, sql string
		rows      []string // that say so
	}{
		{"a sale lost", `DELETE FROM purchases WHERE seq = 1`, []string{"no position twice, none too many", "every acknowledged sale is there", "audit of all lottery"}},
		{"a sale under another name", `UPDATE purchases SET account = 'organiser' WHERE seq = 1`, []string{"every acknowledged sale is there"}},
		{"a position twice", `UPDATE purchases SET layer = 1, number = 1 WHERE seq IN (1, 2)`, []string{"no position twice, none too many"}},
		{"a refusal lost", `DELETE FROM idempotency_keys WHERE id = (SELECT id FROM idempotency_keys WHERE body LIKE '%"sold_out"%' LIMIT 1)`, []string{"all others refused, none charged"}},
		{"a refused buyer charged", `
			INSERT INTO transfers (id, kind, source, destination, amount, currency, status, created_at)
			SELECT gen_random_uuid(), 'purchase', a.id, c.escrow, 1, 'EUR', 'completed', now() FROM accounts a, campaigns c
			WHERE a.id LIKE 'buyer-%' AND a.id NOT IN (SELECT account FROM purchases) LIMIT 1`, []string{"all others refused, none charged"}},
		{"the draw lost", `DELETE FROM draws`, []string{"public data alone gives the draw"}},
		{"another winner", `UPDATE draws SET winners = replace(winners, 'buyer', 'winner')`, []string{"public data alone gives the draw", "audit of all lottery"}},
		{"another order of prizes", `UPDATE draws SET winners = replace(winners, 'Car', 'Cart')`, []string{"public data alone gives the draw"}},
		{"an effect without its key", `DELETE FROM idempotency_keys WHERE id = (SELECT id FROM idempotency_keys WHERE body LIKE '%"position"%' AND body NOT LIKE '%"winners"%' LIMIT 1)`, []string{"one key, at most one effect"}},
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
		{"a token given back", `UPDATE lock_keys SET token = token - 1 WHERE key LIKE 'demo/turn%'`, []string{"every grant has a higher token", "audit of all keys"}},
		{"a late write accepted", `INSERT INTO WRITES VALUES (1)`, []string{"a write with an old token refused"}},
		{"a fence forgotten", `UPDATE lock_fences SET token = 1 WHERE resource LIKE 'demo/report%'`, []string{"a write with an old token refused"}},
		{"a lock granted too early", `UPDATE lock_grants SET granted_at = granted_at - interval '1 minute'`, []string{"a dead holder's lock moves on"}},
		{"a lock granted too late", `UPDATE lock_grants SET granted_at = granted_at + interval '10 minutes'`, []string{"a dead holder's lock moves on"}},
		{"a lock taken from its holder", `UPDATE lock_keys SET holder = NULL WHERE key LIKE 'demo/report%'`, []string{"a dead holder's lock moves on"}},
		{"a lock key forgotten", `DELETE FROM lock_keys WHERE key LIKE 'demo/turn%'`, []string{"every grant has a higher token", "audit of all keys"}},
		{"a second victim", `UPDATE lock_keys SET token = token + 1 WHERE key LIKE 'demo/fork-1%'`, []string{"a deadlock has one victim"}},
		{
			"a transfer done twice", `INSERT INTO transfers (id, kind, source, destination, amount, currency, status, created_at)
			SELECT gen_random_uuid(), kind, source, destination, amount, currency, status, created_at FROM transfers WHERE source LIKE 'payer-1%' AND kind = 'transfer' LIMIT 1`,
			[]string{"lost answers: each done once"},
		},
		{
			"a transfer not done", `UPDATE transfers SET status = 'failed' WHERE id = (SELECT id FROM transfers WHERE source LIKE 'payer-1%' AND kind = 'transfer' LIMIT 1)`,
			[]string{"lost answers: each done once"},
		},
		{
			"a post that is not published", `UPDATE publications SET status = 'failed', published_at = NULL WHERE id = (SELECT id FROM publications WHERE status = 'published' LIMIT 1)`,
			[]string{"every post published once", "audit of all publications"},
		},
		{"a post that went out under no claim", `DELETE FROM publication_attempts WHERE version = 2`, []string{"every post published once"}},
		{"a post before its time", `UPDATE publication_attempts SET started_at = started_at - interval '1 hour'`, []string{"no post early or cancelled", "audit of all publications"}},
		{"a cancelled post sent", `INSERT INTO publication_attempts (publication, version, lock_id, started_at, ended_at, result)
			SELECT id, 1, gen_random_uuid(), now(), now(), 'lost' FROM publications WHERE status = 'cancelled' LIMIT 1`, []string{"no post early or cancelled"}},
		{"other draws", `UPDATE multidraw_chunks SET data = set_byte(data, 0, (get_byte(data, 0) + 1) % 6) WHERE seq = 7`, []string{"resumed draws: those of one run"}},
		{
			"a checkpoint of rolled back draws lost", `DELETE FROM multidraw_chunks WHERE (multidraw, seq) = (SELECT id, 1::bigint FROM multidraws WHERE status = 'rolled_back')`,
			[]string{"resumed draws: those of one run", "audit of all multi-draws"},
		},
		{"a rollback undone", `UPDATE multidraws SET status = 'interrupted', rolled_back_at = NULL WHERE status = 'rolled_back'`, []string{"resumed draws: those of one run"}},
		{
			"a debit done twice", `INSERT INTO saga_legs SELECT saga, 'debit.again', outcome, l.reason, transfer, at, gid FROM saga_legs l JOIN sagas s ON s.id = l.saga WHERE s.protocol = 'saga' LIMIT 1`,
			[]string{"a saga is whole, or undone"},
		},
		{"a debit that is not undone", `DELETE FROM saga_legs WHERE step = 'undo.debit'`, []string{"a saga is whole, or undone"}},
		{
			"one ledger alone", `DELETE FROM saga_legs WHERE (saga, step) = (SELECT id, 'debit' FROM sagas WHERE protocol = 'twophase' AND status = 'completed' LIMIT 1)`,
			[]string{"two ledgers: both or neither"},
		},
		{"a branch of another decision", `UPDATE saga_legs SET gid = replace(gid, ':1:', ':9:') WHERE gid <> ''`, []string{"two ledgers: both or neither"}},
		{"a bid that stands for ever", `UPDATE auction_standing SET active = true`, []string{"audit of all auctions"}},
	}
	tables := []string{
		"purchases", "draws", "idempotency_keys", "entries", "accounts", "transfers", "auction_bids", "auction_events", "auction_winners", "auction_standing",
		"lock_keys", "lock_fences", "lock_grants", "publications", "publication_attempts", "multidraws", "multidraw_chunks", "saga_legs", "WRITES",
	}
	var out, errOut bytes.Buffer
	d := Demo{Exit: true, slack: slowMachine, Listen: "127.0.0.1:0", Out: &out, ErrOut: &errOut}
	d.beforeCheck = func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, d.server.DatabaseURL())
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		exec := func(sql string) {
			sql = strings.ReplaceAll(sql, "WRITES", d.databases.writes)
			if _, err := conn.Exec(ctx, sql); err != nil {
				t.Fatalf("%v\n%s", err, sql)
			}
		}
		exec("SET session_replication_role = replica") // Nothing checks a foreign key.
		exec("CREATE SCHEMA kept")
		columns := map[string]string{} // without those that are computed from others
		for _, table := range tables {
			exec("CREATE TABLE kept." + table + " AS TABLE " + table)
			var names string
			if err := conn.QueryRow(ctx, `SELECT string_agg(attname, ', ') FROM pg_attribute
				WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' AND attidentity <> 'a'`, strings.ReplaceAll(table, "WRITES", d.databases.writes)).Scan(&names); err != nil {
				t.Fatal(err)
			}
			columns[table] = names
		}
		if err := d.check(ctx); err != nil {
			t.Fatal(err)
		}
		wantStory(t, &d)
		if errOut.Len() > 0 {
			t.Errorf("standard error: %s", errOut.String())
		}
		out.Reset()
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
				if !changes(damage.sql, table) {
					continue
				}
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
		c, l := &d.result.Crash, &d.result.Locks
		for _, seen := range []struct {
			row          string
			change, undo func()
		}{
			{"every grant has a higher token", func() { l.Tokens[5]-- }, func() { l.Tokens[5]++ }},
			{"a write with an old token refused", func() { c.StaleWrite = false }, func() { c.StaleWrite = true }},
			{"a dead holder's lock moves on", func() { c.endedInTime = false }, func() { c.endedInTime = true }},
			{"a dead holder's lock moves on", func() { c.LateRelease = false }, func() { c.LateRelease = true }},
			{"a deadlock has one victim", func() { l.Victims++ }, func() { l.Victims-- }},
			{"a deadlock has one victim", func() { l.Cycle[0] += "." }, func() { l.Cycle[0] = strings.TrimSuffix(l.Cycle[0], ".") }},
			{"a deadlock has one victim", func() { l.DeadlockMS += 60_000 }, func() { l.DeadlockMS -= 60_000 }},
			{"lost answers: each done once", func() { c.LostAnswers = -c.LostAnswers }, func() { c.LostAnswers = -c.LostAnswers }},
			{"every post published once", func() { d.deliveries = append(d.deliveries, d.deliveries[0]) }, func() { d.deliveries = d.deliveries[1:] }},
			{
				"no post early or cancelled", func() { d.deliveries[0].ID, d.cancelled[0] = d.cancelled[0], d.deliveries[0].ID },
				func() { d.deliveries[0].ID, d.cancelled[0] = d.cancelled[0], d.deliveries[0].ID },
			},
			{"resumed draws: those of one run", func() { c.otherCount = false }, func() { c.otherCount = true }},
			{"two ledgers: both or neither", func() { c.SettledMS += 600_000 }, func() { c.SettledMS -= 600_000 }},
		} {
			seen.change()
			if err := d.check(ctx); err != nil || d.result.AllHeld || rowHeld(t, &d, seen.row) {
				t.Errorf("%q is said to hold, %v\n%s", seen.row, err, out.String())
			}
			seen.undo()
			out.Reset()
		}
		breakTold(ctx, t, &d)
		if err := d.check(ctx); err != nil || !d.result.AllHeld {
			t.Errorf("restored: %v, %+v", err, d.result.Guarantees)
		}
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

// slowMachine is how late a machine that runs many tests may be.
const slowMachine = 30 * time.Second

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		if err := serve(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(pgtest.Main(m))
}

// serve is the further server of a demo that a test runs: there this program is not fairlead.
func serve(args []string) error {
	o := fairlead.DefaultOptions()
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	f.StringVar(&o.Listen, "listen", "", "")
	f.StringVar(&o.Data, "data", "", "")
	f.IntVar(&o.PublishPerTarget, "publish-per-target", 0, "")
	f.DurationVar(&o.ClaimStaleAfter, "claim-stale-after", 0, "")
	f.DurationVar(&o.ClaimSweepEvery, "claim-sweep-every", 0, "")
	f.BoolVar(&o.AllowPrivateTargets, "allow-private-targets", false, "")
	connections, address := f.Int("database-connections", 0, ""), f.String("addr-file", "", "")
	_ = f.String("log-level", "", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	o.DatabaseConnections, o.DatabaseURL, o.AdminKey = int32(*connections), os.Getenv("FAIRLEAD_DATABASE_URL"), os.Getenv(adminKeyVariable)
	if name, url, ok := strings.Cut(os.Getenv("FAIRLEAD_LEDGER"), "="); ok {
		o.Ledgers = map[string]string{name: url}
	}
	s, err := fairlead.Open(context.Background(), o)
	if err != nil {
		return err
	}
	addr, err := s.Listen(context.Background())
	if err != nil {
		return err
	}
	if err := os.WriteFile(*address, []byte(addr.String()), 0o600); err != nil {
		return err
	}
	return s.Run(context.Background()) // until it is killed
}

// changes reports whether a statement changes a table.
func changes(sql, table string) bool {
	return regexp.MustCompile(`(UPDATE|FROM|INTO) ` + table + `\b`).MatchString(sql)
}

// breakTold changes what callers were told of transfers between ledgers, and wants the rows of both modes to say so.
func breakTold(ctx context.Context, t *testing.T, d *Demo) {
	t.Helper()
	for mode, row := range map[string]string{"saga": "a saga is whole, or undone", twoPhase: "two ledgers: both or neither"} {
		m := d.movements[slices.IndexFunc(d.movements, func(m *movement) bool { return m.Mode == mode && m.Status == "completed" })]
		for _, change := range []func(*movement){
			func(m *movement) { m.Status = "failed" }, func(m *movement) { m.Amount++ }, func(m *movement) { m.ID = uuid.NewString() },
		} {
			was := *m
			change(m)
			if err := d.check(ctx); err != nil || rowHeld(t, d, row) {
				t.Errorf("%q is said to hold, %v", row, err)
			}
			*m = was
		}
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
	testwait.Must(t, os.WriteFile(filepath.Join(dir, "admin.key"), []byte("somebody's"), 0o600))
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
