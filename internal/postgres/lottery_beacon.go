package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

const (
	insertBeacon = `INSERT INTO campaign_beacons (campaign, chain) VALUES ($1, $2)`

	beaconFields = `chain, root, round, sealed_at, due_at, attempts, failure, early,
		coalesce((SELECT witnesses FROM log_seals AS l WHERE l.campaign = campaign_beacons.campaign), 0),
		coalesce(due_at <= clock_timestamp(), false), coalesce(due_at + $2::interval < clock_timestamp(), false)`
	selectBeacon = `SELECT ` + beaconFields + ` FROM campaign_beacons WHERE campaign = $1`

	// A seal is written once: the guard holds even where the campaign's lock did not.
	sealBeacon = `UPDATE campaign_beacons SET root = $2, round = $3, sealed_at = $4, due_at = $5, next_attempt_at = $4
		WHERE campaign = $1 AND round IS NULL`

	// The one result, and only that of the sealed root and the named round. With it, nobody asks for the round any more.
	insertBeaconDraw = `INSERT INTO draws (campaign, root, winners, completed_at, beacon, beacon_previous, beacon_round)
		SELECT campaign, root, $3, $4, $5, nullif($6, ''::bytea), round FROM campaign_beacons
		WHERE campaign = $1 AND root = $2 AND round = $7`
	endWaiting = `UPDATE campaign_beacons SET next_attempt_at = NULL WHERE campaign = $1 AND next_attempt_at IS NOT NULL`

	// Each attempt books the next one before it is made, so that a process that dies delays no longer than that. The
	// first is made at once, before the round is due; those after that take twice as long as the one before, up to a
	// minute, with some chance, so that many campaigns do not come back together. One that is booked for later than that was
	// booked by a clock that was ahead, and is made at once.
	claimRounds = `UPDATE campaign_beacons AS b SET
			attempts = CASE WHEN due_at > clock_timestamp() THEN 0 ELSE attempts + 1 END,
			next_attempt_at = CASE WHEN due_at > clock_timestamp() THEN due_at + interval '500 ms'
				ELSE clock_timestamp() + least(60, power(2, least(attempts, 6))) * (0.8 + 0.4 * random()) * interval '1 s' END
		WHERE campaign IN (SELECT campaign FROM campaign_beacons WHERE next_attempt_at <= clock_timestamp()
				OR next_attempt_at > greatest(due_at, clock_timestamp()) + interval '72 s'
			ORDER BY next_attempt_at LIMIT $1 FOR UPDATE SKIP LOCKED)
		RETURNING campaign, chain, root, round, sealed_at, due_at, attempts, due_at > clock_timestamp()`
	noteMissed = `UPDATE campaign_beacons SET failure = $2 WHERE campaign = $1 AND next_attempt_at IS NOT NULL`
	// A second is nobody's advantage: the round is named one period before it is due.
	noteEarly = `UPDATE campaign_beacons SET early = true WHERE campaign = $1 AND due_at > clock_timestamp() + interval '1 s'`

	countWaiting = `SELECT count(*)::integer, coalesce(greatest(extract(epoch FROM clock_timestamp() - min(due_at)), 0), 0)::float8
		FROM campaign_beacons WHERE next_attempt_at IS NOT NULL`
)

// errNoBeacon is what a campaign in beacon mode without its beacon is: a contradiction.
var errNoBeacon = errors.New("a campaign in beacon mode has no beacon")

// loadBeacon reads what a campaign in beacon mode knows of its round, and nothing for others, which it costs nothing.
func loadBeacon(ctx context.Context, tx pgx.Tx, c *lottery.Campaign) error {
	if c.DrawMode != lottery.DrawBeacon {
		return nil
	}
	rows, err := tx.Query(ctx, selectBeacon, c.ID, lottery.DelayedAfter)
	if err != nil {
		return err
	}
	b, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (b lottery.Beacon, err error) {
		var s sealRow
		err = row.Scan(fromJSON{&b.Chain}, &s.root, &s.round, &s.sealedAt, &s.dueAt, &b.Attempts, &b.Failure, &b.Early, &b.Seen, &b.Due, &b.Delayed)
		if err == nil {
			err = s.read(&b)
		}
		return b, err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return errNoBeacon
	}
	c.Beacon = &b
	return err
}

