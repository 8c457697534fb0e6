package pgstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// raise makes a statement fail with an SQLSTATE.
func raise(ctx context.Context, code string) error {
	return testwait.Err(Tx(ctx).Exec(ctx, fmt.Sprintf(`DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '%s'; END $$`, code)))
}

// kill ends the session of a step's transaction.
func kill(ctx context.Context, around *pgxpool.Pool) error {
	return testwait.Err(around.Exec(ctx, `SELECT pg_terminate_backend($1, 50000)`, Tx(ctx).Conn().PgConn().PID()))
}

// TestAStepFails has step 6 of 10 fail in many ways, with one save for all steps. The steps before it stay saved, are not done again
// where the transaction can go on, and the operation goes on when the failure is over.
func TestAStepFails(t *testing.T) {
	t.Parallel()
	const n, at = 10, 6
	swallow := func(error) error { return nil }
	for name, c := range map[string]struct {
		fail  func(ctx context.Context, end context.CancelCauseFunc, around *pgxpool.Pool) error
		once  bool  // it fails only the first time
		want  error // nil: some error of PostgreSQL's, unless all is done
		own   bool  // the error is the step's
		done  int
		twice bool // the steps before it are done again
	}{
		"its own error": {
			fail: func(context.Context, context.CancelCauseFunc, *pgxpool.Pool) error { return errStop },
			want: errStop, own: true, done: at,
		},
		"a statement fails": {
			fail: func(ctx context.Context, _ context.CancelCauseFunc, _ *pgxpool.Pool) error {
				return raise(ctx, "22012")
			},
			own: true, done: at,
		},
		"a statement fails, and the step passes over it": {
			fail: func(ctx context.Context, _ context.CancelCauseFunc, _ *pgxpool.Pool) error {
				return swallow(raise(ctx, "22012"))
			},
			want: ErrAborted, own: true, done: at,
		},
		"another transaction is in the way once": {
			fail: func(ctx context.Context, _ context.CancelCauseFunc, _ *pgxpool.Pool) error {
				return raise(ctx, "40P01")
			},
			once: true, done: n,
		},
		"another transaction is in the way": {
			fail: func(ctx context.Context, _ context.CancelCauseFunc, _ *pgxpool.Pool) error {
				return raise(ctx, "55P03")
			},
			own: true, done: at,
		},
		"Commit": {
			fail: func(ctx context.Context, _ context.CancelCauseFunc, _ *pgxpool.Pool) error {
				return Tx(ctx).Commit(ctx)
			},
			want: ErrNotYours, own: true, done: at,
		},
		"Rollback": {
			fail: func(ctx context.Context, _ context.CancelCauseFunc, _ *pgxpool.Pool) error {
				return Tx(ctx).Rollback(ctx)
			},
			want: ErrNotYours, own: true, done: at,
		},
		"the statement ROLLBACK": {
			fail: func(ctx context.Context, _ context.CancelCauseFunc, _ *pgxpool.Pool) error {
				return testwait.Err(Tx(ctx).Exec(ctx, `ROLLBACK`))
			},
			want: ErrNotYours, own: true, twice: true,
		},
		"rows are left open": {
			fail: func(ctx context.Context, _ context.CancelCauseFunc, _ *pgxpool.Pool) error {
				return testwait.Err(Tx(ctx).Query(ctx, `SELECT 1`))
			},
			want: ErrBusy, own: true, twice: true,
		},
		"the caller gives up": {
			fail: func(ctx context.Context, end context.CancelCauseFunc, _ *pgxpool.Pool) error {
				end(nil)
				return ctx.Err()
			},
			want: context.Canceled, done: at,
		},
		"the caller gives up, and the step is done": {
			fail: func(_ context.Context, end context.CancelCauseFunc, _ *pgxpool.Pool) error {
				end(nil)
				return nil
			},
			want: context.Canceled, done: at + 1,
		},
		"the lock is lost": {
			fail: func(ctx context.Context, end context.CancelCauseFunc, _ *pgxpool.Pool) error {
				end(lock.ErrLost)
				return ctx.Err()
			},
			want: lock.ErrLost, twice: true,
		},
		"the lock is lost, and the step is done": {
			fail: func(_ context.Context, end context.CancelCauseFunc, _ *pgxpool.Pool) error {
				end(lock.ErrLost)
				return nil
			},
			want: lock.ErrLost, twice: true,
		},
		"the connection is lost": {
			fail: func(ctx context.Context, _ context.CancelCauseFunc, around *pgxpool.Pool) error {
				return errors.Join(kill(ctx, around), errStop)
			},
			once: true, done: n, twice: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, around := bank(t)
			s := New(pool(t, url), testSchema)
			key := checkpoint.Key{LockKey: "bank", ID: "op"}
			ctx, end := context.WithCancelCause(t.Context())
			defer end(nil)
			fails := true
			var calls [n]int
			r := newMover(t, s, 100, func(ctx context.Context, step int) error {
				if calls[step]++; step != at || !fails {
					return nil
				}
				fails = !c.once
				return c.fail(ctx, end, around)
			})
			res, err := r.Run(ctx, key, transfers{n}, checkpoint.Call{})
			step, own := errors.AsType[*checkpoint.StepError](err)
			if (err == nil) != (c.done == n) || !errors.Is(err, c.want) && c.want != nil || own != c.own || own && step.Step != at ||
				errors.Is(err, checkpoint.ErrConnection) {
				t.Errorf("%v", err)
			}
			if _, ok := errors.AsType[*pgconn.PgError](err); c.own && c.want == nil && !ok {
				t.Errorf("%v is not the statement's", err)
			}
			if res.Completed != c.done || len(res.Results) != c.done || own != (len(res.Errors) == 1) {
				t.Errorf("%+v", res)
			}
			wantMoved(t, around, c.done, c.done)
			fails = false
			res, err = r.Resume(t.Context(), key, checkpoint.Call{})
			if err != nil || res.Completed != n {
				t.Errorf("resumed: %+v, %v", res, err)
			}
			wantMoved(t, around, n, n)
			if (calls[0] == 2) != c.twice || (calls[at-1] == 2) != c.twice {
				t.Errorf("the steps were called %v times", calls)
			}
		})
	}
}

