package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// execs runs statements on a database, each by itself and without waiting for a standby.
func execs(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	testwait.Must(t, err)
	for _, sql := range append([]string{`SET synchronous_commit = local`}, statements...) {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	testwait.Check(t, conn.Close(t.Context()))
}

// turns waits until /readyz gives a reason for being unready, or is 200 with none.
func (s *scene) turns(reason string) {
	s.t.Helper()
	s.eventually("/readyz says "+reason, func() bool {
		doc, status := s.try(http.MethodGet, "/readyz", nil)
		said, _ := doc["reason"].(string)
		return said == reason && (status == http.StatusOK) == (reason == "")
	})
}

// finds fails the test unless the doctor says all of this of a database that is not healthy.
func finds(t *testing.T, url string, want ...string) {
	t.Helper()
	said, err := execute(t, "doctor", "--database-url", url)
	for _, words := range append(want, "NOT HEALTHY") {
		if err == nil || !strings.Contains(said, words) {
			t.Errorf("no %q in %v\n%s", words, err, said)
		}
	}
}

// TestStartWithoutItsStandby starts a server while the configured synchronous standby is away. It warns, and serves once commits end:
// to refuse would make the fault last longer.
func TestStartWithoutItsStandby(t *testing.T) {
	t.Parallel()
	url := pgtest.Server(t).URL()
	log := &testwait.Buffer{}
	database := func(o *fairlead.Options) {
		o.DatabaseURL, o.AdminKey, o.Logger = url, strings.Repeat("k", 32), slog.New(slog.NewTextHandler(log, nil))
	}
	startSceneWith(t, database).stop()
	execs(t, url, `ALTER SYSTEM SET synchronous_standby_names = 'ghost'`, `SELECT pg_reload_conf()`)
	s := startSceneWith(t, database)
	s.key = strings.Repeat("k", 32)
	s.turns("commit_timeout")
	if said := log.String(); !strings.Contains(said, "level=WARN") || !strings.Contains(said, "no such standby is connected") {
		t.Errorf("the log says %s", said)
	}
	finds(t, url, `warning: replication: synchronous_standby_names is "ghost", and no such standby is connected`, "WRONG: commits: ")
	execs(t, url, `ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`)
	s.turns("")
	s.account("ann", 10)
}

// TestSchemaOutOfRange has a server at work, a starting one and the doctor meet schemas that they can't work with.
func TestSchemaOutOfRange(t *testing.T) {
	t.Parallel()
	url := pgtest.Server(t).URL()
	s := startSceneWith(t, func(o *fairlead.Options) { o.DatabaseURL = url })
	refuses := func(want ...string) {
		t.Helper()
		_, err := execute(t, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--database-url", url)
		for _, words := range want {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("serve: no %q in %v", words, err)
			}
		}
	}
	s.turns("")
	const newest = `(SELECT max(version_id) FROM goose_db_version WHERE is_applied)`

	// A step behind: a start would bring it up to date.
	execs(t, url, `UPDATE goose_db_version SET is_applied = false WHERE version_id = `+newest)
	s.turns("schema")
	finds(t, url, "WRONG: commits: ", "WRONG: schema: migration ", " is pending", "to mend it: run fairlead migrate up")
	execs(t, url, `UPDATE goose_db_version SET is_applied = true`)
	s.turns("")

	// Older than the first step of all.
	execs(t, url, `CREATE TABLE kept AS SELECT * FROM goose_db_version`, `DELETE FROM goose_db_version WHERE version_id > 0`,
		`INSERT INTO goose_db_version (version_id, is_applied) VALUES (19, true)`)
	s.turns("schema")
	refuses("the schema was made by a version before the first release", "it is at step 19, and 20 is the first")
	finds(t, url, "WRONG: commits: ", "WRONG: schema: migration 20 is pending")
	execs(t, url, `DELETE FROM goose_db_version`, `INSERT INTO goose_db_version SELECT * FROM kept`, `DROP TABLE kept`)
	s.turns("")

	// A later version has removed something. A schema that is merely later is served.
	execs(t, url, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, true)`)
	if said, err := execute(t, "doctor", "--database-url", url); err != nil {
		t.Errorf("a schema that is merely later: %v\n%s", err, said)
	}
	s.turns("")
	execs(t, url, `UPDATE schema_support SET oldest = 999`)
	s.turns("schema")
	refuses("the schema is too new for this version of Fairlead", "it is at step 1000, which binaries from step 999 on can work with", "install the newer version")
	for _, verb := range []string{"keys list", "integrity", "archive --before 1h --to " + t.TempDir()} {
		said, err := execute(t, append(strings.Fields(verb), "--database-url", url)...)
		if !errors.Is(err, postgres.ErrTooNew) {
			t.Errorf("%s: %v\n%s", verb, err, said)
		}
	}
	finds(t, url, "WRONG: commits: ", "WRONG: schema: the schema serves versions that know step 999 and later", "to mend it: install the newer version")
}

// TestServeIsEndedWhileItStarts: whoever ends a server before it is ready gets no error, and it says so.
func TestServeIsEndedWhileItStarts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var said testwait.Buffer
	root := newRoot()
	root.SetErr(&said)
	root.SetArgs([]string{"serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--database-url", "postgres://127.0.0.1:1/none"})
	if err := root.ExecuteContext(ctx); err != nil {
		t.Errorf("%v, %s", err, said.String())
	}
}
