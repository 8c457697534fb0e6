package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
)

const (
	insertArchive = `INSERT INTO archives (number, upto, began_at, host, directory, files, sales_upto) VALUES ($1, $2, clock_timestamp(), $3, $4, $5, $6)`
	saveFiles     = `UPDATE archives SET files = $3 WHERE number = $1 AND files = $2 AND detached_at IS NULL`
	// addSums adds the entries in some blocks to the sums.
	addSums = `INSERT INTO archive_sums AS s (archive, account, currency, side, version, amount)
		SELECT $1, account, currency, CASE WHEN version = 0 THEN sign(amount) ELSE 0 END, max(version), sum(amount) FROM %s
		WHERE ctid >= $2::text::tid AND ctid < $3::text::tid GROUP BY 2, 3, 4 ORDER BY 2
		ON CONFLICT (account, currency, side, archive) DO UPDATE SET amount = s.amount + excluded.amount, version = greatest(s.version, excluded.version)`
	saveCarried = `UPDATE archives SET carried = $3 WHERE number = $1 AND carried = $2 AND detached_at IS NULL`
	// selectColumns are those that COPY writes of a table: all but generated ones.
	selectColumns = `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`
	selectBlocks = `SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint`
	// kept are the transfers that are asked for after they are archived.
	kept         = `id IN (SELECT transfer FROM transfer_references WHERE completed) OR id IN (SELECT transfer FROM saga_legs WHERE transfer IS NOT NULL)`
	expireEvents = `UPDATE auctions SET first_seq = seq + 1
		WHERE id IN (SELECT id FROM auctions WHERE id >= $1 AND id < $2 AND first_seq <= seq ORDER BY id LIMIT $3 FOR UPDATE)`
	holdRecord     = `SELECT detached_at IS NOT NULL FROM archives WHERE number = $1 AND upto = $2 AND dropped_at IS NULL FOR UPDATE`
	selectAttached = `SELECT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = to_regclass($1))`
	endDetach      = `UPDATE archives SET detached_at = clock_timestamp() WHERE number = $1`
	endDrop        = `UPDATE archives SET dropped_at = clock_timestamp() WHERE number = $1`
	dropSums       = `DELETE FROM archive_sums WHERE archive = $1`
	dropRecord     = `DELETE FROM archives WHERE number = $1 AND detached_at IS NULL`
	// freely lets a transaction go over whole tables.
	freely = `SELECT set_config('statement_timeout', '15min', true), set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true)`
)

// auctionsAtOnce are changed in one transaction.
const auctionsAtOnce = 500

// sealed is the constraint of a partition that takes no rows.
const sealed = "sealed"

// seal begins an archive. From here on its partitions do not change: a row that comes late, by a clock or a process that is late, is refused.
func (r *runner) seal(ctx context.Context, p period) (*record, error) {
	a := &record{Number: p.number, Upto: p.upto, From: p.from, Host: r.host, Directory: r.Directory, Files: p.files(), SalesFrom: p.salesFrom}
	var sales *uuid.UUID
	if p.sales != p.salesFrom {
		sales = &p.sales
	}
	directory := a.path()
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return nil, err
	}
	// The database may be a copy of before that archive, whose files nothing else has.
	switch _, err := os.Stat(filepath.Join(directory, manifestName)); {
	case err == nil && !r.Restart:
		return nil, fmt.Errorf("%s has an archive already: move it away, or give --restart to write over it", directory)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	files, err := json.Marshal(a.Files)
	if err != nil {
		return nil, err
	}
	err = r.locking(ctx, a, "sealing", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertArchive, a.Number, a.Upto, a.Host, a.Directory, string(files), sales); err != nil {
			return err
		}
		for _, piece := range p.pieces {
			if _, err := tx.Exec(ctx, fmt.Sprintf(`ALTER TABLE %s ADD CONSTRAINT %s CHECK (false) NOT VALID`, piece.Name, sealed)); err != nil {
				return err
			}
		}
		return p.over(ctx, tx)
	})
	if code := pgkit.Code(err); code == pgkit.UniqueViolation {
		err = fmt.Errorf("%w: another process has just begun one", ErrUnderWay)
	}
	crashpoint.Hit(crashpoint.ArchiveSealed)
	return a, err
}

