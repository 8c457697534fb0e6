//go:build unix

package explore

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// clocks are PostgreSQL's clocks, which show what the scheduler has set, and a set_config that tells the gate how long a statement may
// wait for a lock, because the gate lets it wait by the scheduler's time and not by the machine's. A sequence is outside of
// transactions: what it shows is the same to all sessions at once.
const clocks = `CREATE SEQUENCE skew.clock;
	CREATE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
		AS $$ SELECT timestamptz 'epoch' + last_value * interval '1 microsecond' FROM skew.clock $$;
	CREATE FUNCTION skew.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
		AS $$ SELECT timestamptz 'epoch' + last_value * interval '1 microsecond' FROM skew.clock $$;
	CREATE FUNCTION skew.now() RETURNS timestamptz LANGUAGE plpgsql STABLE
		AS $$ BEGIN
			IF coalesce(pg_catalog.current_setting('skew.now', true), '') = '' THEN
				PERFORM pg_catalog.set_config('skew.now', skew.clock_timestamp()::text, true);
			END IF;
			RETURN pg_catalog.current_setting('skew.now')::timestamptz;
		END $$;
	CREATE FUNCTION skew.transaction_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT skew.now() $$;
	CREATE FUNCTION skew.set_config(name text, value text, local boolean) RETURNS text LANGUAGE plpgsql VOLATILE
		AS $$ BEGIN
			IF name <> 'lock_timeout' THEN
				RETURN pg_catalog.set_config(name, value, local);
			END IF;
			RAISE NOTICE '` + lockTimeoutNotice + `%', value;
			RETURN value;
		END $$;
	DO $do$
	DECLARE d record;
	BEGIN -- Defaults mean the function that was there when they were made.
		FOR d IN SELECT adrelid::regclass AS "table", attname FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
			WHERE pg_get_expr(adbin, adrelid) IN ('now()', 'transaction_timestamp()') LOOP
			EXECUTE format('ALTER TABLE %s ALTER %I SET DEFAULT skew.now()', d."table", d.attname);
		END LOOP;
		-- The plans of statements, and with them the order of rows, must not depend on when PostgreSQL finds time for statistics.
		FOR d IN SELECT oid::regclass AS "table" FROM pg_class WHERE relkind = 'r' AND relnamespace IN (` + namespaces + `) LOOP
			EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = false)', d."table");
		END LOOP;
	END $do$`

// The schemas that a schedule begins anew with: the servers', and that of scenarios which use the libraries.
const (
	library    = "library"
	namespaces = `'public'::regnamespace, '` + library + `'::regnamespace`
)

const lockTimeoutNotice = "explore lock_timeout "

// database is a real PostgreSQL database that one schedule after the other uses. Its sessions are kept, since a new one takes
// longer than all that most schedules do with it.
type database struct {
	url                   string
	dir, port, user, name string
	control               *backend
	idle                  []*backend
	set                   time.Time                // what the database's clock shows
	limits                map[string]time.Duration // of the waits for locks in functions, by name

	tables []table // with what they have at the beginning of a schedule
}

type table struct {
	name    string
	columns string // that are written
	base    string // the table with what is there at the beginning; empty: nothing is
}

// openDatabase makes a database of its own for a test, in which install may make more tables.
func openDatabase(tb testing.TB, migrate pgtest.Migrate, install func(context.Context, *pgx.Conn) error) *database {
	tb.Helper()
	d := &database{url: pgtest.NewDatabase(tb, migrate), limits: map[string]time.Duration{}}
	conn, err := pgx.Connect(tb.Context(), d.url)
	testwait.Must(tb, err)
	testwait.Must(tb, testwait.Err(conn.Exec(tb.Context(), "CREATE SCHEMA "+library)))
	if install != nil {
		testwait.Must(tb, install(tb.Context(), conn))
	}
	testwait.Must(tb, conn.Close(tb.Context()))
	pgtest.Shadow(tb, d.url, clocks)
	u, err := url.Parse(d.url)
	if err != nil {
		tb.Fatal(err)
	}
	d.dir, d.port, d.user, d.name = u.Query().Get("host"), u.Query().Get("port"), u.User.Username(), strings.TrimPrefix(u.Path, "/")
	if d.port == "" {
		d.port = "5432"
	}
	if d.control, err = d.connect(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		for _, b := range append(d.idle, d.control) {
			b.close()
		}
	})
	testwait.Must(tb, d.takeLimits())
	return d
}

