package archive_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/archive"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions/partitionstest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const patience = testwait.Patience

// world is a database with a history, and its archives.
type world struct {
	t         *testing.T
	url       string
	pool      *pgxpool.Pool
	books     *postgres.Ledger
	directory string
}

var (
	begins   = time.Date(2025, 1, 15, 0, 0, 0, 0, time.UTC) // the first partition ends with January
	february = time.Date(2025, 2, 1, 0, 0, 0, 0, time.UTC)
	april    = time.Date(2025, 4, 1, 0, 0, 0, 0, time.UTC)
)

// old makes a database whose history is of the three months from January 2025 on, and whose last partition ends with June.
func old(ctx context.Context, url string) error {
	if _, err := postgres.Migrate(ctx, url); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	if err := partitionstest.Begin(ctx, conn, begins, time.Date(2025, 5, 28, 0, 0, 0, 0, time.UTC)); err != nil {
		return err
	}
	for month := time.January; month <= time.March; month++ {
		if _, err := conn.Exec(ctx, partitionstest.Month(2025, month, 1, 1000)); err != nil {
			return fmt.Errorf("%v: %w", month, err)
		}
		if err := partitionstest.Holds(ctx, conn, time.Date(2025, month, 1, 0, 0, 0, 0, time.UTC)); err != nil {
			return fmt.Errorf("holds of %v: %w", month, err)
		}
	}
	return conn.Close(ctx)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, url: pgtest.NewDatabase(t, old), directory: t.TempDir()}
	var err error
	w.pool, err = pgxpool.New(t.Context(), w.url)
	testwait.Must(t, err)
	t.Cleanup(w.pool.Close)
	db, err := postgres.Open(t.Context(), postgres.Options{URL: w.url, MaxConns: 4, Patience: patience})
	testwait.Must(t, err)
	t.Cleanup(db.Close)
	w.books = postgres.NewLedger(db)
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](w *world, sql string, args ...any) (v T) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (w *world) run(o archive.Options) archive.Result {
	w.t.Helper()
	o.Directory = w.directory
	r, err := archive.Run(w.t.Context(), w.pool, o)
	testwait.Must(w.t, err)
	return r
}

// valid checks the books in both ways: by what the server says, and by a recount.
func (w *world) valid(when string) {
	w.t.Helper()
	in, err := w.books.Integrity(w.t.Context())
	testwait.Must(w.t, err)
	counted, err := w.books.Recount(w.t.Context(), postgres.RecountOptions{Runner: postgres.RunnerOperator, Restart: true, Blocks: 64})
	testwait.Must(w.t, err)
	for _, in := range []any{in.Valid, counted.Valid, in.Currencies[0].Deposits.String() == counted.Currencies[0].Deposits.String()} {
		if in != true {
			w.t.Fatalf("%s: the books are not valid: %+v, %+v", when, in, counted)
		}
	}
}

// same compares the rows of a file with those that were in a table.
func (w *world) same(a archive.Archive, table string) {
	w.t.Helper()
	for _, f := range a.Files {
		if f.Table != table {
			continue
		}
		w.exec(fmt.Sprintf(`CREATE TABLE back_%s (LIKE %[1]s)`, table))
		conn, err := w.pool.Acquire(w.t.Context())
		testwait.Must(w.t, err)
		defer conn.Release()
		file := unzip(w.t, filepath.Join(a.Directory, f.Name))
		_, err = conn.Conn().PgConn().CopyFrom(w.t.Context(), file, fmt.Sprintf(`COPY back_%s FROM STDIN (FORMAT csv, HEADER)`, table))
		testwait.Must(w.t, err)
		const differ = `SELECT count(*) FROM ((SELECT * FROM back_%[1]s EXCEPT ALL SELECT * FROM before_%[1]s WHERE %[2]s < $1 AND %[2]s >= $2)
			UNION ALL (SELECT * FROM before_%[1]s WHERE %[2]s < $1 AND %[2]s >= $2 EXCEPT ALL SELECT * FROM back_%[1]s)) AS d`
		from := uuid.Nil
		if a.From != nil {
			from = partitions.At(*a.From)
		}
		if n := ask[int](w, fmt.Sprintf(differ, table, partitions.Key(table)), partitions.At(a.To), from); n != 0 || f.Rows == 0 {
			w.t.Errorf("%s: %d rows of %d differ", f.Name, n, f.Rows)
		}
		w.exec(`DROP TABLE back_` + table)
	}
}

