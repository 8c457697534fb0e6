package archive_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/internal/archive"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestLateRows has rows come late at each step of an archive, by a process that was stopped for long: each is refused, so none is missing in the files.
func TestLateRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tried := 0
	_, err := archive.Run(t.Context(), w.pool, archive.Options{Before: february, Directory: w.directory, Progress: func(p archive.Progress) {
		tried++
		late := partitions.At(february.Add(time.Duration(-tried) * time.Hour))
		const sql = `INSERT INTO entries (account, id, version, transfer, amount, currency, at) VALUES ('old-03', $1, 9999, $1, 5, 'SIM', now())`
		if _, err := w.pool.Exec(t.Context(), sql, late); pgkit.Code(err) != "23514" {
			t.Errorf("a row that comes while it is %s: %v", p.Doing, err)
		}
		const sale = `INSERT INTO purchases (campaign, seq, id, account, layer, number, ordinal, price, transfer, at) VALUES ($1, 1, $1, 'old-03', 1, 1, 0, 4, $1, now())`
		if _, err := w.pool.Exec(t.Context(), sale, late); pgkit.Code(err) != "23514" {
			t.Errorf("a sale that comes while it is %s: %v", p.Doing, err)
		}
	}})
	testwait.Must(t, err)
	if tried < 5 {
		t.Errorf("%d rows were tried", tried)
	}
	w.valid("after all")
}

// TestTwoAtOnce has several processes make the same archives. Each month is archived once, whoever does it.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sell(0, january, february)
	w.exec(`CREATE TABLE before_entries AS SELECT * FROM entries; CREATE TABLE before_transfers AS SELECT * FROM transfers;
		CREATE TABLE before_purchases AS SELECT * FROM purchases; CREATE TABLE before_holds AS SELECT * FROM holds`)
	var all errgroup.Group
	made := make(chan archive.Archive, 10)
	for range 4 {
		all.Go(func() error {
			for {
				r, err := archive.Run(t.Context(), w.pool, archive.Options{Before: april.Add(-time.Nanosecond), Directory: w.directory})
				for _, a := range r.Made {
					made <- a
				}
				if err == nil {
					return nil
				}
				// One that met another one may find a file that the other one is about to write anew.
				if _, damaged := errors.AsType[*archive.Damaged](err); !damaged && !errors.Is(err, archive.ErrUnderWay) && pgkit.Code(err) == "" {
					return err
				}
			}
		})
	}
	testwait.Must(t, all.Wait())
	close(made)
	seen := map[int]archive.Archive{}
	for a := range made {
		seen[a.Number] = a
	}
	if len(seen) != 2 {
		t.Fatalf("made %+v", seen)
	}
	for _, a := range seen {
		w.same(a, partitions.Entries)
		w.same(a, partitions.Transfers)
		w.same(a, partitions.Purchases)
	}
	w.sameHolds(slices.Collect(maps.Values(seen))...)
	w.valid("after all")
	if c, err := archive.Check(t.Context(), w.pool, w.directory, nil); err != nil || c.Archives != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestOlderCopy leads the database to an older state between the partitions' leaving and their end, as a failover may: nothing is dropped that is in a table.
func TestOlderCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := archive.Run(t.Context(), w.pool, archive.Options{Before: february, Directory: w.directory, Progress: func(p archive.Progress) {
		if !strings.HasPrefix(p.Doing, "dropping") {
			return
		}
		w.exec(`UPDATE archives SET detached_at = NULL; ALTER TABLE transfers DETACH PARTITION transfers_kept_1; ALTER TABLE closed_holds_1 INHERIT closed_holds`)
		for _, table := range partitions.Tables() {
			w.exec(fmt.Sprintf(`ALTER TABLE %s_rest DROP CONSTRAINT begins; ALTER TABLE %[1]s ATTACH PARTITION %[1]s_first FOR VALUES FROM (MINVALUE) TO ('%s')`, table, partitions.At(february)))
		}
	}})
	if !errors.Is(err, archive.ErrUnderWay) {
		t.Fatalf("%v", err)
	}
	w.valid("as it was before")
	if n := ask[int](w, `SELECT count(*) FROM entries`); n != 3*12*3*28*2 {
		t.Errorf("%d entries", n)
	}
	w.run(archive.Options{Before: february})
	w.valid("archived after all")

	// A copy of before an archive does not write over its files by itself.
	path := filepath.Join(w.directory, "0002-before-20250301")
	testwait.Must(t, os.MkdirAll(path, 0o700))
	testwait.Must(t, os.WriteFile(filepath.Join(path, "manifest.json"), []byte("{}"), 0o600))
	if _, err := archive.Run(t.Context(), w.pool, archive.Options{Before: april, Directory: w.directory}); err == nil || !strings.Contains(err.Error(), path+" has an archive already") {
		t.Errorf("over another archive: %v", err)
	}
	w.run(archive.Options{Before: april.Add(-time.Nanosecond), Restart: true})
	w.valid("over it")
}
