package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestDoctorWhileTablesAreLocked: where somebody keeps tables locked that the doctor reads, it says which checks could not look and who is to blame, and
// does all others.
func TestDoctorWhileTablesAreLocked(t *testing.T) {
	s := startScene(t)
	t.Setenv(keyVariable, s.key)
	const reason = ": another session keeps a table locked that it takes"
	for _, c := range []struct {
		tables, mode     string
		database, server []string // what the doctor says of them
	}{
		{
			"archives history_losses schema_support", "ACCESS EXCLUSIVE",
			[]string{
				"WRONG: partitions: the tables of the history were not looked at" + reason, "WRONG: history: what servers have found to be lost can't be read" + reason,
				"WRONG: schema: which versions of fairlead it serves can't be read" + reason, "WRONG: integrity: the books can't be checked" + reason,
				"ok: fsync: ", "ok: sagas: ", "ok: log: ",
			},
			[]string{"ok: ready: ", "ok: sagas: ", "WRONG: integrity: the books can't be checked" + reason},
		},
		{
			"goose_db_version publications log_state", "ACCESS EXCLUSIVE",
			[]string{
				"WRONG: schema: it can't be read" + reason, "WRONG: operations: sagas, publications, rounds, draws and multi-draws were not checked" + reason,
				"WRONG: log: the public log can't be compared with the tables" + reason, "ok: fsync: ", "ok: partitions: ", "ok: history: ", "ok: integrity: ",
			},
			[]string{"ok: ready: ", "WRONG: operations: sagas, publications, rounds, draws and multi-draws were not checked" + reason, "ok: integrity: "},
		},
		// Nobody waits for a lock that stops only writers when the doctor looks.
		{"purchases_first auction_standing", "SHARE", []string{"ok: partitions: ", "ok: integrity: "}, []string{"ok: ready: "}},
	} {
		if !testwait.Torture() && !strings.Contains(c.tables, "archives") {
			continue // Each look at such tables takes seconds.
		}
		holder := pgtest.Connect(t, s.node.DatabaseURL())
		_, err := holder.Exec(t.Context(), fmt.Sprintf("SET application_name = 'somebody'; BEGIN; LOCK TABLE %s IN %s MODE", strings.ReplaceAll(c.tables, " ", ", "), c.mode))
		testwait.Must(t, err)
		testwait.Eventually(t, testwait.Patience, "the transaction is as old as what the doctor tells of", func() (old bool) {
			testwait.Must(t, holder.QueryRow(t.Context(), `SELECT clock_timestamp() - transaction_timestamp() > '5.1 s'`).Scan(&old))
			return old
		})
		who := fmt.Sprintf("WRONG: blocked: session %d (somebody, idle in transaction) has ", holder.PgConn().PID())
		for args, wants := range map[string][]string{
			"--database-url " + s.node.DatabaseURL(): append(append(strings.Fields(c.tables), who, "in "+c.mode+" mode"), c.database...),
			"--url " + s.url:                         c.server,
		} {
			out, _ := execute(t, append([]string{"doctor"}, strings.Fields(args)...)...)
			for _, want := range wants {
				if !strings.Contains(out, want) {
					t.Errorf("%s while %s are locked: no %q in\n%s", args, c.tables, want, out)
				}
			}
		}
		testwait.Must(t, holder.Close(t.Context()))
	}
}
