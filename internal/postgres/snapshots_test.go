package postgres

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestSnapshotHolders finds a repeatable-read reader, a writer and a prepared transaction by what they hold, and not an idle session, nor
// one between two statements of READ COMMITTED, which hold nothing.
func TestSnapshotHolders(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, migrated)
	db := open(t, Options{URL: url})
	session := func(name string, steps ...string) *pgx.Conn {
		t.Helper()
		conn := pgtest.Connect(t, url)
		for _, sql := range append([]string{`SET application_name = '` + name + `'`}, steps...) {
			testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sql)))
		}
		return conn
	}
	reader := session("reader", `BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM accounts`)
	writer := session("writer", `BEGIN`, `SELECT pg_current_xact_id()`)
	session("idle")
	session("between", `BEGIN`, `SELECT count(*) FROM accounts`)
	prepared := session("", `BEGIN`, `SELECT pg_current_xact_id()`, `PREPARE TRANSACTION 'old'`)
	t.Cleanup(func() {
		testwait.Check(t, testwait.Err(db.pool.Exec(context.Background(), `ROLLBACK PREPARED 'old'`)))
	})
	testwait.Must(t, prepared.Close(t.Context()))
	holders, err := db.SnapshotHolders(t.Context())
	testwait.Must(t, err)
	for _, want := range []SnapshotHolder{
		{Kind: "session", PID: int32(reader.PgConn().PID()), Name: "reader", State: "idle in transaction", Query: "SELECT count(*) FROM accounts"},
		{Kind: "session", PID: int32(writer.PgConn().PID()), Name: "writer", State: "idle in transaction", Query: "SELECT pg_current_xact_id()"},
		{Kind: "prepared", Name: "old", State: "prepared"},
	} {
		at := slices.IndexFunc(holders, func(h SnapshotHolder) bool { return h.Name == want.Name && h.Kind == want.Kind })
		if at < 0 {
			t.Errorf("%s is not found among %+v", want.Name, holders)
			continue
		}
		if got := holders[at]; got.Seconds <= 0 || got.Transactions < 1 || got.PID != want.PID || got.State != want.State || got.Query != want.Query {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	for _, h := range holders {
		if h.Name == "idle" || h.Name == "between" {
			t.Errorf("%+v holds nothing", h)
		}
	}
}

// TestOldSnapshotsAreNamed: the doctor's words about each kind, and none about what is young.
func TestOldSnapshotsAreNamed(t *testing.T) {
	t.Parallel()
	if f, old := (&SnapshotHolder{Kind: "session", Seconds: 59, Transactions: 999_999}).finding(); old {
		t.Errorf("it is young: %+v", f)
	}
	for _, c := range []struct {
		holder          SnapshotHolder
		message, remedy string
	}{
		{
			SnapshotHolder{Kind: "session", PID: 7, Name: "pg_dump", State: "active", Query: "COPY accounts TO stdout", Seconds: 600},
			"session 7 (pg_dump, active) has held a transaction for 600 s; its statement: COPY accounts TO stdout", "pg_terminate_backend(7)",
		},
		{SnapshotHolder{Kind: "prepared", Name: "fairlead_1", Seconds: 61}, "prepared transaction fairlead_1 has been open for 61 s", "fairlead sagas in-doubt"},
		{SnapshotHolder{Kind: "slot", Name: "old_standby", State: "inactive", Transactions: 2_000_000}, "slot old_standby (inactive) holds a snapshot that is 2000000", "pg_drop_replication_slot('old_standby')"},
		{SnapshotHolder{Kind: "standby", Name: "replica", State: "streaming", Transactions: 2_000_000}, "standby replica (streaming)", "hot_standby_feedback"},
	} {
		f, old := c.holder.finding()
		if !old || f.Fatal || f.Check != "snapshots" || !strings.Contains(f.Message, c.message) || !strings.Contains(f.Remedy, c.remedy) {
			t.Errorf("%+v: %v %+v", c.holder, old, f)
		}
	}
}
