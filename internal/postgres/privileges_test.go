package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// asRole makes a role for a test and returns the address of the database for it. statements are run once it is there, with @ for its name.
func asRole(t *testing.T, url string, statements ...string) (role, address string) {
	t.Helper()
	conn := pgtest.Connect(t, url)
	role = "limited_" + strings.ReplaceAll(newID().String(), "-", "")
	for _, sql := range append([]string{`CREATE ROLE @`}, statements...) {
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), strings.ReplaceAll(sql, "@", role))))
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, url)
		testwait.Must(t, err)
		_, err = conn.Exec(ctx, `DROP OWNED BY `+role+`; DROP ROLE `+role)
		testwait.Check(t, errors.Join(err, conn.Close(ctx)))
	})
	return role, url + "&role=" + role
}

// unneeded are tables that the server's role need not use: whoever owns the tables makes the schema's steps, and archives.
func unneeded() []string { return []string{"archive_sums", "goose_lock"} }

// TestPrivilegesAreThoseOfTheStatements takes each privilege on each table from a role, and sees which statements of this package it may not run then. That is
// what the doctor has to ask for, and no more. Of the tables that packages bring, whose statements are theirs, the names are compared.
func TestPrivilegesAreThoseOfTheStatements(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Functions, pgkit.Partitions)
	url := database(t)
	owner := pgtest.Connect(t, url)
	role, address := asRole(t, url, `GRANT ALL ON ALL TABLES IN SCHEMA public TO @`)
	conn := pgtest.Connect(t, address)
	for _, sql := range []string{makeScratch, `SET plan_cache_mode = force_generic_plan`} {
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sql)))
	}
	explained := explainable(t, conn)
	if len(explained) < 300 {
		t.Errorf("only %d statements can be explained", len(explained))
	}
	tables := askAll[string](t, owner, `SELECT relname FROM pg_class WHERE relkind IN ('r', 'p', 'v') AND NOT relispartition
		AND relnamespace = 'public'::regnamespace AND relname <> ALL($1) ORDER BY 1`, unneeded())
	listed := commandRights().with(otherRights())
	for table := range listed {
		if !slices.Contains(tables, table) {
			t.Errorf("there is no table %s", table)
		}
	}
	references := commandRights().with(referenceRights())
	for _, table := range askAll[string](t, owner, `SELECT DISTINCT confrelid::regclass::text FROM pg_constraint WHERE contype = 'f' AND confrelid <> ALL($1::text[]::regclass[])`, []string{"archives"}) {
		if !strings.Contains(references[table], "r") || !strings.Contains(references[table], "w") {
			t.Errorf("a foreign key names rows of %s, whose owner is not asked for SELECT and UPDATE", table)
		}
	}
	owners := listed.with(ownerRights())
	for _, table := range askAll[string](t, owner, `SELECT DISTINCT table_name::text FROM information_schema.view_table_usage WHERE view_schema = 'public'`) {
		if !strings.Contains(owners[table], "r") {
			t.Errorf("a view reads %s, whose owner is not asked for SELECT", table)
		}
	}
	for _, table := range tables {
		if strings.HasPrefix(table, "lock_") || strings.HasPrefix(table, "saga") {
			if listed[table] == "" {
				t.Errorf("nothing says what is needed on %s", table)
			}
			continue
		}
		word := regexp.MustCompile(`\b` + table + `\b`)
		for letter, privilege := range privilegesByLetter() {
			testwait.Must(t, testwait.Err(owner.Exec(t.Context(), fmt.Sprintf(`REVOKE %s ON %s FROM %s`, privilege, table, role))))
			var fails string
			for sql, s := range explained {
				if !word.MatchString(s.sql) || s.sql == deleteTwice { // Only who owns the schema's table deletes there.
					continue
				}
				if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); pgkit.IsDenied(err) {
					fails = s.at
				}
			}
			if needs := strings.Contains(listed[table], letter); needs != (fails != "") {
				t.Errorf("%s on %s is asked for: %t, and without it this fails: %q", privilege, table, needs, fails)
			}
			testwait.Must(t, testwait.Err(owner.Exec(t.Context(), fmt.Sprintf(`GRANT %s ON %s TO %s`, privilege, table, role))))
		}
	}
}

