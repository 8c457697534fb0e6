package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// TestConsoleRescues does in a browser what an operator does about things that don't get on by themselves: each is left as a
// crash would leave it, and ended by the button that is there for it.
func TestConsoleRescues(t *testing.T) {
	t.Parallel()
	chromiumPath(t) // Where there is none, nothing else is started.
	s := startScene(t)
	b := openBrowser(t, s.url)
	s.account("shop", 0)
	s.account("buyer-1", 10_000)
	s.call("POST", "/v1/targets", obj{"name": "nowhere", "kind": "webhook", "url": "http://127.0.0.1:9/hook"})
	b.look(1440, "light")
	b.visit("/console/")
	b.write("form", "key", s.key)
	b.click("form", "Sign in")
	b.await("the overview", `document.querySelector(".tiles") !== null`)
	for _, rescue := range []struct {
		name string
		do   func(*browser)
	}{
		{"draw", s.rescuesDraw},
		{"multi-draw", s.rescuesMultidraw},
		{"sagas", s.rescuesSagas},
		{"sagas together", s.rescuesSagasTogether},
		{"a retry that fails", s.reportsRetry},
		{"in doubt", s.rescuesDoubt},
		{"automation", s.rescuesAutomation},
		{"subscription", s.rescuesSubscription},
		{"audited releases", s.releases},
		{"targets", s.faresOfTargets},
	} {
		rescue.do(b)
		b.quiet(rescue.name)
	}
}

// acted waits until a thing has come to a status, its page says so, and both its page and the log have the action.
func (s *scene) acted(b *browser, path, status, action string) {
	s.t.Helper()
	s.eventually(path+" becomes "+status, func() bool { return s.call(http.MethodGet, path, nil)["status"] == status })
	b.visit(strings.Replace(path, "/v1/", "/console/", 1))
	b.await("the page says "+status, fmt.Sprintf(`document.querySelector(".page-head .badge")?.textContent === %q`, status))
	b.await("the page has "+action, fmt.Sprintf(`[...document.querySelectorAll("main code")].some((e) => e.textContent === %q)`, action))
	id := path[len(path)-len(uuid.Nil.String()):]
	if actions := s.audited(id); !slices.Contains(actions, action) {
		s.t.Errorf("%s: the audit log has %v, not %s", path, actions, action)
	}
}

// audited lists what the audit log has about an object.
func (s *scene) audited(object string) (actions []string) {
	s.t.Helper()
	items, _ := s.call(http.MethodGet, "/v1/admin/audit?object="+object, nil)["items"].([]any)
	for _, item := range items {
		row, _ := item.(obj)
		if principal, _ := row["principal"].(string); principal == "" || principal == "command line" {
			s.t.Errorf("nobody is named: %v", row)
		}
		actions = append(actions, fmt.Sprint(row["action"]))
	}
	return actions
}

// one runs a statement that changes one row.
func (s *scene) one(statement string, args ...any) {
	s.t.Helper()
	if n := s.sql(statement, args...); n != 1 {
		s.t.Fatalf("%s: %d rows", statement, n)
	}
}

// everywhere holds what is shown against what holds on every screen. A page follows the screen, so that it need not be loaded for each.
// axe-core looks at one of two screens, in turn; in long runs at all.
func (b *browser) everywhere(name string) {
	b.t.Helper()
	b.shown++
	for i, look := range viewports() {
		b.passed = (i+b.shown)%2 == 0
		b.look(look.width, look.scheme)
		b.properly(fmt.Sprintf("%s-%d-%s", name, look.width, look.scheme))
	}
	b.passed = false
	b.look(1440, "light")
}

// sql changes rows as only a crash, or somebody who should not, changes them, and returns how many.
func (s *scene) sql(statement string, args ...any) int64 {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.node.DatabaseURL())
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	tag, err := conn.Exec(s.t.Context(), statement, args...)
	if err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
	return tag.RowsAffected()
}

