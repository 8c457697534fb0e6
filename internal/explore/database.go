//go:build unix

package explore

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// clocksIn are PostgreSQL's clocks, which show what the scheduler has set, and a set_config that tells the gate how long a statement may
// wait for a lock, because the gate lets it wait by the scheduler's time and not by the machine's. What they show is in a file: it is the same to
// all sessions at once, and to write it costs less than to ask PostgreSQL for anything. Functions in PL/pgSQL are parsed once a session, those in SQL once a
// statement that calls them.
//
// What names a run of PostgreSQL shows another one after each failure that a schedule lets happen, see [World.Lose].
func clocksIn(file string) string { return strings.ReplaceAll(clocks, "'the clock'", "'"+file+"'") }

const clocks = `CREATE FUNCTION skew.life() RETURNS integer LANGUAGE sql STABLE
		AS $$ SELECT coalesce(nullif(pg_catalog.current_setting('skew.life', true), ''), '0')::integer $$;
	CREATE FUNCTION skew.pg_postmaster_start_time() RETURNS timestamptz LANGUAGE sql STABLE
		AS $$ SELECT timestamptz 'epoch' + skew.life() * interval '1 day' $$;
	CREATE FUNCTION skew.pg_walfile_name(place pg_lsn) RETURNS text LANGUAGE sql STABLE
		AS $$ SELECT lpad(upper(to_hex(skew.life() + 1)), 8, '0') || substr(pg_catalog.pg_walfile_name(place), 9) $$;
	CREATE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE
		AS $$ BEGIN RETURN timestamptz 'epoch' + pg_catalog.pg_read_file('the clock')::bigint * interval '1 microsecond'; END $$;
	CREATE FUNCTION skew.statement_timestamp() RETURNS timestamptz LANGUAGE plpgsql STABLE
		AS $$ BEGIN RETURN timestamptz 'epoch' + pg_catalog.pg_read_file('the clock')::bigint * interval '1 microsecond'; END $$;
	CREATE TABLE skew.prepared (gid text PRIMARY KEY, at timestamptz NOT NULL);
	CREATE VIEW skew.pg_prepared_xacts AS SELECT x.transaction, x.gid, coalesce(p.at, x.prepared) AS prepared, x.owner, x.database
		FROM pg_catalog.pg_prepared_xacts x LEFT JOIN skew.prepared p USING (gid);
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

// vacuumEvery is after how many schedules PostgreSQL's own tables are vacuumed: the temporary tables of servers and checks fill them.
const vacuumEvery = 200

const lockTimeoutNotice = "explore lock_timeout "

// database is a real PostgreSQL database that one schedule after the other uses. Its sessions are kept, since a new one takes
// longer than all that most schedules do with it.
type database struct {
	url                   string
	dir, port, user, name string
	control               *backend
	idle                  map[string][]*backend    // by what their connections were for
	clock                 *os.File                 // what the database's clock shows
	set                   time.Time                // the same
	limits                map[string]time.Duration // of the waits for locks in functions, by name
	notify                []string                 // names of functions that notify others
	life                  int                      // how often it has failed in this schedule
	schedules             int                      // that it was restored for
	catalogs              string                   // PostgreSQL's own tables

	tables map[string]table // by name
	base   image            // what each schedule begins with
	past   image            // what it comes back as when it fails
}

type table struct {
	number  int
	columns string // that are written
}

// image is what the tables had at some moment. It is kept in a schema, which has a table for each that had something.
type image struct {
	schema string
	full   []string
}

// openDatabase makes a database of its own for a test, in which install may make more tables.
func openDatabase(tb testing.TB, migrate pgtest.Migrate, install func(context.Context, *pgx.Conn) error) *database {
	tb.Helper()
	d := &database{url: pgtest.NewDatabase(tb, migrate), limits: map[string]time.Duration{}, idle: map[string][]*backend{}}
	conn, err := pgx.Connect(tb.Context(), d.url)
	testwait.Must(tb, err)
	testwait.Must(tb, testwait.Err(conn.Exec(tb.Context(), "CREATE SCHEMA "+library)))
	if install != nil {
		testwait.Must(tb, install(tb.Context(), conn))
	}
	testwait.Must(tb, conn.Close(tb.Context()))
	d.clock, err = os.Create(filepath.Join(tb.TempDir(), "clock"))
	testwait.Must(tb, err)
	tb.Cleanup(func() { _ = d.clock.Close() })
	testwait.Must(tb, d.setClock(time.Unix(0, 0)))
	pgtest.Shadow(tb, d.url, clocksIn(d.clock.Name()))
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
		d.control.close()
		for _, all := range d.idle {
			for _, b := range all {
				b.close()
			}
		}
	})
	testwait.Must(tb, d.takeLimits())
	testwait.Must(tb, d.vacuumAlone())
	d.notify, err = d.control.query(`WITH RECURSIVE n AS (
			SELECT proname, oid FROM pg_catalog.pg_proc WHERE prosrc ~* '\mnotify\M|pg_notify' AND pronamespace <> 'pg_catalog'::regnamespace
			UNION SELECT p.proname, p.oid FROM pg_catalog.pg_proc p JOIN n ON strpos(p.prosrc, n.proname) > 0 AND p.pronamespace <> 'pg_catalog'::regnamespace
		) SELECT DISTINCT proname FROM n`)
	testwait.Must(tb, err)
	return d
}

// notifying says that a statement may notify sessions that listen.
func (d *database) notifying(sql string) bool {
	return strings.Contains(strings.ToLower(sql), "notify") || slices.ContainsFunc(d.notify, func(function string) bool { return strings.Contains(sql, function) })
}

// vacuumAlone has PostgreSQL leave its own tables to [database.vacuum]. When it vacuums one, it may lock it for a moment to cut off its end: a statement
// that waits for that is one more in a schedule, and by the scheduler's time it waits for too long.
func (d *database) vacuumAlone() error {
	catalogs, err := d.control.query(`SELECT oid::regclass::text FROM pg_catalog.pg_class WHERE relkind = 'r' AND relnamespace = 'pg_catalog'::regnamespace`)
	d.catalogs = strings.Join(catalogs, ", ")
	for _, sql := range []string{"ALTER SYSTEM SET autovacuum = off", "SELECT pg_catalog.pg_reload_conf()"} {
		if err == nil {
			_, err = d.control.query(sql)
		}
	}
	return err
}

// vacuum vacuums PostgreSQL's own tables now and then, while nobody is connected.
func (d *database) vacuum() error {
	if d.schedules++; d.schedules%vacuumEvery != 0 {
		return nil
	}
	_, err := d.control.query("VACUUM (TRUNCATE false) " + d.catalogs)
	return err
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

// take returns a session that is as new, but for the statements that it has prepared: so it had better be one that was for the same.
func (d *database) take(what string) (*backend, error) {
	all := d.idle[what]
	if len(all) == 0 {
		b, err := d.connect()
		if err == nil {
			b.what = what
		}
		return b, err
	}
	b := all[len(all)-1]
	d.idle[what] = all[:len(all)-1]
	return b, nil
}

// give ends a session's transaction as a disconnection does, and keeps the session: it does what DISCARD ALL does, and leaves prepared
// statements.
func (d *database) give(b *backend) error {
	sql := `ROLLBACK; CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_catalog.pg_advisory_unlock_all();
		DISCARD TEMP; DISCARD SEQUENCES`
	if b.stale {
		sql += "; DEALLOCATE ALL"
		clear(b.prepared)
		clear(b.names)
		b.stale = false
	}
	_, err := b.query(sql)
	d.idle[b.what] = append(d.idle[b.what], b)
	return err
}

// setClock has the database's clock show a time.
func (d *database) setClock(now time.Time) error {
	if now.Equal(d.set) {
		return nil
	}
	d.set = now
	_, err := d.clock.WriteAt(fmt.Appendf(nil, "%020d", now.UnixMicro()), 0) // Always as many bytes.
	return err
}

// prepares notes when a transaction is prepared. PostgreSQL's own time of that is the machine's.
func (d *database) prepares(gid string) error {
	_, err := d.control.query("INSERT INTO skew.prepared VALUES ('" + gid + "', skew.clock_timestamp()) ON CONFLICT (gid) DO UPDATE SET at = excluded.at")
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
func (d *database) keep() (err error) {
	rows, err := d.control.query(`SELECT c.oid::regclass || ' ' || string_agg(quote_ident(a.attname), ',' ORDER BY a.attnum)
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		WHERE c.relkind = 'r' AND c.relnamespace IN (` + namespaces + `) GROUP BY c.oid ORDER BY c.oid::regclass::text`)
	if err != nil {
		return err
	}
	d.tables = map[string]table{}
	for n, row := range rows {
		name, columns, _ := strings.Cut(row, " ")
		d.tables[name] = table{n, columns}
	}
	d.base, err = d.copyTo("base")
	return err
}

// full are the tables that have something, or had.
func (d *database) full() ([]string, error) {
	return d.control.query(`SELECT oid::regclass::text FROM pg_catalog.pg_class
		WHERE relkind = 'r' AND relnamespace IN (` + namespaces + `) AND pg_catalog.pg_relation_size(oid) > 0 ORDER BY 1`)
}

// copyTo keeps what is committed now.
func (d *database) copyTo(schema string) (i image, err error) {
	i.schema = schema
	if i.full, err = d.full(); err != nil {
		return i, err
	}
	var sql strings.Builder
	fmt.Fprintf(&sql, `BEGIN; SET LOCAL client_min_messages = warning; CREATE SCHEMA IF NOT EXISTS %s; CREATE TABLE IF NOT EXISTS %[1]s.sequences (name text, value bigint);
		DELETE FROM %[1]s.sequences; INSERT INTO %[1]s.sequences SELECT format('%%I.%%I', schemaname, sequencename), last_value
			FROM pg_catalog.pg_sequences WHERE schemaname IN ('public', '%s'); `, schema, library)
	for _, name := range i.full {
		fmt.Fprintf(&sql, "CREATE TABLE IF NOT EXISTS %[1]s AS SELECT * FROM %[2]s WITH NO DATA; TRUNCATE %[1]s; INSERT INTO %[1]s SELECT * FROM %[2]s; ", i.of(d.tables[name]), name)
	}
	sql.WriteString("COMMIT")
	_, err = d.control.query(sql.String())
	return i, err
}

// of names the table that has what another one had.
func (i image) of(t table) string { return i.schema + ".t" + strconv.Itoa(t.number) }

// restore brings back what each schedule begins with.
func (d *database) restore() error {
	d.life, d.set = 0, time.Time{}
	if err := d.vacuum(); err != nil {
		return err
	}
	return d.bring(d.base)
}

// bring brings back an image, while nobody is connected. The tables' files are new, so that rows have the same places each time.
func (d *database) bring(i image) error {
	prepared, err := d.prepared()
	if err != nil {
		return err
	}
	for _, gid := range prepared {
		if _, err := d.control.query("ROLLBACK PREPARED '" + gid + "'"); err != nil {
			return err
		}
	}
	if len(prepared) > 0 {
		if _, err := d.control.query("DELETE FROM skew.prepared"); err != nil {
			return err
		}
	}
	full, err := d.full()
	if err != nil || len(full) == 0 {
		return err
	}
	var sql strings.Builder
	fmt.Fprintf(&sql, "BEGIN; SET LOCAL session_replication_role = replica; TRUNCATE %s CASCADE; ", strings.Join(full, ", "))
	for _, name := range i.full {
		t := d.tables[name]
		fmt.Fprintf(&sql, "INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %[2]s FROM %s; ", name, t.columns, i.of(t))
	}
	fmt.Fprintf(&sql, `COMMIT; SELECT CASE WHEN value IS NULL THEN setval(name::regclass, 1, false) ELSE setval(name::regclass, value) END FROM %s.sequences`, i.schema)
	_, err = d.control.query(sql.String())
	return err
}

// keepsAll says that the image of the past has all answers and all beats of servers.
func (d *database) keepsAll() (bool, error) {
	for _, name := range []string{"idempotency_keys", "servers"} {
		now, past := "SELECT * FROM "+name, "SELECT * FROM "+d.past.of(d.tables[name])
		if !slices.Contains(d.past.full, name) {
			past = now + " WHERE false"
		}
		differ, err := d.control.query("SELECT 1 FROM (" + now + " EXCEPT " + past + ") n LIMIT 1")
		if err != nil || len(differ) > 0 {
			return false, err
		}
	}
	return true, nil
}

// prepared are the transactions that wait for a second phase.
func (d *database) prepared() ([]string, error) {
	return d.control.query(`SELECT gid FROM pg_catalog.pg_prepared_xacts WHERE database = current_database()`)
}