// privilegesByLetter are those that are taken from a role.
func privilegesByLetter() map[string]string {
	return map[string]string{"r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE"}
}

// explainable are the statements of this package by an EXPLAIN of each, which checks privileges.
func explainable(t *testing.T, conn *pgx.Conn) map[string]statement {
	t.Helper()
	explained := map[string]statement{}
	for i, s := range append(parsePackage(t).found, statement{sql: claimDue(), at: "claimDue"}) {
		prepared, err := conn.Prepare(t.Context(), fmt.Sprintf("s%d", i), s.sql)
		testwait.Must(t, err)
		sql := "EXPLAIN EXECUTE " + prepared.Name
		if n := len(prepared.ParamOIDs); n > 0 {
			sql += "(" + strings.TrimSuffix(strings.Repeat("NULL,", n), ",") + ")"
		}
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err == nil {
			explained[sql] = s
		}
	}
	return explained
}

// askAll reads the only column of all rows.
func askAll[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) []T {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, args...)
	testwait.Must(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[T])
	testwait.Must(t, err)
	return all
}

// TestTheDoctorsGrantIsEnough: a role that lacks everything has what it needs after the SQL that the doctor prints, also in the schema of elections; and
// readiness tells of what commands need alone, and by itself no longer once that is granted.
func TestTheDoctorsGrantIsEnough(t *testing.T) {
	t.Parallel()
	url := database(t)
	owner := pgtest.Connect(t, url)
	role, address := asRole(t, url, `GRANT SELECT ON ALL TABLES IN SCHEMA public TO @`)
	db := open(t, Options{URL: address})
	lacks := func() *PrivilegesError {
		t.Helper()
		lacks, err := db.allLacks(t.Context())
		testwait.Must(t, err)
		return lacks
	}
	becomes(t, db, operator.UnreadyReadOnly)
	first := lacks()
	for _, want := range []string{"GRANT USAGE ON SCHEMA fairlead_elections TO " + role, "fairlead_elections.lock_grants", "multidraw_seeds", "console_links", "log_tiles"} {
		if !strings.Contains(first.Grant(), want) {
			t.Errorf("no %q in %s", want, first.Grant())
		}
	}
	for sql := range strings.SplitSeq(first.Grant(), "; ") {
		testwait.Must(t, testwait.Err(owner.Exec(t.Context(), sql)))
	}
	if left := lacks(); left != nil {
		t.Errorf("after the GRANT: %v", left)
	}
	becomes(t, db, "")
	// Each right of its own is missed, wherever it is.
	for on, rights := range map[string]rights{"": commandRights().with(otherRights()), "fairlead_elections.": electionRights()} {
		for table, letters := range rights {
			for letter := range strings.SplitSeq(letters, "") {
				privilege := privilegesByLetter()[letter]
				testwait.Must(t, testwait.Err(owner.Exec(t.Context(), fmt.Sprintf(`REVOKE %s ON %s%s FROM %s`, privilege, on, table, role))))
				missing := lacks()
				if want := "the role " + role + " lacks " + privilege + " on " + on + table; missing == nil || missing.Error() != want {
					t.Errorf("%v, want %s", missing, want)
					continue
				}
				testwait.Must(t, testwait.Err(owner.Exec(t.Context(), missing.Grant())))
			}
		}
	}
	execOn := func(sql string) { testwait.Must(t, testwait.Err(owner.Exec(t.Context(), sql))) }
	execOn(`REVOKE INSERT ON console_links FROM ` + role) // No command needs it.
	becomes(t, db, "")
	execOn(`REVOKE UPDATE ON accounts FROM ` + role)
	becomes(t, db, operator.UnreadyReadOnly)
	if err := db.Ready(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "the role "+role+" lacks UPDATE on accounts") {
		t.Errorf("readiness says: %v", err)
	}
	execOn(`GRANT UPDATE ON accounts TO ` + role)
	becomes(t, db, "")
}
