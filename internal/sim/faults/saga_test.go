//go:build unix

package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// TestSagasRetry takes a ledger's database away in the middle of transfers to it.
func TestSagasRetry(t *testing.T) {
	torture(t)
	database, other := newDatabase(t), newServer(t, "")
	otherDatabase, err := localpg.URLOf(other.DataDir())
	testwait.Must(t, err)
	other.accounts(t, "there")
	server := newServer(t, database, "--ledger", "eu="+otherDatabase)
	server.accounts(t, "here")
	s := newStage(t, database, server)
	// They have left their own ledger and wait for the other, when that goes away.
	blocks(t, otherDatabase, `SELECT FROM accounts WHERE id = 'there' FOR UPDATE`)
	stop := load(t, 30, func(ctx context.Context) {
		_, _ = server.tries(ctx, http.MethodPost, "/v1/cross-transfers",
			`{"from":{"ledger":"local","account":"here"},"to":{"ledger":"eu","account":"there"},"amount":1,"mode":"saga"}`)
		wait.For(ctx, time.Second)
	})
	testwait.Eventually(t, patience, "transfers are under way", func() bool {
		return queried[int](t, database, `SELECT count(*) FROM sagas WHERE status = 'pending'`) >= 20
	})
	s.breaks()
	other.kill(t)
	testwait.Must(t, sim.KillPostgres(other.DataDir(), true))
	s.fires("FairleadLedgerUnreachable")
	s.fires("FairleadSagasRetry")
	stop()
	section := sectionOf(t, "FairleadSagasRetry")
	s.operator.runs(t, section, "fairlead sagas list")
	section.says(t, "bring that database back")
	sectionOf(t, "FairleadLedgerUnreachable").says(t, "bring it back")
	other.start(t)
	s.ends("FairleadLedgerUnreachable", "the ledger's database came back")
	s.ends("FairleadSagasRetry", "likewise")
	testwait.Eventually(t, patience, "all transfers have ended", func() bool {
		return queried[int](t, database, `SELECT count(*) FROM sagas WHERE status = 'pending'`) == 0
	})
}

// TestInDoubt kills a coordinator between the preparation and the decision.
func TestInDoubt(t *testing.T) {
	torture(t)
	database, other := newDatabase(t), newServer(t, "")
	otherDatabase, err := localpg.URLOf(other.DataDir())
	testwait.Must(t, err)
	other.accounts(t, "there")
	first, second := newServer(t, database, "--ledger", "eu="+otherDatabase), newServer(t, database, "--ledger", "eu="+otherDatabase)
	first.accounts(t, "here")
	s := newStage(t, database, second, first)
	first.kill(t)
	first.start(t, "FAIRLEAD_CRASH_AT=cross.ready")
	s.breaks()
	_, _ = first.tries(testwait.Context(t, patience), http.MethodPost, "/v1/cross-transfers",
		`{"from":{"ledger":"local","account":"here"},"to":{"ledger":"eu","account":"there"},"amount":1,"mode":"twophase"}`)
	<-first.Exited()
	s.fires("FairleadInDoubt")
	section := sectionOf(t, "FairleadInDoubt")
	s.operator.runs(t, section, "fairlead sagas in-doubt")
	section.says(t, "Restart a server that hangs")
	first.start(t)
	s.ends("FairleadInDoubt", "the coordinator was started again")
	testwait.Eventually(t, patience, "nothing is prepared", func() bool {
		const prepared = `SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()`
		return queried[int](t, database, prepared)+queried[int](t, otherDatabase, prepared) == 0
	})
}

// TestMultidrawInterrupted kills the only server in the middle of an operation, and starts it when the rule's window has
// nothing of it any more.
func TestMultidrawInterrupted(t *testing.T) {
	database, server, s := scene(t)
	server.kill(t)
	server.start(t, "FAIRLEAD_CRASH_AT=multidraw.after_checkpoint:3")
	s.breaks()
	// It may die before it has answered.
	_, _ = server.tries(testwait.Context(t, patience), http.MethodPost, "/v1/multidraws", `{"lock_key":"daily","count":200000,"range":{"min":1,"max":6},"async":true}`)
	<-server.Exited()
	wait.For(testwait.Context(t, patience), 20*time.Second)
	server.start(t)
	s.fires("FairleadMultidrawInterrupted")
	id := queried[string](t, database, `SELECT id::text FROM multidraws`)
	section := sectionOf(t, "FairleadMultidrawInterrupted")
	s.operator.runs(t, section, "psql")
	s.operator.runs(t, section, "fairlead multidraw resume", "ID", id)
	if status := queried[string](t, database, `SELECT status FROM multidraws`); status != "completed" {
		t.Errorf("the operation is %s", status)
	}
	s.ends("FairleadMultidrawInterrupted", fmt.Sprintf("fairlead multidraw resume %.8s…", id))
}
