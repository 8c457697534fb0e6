// Package claimtest is the conformance suite of package claim: it tries on a PostgreSQL what the package promises there.
package claimtest

import (
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// Harness is a database.
type Harness struct {
	Pool *pgxpool.Pool
	// Schema is there, and each check makes a table of its own in it.
	Schema string
}

func tests() conformance.Suite[*suite] {
	of := conformance.NewTrial[*suite]
	return conformance.Suite[*suite]{
		of("LifeOfAClaim", "E1", "neither another lock id nor another version ends a claim", (*suite).life),
		of("StaleClaim", "E1", "a claim without heartbeats is released, and what comes late is refused", (*suite).stale),
		of("ClaimMadeByAClockThatWasAhead", "E1", "a claim dated in the future goes stale too", (*suite).ahead),
		of("Limit", "E1", "no more rows are claimed than asked for", (*suite).limit),
		of("DueByTheDatabasesClock", "P2", "nothing is claimed before it is due by the database's clock", (*suite).due),
		of("WorkersRace", "E1", "six workers claim and finish 600 rows, each row once", (*suite).race),
		of("CancelledBeforeClaim", "P2", "of a cancellation and a claim at once, one has the row", (*suite).cancelled),
		of("FinishInTheCallersTransaction", "E1", "a finish that is rolled back did not happen, and a locked row is not waited for", (*suite).inTransaction),
		of("NoDeadlock", "E1", "heartbeats and ends of the same claims in opposing orders do not deadlock", (*suite).noDeadlock),
		of("RepeatedFinish", "E1 I3", "a finish whose answer was lost may be repeated by its own claim alone", (*suite).repeated),
		of("RepeatedTransaction", "E1 I3", "a transaction with a finish, repeated, writes nothing a second time", (*suite).repeatedTransaction),
	}
}

// Checks lists what the suite has, in order.
func Checks() []conformance.Check { return tests().Checks() }

// Run runs the suite. Each check gets a harness of its own.
func Run[T conformance.Test[T]](t T, harness func(t T) Harness) {
	t.Helper()
	conformance.Run(t, tests(), func(t T, _ conformance.Check) *suite {
		t.Parallel()
		return newSuite(t, harness(t))
	})
}

// suite is one check, with its table.
type suite struct {
	conformance.TB

	pool   *pgxpool.Pool
	claims *claim.Claims[int64]
	table  string // with its schema and quotes
	log    string // the name of another one, which a check may make
}

// newSuite makes the table: one of a user's, with names that are not the defaults.
func newSuite(t conformance.TB, h Harness) *suite {
	t.Helper()
	id := uuid.NewString()
	s := &suite{TB: t, pool: h.Pool, table: pgx.Identifier{h.Schema, "Posts " + id}.Sanitize(), log: pgx.Identifier{h.Schema, "log " + id}.Sanitize()}
	s.exec(`CREATE TABLE ` + s.table + ` (post bigint PRIMARY KEY, status text NOT NULL DEFAULT 'scheduled',
		publish_at timestamptz NOT NULL DEFAULT clock_timestamp(), note text)`)
	posts := claim.Table{
		Name: s.table, ID: "post", LockID: "Lock", LockedAt: "locked", Version: "run",
		Ready: "status LIKE 'schedul%'", Due: "publish_at",
		OnClaim: "status = 'publishing'", OnFinish: "status = 'published'", OnFail: "status = 'failed'", OnRelease: "status = 'scheduled'",
	}
	for range 2 { // It may be run again.
		s.exec(posts.DDL())
	}
	var err error
	s.claims, err = claim.New[int64](posts)
	testwait.Must(t, err)
	return s
}

// sql puts the tables into a statement, in which they are @ and @log.
func (s *suite) sql(text string) string {
	return strings.NewReplacer("@log", s.log, "@", s.table).Replace(text)
}

func (s *suite) exec(sql string, args ...any) {
	s.Helper()
	testwait.Must(s, testwait.Err(s.pool.Exec(s.Context(), sql, args...)))
}

func (s *suite) add(n int) {
	s.Helper()
	s.exec(s.sql(`INSERT INTO @ (post) SELECT generate_series(1, $1)`), n)
}

// want looks at the first row.
func (s *suite) want(status string, version int64, locked bool) {
	s.Helper()
	var (
		is  string
		run int64
		by  bool
	)
	testwait.Must(s, s.pool.QueryRow(s.Context(), s.sql(`SELECT status, run, "Lock" IS NOT NULL FROM @ WHERE post = 1`)).Scan(&is, &run, &by))
	if is != status || run != version || by != locked {
		s.Errorf("post 1 is %s, version %d, locked %v; want %s, %d, %v", is, run, by, status, version, locked)
	}
}

// claim claims a row, which must be free.
func (s *suite) claim(id int64) claim.Claim[int64] {
	s.Helper()
	c, err := s.claims.Claim(s.Context(), s.pool, id)
	testwait.Must(s, err)
	return c
}
