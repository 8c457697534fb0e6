//go:build unix

package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/fairdraw/beacon/beacontest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// thing is what these tests read of whatever has an id and a status.
type thing struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// campaign makes a campaign of three positions that is on sale, with a house and a buyer of its own.
func campaign(t *testing.T, s *server, name, mode string) (id string) {
	t.Helper()
	s.accounts(t, "house-"+name, "buyer-"+name)
	var made thing
	s.posts(t, "/v1/campaigns", fmt.Sprintf(`{"name":%q,"base_length":2,"price":10,"currency":"SIM","beneficiary":"house-%s","draw":%q,
		"prizes":[{"name":"grand","quantity":1}]}`, name, name, mode), &made)
	s.posts(t, "/v1/campaigns/"+made.ID+"/publish", ``, nil)
	return made.ID
}

func buy(ctx context.Context, s *server, campaign, name string) (status int, answer []byte) {
	return s.tries(ctx, http.MethodPost, "/v1/campaigns/"+campaign+"/purchases", fmt.Sprintf(`{"account":"buyer-%s"}`, name))
}

// buys must succeed.
func buys(t *testing.T, s *server, campaign, name string, times int) {
	t.Helper()
	for range times {
		if status, answer := buy(testwait.Context(t, patience), s, campaign, name); status != http.StatusCreated {
			t.Fatalf("%d %s", status, answer)
		}
	}
}

// TestDrawStuck sells a campaign out whose beacon can't be reached.
func TestDrawStuck(t *testing.T) {
	torture(t)
	random := beacontest.New(t)
	chain, err := json.Marshal(random.Chain())
	testwait.Must(t, err)
	file := filepath.Join(t.TempDir(), "chain.json")
	testwait.Must(t, os.WriteFile(file, chain, 0o600))
	database := newDatabase(t)
	server := newServer(t, database, "--draw-stuck-after", "5s", "--beacon-chain", file, "--beacon-relays", random.URL(), "--beacon-lead", "0s")
	s := newStage(t, database, server)
	id := campaign(t, server, "stuck", "beacon")
	random.Set(beacontest.Failing)
	s.breaks()
	buys(t, server, id, "stuck", 3)
	s.fires("FairleadDrawStuck")
	section := sectionOf(t, "FairleadDrawStuck")
	s.operator.runs(t, section, "psql", "ID", id)
	section.says(t, "fix the cause that the error names")
	random.Set(beacontest.Healthy)
	s.ends("FairleadDrawStuck", "the beacon's relay was mended, the sweeper drew")
	var drawn thing
	if server.does(t, http.MethodGet, "/v1/campaigns/"+id, "", &drawn); drawn.Status != "completed" {
		t.Errorf("campaign is %s", drawn.Status)
	}
}

// TestOversold drops the constraints and sells one position too many by hand.
func TestOversold(t *testing.T) {
	database, server, s := scene(t)
	id := campaign(t, server, "over", "instant")
	buys(t, server, id, "over", 2)
	s.breaks()
	execute(t, database,
		`ALTER TABLE campaigns DROP CONSTRAINT campaigns_check`, `ALTER TABLE campaigns DROP CONSTRAINT campaigns_check1`,
		`ALTER TABLE campaign_layers DROP CONSTRAINT campaign_layers_check`,
		`UPDATE campaign_layers SET sold = positions + 1 WHERE layer = 2`)
	s.fires("FairleadOversold")
	section := sectionOf(t, "FairleadOversold")
	out := s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "SELECT`)
	if !regexp.MustCompile(id).MatchString(out) {
		t.Errorf("the runbook's query does not name %s", id)
	}
	s.operator.runs(t, section, "curl", "ID", id)
	s.ends("FairleadOversold", "the campaign was cancelled, its buyers refunded")
	// The books must agree after all.
	s.operator.runs(t, preface(t), "fairlead integrity")
}

// TestDrawDuplicate drops the key and writes a second result by hand, with another winner.
func TestDrawDuplicate(t *testing.T) {
	database, server, s := scene(t)
	id := campaign(t, server, "twice", "instant")
	buys(t, server, id, "twice", 3)
	_, proof := server.tries(testwait.Context(t, patience), http.MethodGet, "/v1/campaigns/"+id+"/proof", "")
	s.breaks()
	execute(t, database, `ALTER TABLE draws DROP CONSTRAINT draws_pkey`,
		`INSERT INTO draws SELECT campaign, root, beacon, replace(winners, 'buyer', 'crook'), completed_at FROM draws`)
	s.fires("FairleadDrawDuplicate")
	section := sectionOf(t, "FairleadDrawDuplicate")
	out := s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "SELECT d.ctid`)
	s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "SELECT indexdef`)
	m := regexp.MustCompile(`(?m)^ (\(\d+,\d+\)) \| ` + id + ` .*crook`).FindStringSubmatch(out)
	if m == nil {
		t.Fatal("the runbook's query does not show the false row")
	}
	s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "DELETE`, "ID", id, "CTID", m[1])
	s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "ALTER TABLE`)
	s.ends("FairleadDrawDuplicate", "the row that the proof contradicts was deleted")
	server.kill(t)
	server.start(t)
	if _, after := server.tries(testwait.Context(t, patience), http.MethodGet, "/v1/campaigns/"+id+"/proof", ""); !bytes.Equal(after, proof) {
		t.Errorf("the proof was %s, is %s", proof, after)
	}
}