// sealRow is the seal as the database keeps it.
type sealRow struct {
	root            digest
	round           *uint64
	sealedAt, dueAt *time.Time
}

func (s *sealRow) read(b *lottery.Beacon) error {
	if err := b.Chain.Validate(); err != nil {
		return fmt.Errorf("a campaign's chain: %w", err)
	}
	if s.round != nil {
		b.Seal = &lottery.Seal{Root: s.root, Round: *s.round, SealedAt: *s.sealedAt, DueAt: *s.dueAt}
	}
	return nil
}

// saveNewBeacon writes the chain of a new campaign in beacon mode.
func saveNewBeacon(b *pgx.Batch, c *lottery.Campaign) error {
	if c.Beacon == nil {
		return nil
	}
	chain, err := json.Marshal(c.Beacon.Chain)
	if err != nil {
		return err
	}
	expectRows(b.Queue(insertBeacon, c.ID, string(chain)), 1, errLostRow)
	return nil
}

// saveSeal writes the durable intent to draw.
func saveSeal(b *pgx.Batch, c *lottery.Campaign) {
	s := c.Beacon.Seal
	expectRows(b.Queue(sealBeacon, c.ID, s.Root[:], s.Round, s.SealedAt, s.DueAt), 1, errLostRow)
}

// saveBeaconDraw writes the result of a round.
func saveBeaconDraw(b *pgx.Batch, d *lottery.Draw, winners string) {
	expectRows(b.Queue(insertBeaconDraw, d.Campaign, d.Root[:], winners, d.CompletedAt, d.Round.Signature, d.Round.Previous,
		d.Round.Number), 1, errLostRow)
	expectRows(b.Queue(endWaiting, d.Campaign), 1, errLostRow)
}

// scanResult reads a draw with its round.
func scanResult(row pgx.CollectableRow) (d lottery.Draw, err error) {
	var (
		signature, previous []byte
		round               *uint64
	)
	err = row.Scan(&d.Campaign, (*digest)(&d.Root), fromJSON{&d.Winners}, &d.CompletedAt, &signature, &previous, &round)
	if round != nil {
		d.Round = &fairdraw.Round{Number: *round, Signature: signature, Previous: previous}
	}
	return d, err
}

// ClaimRounds implements [lottery.Store].
func (l *Lottery) ClaimRounds(ctx context.Context, limit int) ([]lottery.Wait, error) {
	return query(ctx, l.db, func(row pgx.CollectableRow) (w lottery.Wait, err error) {
		var s sealRow
		b := new(lottery.Beacon)
		w.Campaign = lottery.Campaign{DrawMode: lottery.DrawBeacon, Beacon: b}
		if err = row.Scan(&w.Campaign.ID, fromJSON{&b.Chain}, &s.root, &s.round, &s.sealedAt, &s.dueAt, &b.Attempts, &w.Early); err == nil {
			err = s.read(b)
		}
		return w, err
	}, claimRounds, limit)
}

// RoundMissed implements [lottery.Store].
func (l *Lottery) RoundMissed(ctx context.Context, campaign uuid.UUID, failure string) error {
	return l.db.run(ctx, "lottery.round", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, noteMissed, campaign, failure) // None where another process has drawn in the meantime.
		return err
	})
}

// RoundEarly implements [lottery.Store].
func (l *Lottery) RoundEarly(ctx context.Context, campaign uuid.UUID) (early bool, err error) {
	err = l.db.run(ctx, "lottery.round", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, noteEarly, campaign)
		early = tag.RowsAffected() == 1
		return err
	})
	return early, err
}
