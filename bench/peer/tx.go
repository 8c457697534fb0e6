package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxAttempts is how often a transaction that lost to another one is run in all.
const maxAttempts = 5

// session is one transaction on one connection. Its statements are queued and then run, either each in a round trip
// of its own or all queued ones in one. pgx prepares each distinct statement once a connection.
type session struct {
	conn      *pgxpool.Conn
	pipelined bool
	batch     pgx.Batch
}

// exec queues a statement without a result.
func (s *session) exec(sql string, args ...any) { s.batch.Queue(sql, args...) }

// execRows queues a statement that must change exactly n rows. It is an assertion, not a guard: the rows were read under
// locks that the transaction holds, and a pipelined commit may have been sent behind it already.
func (s *session) execRows(n int64, sql string, args ...any) {
	s.batch.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != n {
			return fmt.Errorf("%d rows changed, not %d", tag.RowsAffected(), n)
		}
		return nil
	})
}

// row queues a query of at most one row; found tells whether there was one.
func (s *session) row(found *bool, sql string, args []any, dest ...any) {
	s.batch.Queue(sql, args...).QueryRow(func(row pgx.Row) error {
		err := row.Scan(dest...)
		*found = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
}

// query queues a query of any number of rows.
func (s *session) query(scan func(pgx.Rows) error, sql string, args ...any) {
	s.batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// run sends what is queued and waits for all of its results.
func (s *session) run(ctx context.Context) error {
	queued := s.batch
	s.batch = pgx.Batch{}
	if s.pipelined {
		return s.conn.SendBatch(ctx, &queued).Close()
	}
	for _, q := range queued.QueuedQueries {
		if err := s.conn.SendBatch(ctx, &pgx.Batch{QueuedQueries: []*pgx.QueuedQuery{q}}).Close(); err != nil {
			return err
		}
	}
	return nil
}

// inTransaction runs body on a connection of the pool and again when it lost a race (serialization failure, deadlock,
// or another request having stored the same key first). The body queues "begin" and "commit" itself.
func inTransaction(ctx context.Context, pool *pgxpool.Pool, pipelined bool, body func(*session) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire a connection: %w", err)
	}
	defer conn.Release()
	for attempt := 1; ; attempt++ {
		err := body(&session{conn: conn, pipelined: pipelined})
		if err == nil {
			return nil
		}
		if conn.Conn().PgConn().TxStatus() != 'I' {
			if _, rollbackErr := conn.Exec(ctx, "rollback"); rollbackErr != nil {
				return errors.Join(err, rollbackErr)
			}
		}
		if attempt == maxAttempts || !lostRace(err) {
			return err
		}
		select {
		case <-time.After(time.Duration(attempt) * 2 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func lostRace(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	switch pgErr.Code {
	case "40001", "40P01":
		return true
	case "23505":
		return pgErr.ConstraintName == "idempotency_keys_pkey"
	}
	return false
}