// sameHolds compares the holds in the files, and those that are left, with those that were in the table before_holds.
func (w *world) sameHolds(made ...archive.Archive) {
	w.t.Helper()
	w.exec(`CREATE TABLE back_holds (LIKE closed_holds INCLUDING GENERATED)`)
	conn, err := w.pool.Acquire(w.t.Context())
	testwait.Must(w.t, err)
	defer conn.Release()
	rows := int64(0)
	for _, a := range made {
		for _, f := range a.Files {
			if f.Table == partitions.ClosedHolds {
				_, err = conn.Conn().PgConn().CopyFrom(w.t.Context(), unzip(w.t, filepath.Join(a.Directory, f.Name)), `COPY back_holds FROM STDIN (FORMAT csv, HEADER)`)
				testwait.Must(w.t, err)
				rows += f.Rows
			}
		}
	}
	const differ = `SELECT count(*) FROM ((SELECT * FROM found EXCEPT ALL SELECT * FROM before_holds) UNION ALL (SELECT * FROM before_holds EXCEPT ALL SELECT * FROM found)) AS d`
	w.exec(`ALTER TABLE back_holds DROP COLUMN auction; CREATE VIEW found AS SELECT * FROM back_holds UNION ALL SELECT * FROM holds`)
	if n := ask[int](w, differ); n != 0 || rows == 0 {
		w.t.Errorf("%d holds differ, %d are in the files", n, rows)
	}
	w.exec(`DROP VIEW found; DROP TABLE back_holds`)
}

// auction adds an auction with 40 events.
func (w *world) auction(id uuid.UUID, status string) {
	w.t.Helper()
	w.exec(`INSERT INTO auctions (id, title, status, currency, seller, current_round, min_bid, min_increment, snipe_window, snipe_extension, snipe_max, cooldown,
		unique_amounts, total_bids, seq, version, revision, created_at) VALUES ($1, 'old', $2, 'SIM', 'old-01', 1, 1, 1, 0, 0, 0, 0, false, 39, 40, 40, $1, now())`, id, status)
}

