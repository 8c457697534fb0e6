package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
)

const (
	selectBooks = `SELECT id, currency, available, held, version FROM accounts ORDER BY id`
	lastClosing = `SELECT seq, settled, sums, greatest(at, $1) FROM log_closings ORDER BY seq DESC LIMIT 1`
	// Accounts of the outside and of transit have entries and no rows. Their names are found one after the other, by the index.
	outsideAccounts = `WITH RECURSIVE names AS (
			(SELECT account FROM entries WHERE account >= $1 AND account < $2 ORDER BY account LIMIT 1)
			UNION ALL SELECT (SELECT e.account FROM entries AS e WHERE e.account > n.account AND e.account < $2 ORDER BY e.account LIMIT 1)
				FROM names AS n WHERE n.account IS NOT NULL
		) SELECT account FROM names WHERE account IS NOT NULL`
	// sumSince sums entries after one, and those of them that are up to another. The version of such entries is zero.
	sumSince = `SELECT n.account, e.currency, sum(-e.amount)::text, coalesce(sum(-e.amount) FILTER (WHERE e.id <= $3), 0)::text
		FROM unnest($1::text[]) AS n (account), LATERAL (SELECT currency, amount, id FROM entries WHERE account = n.account AND version = 0 AND id > $2 OFFSET 0) AS e
		GROUP BY n.account, e.currency`
	// archivedOutside sums the archived ones.
	archivedOutside = `SELECT account, currency, sum(-amount)::text, sum(-amount)::text FROM brought_forward WHERE account >= $1 AND account < $2 GROUP BY account, currency`

	saveClosing = `INSERT INTO log_closings (seq, at, index, accounts, root, chunks, settled, sums, kept) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, true)`
	saveChunks  = `INSERT INTO log_closing_accounts (closing, chunk, first, data)
		SELECT $1, ordinality - 1, first, data FROM unnest($2::text[], $3::bytea[]) WITH ORDINALITY AS u (first, data, ordinality)`
	keptClosings = `SELECT seq, at FROM log_closings WHERE kept ORDER BY at DESC`
	dropClosings = `UPDATE log_closings SET kept = false WHERE seq = ANY ($1)`
	dropChunks   = `DELETE FROM log_closing_accounts WHERE closing = ANY ($1)`
	selectKept   = `SELECT seq, index, at, accounts, root, chunks FROM log_closings WHERE kept AND at <= $1 AND index < $2
		ORDER BY at DESC LIMIT 1`
	selectChunk = `SELECT chunk, data FROM log_closing_accounts WHERE closing = $1 AND first <= $2 ORDER BY first DESC LIMIT 1`
)

// settledAfter is how old an entry is that no transaction can have written under a smaller id and not committed yet. Ids are made by the
// clocks of servers, so this is no proof: where the sums don't agree, all entries are added up.
const settledAfter = 10 * time.Minute

// outsideSums are the money that came from outside, and from other ledgers, by currency.
type outsideSums map[string]*outsideSum

type outsideSum struct{ Outside, Transit *big.Int }

func (s outsideSums) of(currency string) *outsideSum {
	if s[currency] == nil {
		s[currency] = &outsideSum{new(big.Int), new(big.Int)}
	}
	return s[currency]
}

func (s outsideSums) clone() outsideSums {
	c := outsideSums{}
	for currency, sum := range s {
		c[currency] = &outsideSum{new(big.Int).Set(sum.Outside), new(big.Int).Set(sum.Transit)}
	}
	return c
}

