package claim_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// posts is a table of a user's, with names that are not the defaults.
func posts() claim.Table {
	return claim.Table{
		Name: "app.Posts", ID: "post", LockID: "Lock", LockedAt: "locked", Version: "run",
		Ready: "status LIKE 'schedul%'", Due: "publish_at",
		OnClaim: "status = 'publishing'", OnFinish: "status = 'published'", OnFail: "status = 'failed'", OnRelease: "status = 'scheduled'",
	}
}

func schema(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `CREATE SCHEMA app;
		CREATE TABLE app."Posts" (post bigint PRIMARY KEY, status text NOT NULL DEFAULT 'scheduled', publish_at timestamptz NOT NULL DEFAULT clock_timestamp(), note text)`)
	for range 2 { // It may be run again.
		_, again := conn.Exec(ctx, posts().DDL())
		err = errors.Join(err, again)
	}
	return errors.Join(err, conn.Close(ctx))
}

// env is a database with the table.
type env struct {
	*testing.T

	pool   *pgxpool.Pool
	claims *claim.Claims[int64]
}

func newEnv(t *testing.T) *env {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), pgtest.NewDatabase(t, schema))
	testwait.Must(t, err)
	t.Cleanup(pool.Close)
	claims, err := claim.New[int64](posts())
	testwait.Must(t, err)
	return &env{T: t, pool: pool, claims: claims}
}

func (e *env) exec(sql string, args ...any) {
	e.Helper()
	testwait.Must(e, testwait.Err(e.pool.Exec(e.Context(), sql, args...)))
}

func (e *env) add(n int) {
	e.Helper()
	e.exec(`INSERT INTO app."Posts" (post) SELECT generate_series(1, $1)`, n)
}

func (e *env) status(post int64) (status string, version int64, locked bool) {
	e.Helper()
	testwait.Must(e, e.pool.QueryRow(e.Context(), `SELECT status, run, "Lock" IS NOT NULL FROM app."Posts" WHERE post = $1`, post).Scan(&status, &version, &locked))
	return status, version, locked
}

func (e *env) want(post int64, status string, version int64, locked bool) {
	e.Helper()
	if s, v, l := e.status(post); s != status || v != version || l != locked {
		e.Errorf("post %d is %s, version %d, locked %v; want %s, %d, %v", post, s, v, l, status, version, locked)
	}
}

// claim claims a row, which must be free.
func (e *env) claim(id int64) claim.Claim[int64] {
	e.Helper()
	c, err := e.claims.Claim(e.Context(), e.pool, id)
	testwait.Must(e, err)
	return c
}
