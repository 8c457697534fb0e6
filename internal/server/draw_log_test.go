package server

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// lines are the log's lines about a thing, without debugging, requests and times.
func (e *env) lines(about string) []string {
	e.t.Helper()
	changing := regexp.MustCompile(`^time=\S+ | (took|waited|root)=\S+`)
	var out []string
	for line := range strings.Lines(e.logs.String()) {
		if strings.Contains(line, about) && !strings.Contains(line, "level=DEBUG") && !strings.Contains(line, " path=") {
			out = append(out, strings.ReplaceAll(changing.ReplaceAllString(strings.TrimSpace(line), ""), about, "ID"))
		}
	}
	return out
}

// buyAs sells a position under a request id.
func (e *env) buyAs(id, account, requestID string) *reply {
	e.t.Helper()
	return e.send(purchase(id, account, requestID))
}

func purchase(id, account, requestID string) send {
	return send{
		method: http.MethodPost, path: "/v1/campaigns/" + id + "/purchases", body: fmt.Sprintf(`{"account":%q}`, account),
		key: requestID, header: http.Header{"X-Request-Id": {requestID}},
	}
}

// TestDrawLog looks at what the log and the metrics say of a campaign's transitions and its draw, first one that is undone.
func TestDrawLog(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1000)
	id := e.campaign(`"base_length":2`, `,"prizes":[{"name":"car","quantity":1},{"name":"mug","quantity":2}]`)
	e.send(send{method: http.MethodPost, path: "/v1/campaigns/" + id + "/publish", key: "publish", header: http.Header{"X-Request-Id": {"opens"}}}).want(http.StatusOK)
	want := []string{
		`level=INFO msg="campaign lock acquired" campaign=ID request_id=opens`,
		`level=INFO msg="campaign changed" campaign=ID from=pending to=active request_id=opens`,
	}
	check := func(when string) {
		t.Helper()
		if got := e.lines(id); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	metrics := func(lines ...string) {
		t.Helper()
		all := string(e.get("/metrics").body)
		for _, line := range lines {
			if !strings.Contains(all, line+"\n") {
				t.Errorf("no %q among the metrics", line)
			}
		}
	}
	e.buyAs(id, "alice", "one").want(http.StatusCreated)
	e.buyAs(id, "alice", "two").want(http.StatusCreated)
	e.buyAs(id, "alice", "two").want(http.StatusCreated)
	check("after sales")
	metrics(`fairlead_idempotency_replays_total 1`, `fairlead_lottery_draw_failure_total{error_type="unavailable"} 0`,
		`fairlead_lane_in_flight{service="lottery"} 0`, `fairlead_lane_in_flight_busiest{service="lottery"} 0`)

	conn := e.connect()
	defer func() { _ = conn.Close(t.Context()) }()
	for _, sql := range []string{
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not today'; END $$`,
		`CREATE TRIGGER refuse BEFORE INSERT ON draws FOR EACH ROW EXECUTE FUNCTION refuse()`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		must(t, err)
	}
	answer, err := e.trySend(purchase(id, "alice", "three"))
	must(t, err)
	must(t, answer.Body.Close())
	if answer.StatusCode != http.StatusInternalServerError {
		t.Fatalf("a sale without a draw: %s", answer.Status)
	}
	want = append(want, `level=ERROR msg="draw failed" campaign=ID error_type=database error="postgres: lottery: ERROR: not today (SQLSTATE P0001)" request_id=three`)
	check("after a draw that was undone")
	metrics(`fairlead_lottery_draw_failure_total{error_type="database"} 1`, `fairlead_lottery_draw_success_total 0`)

	_, err = conn.Exec(t.Context(), `DROP TRIGGER refuse ON draws`)
	must(t, err)
	e.buyAs(id, "alice", "four").want(http.StatusCreated)
	var positions []string
	for n := range 3 {
		positions = append(positions, e.get("/v1/campaigns/"+id+"/draw").want(http.StatusOK).str(fmt.Sprintf("winners.%d.position.id", n)))
	}
	want = append(want,
		`level=INFO msg="campaign lock acquired" campaign=ID request_id=four`,
		`level=INFO msg="draw triggered" campaign=ID total_positions=3 sold_positions=3 prizes=2 request_id=four`,
		`level=INFO msg="campaign changed" campaign=ID from=active to=drawing request_id=four`,
		`level=INFO msg="campaign changed" campaign=ID from=drawing to=completed request_id=four`,
		`level=INFO msg="draw completed" campaign=ID winners=3 positions="[`+strings.Join(positions, " ")+`]" request_id=four`)
	check("after the draw")
	metrics(`fairlead_lottery_draw_failure_total{error_type="database"} 1`, `fairlead_lottery_draw_success_total 1`)
}
