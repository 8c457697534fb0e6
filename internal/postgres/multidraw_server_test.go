package postgres

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// TestMultidrawOutlivesItsDatabase kills PostgreSQL under a run, which goes on by itself when it is back.
func TestMultidrawOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	testwait.Must(t, testwait.Err(Migrate(t.Context(), server.URL())))
	db := open(t, Options{URL: server.URL()})
	s := newMultidraws(t, NewMultidraws(db), multidraw.Options{})
	o := made(t, s, inRange("k", 800_000, true))
	testwait.Eventually(t, patience, "some checkpoints", func() bool { return operation(t, s, o.ID).Checkpoints > 20 })
	pgtest.Restart(t, server)
	testwait.Eventually(t, patience, "an answer", func() bool { return db.pool.Ping(t.Context()) == nil })
	if now := operation(t, s, o.ID); now.Completed == now.Total {
		t.Fatal("it was killed too late")
	}
	done := awaitStatus(t, s, o.ID, multidraw.StatusCompleted)
	if done.Term != 1 {
		t.Errorf("term %d", done.Term)
	}
	checkSaved(t, db, s, done)
	auditDatabase(t, server.URL())
}
