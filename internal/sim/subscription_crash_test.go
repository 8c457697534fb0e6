//go:build unix

package sim_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestDelivererDiesBeforeItRecords lets the server kill itself when a receiver has taken an event and its place is not moved. The next
// one sends that event again, as it was, and then those after it, each once.
func TestDelivererDiesBeforeItRecords(t *testing.T) {
	beside(t)
	database := newDatabase(t)
	server := newServer(t, database, patientArgs()...)
	in := newPorch(t)
	bids := 5
	for round := range testwait.Count(2, 20) {
		l := newLot(t, server, bids)
		name := fmt.Sprintf("round-%d", round)
		// The paused target keeps the events back from the server that lives.
		target := in.target(t, server, name)
		post(t, clientOf(t, server), "/v1/targets/"+target+"/pause", ``)
		subscription := post(t, clientOf(t, server), "/v1/subscriptions", fmt.Sprintf(`{"name":%q,"target":%q,"topics":[%q],"from":"start"}`, name, name, l.topic)).ID
		nth := 1 + int64(round+1)%l.last
		before := elected(server)
		at := fmt.Sprintf("subscription.sent:%d", nth)
		willDie(t, server, at)
		resume := &sim.Op{Method: http.MethodPost, Path: "/v1/targets/" + target + "/resume", Key: uuid.NewString()}
		_ = clientOf(t, server).Once(testwait.Context(t, patience), resume) // The answer may be lost with the server; its retry tells.
		dies(t, server, at)

		wantArrivals(t, in.of(l.topic), upTo(1, nth), elected(server) > before+1)
		if place, _ := placeOf(t, database, subscription, l.topic); place != nth-1 {
			t.Errorf("%s: the place is %d", at, place)
		}
		start(t, server)
		testwait.Must(t, testwait.Err(clientOf(t, server).Settle(testwait.Context(t, patience), resume)))
		awaitCurrent(t, server, subscription, l)
		wantArrivals(t, in.of(l.topic), append(upTo(1, nth), upTo(nth, l.last)...), elected(server) > before+2)
		if t.Failed() {
			t.Fatalf("round %d, %s", round, at)
		}
	}
	auditNow(t, database)
}
