package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The errors of steps that do with their transaction what they must not. Nothing is saved of such a step.
var (
	// ErrNotYours is returned by Commit and Rollback of a step's transaction, and for a step that ended it by a statement. What such a
	// statement committed, also of the steps before it, stays and is not saved as done. Begin makes a nested transaction, which the
	// step can end.
	ErrNotYours = errors.New("pgstore: the store ends the transaction of a step, not the step")
	// ErrAborted is returned for a step that returned no error though one of its statements had failed, which aborts the transaction.
	ErrAborted = errors.New("pgstore: a statement of the step had failed, and the step returned no error")
	// ErrBusy is returned for a step that left a result open, such as rows that it has neither read to the end nor closed. The steps
	// before it are undone, too, as far as they were not saved.
	ErrBusy = errors.New("pgstore: the step left the result of a statement open")
)

type txKey struct{}

// transaction is one of [Store.SaveWith].
type transaction struct {
	tx    pgx.Tx
	steps int  // that are done
	lost  bool // a step could not be undone by itself
}

// stepTx is a transaction that its user can't end.
type stepTx struct{ pgx.Tx }

func (stepTx) Commit(context.Context) error { return ErrNotYours }

func (stepTx) Rollback(context.Context) error { return ErrNotYours }

// Tx is the transaction within which a step is done or undone, for its own writes. Its Commit and Rollback return [ErrNotYours].
// Tx panics outside of a transaction, where the step would write what nobody commits or undoes with its state.
func Tx(ctx context.Context) pgx.Tx { return stepTx{within(ctx).tx} }

func within(ctx context.Context) *transaction {
	t, ok := ctx.Value(txKey{}).(*transaction)
	if !ok {
		panic("pgstore: the step is not run in a transaction; see checkpoint.Options.Transactional")
	}
	return t
}

// There is one savepoint at a time, so that a transaction does not get slower with each step.
const (
	firstSavepoint = `SAVEPOINT checkpoint_step`
	nextSavepoint  = `RELEASE SAVEPOINT checkpoint_step; SAVEPOINT checkpoint_step`
	toSavepoint    = `ROLLBACK TO SAVEPOINT checkpoint_step`
)

// Step implements [checkpoint.Transactor]. The first step needs no savepoint: when it fails, there is nothing to be kept.
func (s *Store) Step(ctx context.Context, fn func(context.Context) error) (again bool, err error) {
	t := within(ctx)
	switch t.steps {
	case 0:
	case 1:
		err = t.exec(ctx, firstSavepoint)
	default:
		err = t.exec(ctx, nextSavepoint)
	}
	if err != nil {
		t.lost = true
		return false, fmt.Errorf("pgstore: before the step: %w", err)
	}
	if err = fn(ctx); err == nil {
		err = usable(t.tx.Conn().PgConn())
	}
	if err == nil {
		t.steps++
		return false, nil
	}
	if t.steps == 0 {
		t.lost = true
		return false, err
	}
	if undo := t.exec(ctx, toSavepoint); undo != nil {
		t.lost = true
		return false, errors.Join(err, undo)
	}
	return passing(err), err
}

// exec is for statements of the store's own. They are not cut off by the end of ctx, with which the connection would end.
func (t *transaction) exec(ctx context.Context, sql string) error {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownTimeout)
	defer cancel()
	_, err := t.tx.Exec(own, sql)
	return err
}

// usable returns why a transaction can't go on after a step that returned no error. A lost connection is found by the next statement.
func usable(conn *pgconn.PgConn) error {
	switch {
	case conn.IsClosed():
	case conn.IsBusy():
		return ErrBusy
	case conn.TxStatus() == 'I':
		return ErrNotYours
	case conn.TxStatus() == 'E':
		return ErrAborted
	}
	return nil
}
