//go:build unix

package explore

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
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
	END $do$`

const lockTimeoutNotice = "explore lock_timeout "

// database is a real PostgreSQL database that one schedule after the other uses. Its sessions are kept, since a new one takes
// longer than all that most schedules do with it.
type database struct {
	url                   string
	dir, port, user, name string
	control               *backend
	idle                  []*backend
	set                   time.Time // what the database's clock shows

	tables []table // with what they have at the beginning of a schedule
}

type table struct {
	name    string
	columns string // that are written
	rows    bool   // whether it has any at the beginning
}

// openDatabase makes a database of its own for a test.
func openDatabase(tb testing.TB, migrate pgtest.Migrate) *database {
	tb.Helper()
	d := &database{url: pgtest.NewDatabase(tb, migrate)}
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
	return d
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
	rows, err := d.control.query(`SELECT c.relname || ' ' || string_agg(quote_ident(a.attname), ',' ORDER BY a.attnum)
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace GROUP BY c.relname ORDER BY c.relname`)
	if err != nil {
		return err
	}
	if _, err = d.control.query("CREATE SCHEMA base"); err != nil {
		return err
	}
	for _, row := range rows {
		name, columns, _ := strings.Cut(row, " ")
		t := table{name: "public." + name, columns: columns}
		found, err := d.control.query("SELECT 1 FROM " + t.name + " LIMIT 1")
		if err != nil {
			return err
		}
		if t.rows = len(found) > 0; t.rows {
			if _, err := d.control.query("CREATE TABLE base." + name + " AS SELECT * FROM " + t.name); err != nil {
				return err
			}
		}
		d.tables = append(d.tables, t)
	}
	_, err = d.control.query(`CREATE TABLE base.sequences AS SELECT format('%I.%I', schemaname, sequencename) AS name, last_value AS value
		FROM pg_catalog.pg_sequences WHERE schemaname = 'public'`)
	return err
}

// restore brings back what keep has kept. The tables' files are new, so that rows have the same places each time.
func (d *database) restore() error {
	full, err := d.control.query(`SELECT 'public.' || relname FROM pg_catalog.pg_class
		WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_catalog.pg_relation_size(oid) > 0`)
	if err != nil {
		return err
	}
	if len(full) == 0 {
		return nil
	}
	var sql strings.Builder
	fmt.Fprintf(&sql, "BEGIN; SET LOCAL session_replication_role = replica; TRUNCATE %s CASCADE; ", strings.Join(full, ", "))
	for _, t := range d.tables {
		if t.rows {
			fmt.Fprintf(&sql, "INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %[2]s FROM base.%s; ", t.name, t.columns, strings.TrimPrefix(t.name, "public."))
		}
	}
	sql.WriteString(`COMMIT; SELECT CASE WHEN value IS NULL THEN setval(name::regclass, 1, false) ELSE setval(name::regclass, value) END FROM base.sequences`)
	_, err = d.control.query(sql.String())
	d.set = time.Time{}
	return err
}
