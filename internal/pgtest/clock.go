package pgtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// clockSQL puts another clock before PostgreSQL's own on the search path: of the database, and of its functions that have
// one. A path that names pg_catalog last makes way for what has the same name elsewhere.
const clockSQL = `CREATE SCHEMA skew;
	CREATE TABLE skew.step (by interval NOT NULL);
	INSERT INTO skew.step VALUES ('0');
	CREATE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
		AS $$ SELECT pg_catalog.clock_timestamp() + by FROM skew.step $$;
	CREATE FUNCTION skew.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
		AS $$ SELECT pg_catalog.statement_timestamp() + by FROM skew.step $$;
	DO $do$
	DECLARE f record;
	BEGIN
		FOR f IN SELECT p.oid::regprocedure AS name, substr(c, length('search_path=') + 1) AS path
			FROM pg_proc p, unnest(p.proconfig) AS c WHERE c LIKE 'search\_path=%' LOOP
			EXECUTE format('ALTER FUNCTION %s SET search_path = skew, %s, pg_catalog', f.name, f.path);
		END LOOP;
		EXECUTE format('ALTER DATABASE %I SET search_path = skew, public, pg_catalog', current_database());
	END $do$`

// Clock gives a database that has its tables, and that nobody is connected to, a clock which the test steps: by so much the
// database is ahead of its machine from then on. What calls PostgreSQL's clocks by a name with a schema, and now(), go by the
// machine's.
func Clock(tb testing.TB, url string) (step func(by time.Duration)) {
	tb.Helper()
	exec := func(sql string) {
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
	exec(clockSQL)
	return func(by time.Duration) {
		tb.Helper()
		exec(fmt.Sprintf(`UPDATE skew.step SET by = interval '%f seconds'`, by.Seconds()))
	}
}