// TestArchive archives two months of three. What is in the files is what was in the tables, and the books go on from it.
func TestArchive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`CREATE TABLE before_entries AS SELECT * FROM entries; CREATE TABLE before_transfers AS SELECT * FROM transfers;
		CREATE TABLE before_holds AS SELECT * FROM holds`)
	w.exec(`INSERT INTO audit_log SELECT id, at, 'admin', 'keys.create', 'k', 'r' FROM entries WHERE account = 'old-03'`)
	referenced := ask[uuid.UUID](w, `SELECT id FROM transfers WHERE kind = 'deposit' ORDER BY id LIMIT 1`)
	w.exec(`INSERT INTO transfer_references VALUES ($1, 'invoice 7', true, 12)`, referenced)
	ended := partitions.At(february.AddDate(0, 0, -9))
	w.auction(ended, "completed")
	w.exec(`INSERT INTO auction_bids SELECT $1, s, 'old-03', 10 * s, 10 * s - 10, 1, 1, now(), $1 FROM generate_series(2, 40) AS s`, ended)
	w.exec(`INSERT INTO auction_events VALUES ($1, 1, 'auction.started', now(), '{}')`, ended)
	w.valid("before")
	deposits := ask[string](w, `SELECT sum(amount)::text FROM transfers WHERE kind = 'deposit'`)

	if r := w.run(archive.Options{Before: time.Now(), DryRun: true}); len(r.Made) != 6 || r.Made[5].Number != 6 || ask[int](w, `SELECT count(*) FROM archives`) != 0 {
		t.Errorf("a dry run: %+v", r)
	}
	if r := w.run(archive.Options{Before: february.Add(-time.Nanosecond)}); len(r.Made) != 0 || r.Next == nil || !r.Next.Equal(february) || !strings.Contains(r.Why, "2025-02-01") {
		t.Errorf("before the first month's end: %+v", r)
	}
	r := w.run(archive.Options{Before: april.Add(-time.Nanosecond)})
	if len(r.Made) != 2 || r.Made[0].From != nil || !r.Made[0].To.Equal(february) || !r.Made[1].From.Equal(february) {
		t.Fatalf("made %+v", r)
	}
	for _, a := range r.Made {
		w.same(a, partitions.Entries)
		w.same(a, partitions.Transfers)
	}
	w.sameHolds(r.Made...)
	if left := ask[int](w, `SELECT count(*) FROM holds`); left != 12*(28+1+3) {
		t.Errorf("%d holds are left", left)
	}
	w.valid("after")
	if left, first := ask[int](w, `SELECT count(*) FROM auction_bids`), ask[int](w, `SELECT first_seq FROM auctions`); left != 0 || first != 41 {
		t.Errorf("%d bids are left, of an auction whose first event that is kept is %d", left, first)
	}
	if r.Made[0].Files[0].Table != partitions.Bids || r.Made[0].Files[0].Rows != 39 || r.Made[0].Files[1].Table != partitions.Events || r.Made[0].Files[1].Rows != 1 {
		t.Errorf("the files of the first archive: %+v", r.Made[0].Files)
	}
	if left := ask[int](w, `SELECT count(*) FROM entries`); left != 12*3*28*2 {
		t.Errorf("%d entries are left", left)
	}
	in, err := w.books.Integrity(t.Context())
	testwait.Must(t, err)
	if got := in.Currencies[0].Deposits.String(); got != deposits {
		t.Errorf("deposits %s, were %s", got, deposits)
	}
	found, err := w.books.Referenced(t.Context(), "invoice 7")
	if err != nil || len(found) != 1 || found[0].ID != referenced || found[0].Amount != 12 {
		t.Errorf("the transfer with a reference: %+v, %v", found, err)
	}
	c, err := archive.Check(t.Context(), w.pool, w.directory, nil)
	if err != nil || c.Archives != 2 || c.Entries != 2*12*3*28*2 || c.Transfers != 2*12*3*28 || c.Holds != 2*12*(28+1) {
		t.Errorf("the files: %+v, %v", c, err)
	}
	if left := ask[int](w, `SELECT count(*) FROM pg_class WHERE relname LIKE '%\_first' AND relkind = 'r'`); left != 0 {
		t.Errorf("%d tables are left of the first archive", left)
	}

	// What comes late, by a clock that is late, is refused, and does not go elsewhere.
	late := partitions.At(february.AddDate(0, 0, 3))
	for _, sql := range []string{
		`INSERT INTO entries (account, id, version, transfer, amount, currency, at) VALUES ('old-03', $1, 9999, $1, 5, 'SIM', now())`,
		`INSERT INTO transfers VALUES ($1, 'transfer', 'old-03', 'old-04', 5, 'SIM', 'completed', '', '', now())`,
	} {
		if _, err := w.pool.Exec(t.Context(), sql, late); pgkit.Code(err) != "23514" {
			t.Errorf("a late row: %v", err)
		}
	}
	if r := w.run(archive.Options{Before: april.Add(-time.Nanosecond)}); len(r.Made) != 0 {
		t.Errorf("once more: %+v", r)
	}
	// A balance that is changed is found, whose entries are all archived or not.
	w.exec(`DELETE FROM entries WHERE account = 'old-05'`)
	if in, err := w.books.Recount(t.Context(), postgres.RecountOptions{Runner: postgres.RunnerOperator, Restart: true, Blocks: 64}); err != nil || in.Valid || in.FirstBadAccount != "old-05" {
		t.Errorf("entries of old-05 are gone: %+v, %v", in, err)
	}
}

