package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/archive"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// ExtendHistory makes the next partitions of the history's tables when the last ones end soon, turns the table of holds, and makes an index that is missing. Tables that were in use for long
// when the schema was brought up to date are put into partitions now. It returns how many parts of tables it has made.
func (db *DB) ExtendHistory(ctx context.Context) (made int, err error) {
	if !db.engine.Has(pgkit.Partitions) {
		return 0, nil
	}
	var now time.Time
	if err = db.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err == nil {
		converted := partitions.Convert(ctx, db.pool, now)
		if converted != nil && db.observer != nil {
			db.observer.Fallback("history", "in_one_piece")
		}
		extended, failed := partitions.Extend(ctx, db.pool, now)
		turned, unturned := partitions.TurnHolds(ctx, db.pool, now)
		made, err = extended+turned, errors.Join(converted, failed, unturned, indexHistory(ctx, db))
	}
	if err != nil {
		err = fmt.Errorf("postgres: extend the history: %w", readError(err))
	}
	return made, err
}

// Where what is in the tables begins.
const (
	selectArchived      = `SELECT upto FROM archived`
	selectArchivedSales = `SELECT upto FROM archived_sales`
)

// archived returns up to when the history was archived, where an id is of before that, and the zero time elsewhere. It is asked after the row was found to
// be missing: what leaves a table has left it for earlier snapshots, too.
func (db *DB) archived(ctx context.Context, upto string, id uuid.UUID) (time.Time, error) {
	first, err := queryOne(ctx, db.reads, errEmpty, pgx.RowTo[uuid.UUID], upto)
	if err != nil || bytes.Compare(id[:], first[:]) >= 0 {
		return time.Time{}, err
	}
	return partitions.Time(first), nil
}

// unlessArchived returns what was read of a campaign's sales. Where nothing was and they are archived, it returns [lottery.SalesNotFoundError].
func unlessArchived[T any](ctx context.Context, db *DB, campaign uuid.UUID, found []T, err error) ([]T, error) {
	if err != nil || len(found) > 0 {
		return found, err
	}
	at, err := db.archived(ctx, selectArchivedSales, campaign)
	if err == nil && !at.IsZero() {
		err = &lottery.SalesNotFoundError{Campaign: campaign, Archived: at}
	}
	return found, err
}

// Archive is [archive.Run] on this database.
func (db *DB) Archive(ctx context.Context, o archive.Options) (archive.Result, error) {
	return archive.Run(ctx, db.pool, o)
}

// CheckArchives is [archive.Check] on this database. difference is what the files, or what is missing of them, disagree in.
func (db *DB) CheckArchives(ctx context.Context, directory string, progress func(archive.Progress)) (c archive.Checked, difference string, err error) {
	c, err = archive.Check(ctx, db.pool, directory, progress)
	if err == nil {
		return c, "", nil
	}
	_, absent := os.Stat(directory)
	_, damaged := errors.AsType[*archive.Damaged](err)
	_, unread := errors.AsType[*fs.PathError](err)
	verdict, _ := pgkit.Classify(err)
	gone := absent == nil && errors.Is(err, fs.ErrNotExist) // a file of it
	if damaged || gone || !unread && verdict != pgkit.Lost && contradicts(ctx, err) {
		return c, err.Error(), nil
	}
	return c, "", err
}

// archivedSales reads a campaign whose purchases are archived.
type archivedSales struct {
	lottery.Reader

	owners []string // by ordinal
}

// Owners implements [lottery.Reader].
func (s archivedSales) Owners(_ context.Context, _ uuid.UUID, from, to int) ([]string, error) {
	return s.owners[from:to], nil
}

// WriteArchivedProof writes the document from which anyone recomputes the draw of a campaign whose purchases are archived in a directory, as a server did
// before. It returns [archive.ErrNotArchived], [archive.Damaged], [lottery.ErrNotDrawn] and [lottery.CampaignNotFoundError], and an error where the
// purchases are not those of which the draw was made.
func (db *DB) WriteArchivedProof(ctx context.Context, directory string, campaign uuid.UUID, w io.Writer) error {
	sales := archivedSales{Reader: NewLottery(db)}
	c, err := sales.Campaign(ctx, campaign)
	if err != nil {
		return err
	}
	draw, _, err := sales.Result(ctx, campaign)
	if err != nil {
		return err
	}
	if sales.owners, err = archive.Owners(ctx, db.pool, directory, c); err != nil {
		return fmt.Errorf("campaign %s: %w", campaign, err)
	}
	root, err := fairdraw.Root(campaign.String(), lottery.SealedPositions(c, sales.owners))
	if err != nil || root != draw.Root {
		return errors.Join(err, fmt.Errorf("campaign %s was drawn from the root %x, and its archived purchases have the root %x", campaign, draw.Root, root))
	}
	carried, err := logkeeper.CarriedSeal(ctx, NewLogReader(db), campaign)
	if err != nil {
		return err
	}
	return lottery.WriteProof(ctx, sales, c, carried, w)
}
