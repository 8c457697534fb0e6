package claim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// mute is a database whose answers are lost, after it has done what it was asked for.
type mute struct{ claim.DB }

// Exec implements [claim.DB].
func (m mute) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if _, err := m.DB.Exec(ctx, sql, args...); err != nil {
		return pgconn.CommandTag{}, err
	}
	return pgconn.CommandTag{}, errLostAnswer
}

// Query implements [claim.DB].
func (m mute) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := m.DB.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	rows.Close()
	return nil, errors.Join(errLostAnswer, rows.Err())
}

var errLostAnswer = errors.New("the answer is lost")

func (e *env) claim(id int64) claim.Claim[int64] {
	e.Helper()
	c, err := e.claims.Claim(e.Context(), e.pool, id)
	testwait.Must(e, err)
	return c
}

// TestRepeatedFinish: a finish whose answer was lost may be repeated, by the same claim alone and as long as nobody has claimed
// the row again.
func TestRepeatedFinish(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(6)
	one := e.claim(1)
	if err := e.claims.Finish(t.Context(), mute{e.pool}, one, claim.Changes{"note": "first"}); !errors.Is(err, errLostAnswer) {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.claims.Finish(t.Context(), e.pool, one, claim.Changes{"note": "again"}); err != nil {
			t.Errorf("repeated: %v", err)
		}
		if lost, err := e.claims.FinishAll(t.Context(), e.pool, one); err != nil || len(lost) != 0 {
			t.Errorf("repeated, with others: %v, %v", lost, err)
		}
	}
	var note string
	if err := e.pool.QueryRow(t.Context(), `SELECT note FROM app."Posts" WHERE post = 1`).Scan(&note); err != nil || note != "first" {
		t.Errorf("note %q: %v", note, err)
	}
	e.want(1, "published", 1, false)

	two, three := e.claim(2), e.claim(3)
	if _, err := e.claims.FinishAll(t.Context(), mute{e.pool}, two, three); !errors.Is(err, errLostAnswer) {
		t.Fatal(err)
	}
	four := e.claim(4)
	if lost, err := e.claims.FinishAll(t.Context(), e.pool, two, three, four); err != nil || len(lost) != 0 {
		t.Errorf("many, two of which were finished: %v, %v", lost, err)
	}

	// What was finished by another claim, failed, or released is lost.
	forged, old := one, one
	forged.LockID = uuid.New()
	old.Version++
	failed, released := e.claim(5), e.claim(6)
	testwait.Must(t, e.claims.Fail(t.Context(), e.pool, failed, nil))
	e.exec(`UPDATE app."Posts" SET locked = locked - interval '2 hours' WHERE post = 6`)
	if got, err := e.claims.ReleaseStale(t.Context(), e.pool, time.Hour, 1); err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	for what, c := range map[string]claim.Claim[int64]{"lock id": forged, "version": old, "failed": failed, "released": released} {
		if err := e.claims.Finish(t.Context(), e.pool, c, nil); !errors.Is(err, claim.ErrLost) {
			t.Errorf("%s: %v", what, err)
		}
		if lost, err := e.claims.FinishAll(t.Context(), e.pool, c); err != nil || len(lost) != 1 {
			t.Errorf("%s: %v, %v", what, lost, err)
		}
	}
	if err := e.claims.Fail(t.Context(), e.pool, one, nil); !errors.Is(err, claim.ErrLost) {
		t.Errorf("failed after it was finished: %v", err)
	}
	e.exec(`UPDATE app."Posts" SET status = 'scheduled' WHERE post = 1`)
	again := e.claim(1)
	if err := e.claims.Finish(t.Context(), e.pool, one, nil); !errors.Is(err, claim.ErrLost) {
		t.Errorf("repeated when the row was another's: %v", err)
	}
	testwait.Check(t, e.claims.Finish(t.Context(), e.pool, again, nil))
}

// TestRepeatedTransaction: a transaction whose commit was lost is not to write a second time what it wrote beside the finish.
func TestRepeatedTransaction(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(2)
	e.exec(`CREATE TABLE app.log (post bigint)`)
	one := e.claim(1)
	finish := func() error {
		return pgx.BeginFunc(t.Context(), e.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `INSERT INTO app.log VALUES (1)`); err != nil {
				return err
			}
			return e.claims.Finish(t.Context(), tx, one, nil)
		})
	}
	testwait.Must(t, finish())
	for range 2 {
		if err := finish(); !errors.Is(err, claim.ErrFinished) || !errors.Is(err, claim.ErrLost) {
			t.Errorf("repeated: %v", err)
		}
	}
	var n int
	if err := e.pool.QueryRow(t.Context(), `SELECT count(*) FROM app.log`).Scan(&n); err != nil || n != 1 {
		t.Errorf("written %d times: %v", n, err)
	}
	if err := pgx.BeginFunc(t.Context(), e.pool, func(tx pgx.Tx) error {
		if lost, err := e.claims.FinishAll(t.Context(), tx, one, e.claim(2)); err != nil || len(lost) != 1 || lost[0] != one {
			t.Errorf("with others: %v, %v", lost, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestStaleTimesArePositive: a time of nothing would release claims that are alive.
func TestStaleTimesArePositive(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.add(1)
	one := e.claim(1)
	for _, age := range []time.Duration{0, -1, -time.Hour, 1, time.Microsecond - 1} {
		if got, err := e.claims.ReleaseStale(t.Context(), e.pool, age, 10); !errors.Is(err, claim.ErrBadAge) || len(got) != 0 {
			t.Errorf("released after %s: %v, %v", age, got, err)
		}
		working, stop := e.claims.Keep(t.Context(), e.pool, age, one)
		if cause := context.Cause(working); !errors.Is(cause, claim.ErrBadAge) {
			t.Errorf("kept for %s: %v", age, cause)
		}
		stop()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, s := range []claim.Sweep{{StaleAfter: -1}, {StaleAfter: 1}, {Every: -1}} {
		var told []error
		s.Failed = func(err error) { told = append(told, err) }
		e.claims.KeepReleasing(ctx, e.pool, s)
		if len(told) != 1 || !errors.Is(told[0], claim.ErrBadAge) {
			t.Errorf("%+v: told %v", s, told)
		}
	}
	e.want(1, "publishing", 1, true)
}
