//go:build unix

package sim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestExpiredTopicIsStopped has events of one auction become older than they are kept before a subscription has read them. That topic
// is stopped, as the API and the metrics say, while another goes on, until it is replayed after a number that is kept.
func TestExpiredTopicIsStopped(t *testing.T) {
	beside(t)
	database := emptyDatabase(t)
	step := clockOf(t, database)
	server := newServer(t, database, append(patientArgs(), "--event-retention", "1m")...)
	in := newPorch(t)
	in.target(t, server, "porch")
	old := newLot(t, server, 3)
	first := old.last + 1 // that will be kept
	subscription := post(t, clientOf(t, server), "/v1/subscriptions", `{"name":"all","target":"porch","topics":["auction:*"]}`).ID
	do := func(verb, body string) {
		t.Helper()
		post(t, clientOf(t, server), "/v1/subscriptions/"+subscription+"/"+verb, body)
	}
	do("pause", ``)
	do("replay", fmt.Sprintf(`{"topic":%q,"after":1}`, old.topic))
	testwait.Eventually(t, patience, "all of it is in the public log, without which it is kept", func() bool {
		var logged bool
		conn := pgtest.Connect(t, database)
		testwait.Must(t, conn.QueryRow(t.Context(), `SELECT coalesce((SELECT next FROM log_topics WHERE kind = 2 AND id = $1), 0) >= $2`, old.id, first).Scan(&logged))
		testwait.Check(t, conn.Close(t.Context()))
		return logged
	})
	// A server that starts looks at once for what is too old.
	code, err := server.Terminate(testwait.Context(t, patience))
	if err != nil || code != 0 {
		t.Fatalf("ended with code %d: %v", code, err)
	}
	step(time.Hour)
	start(t, server)
	testwait.Eventually(t, patience, "the oldest event that is kept", func() bool {
		var kept int64
		conn := pgtest.Connect(t, database)
		testwait.Must(t, conn.QueryRow(t.Context(), `SELECT first_seq FROM auctions WHERE id = $1`, old.id).Scan(&kept))
		testwait.Check(t, conn.Close(t.Context()))
		return kept == first
	})
	old.bid(t, server, 2)
	other := newLot(t, server, 2)
	do("resume", ``)

	testwait.Eventually(t, patience, "the topic is stopped", func() bool {
		state, seq, why := progress(t, server, subscription, old.topic)
		return state == "stopped" && seq == 1 && strings.Contains(why, `"cause":"expired"`) && strings.Contains(why, fmt.Sprintf("has number %d", first))
	})
	testwait.Eventually(t, patience, "the metric says so", func() bool { return reports(t, server, "fairlead_subscription_stopped_topics 1") })
	if reports(t, server, "fairlead_subscription_expired_total 0") {
		t.Error("the metric does not count it")
	}
	awaitCurrent(t, server, subscription, other)
	old.bid(t, server, 1)
	other.bid(t, server, 2)
	awaitCurrent(t, server, subscription, other)
	wantArrivals(t, in.of(other.topic), upTo(1, other.last), elected(server) > 2)

	refused := settle(t, clientOf(t, server), "/v1/subscriptions/"+subscription+"/replay", uuid.NewString(), fmt.Sprintf(`{"topic":%q,"after":%d}`, old.topic, first-2))
	if refused.Code() != "replay_out_of_range" {
		t.Errorf("a replay of what is gone: %v", refused)
	}
	if state, _, _ := progress(t, server, subscription, old.topic); state != "stopped" {
		t.Errorf("the topic is %s", state)
	}
	wantArrivals(t, in.of(old.topic), nil, false)

	do("replay", fmt.Sprintf(`{"topic":%q,"after":%d}`, old.topic, first-1))
	awaitCurrent(t, server, subscription, old)
	wantArrivals(t, in.of(old.topic), upTo(first, old.last), elected(server) > 2)
	testwait.Eventually(t, patience, "the metric says so", func() bool { return reports(t, server, "fairlead_subscription_stopped_topics 0") })
	auditNow(t, database)
}
