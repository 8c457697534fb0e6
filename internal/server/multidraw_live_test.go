package server

import (
	"net/http"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/live"
)

// TestMultidrawProgress follows an operation over a socket, from its first event to its last.
func TestMultidrawProgress(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{}, nil)
	id := e.post("/v1/multidraws", `{"lock_key":"k","count":20500,"range":{"min":0,"max":9},"async":true}`).want(http.StatusAccepted).str("id")
	c := l.connect()
	c.subscribe("multidraw:"+id, `,"since":0`)
	for seq := range int64(21) {
		done := min((seq+1)*1000, 20_500)
		if h := c.event(seq+1, "progress"); h.Data["completed_count"] != float64(done) || h.Data["total_count"] != 20_500.0 || len(h.Data) != 2 {
			t.Errorf("%d: %v", seq+1, h.Data)
		}
	}
	// A subscriber that comes back misses nothing and hears nothing twice.
	again := l.connect()
	if head := again.subscribe("multidraw:"+id, `,"since":19`); head != 21 {
		t.Errorf("the topic is at %d", head)
	}
	again.event(20, "progress")
	again.event(21, "progress")

	small := e.post("/v1/multidraws", `{"lock_key":"s","count":5,"range":{"min":0,"max":9}}`).want(http.StatusCreated).str("id")
	c.subscribe("multidraw:"+small, `,"since":0`)
	if h := c.event(1, "progress"); h.Data["completed_count"] != 5.0 {
		t.Errorf("%v", h.Data)
	}
	for _, absent := range []string{"multidraw:" + newUUID(), "multidraw:", "multidraw:x"} {
		c.say(`{"op":"subscribe","topic":%q}`, absent)
		if h := c.hear(); h.Problem == nil || h.Problem.Code != "not_found" {
			t.Errorf("%s: %+v", absent, h)
		}
	}
	user := *l
	user.env = e.by(e.user("ann"))
	stranger := user.connect()
	stranger.say(`{"op":"subscribe","topic":%q}`, "multidraw:"+id)
	if h := stranger.hear(); h.Problem == nil || h.Problem.Code != "forbidden" {
		t.Errorf("a user's subscription: %+v", h)
	}
	r := user.stream(t, "/v1/events?topic=multidraw:"+id, nil)
	_ = r.Body.Close()
	if r.StatusCode != http.StatusForbidden {
		t.Errorf("a user's stream: %s", r.Status)
	}
}