// rescuesDraw recovers a campaign that is sold out and was not drawn.
func (s *scene) rescuesDraw(b *browser) {
	s.t.Helper()
	id := s.newCampaign("Never drawn", 2)
	s.call("POST", "/v1/campaigns/"+id+"/publish", nil)
	s.buy2(id)
	campaign := uuid.MustParse(id)
	// The last position is sold without the draw that belongs to it.
	store := postgres.NewLottery(s.db())
	err := store.Commit(s.t.Context(), campaign, lottery.Want{Plan: func(c *lottery.Campaign, _ *lottery.Inventory) lottery.Need {
		return lottery.Need{Accounts: []string{"buyer-1", c.Escrow}}
	}}, func(u *lottery.Unit) {
		st := u.State
		p := st.Campaign.Position(st.Inventory.Pick(0, st.Random))
		paid, err := st.Book.Move(ledger.KindPurchase, "buyer-1", st.Campaign.Escrow, 250, "")
		if err != nil {
			s.t.Error(err)
		}
		st.Inventory.Sell(p.Layer, p.Ordinal, "buyer-1")
		st.Campaign.Layers[p.Layer-1].Sold++
		st.Campaign.SoldPositions++
		st.Campaign.Version++
		st.Changed = true
		st.Purchases = []lottery.Purchase{{
			ID: st.Book.NewID(), Campaign: campaign, Seq: st.Campaign.SoldPositions, Account: "buyer-1", Position: p, Price: 250, Transfer: paid.ID, At: st.Book.Now(),
		}}
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.one(`UPDATE campaigns SET status = 'drawing', draw_started_at = now(), version = version + 1 WHERE id = $1`, id)
	b.visit("/console/campaigns/" + id)
	b.await("it is drawing", `document.querySelector(".page-head .badge")?.textContent === "drawing"`)
	b.everywhere("campaign-drawing")
	b.confirm("main", "Recover the draw")
	s.acted(b, "/v1/campaigns/"+id, "completed", "campaign.draw")
	if winners, _ := s.call(http.MethodGet, "/v1/campaigns/"+id+"/draw", nil)["winners"].([]any); len(winners) != 3 {
		s.t.Errorf("winners: %v", winners)
	}
	// Asking for a draw that is there is no action.
	s.call("POST", "/v1/campaigns/"+id+"/draw", nil)
	if actions := s.audited(id); !slices.Equal(actions, []string{"campaign.draw", "campaign.publish", "campaign.create"}) {
		s.t.Errorf("the audit log has %v", actions)
	}
}

// buy2 sells all of a triangle of two layers but one position.
func (s *scene) buy2(campaign string) {
	s.t.Helper()
	for range 2 {
		s.call("POST", "/v1/campaigns/"+campaign+"/purchases", obj{"account": "buyer-1"})
	}
}

// rescuesMultidraw resumes an operation whose server has stopped in the middle.
func (s *scene) rescuesMultidraw(b *browser) {
	s.t.Helper()
	const count = 300_000
	var id string
	s.eventually("one that is not done before it is interrupted", func() bool {
		s.made++
		id = s.id("POST", "/v1/multidraws", obj{"lock_key": fmt.Sprintf("cut off %d", s.made), "count": count, "range": obj{"min": 1, "max": 6}, "async": true})
		return s.sql(`UPDATE multidraws SET status = 'interrupted', term = term + 1 WHERE id = $1 AND status = 'running'`, id) == 1
	})
	b.visit("/console/multidraws/" + id)
	b.await("it is interrupted", `document.querySelector(".page-head .badge")?.textContent === "interrupted"`)
	b.everywhere("multidraw-interrupted")
	b.confirm("main", "Resume")
	s.acted(b, "/v1/multidraws/"+id, "completed", "multidraw.resume")
	if done, _ := s.call(http.MethodGet, "/v1/multidraws/"+id, nil)["completed_count"].(float64); done != count {
		s.t.Errorf("%v drawn", done)
	}
	b.visit("/console/multidraws")
	b.await("a large one", `document.body.textContent.includes("300,000 of 300,000")`)
	b.everywhere("multidraws-large")
}

// newStuckSaga writes a transfer that waits for its next try for a long time, as its process has parked it.
func (s *scene) newStuckSaga(protocol string) string {
	s.t.Helper()
	id := uuid.Must(uuid.NewV7()).String()
	s.one(`INSERT INTO sagas (id, name, protocol, input, status, reason, steps, decided, coordinator, cancelled, owner,
			term, lease_expires_at, version, next_at, attempts, last_error, created_at, updated_at)
		VALUES ($1, 'cross-transfer', $2, $3, 'pending', '', '[{"name":"transfer","status":"pending"}]', 0, 'fairlead:test', false, $1,
			1, to_timestamp(0), 1, now() + interval '1 hour', 12, $4, now(), now())`, id, protocol,
		`{"from":{"ledger":"local","account":"buyer-1"},"to":{"ledger":"local","account":"shop"},"amount":5,"currency":"EUR"}`, "the ledger was away "+payloadImage)
	return id
}

// rescuesSagas retries one that is stuck, and gives another up.
func (s *scene) rescuesSagas(b *browser) {
	s.t.Helper()
	for _, c := range []struct{ label, action, status string }{
		{"Retry", "saga.retry", "completed"}, {"Compensate", "saga.compensate", "failed"},
	} {
		id := s.newStuckSaga("saga")
		b.visit("/console/sagas?stuck=stuck")
		b.await("it is listed", fmt.Sprintf(`document.querySelector("a[href='/console/sagas/%s']") !== null`, id))
		b.visit("/console/sagas/" + id)
		b.await("it is stuck", `[...document.querySelectorAll(".page-head .badge")].some((e) => e.textContent === "stuck")`)
		b.everywhere("saga-stuck")
		b.confirm("main", c.label)
		if c.label == "Retry" {
			b.await("the result", `[...document.querySelectorAll(".note.good")].some((e) => e.textContent === "Retried: it is completed.")`)
		}
		s.acted(b, "/v1/sagas/"+id, c.status, c.action)
	}
}

// rescuesSagasTogether retries all that are stuck.
func (s *scene) rescuesSagasTogether(b *browser) {
	s.t.Helper()
	ids := []string{s.newStuckSaga("saga"), s.newStuckSaga("saga")}
	b.visit("/console/sagas?stuck=stuck")
	b.await("both are listed", `document.querySelectorAll("table")[0]?.tBodies[0].rows.length === 2`)
	b.eval(`document.querySelector("thead .chooses").click()`, nil)
	b.await("both are chosen", `document.querySelector(".chosen").textContent.includes("2 chosen")`)
	b.everywhere("sagas-chosen")
	b.click(".chosen", "Retry 2")
	b.await("the dialog", `document.querySelector("dialog[open] button[type=submit]")?.textContent === "Retry 2 sagas"`)
	b.eval(`document.querySelector("dialog[open] button[type=submit]").click()`, nil)
	b.await("both are retried", `document.querySelector("dialog [role=status]").textContent.startsWith("2 done")`)
	b.click("dialog", "Close")
	for _, id := range ids {
		s.acted(b, "/v1/sagas/"+id, "completed", "saga.retry")
		if actions := s.audited(id); !slices.Equal(actions, []string{"saga.retry"}) {
			s.t.Errorf("the audit log has %v", actions)
		}
	}
}

// reportsRetry retries a transfer whose other ledger is gone: the debit is made, the credit fails, and the page says both. Then it is
// given up, after the dialog has said that the money returns.
func (s *scene) reportsRetry(b *browser) {
	s.t.Helper()
	id := s.newStuckSaga("saga")
	s.one(`UPDATE sagas SET input = $2, steps = '[{"name":"debit","status":"pending"},{"name":"credit","status":"pending"}]' WHERE id = $1`, id,
		`{"from":{"ledger":"local","account":"buyer-1"},"to":{"ledger":"west","account":"shop"},"amount":500,"currency":"EUR"}`)
	if stuck := s.call(http.MethodGet, "/v1/admin/overview", nil)["backlog"].(obj)["sagas_stuck"]; stuck != 1.0 { //nolint:errcheck,forcetypeassert // It fails then.
		s.t.Errorf("%v sagas are stuck", stuck)
	}
	b.visit("/console/")
	b.await("it is red", `[...document.querySelectorAll(".waiting .alarm")].some((e) => e.textContent.includes("Sagas stuck"))`)
	b.visit("/console/sagas/" + id)
	b.await("what it moves", `document.querySelector("h1").textContent === "5.00 EUR from buyer-1 to shop" && document.querySelector("main a[href='/console/accounts/buyer-1']") !== null`)
	b.confirm("main", "Retry")
	b.await("the result", `[...document.querySelectorAll(".note")].some((e) => e.textContent.includes("it failed again"))`)
	cells := func(row int) string {
		return fmt.Sprintf(`[...document.querySelectorAll("table.list tbody tr")[%d].cells].map((e) => e.textContent)`, row)
	}
	b.await("the debit", fmt.Sprintf(`((c) => c[0] === "debit" && c[2] === "done" && c[3] === "1")(%s)`, cells(0)))
	b.await("the credit", fmt.Sprintf(`((c) => c[0] === "credit" && c[2] === "pending" && Number(c[3]) >= 1 && c[6].includes("west"))(%s)`, cells(1)))
	b.everywhere("saga-failing")
	b.click("main", "Compensate")
	b.await("what it will do", `document.querySelector("dialog[open]").textContent.includes("5.00 EUR return to buyer-1 in this ledger")`)
	b.properly("saga-compensate")
	b.click("dialog", "Let it go on")
	b.visit("/console/accounts/transit%2Fwest")
	b.await("the way to the other ledger", `document.querySelector("main .note")?.textContent.includes("ledger west") && document.querySelector("main tbody td")?.textContent === "+5.00 EUR"`)
	b.properly("account-transit")
	b.expect()
}

// rescuesDoubt gives up a two-phase transfer that was prepared and not decided, and sees it leave the list and the gauge.
func (s *scene) rescuesDoubt(b *browser) {
	s.t.Helper()
	id := s.newStuckSaga("twophase")
	// Its process stands still with the lease.
	s.one(`UPDATE sagas SET lease_expires_at = now() + interval '1 hour' WHERE id = $1`, id)
	coordinator, err := postgres.NewSagas(s.db()).Coordinator(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := pgx.Connect(s.t.Context(), s.node.DatabaseURL())
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, statement := range []string{"BEGIN", "SELECT pg_advisory_xact_lock(7)", "PREPARE TRANSACTION '" + coordinator + ":" + id + ":1:0'"} {
		if _, err := conn.Exec(s.t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			s.t.Fatal(err)
		}
	}
	b.visit("/console/sagas")
	b.await("it is in doubt", fmt.Sprintf(`[...document.querySelectorAll("td")].some((e) => e.textContent === "running") && document.body.textContent.includes("%s:1:0")`, id))
	b.everywhere("in-doubt")
	s.gauge("fairlead_saga_in_doubt", 1)
	b.visit("/console/sagas/" + id)
	b.confirm("main", "Compensate")
	// The process that stood still is found dead.
	s.one(`UPDATE sagas SET lease_expires_at = now() WHERE id = $1 AND cancelled`, id)
	s.acted(b, "/v1/sagas/"+id, "failed", "saga.compensate")
	b.visit("/console/sagas")
	b.await("nothing is in doubt", `document.body.textContent.includes("Nothing is prepared and undecided.")`)
	s.gauge("fairlead_saga_in_doubt", 0)
}

// gauge waits until the server's metrics have a value for its own ledger: the next sample is some seconds away.
func (s *scene) gauge(name string, want int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%s becomes %d", name, want), func() bool {
		return s.metric(fmt.Sprintf("%s{ledger=%q} %d\n", name, "local", want))
	})
}

// metric reports whether /metrics has that line.
func (s *scene) metric(line string) bool {
	s.t.Helper()
	return strings.Contains(s.metrics(), line)
}

// metrics reads /metrics.
func (s *scene) metrics() string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// rescuesAutomation ends a rule that should not fire any more.
func (s *scene) rescuesAutomation(b *browser) {
	s.t.Helper()
	id := s.id("POST", "/v1/automations", obj{"name": "Unwanted", "target": "nowhere", "weekdays": []string{"mon"}, "times": []string{"09:00"}})
	path := "/v1/automations/" + id
	b.visit("/console/automations/" + id)
	b.confirm("main", "Pause")
	s.acted(b, path, "paused", "automation.pause")
	b.confirm("main", "Resume")
	s.acted(b, path, "active", "automation.resume")
	b.confirm("main", "Cancel")
	s.acted(b, path, "cancelled", "automation.cancel")
	b.await("nothing is left to do", `document.querySelectorAll(".page-head button").length === 0`)
}

// releases takes a client's hold and lock away from it, which the log keeps.
func (s *scene) releases(b *browser) {
	s.t.Helper()
	hold := s.newHold()
	b.visit("/console/accounts/buyer-1")
	b.confirm("main table", "Release")
	s.eventually("the hold is released", func() bool { return s.call(http.MethodGet, "/v1/holds/"+hold, nil)["status"] == "released" })
	if actions := s.audited(hold); !slices.Equal(actions, []string{"hold.release"}) {
		s.t.Errorf("the audit log has %v of the hold", actions)
	}
	lock := s.newLock("gone")
	b.visit("/console/locks")
	b.confirm("main table", "Release")
	s.eventually("the lock is released", func() bool { return slices.Equal(s.audited(lock), []string{"lock.release"}) })
	if _, status := s.try("POST", "/v1/locks/"+lock+"/renew", obj{}); status != http.StatusGone {
		s.t.Errorf("its holder renews it: %d", status)
	}
}