// TestDrawFailing makes the draws' table refuse rows, as a trigger or a full disk would.
func TestDrawFailing(t *testing.T) {
	database, server, s := scene(t)
	id := campaign(t, server, "failing", "instant")
	buys(t, server, id, "failing", 2)
	s.breaks()
	execute(t, database, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not today'; END $$`,
		`CREATE TRIGGER refuse BEFORE INSERT ON draws FOR EACH ROW EXECUTE FUNCTION refuse()`)
	stop := load(t, 1, func(ctx context.Context) {
		if status, answer := buy(ctx, server, id, "failing"); status == http.StatusCreated {
			t.Errorf("sold without a draw: %s", answer)
		}
		wait.For(ctx, 500*time.Millisecond)
	})
	s.fires("FairleadDrawFailing")
	stop()
	dropTriggers(t, s, "FairleadDrawFailing")
	buys(t, server, id, "failing", 1)
	s.ends("FairleadDrawFailing", "the foreign trigger was found and dropped, the last sale drew")
	server.does(t, http.MethodGet, "/v1/campaigns/"+id+"/draw", "", nil)
}

// TestRetries makes an eager trigger fail transactions with 40001, those that draw and others.
func TestRetries(t *testing.T) {
	database, server, s := scene(t)
	s.breaks()
	execute(t, database, `CREATE SEQUENCE conflicts_of_draws`, `CREATE SEQUENCE conflicts_of_entries`,
		`CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('conflicts_of_' || TG_TABLE_NAME) % 2 = 1 THEN RAISE EXCEPTION 'somebody else writes' USING ERRCODE = '40001'; END IF; RETURN NEW; END $$`,
		`CREATE TRIGGER conflict BEFORE INSERT ON draws FOR EACH ROW EXECUTE FUNCTION conflict()`,
		`CREATE TRIGGER conflict BEFORE INSERT ON entries FOR EACH STATEMENT EXECUTE FUNCTION conflict()`)
	stop := load(t, 1, func(ctx context.Context) {
		if ctx.Err() == nil {
			name := fmt.Sprintf("retries-%d", time.Now().UnixNano())
			id := campaign(t, server, name, "instant")
			buys(t, server, id, name, 3)
		}
		wait.For(ctx, 100*time.Millisecond)
	})
	s.fires("FairleadDrawRetries")
	s.fires("FairleadTransactionRetries")
	s.fires("FairleadFallbacks")
	dropTriggers(t, s, "FairleadDrawRetries")
	s.ends("FairleadDrawRetries", "the foreign trigger was found and dropped")
	s.ends("FairleadTransactionRetries", "likewise")
	s.ends("FairleadFallbacks", "likewise")
	stop()
}

// dropTriggers looks for triggers on Fairlead's tables, as the runbook says, and drops them.
func dropTriggers(t *testing.T, s *stage, alert string) {
	t.Helper()
	section := sectionOf(t, alert)
	out := s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "SELECT tgrelid`)
	found := regexp.MustCompile(`(?m)^ (\w+) +\| (\w+)\s*$`).FindAllStringSubmatch(out, -1)
	if len(found) == 0 {
		t.Fatal("the runbook's query found no trigger")
	}
	for _, m := range found {
		if m[1] != "table" { // The heading.
			s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "DROP TRIGGER`, "NAME", m[2], "TABLE", m[1])
		}
	}
}

// TestPanics deletes a campaign's draw by hand, so that its core finds a state that it never made.
func TestPanics(t *testing.T) {
	database, server, s := scene(t)
	id := campaign(t, server, "panics", "instant")
	buys(t, server, id, "panics", 3)
	s.breaks()
	execute(t, database, `CREATE TABLE backup AS SELECT * FROM draws`, `DELETE FROM draws`)
	stop := load(t, 1, func(ctx context.Context) {
		_, _ = server.tries(ctx, http.MethodPost, "/v1/campaigns/"+id+"/draw", ``)
		wait.For(ctx, 500*time.Millisecond)
	})
	s.fires("FairleadPanics")
	section := sectionOf(t, "FairleadPanics")
	if log := server.Log(); !strings.Contains(log, "panicked") || !strings.Contains(log, id) {
		t.Errorf("the log says nothing of the panic: %s", log[max(0, len(log)-1000):])
	}
	section.says(t, "restore them from a backup")
	execute(t, database, `INSERT INTO draws SELECT * FROM backup`)
	server.kill(t)
	server.start(t)
	s.ends("FairleadPanics", "the rows that somebody had deleted were restored")
	server.posts(t, "/v1/campaigns/"+id+"/draw", ``, nil)
	stop()
}