// over returns an error where something of a period is not over.
func (p *period) over(ctx context.Context, tx pgx.Tx) error {
	for _, q := range []struct{ sql, what string }{
		{`SELECT id FROM transfers WHERE status = 'pending' AND id >= $1 AND id < $2 ORDER BY id LIMIT 1`, "transfer %s is pending"},
		{`SELECT id FROM auctions WHERE status IN ('pending', 'active') AND id >= $1 AND id < $2 ORDER BY id LIMIT 1`, "auction %s has not ended"},
		{`SELECT id FROM log_topics WHERE kind = 2 AND open AND id >= $1 AND id < $2 ORDER BY id LIMIT 1`, "auction %s is not in the public log to its end"},
	} {
		found, err := pgkit.Rows(ctx, tx, pgx.RowTo[uuid.UUID], q.sql, p.from, p.upto)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("the history before %s stays: "+q.what, partitions.Time(p.upto).Format(time.RFC3339), found[0])
		}
		if err != nil {
			return err
		}
	}
	why, err := selling(ctx, tx, p.salesFrom, p.sales)
	if err == nil && why != "" {
		err = errors.New(why) // Since it was looked at just now, that is a campaign by a clock that is late.
	}
	return err
}

// giveUp undoes what an archive has done that has not left the tables. Its files stay.
func (r *runner) giveUp(ctx context.Context, a *record) error {
	return r.locking(ctx, a, "giving up", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, dropSums, a.Number); err != nil {
			return err
		}
		if tag, err := tx.Exec(ctx, dropRecord, a.Number); err != nil || tag.RowsAffected() == 0 {
			return errors.Join(err, ErrUnderWay)
		}
		for _, f := range a.Files {
			if _, err := tx.Exec(ctx, fmt.Sprintf(`ALTER TABLE %s DROP CONSTRAINT IF EXISTS %s`, f.Partition, sealed)); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `DROP TABLE IF EXISTS `+a.keptTable())
		return err
	})
}

// copyAll copies the partitions to files, and reads these again.
func (r *runner) copyAll(ctx context.Context, a *record) error {
	directory := a.path()
	for i, f := range a.Files {
		if f.Name != "" {
			if there, err := os.Stat(filepath.Join(directory, f.Name)); err == nil && there.Size() == f.Bytes {
				continue
			}
		}
		written, err := r.copy(ctx, a, directory, f)
		if err != nil {
			return err
		}
		r.tell(a, "reading "+written.Name, 0, 0)
		if err := written.read(ctx, directory, nil, r.paced(ctx), func([]string) error { return nil }); err != nil {
			return err
		}
		files := slices.Clone(a.Files)
		files[i] = written
		if err := r.saveFiles(ctx, a, files); err != nil {
			return err
		}
		crashpoint.Hit(crashpoint.ArchiveCopied)
	}
	return nil
}

func (r *runner) saveFiles(ctx context.Context, a *record, files []File) error {
	before, err := json.Marshal(a.Files)
	if err != nil {
		return err
	}
	after, err := json.Marshal(files)
	if err != nil {
		return err
	}
	tag, err := r.pool.Exec(ctx, saveFiles, a.Number, string(before), string(after))
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("%w: another process works on it", ErrUnderWay)
	}
	if err == nil {
		a.Files = files
	}
	return err
}

// copy copies a partition to a file. It is sealed, so that snapshots of a few blocks are as good as one of all.
func (r *runner) copy(ctx context.Context, a *record, directory string, f File) (File, error) {
	f.Name = a.fileName(f)
	f.Rows = 0
	var columns string
	if err := r.pool.QueryRow(ctx, selectColumns, f.Partition).Scan(&columns); err != nil {
		return f, err
	}
	w, err := create(filepath.Join(directory, f.Name))
	if err != nil {
		return f, err
	}
	part := func(where string, header bool) error {
		conn, err := r.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		tag, err := conn.Conn().PgConn().CopyTo(ctx, w, fmt.Sprintf(`COPY (SELECT %s FROM %s WHERE %s) TO STDOUT (FORMAT csv, HEADER %t)`, columns, f.Partition, where, header))
		f.Rows += tag.RowsAffected()
		return err
	}
	all := r.inAnyOrder
	if f.Table == partitions.Purchases {
		all = r.inOrderOfSales
	}
	if err := all(ctx, a, f, part); err != nil {
		return f, errors.Join(err, w.abandon())
	}
	f.Bytes, f.SHA256, err = w.finish()
	return f, err
}