// TestAnUndoFails: what is undone before it stays undone.
func TestAnUndoFails(t *testing.T) {
	t.Parallel()
	const n, at = 10, 3
	url, around := bank(t)
	s := New(pool(t, url), testSchema)
	key := checkpoint.Key{LockKey: "bank", ID: "op"}
	testwait.Must(t, testwait.Err(newMover(t, s, 100, nil).Run(t.Context(), key, transfers{n}, checkpoint.Call{})))
	res, err := newMover(t, s, 100, func(ctx context.Context, step int) error {
		if step == at {
			return raise(ctx, "22012")
		}
		return nil
	}).Rollback(t.Context(), key, checkpoint.Call{})
	if step, ok := errors.AsType[*checkpoint.StepError](err); !ok || step.Step != at || !step.Undo || res.Undone != n-1-at {
		t.Errorf("%+v, %v", res, err)
	}
	wantMoved(t, around, at+1, n)
	testwait.Must(t, testwait.Err(newMover(t, s, 100, nil).Rollback(t.Context(), key, checkpoint.Call{})))
	wantMoved(t, around, 0, n)
}

// TestAStepDoesNotReturn: a panic, or the end of the goroutine, is as the death of the process. Nothing of the transaction remains, the
// connection is free again, and the next run goes on after the last save.
func TestAStepDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(){"panic": func() { panic(errStop) }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n, every, at = 10, 4, 6
			url, around := bank(t)
			p := pool(t, url)
			s := New(p, testSchema)
			key := checkpoint.Key{LockKey: "bank", ID: "op"}
			var left sync.WaitGroup
			left.Go(func() {
				defer func() { _ = recover() }()
				_, _ = newMover(t, s, every, func(_ context.Context, step int) error {
					if step == at {
						leave()
					}
					return nil
				}).Run(t.Context(), key, transfers{n}, checkpoint.Call{})
				t.Error("the run returned")
			})
			left.Wait()
			wantMoved(t, around, every, every)
			if used := p.Stat().AcquiredConns(); used != 0 {
				t.Errorf("%d connections are in use", used)
			}
			testwait.Must(t, testwait.Err(newMover(t, s, every, nil).Resume(t.Context(), key, checkpoint.Call{})))
			wantMoved(t, around, n, n)
		})
	}
}

// TestNestedTransactions: a step can undo a part of its own writes.
func TestNestedTransactions(t *testing.T) {
	t.Parallel()
	url, around := bank(t)
	res, err := newMover(t, New(pool(t, url), testSchema), 100, func(ctx context.Context, step int) error {
		err := pgx.BeginFunc(ctx, Tx(ctx), func(tx pgx.Tx) error {
			return errors.Join(testwait.Err(tx.Exec(ctx, `INSERT INTO journal (step) VALUES ($1)`, -step)), errStop)
		})
		if !errors.Is(err, errStop) {
			return err
		}
		return pgx.BeginFunc(ctx, Tx(ctx), func(tx pgx.Tx) error {
			return testwait.Err(tx.Exec(ctx, `INSERT INTO journal (step) VALUES ($1)`, 1_000+step))
		})
	}).Run(t.Context(), checkpoint.Key{LockKey: "bank", ID: "op"}, transfers{5}, checkpoint.Call{})
	if err != nil || res.Completed != 5 {
		t.Errorf("%+v, %v", res, err)
	}
	wantMoved(t, around, 5, 10)
}
