package archive

import (
	"context"
	"fmt"
	"math/big"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
)

const selectSums = `SELECT account, currency, side, amount::text FROM archive_sums WHERE archive = $1`

// Checked is what was found in the files of all archives.
type Checked struct {
	Archives           int
	Entries, Transfers int64
	Bytes              int64 // compressed
}

// Check reads the archives' files in a directory. It compares them with their hashes, adds the entries up by account, compares the sums with those in the
// database, with which its history begins, and holds the entries against the transfers. It returns a [Damaged] error for the first file that is not
// what was written, and another error for sums that do not agree. progress may be nil.
func Check(ctx context.Context, pool *pgxpool.Pool, directory string, progress func(Progress)) (c Checked, err error) {
	all, err := records(ctx, pool, `detached_at IS NOT NULL`)
	if err != nil {
		return c, err
	}
	var moved sides
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
			}
		}
		if err := r.agrees(ctx, pool, found); err != nil {
			return c, err
		}
		c.Archives++
	}
	if c.Archives > 0 {
		// Of the last transfers in the files, entries may be in the tables.
		later, err := laterSides(ctx, pool, all[len(all)-1])
		if err != nil {
			return c, err
		}
		if moved += later; moved != 0 {
			return c, fmt.Errorf("the entries in the files are not what their transfers say")
		}
	}
	return c, nil
}

// sum reads a file, and adds what its rows say to the sums.
func (f File) sum(ctx context.Context, directory string, pace func() error, found books, moved *sides) error {
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
			return moved.add(row[2], row[0], row[3], row[4], -1)
		})
	case partitions.Transfers:
		return f.read(ctx, directory, []string{"id", "source", "destination", "amount", "currency", "status"}, pace, func(row []string) error {
			if row[5] != "completed" {
				return nil
			}
			if err := moved.add(row[0], row[1], "-"+row[3], row[4], 1); err != nil {
				return err
			}
			return moved.add(row[0], row[2], row[3], row[4], 1)
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

// laterSides are the entries in the tables of transfers in the files. They were written within moments of the archive's end.
func laterSides(ctx context.Context, q partitions.Querier, last record) (s sides, err error) {
	const selectLater = `SELECT transfer::text, account, amount::text, currency FROM entries WHERE transfer < $1 AND id >= $1`
	rows, err := q.Query(ctx, selectLater, last.Upto)
	if err != nil {
		return 0, err
	}
	var transfer, account, amount, currency string
	_, err = pgx.ForEachRow(rows, []any{&transfer, &account, &amount, &currency}, func() error {
		return s.add(strings.ToLower(transfer), account, amount, currency, -1)
	})
	return s, err
}
