//go:build unix

package sim_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// clockOf gives an empty database a clock which the test steps: by so much it is ahead of its machine from then on. What is stepped are
// functions of the same names as PostgreSQL's, which are found before those.
func clockOf(t *testing.T, database string) (step func(by time.Duration)) {
	t.Helper()
	exec := func(sql string) {
		t.Helper()
		conn := pgtest.Connect(t, database)
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)))
		testwait.Check(t, conn.Close(t.Context()))
	}
	exec(`CREATE SCHEMA skewed;
		CREATE TABLE skewed.step (by interval NOT NULL);
		INSERT INTO skewed.step VALUES ('0');
		CREATE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT pg_catalog.clock_timestamp() + by FROM skewed.step $$;
		CREATE FUNCTION skewed.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT pg_catalog.statement_timestamp() + by FROM skewed.step $$;
		CREATE FUNCTION skewed.now() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT pg_catalog.now() + by FROM skewed.step $$;
		DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, skewed, pg_catalog', current_database()); END $$`)
	return func(by time.Duration) {
		t.Helper()
		exec(fmt.Sprintf(`UPDATE skewed.step SET by = interval '%f seconds'`, by.Seconds()))
	}
}

// TestClockThatIsWrong runs a server whose clock is an hour ahead of the database's, and one whose clock is an hour behind: what
// counts is the database's. Its clock is what is moved here.
func TestClockThatIsWrong(t *testing.T) { //nolint:tparallel // Its parts take turns, beside other tests.
	beside(t)
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			database := emptyDatabase(t)
			clockOf(t, database)(skew)
			type arrival struct{ at, stamped time.Time }
			var (
				mu       sync.Mutex
				arrivals = map[string]arrival{}
			)
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				stamp, _ := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
				mu.Lock()
				defer mu.Unlock()
				arrivals[r.Header.Get("webhook-id")] = arrival{at: time.Now().Add(skew), stamped: time.Unix(stamp, 0)}
			}))
			t.Cleanup(receiver.Close)
			server := newServer(t, database, publishingArgs()...)
			var target publication
			ask(t, server, "/v1/targets", fmt.Sprintf(`{"name":"inbox","kind":"webhook","url":%q}`, receiver.URL), &target)
			later := map[string]time.Time{}
			for i := range testwait.Count(5, 50) {
				at := time.Now().Add(skew + 2*time.Second + time.Duration(i)*50*time.Millisecond)
				var p publication
				ask(t, server, "/v1/publications", fmt.Sprintf(`{"target":"inbox","publish_at":%q,"payload":1}`, at.UTC().Format(time.RFC3339Nano)), &p)
				later[p.ID] = at
			}
			// By a clock that is ahead this was due long ago; by the one that counts it is in half an hour.
			far := time.Now().Add(skew + 30*time.Minute)
			var waiting publication
			ask(t, server, "/v1/publications", fmt.Sprintf(`{"target":"inbox","publish_at":%q,"payload":1}`, far.UTC().Format(time.RFC3339Nano)), &waiting)
			for id, at := range later {
				published(t, server, id)
				mu.Lock()
				got := arrivals[id]
				mu.Unlock()
				if got.at.Before(at) {
					t.Errorf("sent %v before it was due", at.Sub(got.at))
				}
				if late := got.at.Sub(at); late > patience {
					t.Errorf("sent %v after it was due", late)
				}
				if off := got.at.Sub(got.stamped).Abs(); off > time.Minute {
					t.Errorf("the delivery's own time is %v off the database's", off)
				}
			}
			if p := read(t, server, "/v1/publications/"+waiting.ID); p.Status != "scheduled" {
				t.Errorf("what is due in half an hour is %s", p.Status)
			}
			auditNow(t, database)
		})
	}
}
