package sim_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog/audit"
)

// notLogged counts the topics with facts that are not in the log yet, or not under its checkpoint.
const notLogged = `SELECT (SELECT count(*) FROM auctions AS a LEFT JOIN log_topics AS t ON t.kind = 2 AND t.id = a.id WHERE a.seq >= coalesce(t.next, 0))
	+ (SELECT count(*) FROM campaigns AS c LEFT JOIN log_topics AS t ON t.kind = 1 AND t.id = c.id WHERE t.open IS NULL OR t.open AND c.status IN ('completed', 'cancelled'))
	+ (SELECT count(*) FROM multidraws AS m LEFT JOIN log_topics AS t ON t.kind = 3 AND t.id = m.id WHERE t.open IS NULL OR t.open AND m.status IN ('completed', 'rolled_back'))
	+ (SELECT count(*) FROM log_state WHERE size <> published)`

// auditLog waits until the public log has everything, judges it from outside, and compares it with the tables.
func auditLog(t *testing.T, database string, client *sim.Client) {
	t.Helper()
	ctx := testwait.Context(t, patience)
	conn := pgtest.Connect(t, database)
	testwait.Eventually(t, patience, "a log of all facts", func() bool {
		var missing int
		testwait.Check(t, conn.QueryRow(ctx, notLogged).Scan(&missing))
		return missing == 0
	})
	rows, err := conn.Query(ctx, `SELECT chain FROM campaign_beacons`)
	testwait.Check(t, err)
	chains, err := pgx.CollectRows(rows, pgx.RowTo[string])
	testwait.Check(t, err)
	o := audit.Options{}
	for _, text := range chains {
		var chain fairdraw.Chain
		testwait.Check(t, json.Unmarshal([]byte(text), &chain))
		o.Chains = append(o.Chains, chain.Hash())
	}
	testwait.Eventually(t, patience, "the log's key, which the first checkpoint has", func() bool {
		answer := answerTo(t, client, "/log/key")
		o.Key = strings.TrimSpace(string(answer.Body))
		return answer.Status == http.StatusOK
	})
	var report *audit.Report
	for _, o.URL = range client.URLs() {
		a, failure := audit.New(o)
		testwait.Check(t, failure)
		report, err = a.Run(ctx)
		a.Close()
		if err == nil {
			break // The other servers may be down.
		}
	}
	testwait.Check(t, err)
	if !report.Consistent {
		t.Errorf("the log: %+v", report.Finding)
	}
	db, err := postgres.Open(ctx, postgres.Options{URL: database, MaxConns: 4, Patience: testwait.Patience})
	testwait.Check(t, err)
	defer db.Close()
	c, err := db.CheckLog(context.WithoutCancel(ctx), 0)
	if err != nil || c.Difference != "" || !c.Complete {
		t.Errorf("the log and the tables: %+v, %v", c, err)
	}
	t.Logf("the log follows: %+v", report.Counts)
}