// TestInterrupted ends an archive after each of its steps, as often as it takes. The books are valid after each, and in the end nothing is missing or double.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sell(0, january)
	w.exec(`CREATE TABLE before_entries AS SELECT * FROM entries; CREATE TABLE before_transfers AS SELECT * FROM transfers;
		CREATE TABLE before_purchases AS SELECT * FROM purchases; CREATE TABLE before_holds AS SELECT * FROM holds`)
	var made []archive.Archive
	for steps := 1; ; steps++ {
		ctx, cancel := context.WithCancel(t.Context())
		seen := 0
		r, err := archive.Run(ctx, w.pool, archive.Options{Before: february, Directory: w.directory, Progress: func(archive.Progress) {
			if seen++; seen == steps {
				cancel()
			}
		}})
		cancel()
		if err == nil {
			made = append(made, r.Made...)
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("after %d steps: %v", steps, err)
		}
		if in, err := w.books.Integrity(t.Context()); err != nil || !in.Valid {
			t.Fatalf("after %d steps: %+v, %v", steps, in, err)
		}
		if steps > 100 {
			t.Fatal("it does not come to an end")
		}
	}
	if len(made) != 1 {
		t.Fatalf("made %+v", made)
	}
	w.same(made[0], partitions.Entries)
	w.same(made[0], partitions.Transfers)
	w.same(made[0], partitions.Purchases)
	w.sameHolds(made[0])
	w.valid("after all")
	w.checked("after all", 7, 2)
	names, err := filepath.Glob(filepath.Join(made[0].Directory, "*"))
	testwait.Must(t, err)
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "auction_bids.csv.gz auction_events.csv.gz audit_log.csv.gz closed_holds.csv.gz entries.csv.gz manifest.json purchases.csv.gz transfers.csv.gz" {
		t.Errorf("the directory has %s", got)
	}
}

// TestWaitsForReaders has a reader use the entries while an archive is made: it waits, commands go on, and it comes to its end after the reader has.
func TestWaitsForReaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reader, err := w.pool.Begin(t.Context())
	testwait.Must(t, err)
	_, err = reader.Exec(t.Context(), `SELECT count(*) FROM entries`)
	testwait.Must(t, err)
	waiting, done := make(chan string, 10), make(chan error, 1)
	go func() {
		_, err := archive.Run(t.Context(), w.pool, archive.Options{Before: february, Directory: w.directory, Progress: func(p archive.Progress) {
			if p.Waiting {
				waiting <- p.Doing
			}
		}})
		done <- err
	}()
	select {
	case what := <-waiting:
		if what != "sealing" {
			t.Errorf("it waits for %s", what)
		}
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	}
	w.exec(`INSERT INTO transfers VALUES ($1, 'transfer', 'old-03', 'old-04', 5, 'SIM', 'failed', 'no', '', now())`, uuid.Must(uuid.NewV7()))
	testwait.Must(t, reader.Rollback(t.Context()))
	select {
	case err := <-done:
		testwait.Must(t, err)
	case <-time.After(patience):
		t.Fatal("it waits on")
	}
	w.valid("after")
}

