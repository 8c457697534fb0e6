package archive

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
)

const selectSums = `SELECT account, currency, side, amount::text FROM archive_sums WHERE archive = $1`

// Checked is what was found in the files of all archives.
type Checked struct {
	Archives                  int
	Entries, Transfers, Holds int64
	Purchases, Campaigns      int64 // campaigns that have sold something
	Bytes                     int64 // compressed
}

// Check reads the archives' files in a directory. It compares them with their hashes, and the manifests with what the database has of them, adds the entries up by account, compares the sums with those in the
// database, with which its history begins, holds the entries against the transfers, and makes the roots of the draws of the purchases. It returns a
// [Damaged] error for the first file that is not what was written, and another error for what does not agree. progress may be nil.
//
// Another process may make an archive meanwhile, which takes rows out of the tables. Where one has, Check compares again before it reports a difference.
func Check(ctx context.Context, pool *pgxpool.Pool, directory string, progress func(Progress)) (c Checked, err error) {
	if _, err := os.ReadDir(directory); err != nil {
		return c, fmt.Errorf("archive: the directory of the archives: %w", err)
	}
	all, err := left(ctx, pool)
	for err == nil {
		if c, err = check(ctx, pool, directory, all, progress); err == nil {
			return c, nil
		}
		now, failed := left(ctx, pool)
		if failed != nil || len(now) == len(all) {
			return c, err
		}
		all, err = now, nil
	}
	return c, err
}

// left returns the archives whose rows have left the tables.
func left(ctx context.Context, q partitions.Querier) ([]record, error) {
	return records(ctx, q, `detached_at IS NOT NULL`)
}

// check is [Check] of these archives, while there are no further ones.
func check(ctx context.Context, pool *pgxpool.Pool, directory string, all []record, progress func(Progress)) (c Checked, err error) {
	if len(all) == 0 {
		return c, nil
	}
	last := all[len(all)-1].Upto
	found := contents{sales: &sales{q: pool}, upto: last}
	for i := range all {
		r := &all[i]
		found.books = books{}
		if err := r.checkManifest(filepath.Join(directory, r.name())); err != nil {
			return c, err
		}
		for _, f := range r.Files {
			if progress != nil {
				progress(Progress{Archive: r.Number, Upto: partitions.Time(r.Upto), Doing: "reading " + f.Name})
			}
			if err := f.sum(ctx, filepath.Join(directory, r.name()), unpaced, &found); err != nil {
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
			case partitions.Purchases:
				c.Purchases += f.Rows
			}
		}
		if err := r.agrees(ctx, pool, found.books); err != nil {
			return c, err
		}
		c.Archives++
	}
	c.Campaigns = found.sales.campaigns
	// Of the last transfers in the files, entries, holds and purchases may be in the tables, and of purchases in the files the transfers.
	if err := errors.Join(found.paid(ctx), found.addLater(ctx, pool, last)); err != nil {
		return c, err
	}
	switch {
	case found.entries != 0:
		return c, errors.New("the entries in the files are not what their transfers say")
	case found.captures != 0:
		return c, errors.New("the captured holds in the files are not what their transfers say")
	case found.payments != 0:
		return c, errors.New("the purchases in the files are not what their transfers say")
	case found.refunds != 0:
		return c, errors.New("the purchases of cancelled campaigns in the files are not what was refunded")
	}
	return c, nil
}

// contents are what was found in files.
type contents struct {
	books
	moves

	sales *sales
	upto  uuid.UUID   // transfers from here on are in the tables
	later []uuid.UUID // such transfers, of purchases in the files
}

// sum reads a file, and adds what its rows say to the sums.
func (f File) sum(ctx context.Context, directory string, pace func() error, found *contents) error {
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
			found.books.add(p, amount) //nolint:staticcheck // Sides have an add, too.
			return found.entries.add(row[2], row[0], row[3], row[4], -1)
		})
	case partitions.Transfers:
		return f.read(ctx, directory, []string{"id", "source", "destination", "amount", "currency", "status", "kind"}, pace, func(row []string) error {
			if row[5] != "completed" {
				return nil
			}
			err := errors.Join(found.entries.add(row[0], row[1], "-"+row[3], row[4], 1), found.entries.add(row[0], row[2], row[3], row[4], 1))
			switch row[6] {
			case "capture":
				err = errors.Join(err, found.captures.add(row[0], row[1], row[3], "", 1))
			case "purchase":
				err = errors.Join(err, found.payments.add(row[0], row[1], row[3], row[2], 1))
			case "refund":
				err = errors.Join(err, found.refunds.addTimes(row[1], row[2], row[3], 1))
			}
			return err
		})
	case partitions.ClosedHolds:
		return f.read(ctx, directory, []string{"status", "transfer", "account", "captured"}, pace, func(row []string) error {
			switch row[0] {
			case "captured":
				return found.captures.add(row[1], row[2], row[3], "", -1)
			case "open":
				return errors.New("the hold is open")
			}
			return nil
		})
	case partitions.Purchases:
		err := f.read(ctx, directory, saleColumns(), pace, func(row []string) error { return found.addSale(ctx, row) })
		if err == nil {
			err = found.sales.end(ctx, f.Upto)
		}
		return err
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

// addLater adds what is in the tables of transfers in the files: entries that were written within moments of the archive's end, and the captured holds and
// the purchases that were not archived with their transfers. Of cancelled campaigns it adds all refunds and purchases that are in the tables.
func (m *moves) addLater(ctx context.Context, pool *pgxpool.Pool, upto uuid.UUID) error {
	const (
		laterEntries  = `SELECT transfer::text, account, amount::text, currency FROM entries WHERE transfer < $1 AND id >= $1`
		laterCaptures = `SELECT transfer::text, account, captured::text, '' FROM holds WHERE status = 'captured' AND transfer < $1`
		laterSales    = `SELECT p.transfer::text, p.account, p.price::text, c.escrow FROM purchases AS p JOIN campaigns AS c ON c.id = p.campaign WHERE p.transfer < $1`
		laterRefunds  = `SELECT c.escrow, t.destination, t.amount::text, '' FROM campaigns AS c JOIN entries AS e ON e.account = c.escrow AND e.amount < 0
			JOIN transfers AS t ON t.id = e.transfer WHERE c.status = 'cancelled' AND t.kind = 'refund' AND t.id >= $1`
		laterRefunded = `SELECT c.escrow, p.account, p.price::text, '' FROM campaigns AS c JOIN purchases AS p ON p.campaign = c.id WHERE c.status = 'cancelled' AND $1::uuid IS NOT NULL`
	)
	times := func(sign int) func(a, b, amount, _ string) error {
		return func(a, b, amount, _ string) error { return m.refunds.addTimes(a, b, amount, sign) }
	}
	of := func(s *sides) func(a, b, amount, c string) error {
		return func(a, b, amount, c string) error { return s.add(a, b, amount, c, -1) }
	}
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, freely); err != nil {
			return err
		}
		for _, later := range []struct {
			sql string
			add func(a, b, amount, c string) error
		}{
			{laterEntries, of(&m.entries)},
			{laterCaptures, of(&m.captures)},
			{laterSales, of(&m.payments)},
			{laterRefunds, times(1)},
			{laterRefunded, times(-1)},
		} {
			rows, err := tx.Query(ctx, later.sql, upto)
			if err != nil {
				return err
			}
			var first, second, amount, third string
			if _, err = pgx.ForEachRow(rows, []any{&first, &second, &amount, &third}, func() error { return later.add(first, second, amount, third) }); err != nil {
				return err
			}
		}
		return nil
	})
}