// CloseBooks implements [logkeeper.Store].
func (l *Log) CloseBooks(ctx context.Context, name logkeeper.Names) (closing *logkeeper.Closing, err error) {
	err = l.db.reads.snapshot(ctx, "books", scanTimeout, func(ctx context.Context, tx pgx.Tx) error {
		closing, err = closeBooks(ctx, tx, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: close the books: %w", err)
	}
	return closing, nil
}

func closeBooks(ctx context.Context, tx pgx.Tx, name logkeeper.Names) (*logkeeper.Closing, error) {
	if _, err := tx.Exec(ctx, scanFreely); err != nil {
		return nil, err
	}
	var at time.Time
	if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&at); err != nil {
		return nil, err
	}
	var (
		seq     = int64(-1)
		since   uuid.UUID
		stored  string
		settled = outsideSums{}
	)
	switch err := tx.QueryRow(ctx, lastClosing, at).Scan(&seq, &since, &stored, &at); { // A clock that was set back stands still.
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal([]byte(stored), &settled); err != nil {
			return nil, err
		}
	}
	rows, err := tx.Query(ctx, selectBooks)
	if err != nil {
		return nil, err
	}
	c := logkeeper.NewCloser(name)
	var a logkeeper.Account
	if _, err := pgx.ForEachRow(rows, []any{&a.ID, &a.Currency, &a.Available, &a.Held, &a.Version}, func() error { return c.Add(a) }); err != nil {
		return nil, err
	}
	upto := uuidAt(at.Add(-settledAfter))
	if string(upto[:]) < string(since[:]) {
		upto = since
	}
	now, settled, err := addOutside(ctx, tx, settled, since, upto)
	if err != nil {
		return nil, err
	}
	if !balanced(c, now) && since != (uuid.UUID{}) {
		// An entry may have come late, under an id that was passed already.
		if now, settled, err = addOutside(ctx, tx, outsideSums{}, uuid.UUID{}, upto); err != nil {
			return nil, err
		}
	}
	for currency, s := range now {
		c.Outside(currency, s.Outside, s.Transit)
	}
	closing := c.Close()
	closing.Seq, closing.At, closing.Settled = seq+1, at, upto
	closing.Stored, err = json.Marshal(settled)
	return closing, err
}

// balanced reports whether the accounts so far have what came in.
func balanced(c *logkeeper.Closer, now outsideSums) bool {
	for currency, s := range now {
		c.Outside(currency, s.Outside, s.Transit)
	}
	return c.Balanced()
}

// addOutside adds up what came in after an entry, to what had come before; after none, what was archived, too. It returns the sums of now and those up to another entry.
func addOutside(ctx context.Context, tx pgx.Tx, before outsideSums, since, upto uuid.UUID) (now, settled outsideSums, err error) {
	now, settled = before.clone(), before.clone()
	for _, kind := range []struct {
		from, to string
		of       func(*outsideSum) *big.Int
	}{
		{"outside/", "outside0", func(s *outsideSum) *big.Int { return s.Outside }},
		{"transit/", "transit0", func(s *outsideSum) *big.Int { return s.Transit }},
	} {
		found, err := tx.Query(ctx, outsideAccounts, kind.from, kind.to)
		if err != nil {
			return nil, nil, err
		}
		accounts, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil {
			return nil, nil, err
		}
		add := func(sql string, args ...any) error {
			rows, err := tx.Query(ctx, sql, args...)
			if err != nil {
				return err
			}
			var account, currency, total, old string
			_, err = pgx.ForEachRow(rows, []any{&account, &currency, &total, &old}, func() error {
				for text, sums := range map[*string]outsideSums{&total: now, &old: settled} {
					n, ok := new(big.Int).SetString(*text, 10)
					if !ok {
						return fmt.Errorf("a sum of %s is %q", account, *text)
					}
					sum := kind.of(sums.of(currency))
					sum.Add(sum, n)
				}
				return nil
			})
			return err
		}
		err = add(sumSince, accounts, since, upto)
		if err == nil && since == uuid.Nil {
			err = add(archivedOutside, kind.from, kind.to)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return now, settled, nil
}

// uuidAt is the greatest UUIDv7 of a millisecond.
func uuidAt(at time.Time) uuid.UUID {
	id := partitions.At(at)
	for i := 6; i < len(id); i++ {
		id[i] = 0xff
	}
	return id
}

// closingWrites are the statements that write a closing.
func closingWrites(c *logkeeper.Closing) []logWrite {
	roots := make([]byte, 0, len(c.Roots)*tlog.HashSize)
	for _, r := range c.Roots {
		roots = append(roots, r[:]...)
	}
	firsts, data := make([]string, len(c.Chunks)), make([][]byte, len(c.Chunks))
	for i, chunk := range c.Chunks {
		firsts[i], data[i] = chunk.First, chunk.Data
	}
	return []logWrite{
		{saveClosing, []any{c.Seq, c.At, c.Index, c.Accounts, c.Root[:], roots, c.Settled, string(c.Stored)}},
		{saveChunks, []any{c.Seq, firsts, data}},
	}
}

// Kept implements [logkeeper.Store].
func (l *Log) Kept(ctx context.Context) ([]logkeeper.Kept, error) {
	return query(ctx, l.db, pgx.RowToStructByPos[logkeeper.Kept], keptClosings)
}

// Drop implements [logkeeper.Store].
func (l *Log) Drop(ctx context.Context, closings []int64) error {
	return l.db.run(ctx, "log.drop", func(ctx context.Context, tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(dropClosings, closings)
		b.Queue(dropChunks, closings)
		return pgkit.Send(ctx, tx, &b)
	})
}
