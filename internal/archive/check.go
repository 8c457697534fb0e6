package archive

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
)

const selectSums = `SELECT account, currency, side, amount::text FROM archive_sums WHERE archive = $1`

// Checked is what was found in the files of all archives.
type Checked struct {
	Archives                  int
	Entries, Transfers, Holds int64
	Bytes                     int64 // compressed
}

// Check reads the archives' files in a directory. It compares them with their hashes, adds the entries up by account, compares the sums with those in the
// database, with which its history begins, and holds the entries against the transfers. It returns a [Damaged] error for the first file that is not
// what was written, and another error for sums that do not agree. progress may be nil.
func Check(ctx context.Context, pool *pgxpool.Pool, directory string, progress func(Progress)) (c Checked, err error) {
	all, err := records(ctx, pool, `detached_at IS NOT NULL`)
	if err != nil {
		return c, err
	}
	var moved moves
	for i := range all {
		r := &all[i]
		found := books{}
		for _, f := range r.Files {
			if progress != nil {
				progress(Progress{Archive: r.Number, Upto: partitions.Time(r.Upto), Doing: "reading " + f.Name})
			}
			if err := f.sum(ctx, filepath.Join(directory, r.name()), unpaced, found, &moved); err != nil {
				return c, err
			}
			c.Bytes += f.Bytes
			switch f.Table {
			case partitions.Entries:
				c.Entries += f.Rows
			case partitions.Transfers:
				c.Transfers += f.Rows
			case partitions.ClosedHolds:
				c.Holds += f.Rows
			}
		}
		if err := r.agrees(ctx, pool, found); err != nil {
			return c, err
		}
		c.Archives++
	}
	if c.Archives > 0 {
		// Of the last transfers in the files, entries and holds may be in the tables.
		if err := moved.addLater(ctx, pool, all[len(all)-1]); err != nil {
			return c, err
		}
		switch {
		case moved.entries != 0:
			return c, errors.New("the entries in the files are not what their transfers say")
		case moved.captures != 0:
			return c, errors.New("the captured holds in the files are not what their transfers say")
		}
	}
	return c, nil
}

// sum reads a file, and adds what its rows say to the sums.
func (f File) sum(ctx context.Context, directory string, pace func() error, found books, moved *moves) error {
	switch f.Table {
	case partitions.Entries:
		return f.read(ctx, directory, []string{"account", "version", "transfer", "amount", "currency"}, pace, func(row []string) error {
			amount, ok := new(big.Int).SetString(row[3], 10)
			if !ok {
				return fmt.Errorf("amount %q", row[3])
			}
			p := place{Account: row[0], Currency: row[4]}
			if row[1] == "0" {
				p.Side = int16(amount.Sign()) //nolint:gosec // One of three.
			}
			found.add(p, amount)
			return moved.entries.add(row[2], row[0], row[3], row[4], -1)
		})
	case partitions.Transfers:
		return f.read(ctx, directory, []string{"id", "source", "destination", "amount", "currency", "status", "kind"}, pace, func(row []string) error {
			if row[5] != "completed" {
				return nil
			}
			err := errors.Join(moved.entries.add(row[0], row[1], "-"+row[3], row[4], 1), moved.entries.add(row[0], row[2], row[3], row[4], 1))
			if row[6] == "capture" {
				err = errors.Join(err, moved.captures.add(row[0], row[1], row[3], "", 1))
			}
			return err
		})
	case partitions.ClosedHolds:
		return f.read(ctx, directory, []string{"status", "transfer", "account", "captured"}, pace, func(row []string) error {
			switch row[0] {
			case "captured":
				return moved.captures.add(row[1], row[2], row[3], "", -1)
			case "open":
				return errors.New("the hold is open")
			}
			return nil
		})
	}
	return f.read(ctx, directory, nil, pace, func([]string) error { return nil })
}

// agrees compares sums with those in the database.
func (r *record) agrees(ctx context.Context, q partitions.Querier, found books) error {
	rows, err := q.Query(ctx, selectSums, r.Number)
	if err != nil {
		return err
	}
	stored := books{}
	var p place
	var text string
	if _, err := pgx.ForEachRow(rows, []any{&p.Account, &p.Currency, &p.Side, &text}, func() error {
		amount, ok := new(big.Int).SetString(text, 10)
		if !ok {
			return fmt.Errorf("the sum of %s is %q", p.Account, text)
		}
		stored.add(p, amount)
		return nil
	}); err != nil {
		return err
	}
	if what, differs := found.differs(stored); differs {
		return fmt.Errorf("archive %d: %s", r.Number, what)
	}
	return nil
}

// addLater adds what is in the tables of transfers in the files: entries that were written within moments of the archive's end, and the captured holds that
// were not archived with their transfers.
func (m *moves) addLater(ctx context.Context, pool *pgxpool.Pool, last record) error {
	const (
		laterEntries  = `SELECT transfer::text, account, amount::text, currency FROM entries WHERE transfer < $1 AND id >= $1`
		laterCaptures = `SELECT transfer::text, account, captured::text, '' FROM holds WHERE status = 'captured' AND transfer < $1`
	)
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, freely); err != nil {
			return err
		}
		for _, later := range []struct {
			sql string
			of  *sides
		}{{laterEntries, &m.entries}, {laterCaptures, &m.captures}} {
			rows, err := tx.Query(ctx, later.sql, last.Upto)
			if err != nil {
				return err
			}
			var transfer, account, amount, currency string
			if _, err = pgx.ForEachRow(rows, []any{&transfer, &account, &amount, &currency}, func() error {
				return later.of.add(transfer, account, amount, currency, -1)
			}); err != nil {
				return err
			}
		}
		return nil
	})
}
