package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/saga"
)

// Limits of what is looked at, and of what is named.
const (
	maxStuckSagas = 200
	namedSagas    = 3
)

// unfinished is what does not get on by itself.
type unfinished struct {
	stuck   []stuckSaga
	backlog topBacklog
}

type stuckSaga struct {
	id, name, lastError string
	attempts            int
}

// examineWork looks for operations that don't get on.
func (t *target) examineWork(ctx context.Context, d *diagnosis) {
	ask := t.unfinishedInDatabase
	if t.url != "" {
		ask = t.unfinishedOnServer
	}
	u, err := ask(ctx)
	if locked(err) {
		d.unread("operations", err, "sagas, publications, rounds, draws and multi-draws were not checked")
		return
	}
	if err != nil {
		refused := client.CodeOf(err) == "forbidden" // A service key may not see everything, which is no fault of the server's.
		d.find("operations", !refused, remedyForError(err),
			"sagas, publications, rounds, draws and multi-draws were not checked: %v", err)
		return
	}
	d.look("sagas", "publications", "rounds", "draws", "multidraws")
	u.examine(d)
}

// examine turns what does not get on into findings.
func (u *unfinished) examine(d *diagnosis) {
	if n := len(u.stuck); n > 0 {
		d.find("sagas", true, "mend what the error names; then fairlead sagas retry ID tries at once, and fairlead sagas compensate ID gives it up. "+
			"fairlead sagas list --stuck lists all", "%s", describeStuck(u.stuck))
	}
	if n := u.backlog.PublicationsFailed; n > 0 {
		d.find("publications", false, "read why with GET /v1/publications?status=failed and GET /v1/publications/ID/attempts, mend the target, and then "+
			"POST /v1/publications/ID/retry; the console has a button", "%s", count(n, "publication has failed for good, and is not tried again", "publications have failed for good, and are not tried again"))
	}
	if n := u.backlog.PublicationsLate; n > 0 {
		d.find("publications", false, "add servers or places if fairlead_publish_running is at its most; else end the session that has locked them: docs/operations/runbook.md, FairleadPublicationsLate",
			"%s due for more than a minute and not claimed, although their targets are neither paused nor slowed down", count(n, "publication is", "publications are"))
	}
	if n := u.backlog.RoundsOverdue; n > 0 {
		d.find("rounds", true, "read the leader's log, which names the cause, and end the session that has locked what their close needs: docs/operations/runbook.md, FairleadRoundLate",
			"%s over for more than 10 s and not closed", count(n, "auction's round is", "auctions' rounds are"))
	}
	if n := u.backlog.DrawsDelayed; n > 0 {
		d.find("draws", true, "see that the server runs and reaches the relays of --beacon-relays: it tries again by itself. GET /v1/campaigns/ID has the cause in "+
			"beacon.failure, the server's log says more: docs/operations/runbook.md, FairleadDrawStuck",
			"%s sold out, and the draw is late by more than %s", count(n, "campaign is", "campaigns are"), lottery.DelayedAfter)
	}
	if n := u.backlog.MultidrawsStopped; n > 0 {
		d.find("multidraws", false, "fairlead multidraw resume ID, or rollback ID; GET /v1/multidraws lists them, and each keeps its lock key until then",
			"%s interrupted", count(n, "multi-draw is", "multi-draws are"))
	}
}

// describeStuck names the first of some sagas.
func describeStuck(stuck []stuckSaga) string {
	var named []string
	for _, s := range stuck[:min(len(stuck), namedSagas)] {
		named = append(named, fmt.Sprintf("%s (%s, failed %d times in a row: %s)", s.id, s.name, s.attempts, s.lastError))
	}
	if more := len(stuck) - namedSagas; more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return count(len(stuck), "operation of several steps is", "operations of several steps are") + " stuck: " + strings.Join(named, "; ")
}

// count is a number with a noun and verb. Counting stops at a limit.
func count(n int, one, many string) string {
	switch {
	case n == 1:
		return "1 " + one
	case n >= operator.BacklogLimit:
		return fmt.Sprintf("%d or more %s", n, many)
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (t *target) unfinishedOnServer(ctx context.Context) (*unfinished, error) {
	page, _, err := call[sagaPage](ctx, t, http.MethodGet, fmt.Sprintf("/v1/sagas?stuck=true&limit=%d", maxStuckSagas), nil)
	if err != nil {
		return nil, err
	}
	overview, _, err := call[struct {
		Backlog topBacklog `json:"backlog"`
	}](ctx, t, http.MethodGet, "/v1/admin/overview", nil)
	if err != nil {
		return nil, err
	}
	u := &unfinished{backlog: overview.Backlog}
	for i := range page.Items {
		s := &page.Items[i]
		u.stuck = append(u.stuck, stuckSaga{id: s.ID, name: s.Name, lastError: s.LastError, attempts: int(s.Attempts)})
	}
	return u, nil
}

func (t *target) unfinishedInDatabase(ctx context.Context) (*unfinished, error) {
	db, err := t.database(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	b, err := postgres.NewOperator(db).Backlog(ctx)
	if err != nil {
		return nil, err
	}
	stuck, err := postgres.NewSagas(db).Sagas(ctx, saga.Query{Stuck: true, Limit: maxStuckSagas})
	if err != nil {
		return nil, err
	}
	u := &unfinished{backlog: topBacklog{PublicationsFailed: b.PublicationsFailed, PublicationsLate: b.PublicationsLate, RoundsOverdue: b.RoundsOverdue, DrawsDelayed: b.DrawsDelayed, MultidrawsStopped: b.MultidrawsStopped}}
	for _, s := range stuck {
		u.stuck = append(u.stuck, stuckSaga{id: s.ID.String(), name: s.Name, lastError: s.LastError, attempts: s.Attempts})
	}
	return u, nil
}
