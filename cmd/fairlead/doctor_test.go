package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
)

// TestDoctorFindsOldClosings: books that are closed or recounted too late are a warning, and each has its words.
func TestDoctorFindsOldClosings(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		closed, recounted time.Duration // ago
		want              []string
	}{
		{0, 0, nil},
		{time.Minute, 25 * time.Hour, nil},
		{16 * time.Minute, 25 * time.Hour, []string{"the books were last closed 16m0s ago"}},
		{17 * time.Minute, 37 * time.Hour, []string{"the books were last closed 17m0s ago", "all entries were last counted 37h0m0s ago"}},
	} {
		d := diagnosis{Healthy: true}
		d.examineClosings(&client.Integrity{Valid: true, CheckedAt: now, ClosedAt: now.Add(-c.closed), RecountedAt: now.Add(-c.recounted)})
		matches := slices.EqualFunc(d.Findings, c.want, func(f postgres.Finding, want string) bool {
			return f.Check == "closings" && !f.Fatal && strings.HasPrefix(f.Message, want) && strings.Contains(f.Remedy, "FairleadBooksLate")
		})
		if !matches || !d.Healthy || !slices.Equal(d.Checked, []string{"closings"}) {
			t.Errorf("closed %s ago, recounted %s ago: %+v", c.closed, c.recounted, d)
		}
	}
}

// TestDoctorFindsWhatDoesNotGetOn leaves a saga, a draw, a publication and a multi-draw behind, as crashes and dead targets leave
// them. The doctor names each with its remedy, on the server and on its database, until they have gone on.
func TestDoctorFindsWhatDoesNotGetOn(t *testing.T) {
	s := startScene(t)
	t.Setenv(keyVariable, s.key)
	for _, account := range []string{"shop", "buyer-1"} {
		s.account(account, 1000)
	}
	asks := map[string][]string{"server": {"doctor", "--url", s.url}, "database": {"doctor", "--database-url", s.node.DatabaseURL()}}
	passed, off := "healthy: all checks passed", pgtest.Off(pgkit.Notify)
	if off { // What the run switches off are warnings.
		passed = "healthy: all"
	}
	healthy := func() {
		t.Helper()
		for where, args := range asks {
			out, err := execute(t, args...)
			for _, want := range []string{"ok: sagas: ", "ok: publications: ", "ok: draws: ", "ok: multidraws: ", "ok: integrity: ", passed} {
				if err != nil || !strings.Contains(out, want) {
					t.Errorf("%s: no %q in %v\n%s", where, want, err, out)
				}
			}
			if !off && strings.Contains(out, "to mend it") || strings.Contains(out, ": \n") {
				t.Errorf("%s:\n%s", where, out)
			}
		}
	}
	healthy()

	publication := s.newFailure()
	// The public log may have the end of one that is completed, so that is not taken back: the interrupted one is another.
	completed, multidraw := s.id("POST", "/v1/multidraws", obj{"lock_key": "daily", "count": 1000, "range": obj{"min": 1, "max": 6}}), uuid.NewString()
	s.one(`WITH made AS (INSERT INTO multidraws (id, lock_key, status, total, completed, every, checkpoints, low, high, parameters, commitment, digest, owner, term,
			lease_expires_at, started_at, updated_at)
		SELECT $2, lock_key, 'interrupted', total, 0, every, 0, low, high, parameters, commitment, digest, owner, term, lease_expires_at, started_at, updated_at
		FROM multidraws WHERE id = $1 RETURNING id)
		INSERT INTO multidraw_seeds SELECT made.id, seed FROM made, multidraw_seeds WHERE multidraw = $1`, completed, multidraw)
	for where, args := range asks {
		out, err := execute(t, args...)
		for _, want := range []string{"warning: publications: 1 publication has failed for good, and is not tried again", "/v1/publications/ID/retry", "warning: multidraws: 1 multi-draw is interrupted", "healthy: all"} {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%s: no %q in %v\n%s", where, want, err, out)
			}
		}
	}
	saga := s.newStuckSaga("saga")
	campaign := s.newCampaign("Late", 2)
	s.one(`UPDATE campaigns SET status = 'drawing', sold_positions = total_positions, draw_started_at = now() - interval '1 minute' WHERE id = $1`, campaign)
	for where, args := range asks {
		out, err := execute(t, args...)
		for _, want := range []string{
			"WRONG: sagas: 1 operation of several steps is stuck: " + saga + " (cross-transfer, failed 12 times in a row: the ledger was away", "to mend it: mend what the error names; then fairlead sagas retry ID",
			"WRONG: draws: 1 campaign is sold out, and the draw is late by more than 10s", "FairleadDrawStuck", "NOT HEALTHY",
		} {
			if err == nil || !strings.Contains(out, want) {
				t.Errorf("%s: no %q in %v\n%s", where, want, err, out)
			}
		}
	}
	out, err := execute(t, append(asks["server"], "--json")...)
	for _, want := range []string{`"check": "sagas"`, `"remedy": "mend what`, `"multidraws",`} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("no %q in %v\n%s", want, err, out)
		}
	}

	// A service key may not see all of it, which is no fault of the server's.
	s.one(`UPDATE campaigns SET status = 'active', sold_positions = 0, draw_started_at = NULL WHERE id = $1`, campaign)
	s.call("POST", "/v1/sagas/"+saga+"/retry", nil)
	s.eventually("the saga ends", func() bool { return s.call("GET", "/v1/sagas/"+saga, nil)["status"] == "completed" })
	s.one(`UPDATE publications SET status = 'cancelled' WHERE id = $1 AND status = 'failed'`, publication)
	s.call("POST", "/v1/multidraws/"+multidraw+"/rollback", nil)
	t.Setenv(keyVariable, s.serviceKey())
	if out, err := execute(t, asks["server"]...); err != nil || !strings.Contains(out, "warning: operations: sagas, publications, rounds, draws and multi-draws were not checked") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Setenv(keyVariable, s.key)
	healthy()
}
