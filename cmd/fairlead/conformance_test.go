//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/conform"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// conformanceCommand is fairlead conformance on a database.
func conformanceCommand(t *testing.T, database string, args ...string) (cmd *exec.Cmd, out, log *bytes.Buffer) {
	t.Helper()
	binary, err := exec.LookPath("fairlead") // testscript has put it there: this test's own binary.
	testwait.Must(t, err)
	cmd = exec.CommandContext(t.Context(), binary, append([]string{"conformance", "--json", "--database-url", database}, args...)...)
	out, log = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), out, log
	return cmd, out, log
}

func exitStatus(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// forgetsMarks has a database forget which steps of sagas were executed, in whatever schema the marks are.
const forgetsMarks = `CREATE FUNCTION public.another() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.step := NEW.step || gen_random_uuid(); RETURN NEW; END $$;
	CREATE FUNCTION public.forget() RETURNS event_trigger LANGUAGE plpgsql AS $$
	DECLARE made record;
	BEGIN
		FOR made IN SELECT objid::regclass AS name FROM pg_event_trigger_ddl_commands() WHERE command_tag = 'CREATE TABLE' LOOP
			IF made.name::text LIKE '%saga_marks' THEN
				EXECUTE format('CREATE TRIGGER another BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION public.another()', made.name);
			END IF;
		END LOOP;
	END $$;
	CREATE EVENT TRIGGER forget ON ddl_command_end EXECUTE FUNCTION public.forget()`

// TestConformance runs the command on a database of which it says that sagas don't hold there, and why. It ends another run in the middle
// of a two-phase commit. Neither leaves anything behind.
func TestConformance(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Prepare, pgkit.Functions)
	database := pgtest.Server(t).URL()
	conn := pgtest.Connect(t, database)
	const user = `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`
	_, err := conn.Exec(t.Context(), `CREATE TABLE orders AS SELECT generate_series(1, 3) AS id`)
	testwait.Must(t, err)
	nothingLeft := func() {
		t.Helper()
		var schemas, prepared, tables int
		testwait.Must(t, conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'fairlead%'),
			(SELECT count(*) FROM pg_prepared_xacts), (`+user+`)`).Scan(&schemas, &prepared, &tables))
		if schemas+prepared > 0 || tables != 1 {
			t.Errorf("%d schemas and %d prepared transactions are left, and %d tables of the user's", schemas, prepared, tables)
		}
	}

	// interrupted interrupts a run while a transaction is prepared.
	interrupted := func() (status int, out, log *bytes.Buffer) {
		t.Helper()
		cmd, out, log := conformanceCommand(t, database, "--only", "sagas/DecisionStands")
		testwait.Must(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		testwait.Eventually(t, patience, "a transaction is prepared, or the end", func() bool {
			var prepared int
			err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_prepared_xacts WHERE starts_with(gid, 'fairlead-conformance:')`).Scan(&prepared)
			return err == nil && prepared > 0 || len(ended) > 0
		})
		if err := cmd.Process.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
			testwait.Must(t, err)
		}
		return exitStatus(<-ended), out, log
	}
	status, out, log := interrupted()
	for tries := 1; status == 0 && tries < 5; tries++ { // This process stalled until the run was over.
		status, out, log = interrupted()
	}
	if status != 2 || !strings.Contains(log.String(), "not tried  sagas: DecisionStands") {
		t.Errorf("an interrupted run ended with %d: %s", status, log)
	}
	var report conform.Report
	testwait.Must(t, json.Unmarshal(out.Bytes(), &report))
	if report.Complete || len(report.Findings) != 1 || report.Findings[0].Verdict != conformance.NotTried || len(report.Targets) != 1 {
		t.Errorf("an interrupted run reports %+v", report)
	}
	nothingLeft()

	_, err = conn.Exec(t.Context(), forgetsMarks, pgx.QueryExecModeSimpleProtocol)
	testwait.Must(t, err)
	cmd, out, log := conformanceCommand(t, database+"&synchronous_commit=off", "--only", "sagas/StepOnce,claims/Limit")
	if status := exitStatus(cmd.Run()); status != 1 {
		t.Errorf("exit status %d: %s", status, log)
	}
	report = conform.Report{}
	testwait.Must(t, json.Unmarshal(out.Bytes(), &report))
	said := map[string]conformance.Verdict{}
	for _, g := range report.Guarantees {
		said[g.Number] = g.Verdict
	}
	if report.Held || said["S1"] != conformance.Broken || said["E1"] != conformance.Held {
		t.Errorf("%+v", report)
	}
	if i := slices.IndexFunc(report.Findings, func(f conform.Finding) bool { return f.Suite == "sagas" }); i < 0 || !strings.Contains(strings.Join(report.Findings[i].Why, " "), "lamps are left") {
		t.Errorf("%+v", report.Findings)
	}
	if len(report.Targets) != 1 || !strings.Contains(strings.Join(report.Targets[0].Notes, " "), "synchronous_commit") {
		t.Errorf("%+v", report.Targets)
	}
	nothingLeft()
}
