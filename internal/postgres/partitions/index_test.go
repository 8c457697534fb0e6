package partitions_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// validIndexes is how many partitions of the entries have a BRIN index that belongs to that of the table, and works.
const validIndexes = `SELECT count(*) FROM pg_inherits AS i JOIN pg_index AS x ON x.indexrelid = i.inhrelid JOIN pg_class AS c ON c.oid = x.indexrelid JOIN pg_am AS m ON m.oid = c.relam
	WHERE i.inhparent = to_regclass('entries_by_id') AND m.amname = 'brin' AND x.indisvalid`

// TestIndex makes the index of the entries' ids on partitions with rows. Those that are made later have it from the beginning, and so has a table that is put
// into partitions later.
func TestIndex(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Partitions)
	db := open(t)
	conn := pgtest.Connect(t, db.Config().ConnConfig.ConnString())
	without := func() int {
		t.Helper()
		names, err := partitions.Unindexed(t.Context(), db)
		testwait.Must(t, err)
		return len(names)
	}
	for i := range 100 {
		exec(t, db, `INSERT INTO entries VALUES ('ann', $1, $2, 1)`, partitions.At(day(10, 1)), i)
	}
	want(t, "in one piece", without(), 0)
	testwait.Must(t, partitions.Convert(t.Context(), db, day(10, 20)))
	testwait.Must(t, testwait.Err(partitions.Extend(t.Context(), db, day(11, 26))))
	want(t, "before", without(), len(names(t, db, "entries")))
	testwait.Must(t, partitions.Index(t.Context(), conn))
	want(t, "after", without(), 0)
	want(t, "indexes", ask[int](t, db, validIndexes), len(names(t, db, "entries")))
	testwait.Must(t, partitions.Index(t.Context(), conn))
	testwait.Must(t, testwait.Err(partitions.Extend(t.Context(), db, day(12, 26))))
	want(t, "after the next month was added", without(), 0)
	want(t, "indexes", ask[int](t, db, validIndexes), len(names(t, db, "entries")))
	exec(t, db, `INSERT INTO entries VALUES ('ann', $1, 1, 1)`, partitions.At(day(12, 1)))
	want(t, "rows found by id", ask[int](t, db, `SELECT count(*) FROM entries WHERE id >= $1`, partitions.At(day(11, 15))), 1)
}

// TestIndexGoesOn: a process dies while it makes the index of a partition, and leaves one that is not valid. While a partition is in use, commands do not wait: the
// index is made when that has ended.
func TestIndexGoesOn(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Partitions)
	db := open(t)
	url := db.Config().ConnConfig.ConnString()
	testwait.Must(t, partitions.Convert(t.Context(), db, day(10, 20)))
	exec(t, db, `CREATE INDEX entries_by_id ON ONLY entries USING brin (id)`)
	writer, err := db.Begin(t.Context())
	testwait.Must(t, err)
	_, err = writer.Exec(t.Context(), `INSERT INTO entries VALUES ('ann', $1, 1, 1)`, partitions.At(day(10, 1)))
	testwait.Must(t, err)

	dies := pgtest.Connect(t, url)
	pid := dies.PgConn().PID()
	died := make(chan error, 1)
	go func() { died <- partitions.Index(t.Context(), dies) }()
	const waiting = `SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock' AND query LIKE 'CREATE INDEX CONCURRENTLY%'`
	testwait.Eventually(t, testwait.Patience, "the index waits for the transaction", func() bool { return ask[int](t, db, waiting, pid) == 1 })
	exec(t, db, `INSERT INTO entries VALUES ('ben', $1, 1, 1)`, partitions.At(day(10, 1)))
	exec(t, db, `SELECT pg_terminate_backend($1)`, pid)
	if err := <-died; err == nil {
		t.Error("it has not died")
	}
	want(t, "invalid ones", ask[int](t, db, `SELECT count(*) FROM pg_index WHERE NOT indisvalid AND indrelid = 'entries_first'::regclass`), 1)

	made := make(chan error, 1)
	conn, err := pgx.Connect(t.Context(), url)
	testwait.Must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	go func() { made <- partitions.Index(t.Context(), conn) }()
	testwait.Must(t, writer.Commit(t.Context()))
	testwait.Must(t, <-made)
	want(t, "indexes", ask[int](t, db, validIndexes), 2)
	names, err := partitions.Unindexed(t.Context(), db)
	testwait.Must(t, err)
	want(t, "without", len(names), 0)
}

// TestIndexAtOnce has several processes make the index at once, as servers do that start on a new database: none fails.
func TestIndexAtOnce(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Partitions)
	db := open(t)
	testwait.Must(t, partitions.Convert(t.Context(), db, day(10, 20)))
	var all errgroup.Group
	for range 4 {
		conn := pgtest.Connect(t, db.Config().ConnConfig.ConnString())
		all.Go(func() error {
			err := partitions.Index(t.Context(), conn)
			for pgkit.Code(err) == pgkit.LockTimeout {
				err = partitions.Index(t.Context(), conn)
			}
			return err
		})
	}
	testwait.Must(t, all.Wait())
	want(t, "indexes", ask[int](t, db, validIndexes), 2)
}
