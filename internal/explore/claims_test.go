//go:build unix

package explore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	jobs = 3
	// staleAfter is the age from which a claim is released. A job takes longer, so that heartbeats have to keep it.
	staleAfter = 2 * time.Second
	jobTakes   = 3 * time.Second
)

func jobTable() claim.Table {
	return claim.Table{
		Name: library + ".jobs", Ready: "status = 'queued'", OnClaim: "status = 'running'", OnFinish: "status = 'done'", OnFail: "status = 'queued'", OnRelease: "status = 'queued'",
	}
}

// claims has two workers claim jobs, keep their claims, finish them with an effect in the same transaction, and release those that went
// stale.
func claims() Scenario {
	return Scenario{
		Kills: true, Stall: 3 * time.Second, Unbooked: true,
		Install: func(ctx context.Context, db *pgx.Conn) error {
			statements := append([]string{
				`CREATE TABLE library.jobs (id integer PRIMARY KEY, status text NOT NULL DEFAULT 'queued')`,
				`CREATE TABLE library.done (job integer, version bigint, worker text)`,
				jobTable().DDL(), fmt.Sprintf(`INSERT INTO library.jobs (id) SELECT generate_series(1, %d)`, jobs),
			}, jobTable().Indexes()...)
			return execute(ctx, db, statements...)
		},
		Play: func(ctx context.Context, w *World) {
			all := &claimed{versions: map[string]string{}}
			for _, name := range []string{"w1", "w2"} {
				w.Process(ctx, name, func(ctx context.Context, pool *pgxpool.Pool) error {
					(&worker{World: w, claimed: all, name: name, pool: pool, jobs: claim.Must[int32](jobTable())}).work(ctx)
					return nil
				})
			}
		},
		Check: func(ctx context.Context, _ *World, db *pgx.Conn) error {
			var done, twice, left int
			err := db.QueryRow(ctx, `SELECT (SELECT count(DISTINCT job) FROM library.done),
				(SELECT count(*) FROM (SELECT job FROM library.done GROUP BY job HAVING count(*) > 1) d), (SELECT count(*) FROM library.jobs WHERE status <> 'done')`).
				Scan(&done, &twice, &left)
			if err == nil && (done != jobs || twice != 0 || left != 0) {
				err = fmt.Errorf("of %d jobs, %d had their effect, %d of them twice, and %d are not done", jobs, done, twice, left)
			}
			return err
		},
	}
}

// execute runs statements.
func execute(ctx context.Context, db *pgx.Conn, statements ...string) error {
	for _, sql := range statements {
		if _, err := db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// claimed are the claims that workers were told of.
type claimed struct {
	mu       sync.Mutex
	versions map[string]string // who has a version of a job
}

// note notes a claim, of which there must be no other.
func (c *claimed) note(c1 claim.Claim[int32], worker string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	what := fmt.Sprintf("job %d in version %d", c1.ID, c1.Version)
	other, twice := c.versions[what]
	if c.versions[what] = worker; twice {
		return fmt.Errorf("%s was claimed by %s and %s", what, other, worker)
	}
	return nil
}

type worker struct {
	*World
	*claimed

	name string
	pool *pgxpool.Pool
	jobs *claim.Claims[int32]
}

// work works until all is done, or the worker is killed.
func (w *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		var left int
		err := w.pool.QueryRow(ctx, `SELECT count(*) FROM library.jobs WHERE status <> 'done'`).Scan(&left)
		if err == nil && left == 0 {
			return
		}
		if err == nil {
			_, err = w.jobs.ReleaseStale(ctx, w.pool, staleAfter, 10)
		}
		var got []claim.Claim[int32]
		asked := time.Now()
		if err == nil {
			got, err = w.jobs.ClaimDue(ctx, w.pool, 1)
		}
		for _, c := range got {
			w.Wrong(w.note(c, w.name))
			w.do(ctx, c, time.Since(asked) >= staleAfter)
		}
		if err != nil || len(got) == 0 {
			wait.For(ctx, 500*time.Millisecond)
		}
	}
}

// do does a job. late says that the answer to the claim took so long that others may have released it before the worker knew of it.
func (w *worker) do(ctx context.Context, c claim.Claim[int32], late bool) {
	working, stop := w.jobs.Keep(ctx, w.pool, staleAfter, c)
	wait.For(working, jobTakes)
	cause := context.Cause(working)
	stop()
	if !late && errors.Is(cause, claim.ErrLost) && !errors.Is(cause, claim.ErrUnconfirmed) {
		w.Wrong(fmt.Errorf("the claim of %s on job %d in version %d was released while it was alive", w.name, c.ID, c.Version))
	}
	// A worker that lost its claim may not know it yet: that must do no harm.
	for ctx.Err() == nil {
		err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO library.done VALUES ($1, $2, $3)`, c.ID, c.Version, w.name); err != nil {
				return err
			}
			return w.jobs.Finish(ctx, tx, c, nil)
		})
		lost := errors.Is(err, claim.ErrLost)
		if err == nil || lost {
			w.See("job %d, version %d, %s: done %t", c.ID, c.Version, w.name, !lost)
			return
		}
		wait.For(ctx, 100*time.Millisecond)
	}
}
