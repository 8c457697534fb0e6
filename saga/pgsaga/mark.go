package pgsaga

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/saga"
)

const (
	claimMark = `INSERT INTO @saga_marks (saga, step, outcome, reason, result, at) VALUES ($1, $2, $3, $4, '', clock_timestamp())
		ON CONFLICT (saga, step) DO NOTHING`
	// setOwn marks a transaction as one that this package has begun. The setting ends with it, however that ends. A branch's mark,
	// which proves that the branch was committed, is written nowhere else: not in a transaction that came after it, nor outside of any.
	setOwn     = `SET LOCAL fairlead.saga = 'own'`
	branchMark = `INSERT INTO @saga_marks (saga, step, outcome, reason, result, gid, at)
		SELECT $1, $2, $3, '', $4, $5, clock_timestamp() WHERE current_setting('fairlead.saga', true) = 'own'`
	resultMark = `UPDATE @saga_marks SET result = $3 WHERE saga = $1 AND step = $2`
	selectMark = `SELECT outcome = 'refused', reason, result FROM @saga_marks WHERE saga = $1 AND step = $2`

	outcomeDone    = "done"
	outcomeRefused = "refused"
)

// errMarkGone is returned when a mark that was in the way is not to be seen: the transaction reads an older snapshot.
var errMarkGone = errors.New("another execution's mark can't be seen: use READ COMMITTED")

// Once executes f in the transaction, unless the step was executed before: then it returns what became of it. What f has
// written is rolled back where it refuses, and after an error, which leaves the transaction as it was and the step to be
// executed again. A call that asks for cancellation is refused without f. Until the transaction ends, others that execute
// the step wait.
func (s Schema) Once(ctx context.Context, tx pgx.Tx, c saga.Call, f Transaction) (saga.Outcome, error) {
	out, err := s.once(ctx, tx, c, f)
	if err != nil {
		return saga.Outcome{}, fmt.Errorf("pgsaga: %s of %s: %w", c.Key(), c.Saga, err)
	}
	return out, nil
}

func (s Schema) once(ctx context.Context, tx pgx.Tx, c saga.Call, f Transaction) (out saga.Outcome, err error) {
	if c.Cancel != "" {
		return s.refuse(ctx, tx, c, c.Cancel)
	}
	nested, err := tx.Begin(ctx)
	if err != nil {
		return out, err
	}
	defer func() { _ = nested.Rollback(context.WithoutCancel(ctx)) }() // After a commit it does nothing.
	tag, err := nested.Exec(ctx, s.in(claimMark), c.Saga, c.Key(), outcomeDone, "")
	if err != nil {
		return out, err
	}
	if tag.RowsAffected() == 0 {
		return s.known(ctx, nested, c)
	}
	if out, err = f(ctx, nested, c); err != nil {
		return out, err
	}
	if out.Refused {
		if c.Undo {
			return out, fmt.Errorf("the compensation refused: %s", out.Reason)
		}
		if err := nested.Rollback(ctx); err != nil {
			return out, err
		}
		return s.refuse(ctx, tx, c, out.Reason)
	}
	if err := checkResult(out.Result); err != nil {
		return out, err
	}
	if out.Result != "" {
		if _, err := nested.Exec(ctx, s.in(resultMark), c.Saga, c.Key(), out.Result); err != nil {
			return out, err
		}
	}
	return out, nested.Commit(ctx)
}

// errBadResult is returned for a result that a mark can't hold as it is.
var errBadResult = errors.New("the result has a NUL byte, or is not UTF-8")

func checkResult(s string) error {
	if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
		return fmt.Errorf("%w: %q", errBadResult, s)
	}
	return nil
}

// refuse notes a refusal, unless something was noted before.
func (s Schema) refuse(ctx context.Context, tx pgx.Tx, c saga.Call, reason string) (saga.Outcome, error) {
	out := saga.Refuse(reason) // Its reason can be stored, and is what a later execution reads.
	tag, err := tx.Exec(ctx, s.in(claimMark), c.Saga, c.Key(), outcomeRefused, out.Reason)
	if err != nil || tag.RowsAffected() == 1 {
		return out, err
	}
	return s.known(ctx, tx, c)
}

func (s Schema) known(ctx context.Context, tx pgx.Tx, c saga.Call) (out saga.Outcome, err error) {
	err = tx.QueryRow(ctx, s.in(selectMark), c.Saga, c.Key()).Scan(&out.Refused, &out.Reason, &out.Result)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errMarkGone
	}
	return out, err
}