// takeLimits makes the limits of waits for locks that functions have the gate's.
func (d *database) takeLimits() error {
	found, err := d.control.query(`SELECT p.oid::regprocedure || ' ' || substr(c, length('lock_timeout=') + 1)
		FROM pg_catalog.pg_proc p, unnest(p.proconfig) AS c WHERE c LIKE 'lock\_timeout=%'`)
	if err != nil {
		return err
	}
	for _, function := range found {
		space := strings.LastIndexByte(function, ' ')
		signature, limit := function[:space], function[space+1:]
		if _, err := d.control.query("ALTER FUNCTION " + signature + " RESET lock_timeout"); err != nil {
			return err
		}
		name, _, _ := strings.Cut(signature, "(")
		d.limits[name[strings.LastIndexByte(name, '.')+1:]] = duration(limit)
	}
	return nil
}

func (d *database) connect() (*backend, error) { return connect(d.dir, d.port, d.user, d.name) }

// take returns a session that is as new.
func (d *database) take() (*backend, error) {
	if n := len(d.idle); n > 0 {
		b := d.idle[n-1]
		d.idle = d.idle[:n-1]
		return b, nil
	}
	return d.connect()
}

// give ends a session's transaction as a disconnection does, and keeps the session.
func (d *database) give(b *backend) error {
	for _, sql := range []string{"ROLLBACK", "DISCARD ALL"} {
		if _, err := b.query(sql); err != nil {
			return err
		}
	}
	d.idle = append(d.idle, b)
	return nil
}

// setClock has the database's clock show a time.
func (d *database) setClock(now time.Time) error {
	if now.Equal(d.set) {
		return nil
	}
	d.set = now
	_, err := d.control.query("SELECT setval('skew.clock', " + strconv.FormatInt(now.UnixMicro(), 10) + ")")
	return err
}

// waiting returns the sessions that wait for locks.
func (d *database) waiting() ([]string, error) {
	return d.control.query("SELECT pid::text FROM pg_catalog.pg_locks WHERE NOT granted")
}

func (d *database) cancel(b *backend) error {
	_, err := d.control.query("SELECT pg_catalog.pg_cancel_backend(" + b.pid + ")")
	return err
}

// keep makes what is in the database now what each schedule begins with.
func (d *database) keep() error {
	rows, err := d.control.query(`SELECT c.oid::regclass || ' ' || string_agg(quote_ident(a.attname), ',' ORDER BY a.attnum)
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		WHERE c.relkind = 'r' AND c.relnamespace IN (` + namespaces + `) GROUP BY c.oid ORDER BY c.oid::regclass::text`)
	if err != nil {
		return err
	}
	if _, err = d.control.query("CREATE SCHEMA base"); err != nil {
		return err
	}
	for n, row := range rows {
		name, columns, _ := strings.Cut(row, " ")
		t := table{name: name, columns: columns}
		found, err := d.control.query("SELECT 1 FROM " + t.name + " LIMIT 1")
		if err != nil {
			return err
		}
		if len(found) > 0 {
			t.base = "base.t" + strconv.Itoa(n)
			if _, err := d.control.query("CREATE TABLE " + t.base + " AS SELECT * FROM " + t.name); err != nil {
				return err
			}
		}
		d.tables = append(d.tables, t)
	}
	_, err = d.control.query(`CREATE TABLE base.sequences AS SELECT format('%I.%I', schemaname, sequencename) AS name, last_value AS value
		FROM pg_catalog.pg_sequences WHERE schemaname IN ('public', '` + library + `')`)
	return err
}

// restore brings back what keep has kept. The tables' files are new, so that rows have the same places each time.
func (d *database) restore() error {
	prepared, err := d.control.query(`SELECT gid FROM pg_catalog.pg_prepared_xacts WHERE database = current_database()`)
	if err != nil {
		return err
	}
	for _, gid := range prepared {
		if _, err := d.control.query("ROLLBACK PREPARED '" + gid + "'"); err != nil {
			return err
		}
	}
	full, err := d.control.query(`SELECT oid::regclass FROM pg_catalog.pg_class
		WHERE relkind = 'r' AND relnamespace IN (` + namespaces + `) AND pg_catalog.pg_relation_size(oid) > 0`)
	if err != nil {
		return err
	}
	if len(full) == 0 {
		return nil
	}
	var sql strings.Builder
	fmt.Fprintf(&sql, "BEGIN; SET LOCAL session_replication_role = replica; TRUNCATE %s CASCADE; ", strings.Join(full, ", "))
	for _, t := range d.tables {
		if t.base != "" {
			fmt.Fprintf(&sql, "INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %[2]s FROM %s; ", t.name, t.columns, t.base)
		}
	}
	sql.WriteString(`COMMIT; SELECT CASE WHEN value IS NULL THEN setval(name::regclass, 1, false) ELSE setval(name::regclass, value) END FROM base.sequences`)
	_, err = d.control.query(sql.String())
	d.set = time.Time{}
	return err
}