// fileName is that of the file of a partition. An archive has several of purchases where some had to stay before.
func (r *record) fileName(f File) string {
	before := 0
	for _, other := range r.Files {
		switch {
		case other.Partition == f.Partition:
			if before > 0 {
				return fmt.Sprintf("%s-%d.csv.gz", f.Table, before+1)
			}
			return f.Table + ".csv.gz"
		case other.Table == f.Table:
			before++
		}
	}
	panic("archive: a file of another archive")
}

// inAnyOrder copies a partition in the order in which its rows are there, some blocks at a time.
func (r *runner) inAnyOrder(ctx context.Context, a *record, f File, part func(where string, header bool) error) error {
	total, err := r.blocks(ctx, f.Partition)
	if err != nil {
		return err
	}
	return r.parts(ctx, a, "copying "+f.Table, 0, max(total, 1), func(from, to int64) error {
		return part(fmt.Sprintf(`ctid >= '(%d,0)' AND ctid < '(%d,0)'`, from, to), from == 0)
	})
}

func (r *runner) blocks(ctx context.Context, table string) (n int64, err error) {
	return n, r.pool.QueryRow(ctx, selectBlocks, table).Scan(&n)
}

// carry adds the entries up.
func (r *runner) carry(ctx context.Context, a *record) error {
	i := slices.IndexFunc(a.Files, func(f File) bool { return f.Table == partitions.Entries })
	total, err := r.blocks(ctx, a.Files[i].Partition)
	if err != nil {
		return err
	}
	return r.parts(ctx, a, "adding up the entries", a.Carried, total, func(from, to int64) error {
		err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, freely); err != nil {
				return err
			}
			if tag, err := tx.Exec(ctx, saveCarried, a.Number, from, to); err != nil || tag.RowsAffected() == 0 {
				return errors.Join(err, fmt.Errorf("%w: another process works on it", ErrUnderWay))
			}
			_, err := tx.Exec(ctx, fmt.Sprintf(addSums, a.Files[i].Partition), a.Number, fmt.Sprintf("(%d,0)", from), fmt.Sprintf("(%d,0)", to))
			return err
		})
		crashpoint.Hit(crashpoint.ArchiveCarried)
		return err
	})
}

// compare reads the entries' file and compares its sums with those in the database, which were made of the table. It writes the manifest.
func (r *runner) compare(ctx context.Context, a *record) error {
	directory := a.path()
	found := contents{books: books{}, sales: &sales{q: r.pool, next: a.SalesFrom}}
	r.tell(a, "comparing the files with the sums", 0, 0)
	for _, f := range a.Files {
		if err := f.sum(ctx, directory, r.paced(ctx), &found); err != nil {
			return err
		}
	}
	if err := a.agrees(ctx, r.pool, found.books); err != nil {
		return err
	}
	return writeManifest(directory, a.manifest())
}

// timeOf is the zero time for the beginning.
func timeOf(id uuid.UUID) time.Time {
	if id == uuid.Nil {
		return time.Time{}
	}
	return partitions.Time(id)
}

// keptTable has the transfers that stay.
func (r *record) keptTable() string {
	return fmt.Sprintf("%s_kept_%d", partitions.Transfers, r.Number)
}

