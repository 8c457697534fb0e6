//go:build unix

package faults_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestHistoryLost fails over to a standby that lacks the last commits. Both ledgers' two-phase transfers wait until the operator
// accepts it; all else goes on.
func TestHistoryLost(t *testing.T) {
	torture(t)
	primary := pgtest.Server(t)
	proxy, through := wire.Through(t, primary.URL(), wire.Options{})
	other := newServer(t, "")
	otherDatabase, err := localpg.URLOf(other.DataDir())
	testwait.Must(t, err)
	other.accounts(t, "there")
	server := newServer(t, through, "--ledger", "eu="+otherDatabase)
	server.accounts(t, "here")
	s := newStage(t, through, server)
	standby := pgtest.CopyOf(t, primary)
	for range 3 {
		server.posts(t, "/v1/deposits", `{"account":"here","amount":10}`, nil)
	}
	to, err := pgx.ParseConfig(standby.URL())
	testwait.Must(t, err)
	s.breaks()
	proxy.Lead(pgconn.NetworkAddress(to.Host, to.Port))
	s.fires("FairleadHistoryLost")

	section := sectionOf(t, "FairleadHistoryLost")
	said, err := s.operator.tries(t, section.command(t, "fairlead doctor --database-url"))
	if err == nil {
		t.Error("doctor is content")
	}
	for _, want := range []string{"WRONG: history: commits after ", "3 of the last", "NOT HEALTHY"} {
		if !strings.Contains(said, want) {
			t.Errorf("doctor does not say %q: %s", want, said)
		}
	}
	if log := server.Log(); !strings.Contains(log, "history lost") {
		t.Error("the server's log has nothing")
	}
	if status, answer := server.tries(t.Context(), http.MethodGet, "/readyz", ""); status != http.StatusOK {
		t.Errorf("readiness: %d %s", status, answer)
	}
	server.posts(t, "/v1/deposits", `{"account":"here","amount":10}`, nil)
	_, answer := server.tries(t.Context(), http.MethodPost, "/v1/cross-transfers",
		`{"from":{"ledger":"local","account":"here"},"to":{"ledger":"eu","account":"there"},"amount":1,"mode":"twophase"}`)
	var transfer struct{ ID, Status string }
	testwait.Must(t, json.Unmarshal(answer, &transfer))
	if transfer.ID == "" || transfer.Status != "pending" {
		t.Errorf("a two-phase transfer: %s", answer)
	}
	s.operator.runs(t, section, "fairlead doctor --accept-history")
	s.ends("FairleadHistoryLost", "fairlead doctor --accept-history")
	testwait.Eventually(t, patience, "the transfer to be completed", func() bool {
		_, answer := server.tries(t.Context(), http.MethodGet, "/v1/cross-transfers/"+transfer.ID, "")
		return json.Unmarshal(answer, &transfer) == nil && transfer.Status == "completed"
	})
}