// TestRefused lists what keeps history in the tables.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run := func(o archive.Options) error {
		o.Directory, o.Before = cmp.Or(o.Directory, w.directory), february
		_, err := archive.Run(t.Context(), w.pool, o)
		return err
	}
	if r := w.run(archive.Options{Before: time.Now(), MinAge: 100 * 365 * 24 * time.Hour}); len(r.Made) != 0 || !strings.Contains(r.Why, "old") {
		t.Errorf("young history: %+v", r)
	}
	pending := partitions.At(february.AddDate(0, 0, -3))
	w.exec(`INSERT INTO transfers VALUES ($1, 'transfer', 'old-03', 'old-04', 5, 'SIM', 'pending', '', '', now())`, pending)
	if err := run(archive.Options{}); err == nil || !strings.Contains(err.Error(), pending.String()+" is pending") {
		t.Errorf("with a pending transfer: %v", err)
	}
	w.exec(`DELETE FROM transfers WHERE id = $1`, pending)
	open := partitions.At(february.AddDate(0, 0, -2))
	w.auction(open, "active")
	if err := run(archive.Options{}); err == nil || !strings.Contains(err.Error(), "auction "+open.String()+" has not ended") {
		t.Errorf("with an open auction: %v", err)
	}
	w.exec(`UPDATE auctions SET status = 'completed'`)
	w.exec(`INSERT INTO log_topics VALUES (2, $1, 5, true)`, open)
	if err := run(archive.Options{}); err == nil || !strings.Contains(err.Error(), "auction "+open.String()+" is not in the public log to its end") {
		t.Errorf("with an auction that the log is behind with: %v", err)
	}
	w.exec(`UPDATE log_topics SET open = false`)
	if sealed := ask[int](w, `SELECT count(*) FROM pg_constraint WHERE conname = 'sealed'`); sealed != 0 {
		t.Errorf("%d partitions are sealed after refusals", sealed)
	}

	ctx, cancel := context.WithCancel(t.Context())
	_, err := archive.Run(ctx, w.pool, archive.Options{Before: february, Directory: w.directory, Progress: func(archive.Progress) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	if err := run(archive.Options{Directory: elsewhere}); !errors.Is(err, archive.ErrUnderWay) || !strings.Contains(err.Error(), w.directory) {
		t.Errorf("into another directory: %v", err)
	}
	testwait.Must(t, run(archive.Options{Directory: elsewhere, Restart: true}))
	w.valid("after all")
	if _, err := archive.Check(t.Context(), w.pool, elsewhere, nil); err != nil {
		t.Error(err)
	}
}

// TestDamage changes what was archived, in the files and in the database: it is found.
func TestDamage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sell(0, january)
	a := w.run(archive.Options{Before: february}).Made[0]
	check := func() error {
		_, err := archive.Check(t.Context(), w.pool, w.directory, nil)
		return err
	}
	testwait.Must(t, check())
	if _, err := archive.Check(t.Context(), newWorld(t).pool, filepath.Join(w.directory, "elsewhere"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there, where nothing was archived: %v", err)
	}
	names := []string{"manifest.json"}
	for _, f := range a.Files {
		names = append(names, f.Name)
	}
	for _, name := range names {
		path := filepath.Join(a.Directory, name)
		whole, err := os.ReadFile(path)
		testwait.Must(t, err)
		for what, text := range map[string][]byte{
			"cut": whole[:len(whole)-9], "empty": nil, "longer": append(slices.Clone(whole), 0), "changed": changed(whole, len(whole)/2), "changed at its end": changed(whole, len(whole)-6),
		} {
			testwait.Must(t, os.WriteFile(path, text, 0o600))
			if _, is := errors.AsType[*archive.Damaged](check()); !is {
				t.Errorf("%s %s: not found", name, what)
			}
		}
		testwait.Must(t, os.Remove(path))
		if err := check(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s removed: %v", name, err)
		}
		testwait.Must(t, os.WriteFile(path, whole, 0o600))
	}
	testwait.Must(t, check())
	w.exec(`UPDATE closed_holds SET captured = captured - 1 WHERE id = (SELECT id FROM closed_holds WHERE status = 'captured' AND captured > 1 LIMIT 1)`)
	testwait.Must(t, check()) // Of that month no transfer is in the files.
	w.run(archive.Options{Before: april})
	if err := check(); err == nil || !strings.Contains(err.Error(), "the captured holds in the files are not what their transfers say") {
		t.Errorf("what a hold captured was changed: %v", err)
	}
	w.exec(`UPDATE archive_sums SET amount = amount + 1 WHERE account = 'old-07'`)
	if err := check(); err == nil || !strings.Contains(err.Error(), "old-07") {
		t.Errorf("a sum was changed: %v", err)
	}
	if in, err := w.books.Integrity(t.Context()); err != nil || in.Valid || in.FirstBadAccount != "old-07" {
		t.Errorf("a sum was changed: %+v, %v", in, err)
	}
}

func changed(text []byte, at int) []byte {
	text = slices.Clone(text)
	text[at] ^= 1
	return text
}