// keep copies the transfers that stay to a table of their own. It is no partition yet.
func (r *runner) keep(ctx context.Context, a *record) error {
	i := slices.IndexFunc(a.Files, func(f File) bool { return f.Table == partitions.Transfers })
	r.tell(a, "keeping transfers with references", 0, 0)
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if err := a.hold(ctx, tx, false); err != nil {
			return err
		}
		table := a.keptTable()
		for _, sql := range []string{
			freely,
			fmt.Sprintf(`DROP TABLE IF EXISTS %s`, table),
			fmt.Sprintf(`CREATE TABLE %s (LIKE %s INCLUDING ALL)`, table, partitions.Transfers),
			fmt.Sprintf(`INSERT INTO %s SELECT * FROM %s WHERE %s`, table, a.Files[i].Partition, kept),
			fmt.Sprintf(`ALTER TABLE %s ADD CONSTRAINT bounds CHECK (id >= '%s' AND id < '%s'), ADD CONSTRAINT %s CHECK (false) NOT VALID`, table, a.From, a.Upto, sealed),
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// expire says of auctions that the events in the archive are not kept any more, some auctions at a time.
func (r *runner) expire(ctx context.Context, a *record) error {
	r.tell(a, "ending the streams of its auctions", 0, 0)
	for {
		tag, err := r.pool.Exec(ctx, expireEvents, a.From, a.Upto, auctionsAtOnce)
		if err != nil || tag.RowsAffected() < auctionsAtOnce {
			return err
		}
	}
}

// detach takes the partitions out of the tables, and has the sums be part of the books.
func (r *runner) detach(ctx context.Context, a *record) error {
	since := "MINVALUE"
	if a.From != uuid.Nil {
		since = "'" + a.From.String() + "'"
	}
	err := r.locking(ctx, a, "taking the partitions out of the tables", func(tx pgx.Tx) error {
		if err := a.hold(ctx, tx, false); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, endDetach, a.Number); err != nil {
			return err
		}
		sql := []string{`LOCK TABLE ` + partitions.ClosedHolds} // Whoever reads it looks for its parts under a lock of it.
		for _, f := range a.Files {
			if f.Table == partitions.ClosedHolds {
				sql = append(sql, fmt.Sprintf(`ALTER TABLE %s NO INHERIT %s`, f.Partition, f.Table))
				continue
			}
			upto := a.Upto
			if f.Upto != uuid.Nil {
				upto = f.Upto
			}
			sql = append(sql, fmt.Sprintf(`ALTER TABLE %s DETACH PARTITION %s`, f.Table, f.Partition),
				// What comes late must not go where everything else goes.
				fmt.Sprintf(`ALTER TABLE %s_rest DROP CONSTRAINT IF EXISTS begins, ADD CONSTRAINT begins CHECK (%s >= '%s')`, f.Table, partitions.Key(f.Table), upto))
		}
		sql = append(sql, fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%s) TO ('%s')`, partitions.Transfers, a.keptTable(), since, a.Upto))
		_, err := tx.Exec(ctx, strings.Join(sql, "; "))
		return err
	})
	crashpoint.Hit(crashpoint.ArchiveDetached)
	return err
}

// drop drops what has left the tables. It looks again whether it has: the database may be led to an older state in between.
func (r *runner) drop(ctx context.Context, a *record) error {
	r.tell(a, "dropping what has left the tables", 0, 0)
	return r.locking(ctx, a, "dropping what has left the tables", func(tx pgx.Tx) error {
		if err := a.hold(ctx, tx, true); err != nil {
			return err
		}
		for _, f := range a.Files {
			attached, err := pgkit.Rows(ctx, tx, pgx.RowTo[bool], selectAttached, f.Partition)
			if err == nil && attached[0] {
				err = fmt.Errorf("the table %s is a partition still", f.Partition)
			}
			if err == nil {
				_, err = tx.Exec(ctx, `DROP TABLE IF EXISTS `+f.Partition)
			}
			if err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, endDrop, a.Number)
		return err
	})
}

// hold keeps an archive's row as it is until the transaction ends. It returns an error where it is not as this process knows it.
func (r *record) hold(ctx context.Context, tx pgx.Tx, detached bool) error {
	same, err := pgkit.Rows(ctx, tx, pgx.RowTo[bool], holdRecord, r.Number, r.Upto)
	if err == nil && (len(same) == 0 || same[0] != detached) {
		err = fmt.Errorf("%w: another process works on it, or the database is an older copy", ErrUnderWay)
	}
	return err
}
