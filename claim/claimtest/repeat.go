package claimtest

import (
	"context"
	"errors"
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

// repeated: a finish whose answer was lost may be repeated, by the same claim alone and as long as nobody has claimed
// the row again.
func (s *suite) repeated() {
	s.add(6)
	one := s.claim(1)
	if err := s.claims.Finish(s.Context(), mute{s.pool}, one, claim.Changes{"note": "first"}); !errors.Is(err, errLostAnswer) {
		s.Fatal(err)
	}
	for range 2 {
		if err := s.claims.Finish(s.Context(), s.pool, one, claim.Changes{"note": "again"}); err != nil {
			s.Errorf("repeated: %v", err)
		}
		if lost, err := s.claims.FinishAll(s.Context(), s.pool, one); err != nil || len(lost) != 0 {
			s.Errorf("repeated, with others: %v, %v", lost, err)
		}
	}
	var note string
	if err := s.pool.QueryRow(s.Context(), s.sql(`SELECT note FROM @ WHERE post = 1`)).Scan(&note); err != nil || note != "first" {
		s.Errorf("note %q: %v", note, err)
	}
	s.want("published", 1, false)

	two, three := s.claim(2), s.claim(3)
	if _, err := s.claims.FinishAll(s.Context(), mute{s.pool}, two, three); !errors.Is(err, errLostAnswer) {
		s.Fatal(err)
	}
	four := s.claim(4)
	if lost, err := s.claims.FinishAll(s.Context(), s.pool, two, three, four); err != nil || len(lost) != 0 {
		s.Errorf("many, two of which were finished: %v, %v", lost, err)
	}

	// What was finished by another claim, failed, or released is lost.
	forged, old := one, one
	forged.LockID = uuid.New()
	old.Version++
	failed, released := s.claim(5), s.claim(6)
	testwait.Must(s, s.claims.Fail(s.Context(), s.pool, failed, nil))
	s.exec(s.sql(`UPDATE @ SET locked = locked - interval '2 hours' WHERE post = 6`))
	if got, err := s.claims.ReleaseStale(s.Context(), s.pool, time.Hour, 1); err != nil || len(got) != 1 {
		s.Fatalf("%v, %v", got, err)
	}
	for what, c := range map[string]claim.Claim[int64]{"lock id": forged, "version": old, "failed": failed, "released": released} {
		if err := s.claims.Finish(s.Context(), s.pool, c, nil); !errors.Is(err, claim.ErrLost) {
			s.Errorf("%s: %v", what, err)
		}
		if lost, err := s.claims.FinishAll(s.Context(), s.pool, c); err != nil || len(lost) != 1 {
			s.Errorf("%s: %v, %v", what, lost, err)
		}
	}
	if err := s.claims.Fail(s.Context(), s.pool, one, nil); !errors.Is(err, claim.ErrLost) {
		s.Errorf("failed after it was finished: %v", err)
	}
	s.exec(s.sql(`UPDATE @ SET status = 'scheduled' WHERE post = 1`))
	again := s.claim(1)
	if err := s.claims.Finish(s.Context(), s.pool, one, nil); !errors.Is(err, claim.ErrLost) {
		s.Errorf("repeated when the row was another's: %v", err)
	}
	testwait.Check(s, s.claims.Finish(s.Context(), s.pool, again, nil))
}

// repeatedTransaction: a transaction whose commit was lost is not to write a second time what it wrote beside the finish.
func (s *suite) repeatedTransaction() {
	s.add(2)
	s.exec(s.sql(`CREATE TABLE @log (post bigint)`))
	one := s.claim(1)
	finish := func() error {
		return pgx.BeginFunc(s.Context(), s.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(s.Context(), s.sql(`INSERT INTO @log VALUES (1)`)); err != nil {
				return err
			}
			return s.claims.Finish(s.Context(), tx, one, nil)
		})
	}
	testwait.Must(s, finish())
	for range 2 {
		if err := finish(); !errors.Is(err, claim.ErrFinished) || !errors.Is(err, claim.ErrLost) {
			s.Errorf("repeated: %v", err)
		}
	}
	var n int
	if err := s.pool.QueryRow(s.Context(), s.sql(`SELECT count(*) FROM @log`)).Scan(&n); err != nil || n != 1 {
		s.Errorf("written %d times: %v", n, err)
	}
	if err := pgx.BeginFunc(s.Context(), s.pool, func(tx pgx.Tx) error {
		if lost, err := s.claims.FinishAll(s.Context(), tx, one, s.claim(2)); err != nil || len(lost) != 1 || lost[0] != one {
			s.Errorf("with others: %v, %v", lost, err)
		}
		return nil
	}); err != nil {
		s.Error(err)
	}
}
