package main

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
)

// TestFullDisk has a database refuse tables as one with a full disk does. The message says so and what to do, and nothing of what the program tried.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	const (
		full   = "the database's disk is full: ERROR: could not extend file: No space left on device (SQLSTATE 53100)"
		remedy = "make room on the database's disk"
	)
	for _, c := range []struct {
		refuses string // of what is made
		args    []string
		want    string
	}{
		{"fairlead_probe", []string{"keys", "create", "--role", "reader", "--name", "graphs"}, full},
		{"transfers", []string{"migrate", "up"}, "migrate: " + full + ": when there is room, the next try goes on from there"},
	} {
		url := pgtest.Server(t).URL()
		execs(t, url, `CREATE FUNCTION full_disk() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
				IF current_query() ILIKE '%CREATE TEMP%`+c.refuses+`%' OR current_query() ILIKE '%CREATE TABLE `+c.refuses+`%' THEN
					RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
				END IF;
			END $$`, `CREATE EVENT TRIGGER full_disk ON ddl_command_start EXECUTE FUNCTION full_disk()`)
		_, err := execute(t, append(c.args, "--database-url", url)...)
		if err == nil || say(err) != c.want || nextStep(err) != remedy {
			t.Errorf("%v: %v", c.args, err)
			if err != nil {
				t.Errorf("which is printed as %q, and %q", say(err), nextStep(err))
			}
		}
	} // A private PostgreSQL may have no room for the database itself.
	made := fmt.Errorf("private PostgreSQL: create database fairlead: %w", &pgconn.PgError{Severity: "ERROR", Code: "53100", Message: "could not extend file"})
	if nextStep(made) != remedy {
		t.Errorf("%v: %q", made, nextStep(made))
	}
}
