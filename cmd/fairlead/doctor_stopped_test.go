package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestDoctorFindsWhatNobodyCanTakeUp: somebody has locked the row of a publication that is due, and a table that the close of a round writes. No command
// fails for that: the doctor says that both are late, on the server and on its database, and the metric does.
func TestDoctorFindsWhatNobodyCanTakeUp(t *testing.T) {
	s := startScene(t)
	t.Setenv(keyVariable, s.key)
	s.account("shop", 0)
	target := s.id("POST", "/v1/targets", obj{"name": "silent", "kind": "webhook", "url": s.url + "/nothing-is-here"})
	publication := s.newPublication("silent", true)
	auction := s.newAuction("Late", "1h")
	s.call("POST", "/v1/auctions/"+auction+"/start", nil)
	// A publication whose target is paused is not late.
	s.one(`UPDATE targets SET paused_at = now(), paused_reason = 'request' WHERE id = $1`, target)
	s.one(`UPDATE publications SET due_at = now() - interval '90 s' WHERE id = $1`, publication)
	asks := [][]string{{"doctor", "--url", s.url}, {"doctor", "--database-url", s.node.DatabaseURL()}}
	said := func(wants ...string) {
		t.Helper()
		for _, args := range asks {
			out, _ := execute(t, args...)
			for _, want := range wants {
				if !strings.Contains(out, want) {
					t.Errorf("%s: no %q in\n%s", args[1], want, out)
				}
			}
		}
	}
	said("ok: publications: ", "ok: rounds: ")

	holder := pgtest.Connect(t, s.node.DatabaseURL())
	for _, sql := range []string{`BEGIN`, `SELECT FROM publications FOR UPDATE`, `LOCK TABLE auction_events IN SHARE MODE`} {
		testwait.Must(t, testwait.Err(holder.Exec(t.Context(), sql)))
	}
	s.one(`UPDATE targets SET paused_at = NULL, paused_reason = '' WHERE id = $1`, target)
	s.one(`UPDATE auction_rounds SET started_at = now() - interval '1 hour', ends_at = now() - interval '11 s' WHERE auction = $1 AND status = 'active'`, auction)
	said("warning: publications: 1 publication is due for more than a minute and not claimed", "WRONG: rounds: 1 auction's round is over for more than 10 s and not closed")
	late := func() bool {
		_, after, there := strings.Cut(s.metrics(), "\nfairlead_publish_overdue_seconds ")
		value, _, _ := strings.Cut(after, "\n")
		seconds, err := strconv.ParseFloat(value, 64)
		testwait.Must(t, err)
		return there && seconds > 60
	}
	s.eventually("the metric tells of the publication", late)
	testwait.Must(t, holder.Close(t.Context()))
	s.eventually("the publication is sent", func() bool { return s.call("GET", "/v1/publications/"+publication, nil)["status"] == "failed" })
	s.eventually("the metric tells that none is late", func() bool { return !late() })
}
