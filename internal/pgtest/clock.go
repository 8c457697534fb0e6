package pgtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// clockSQL is a clock that is ahead of PostgreSQL's by as much as a table says.
const clockSQL = `CREATE TABLE skew.step (by interval NOT NULL);
	INSERT INTO skew.step VALUES ('0');
	CREATE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
		AS $$ SELECT pg_catalog.clock_timestamp() + by FROM skew.step $$;
	CREATE FUNCTION skew.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
		AS $$ SELECT pg_catalog.statement_timestamp() + by FROM skew.step $$`

// shadowSQL puts the schema skew before PostgreSQL's own on the search path: of the database, and of its functions that have
// one. A path that names pg_catalog last makes way for what has the same name elsewhere.
const shadowSQL = `DO $do$
	DECLARE f record;
	BEGIN
		FOR f IN SELECT p.oid::regprocedure AS name, substr(c, length('search_path=') + 1) AS path
			FROM pg_proc p, unnest(p.proconfig) AS c WHERE c LIKE 'search\_path=%' LOOP
			EXECUTE format('ALTER FUNCTION %s SET search_path = skew, %s, pg_catalog', f.name, f.path);
		END LOOP;
		EXECUTE format('ALTER DATABASE %I SET search_path = skew, public, pg_catalog', current_database());
	END $do$`

// Shadow has a database that has its tables, and that nobody is connected to, call functions of the schema skew, which the SQL
// given creates there, where it calls PostgreSQL's of the same name without a schema.
func Shadow(tb testing.TB, url, functions string) {
	tb.Helper()
	execute(tb, url, "CREATE SCHEMA skew; "+functions+"; "+shadowSQL)
}

func execute(tb testing.TB, url, sql string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adminLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
}

// Clock gives a database that has its tables, and that nobody is connected to, a clock which the test steps: by so much the
// database is ahead of its machine from then on. What calls PostgreSQL's clocks by a name with a schema, and now(), go by the
// machine's.
func Clock(tb testing.TB, url string) (step func(by time.Duration)) {
	tb.Helper()
	Shadow(tb, url, clockSQL)
	return func(by time.Duration) {
		tb.Helper()
		execute(tb, url, fmt.Sprintf(`UPDATE skew.step SET by = interval '%f seconds'`, by.Seconds()))
	}
}
