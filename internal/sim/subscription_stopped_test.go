//go:build unix

package sim_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestStoppedDelivererWakes stops the server that delivers while an event is at the receiver. The other one takes over: it sends that
// event again, and those after it. The first one gets its answer when it wakes, moves no place, and sends nothing.
func TestStoppedDelivererWakes(t *testing.T) {
	beside(t)
	database := newDatabase(t)
	servers := []*sim.Server{newServer(t, database, patientArgs()...), newServer(t, database, patientArgs()...)}
	in := newPorch(t)
	in.target(t, servers[0], "porch")
	arrived := make(chan struct{}, 1)
	for round := range testwait.Count(2, 20) {
		leader, other := delivererOf(t, servers)
		before := elected(leader) + elected(other)
		l := newLot(t, other, 3)
		nth := 2 + int64(round)%(l.last-1)                // The first one tells the leader's term.
		answer, cancel := context.WithCancel(t.Context()) // which the end of a test that fails gives, too
		var held atomic.Bool
		in.holding(func(a arrival) {
			if a.topic == l.topic && a.seq == nth && !held.Swap(true) {
				arrived <- struct{}{}
				<-answer.Done()
			}
		})
		t.Cleanup(func() { _ = leader.Signal(syscall.SIGCONT) }) // It is awake, unless the test has failed.
		subscription := post(t, clientOf(t, other), "/v1/subscriptions", fmt.Sprintf(`{"name":"round-%d","target":"porch","topics":[%q],"from":"start"}`, round, l.topic)).ID
		await(t, "the event", arrived)
		place, term := placeOf(t, database, subscription, l.topic)
		testwait.Must(t, leader.Signal(syscall.SIGSTOP))
		l.bid(t, other, 2)
		awaitCurrent(t, other, subscription, l)
		_, next := placeOf(t, database, subscription, l.topic)
		if place != nth-1 || next <= term {
			t.Fatalf("round %d: the leader of term %d was at %d of %d, and that of term %d went on", round, term, place, nth-1, next)
		}
		seen := in.of(l.topic)

		cancel()
		testwait.Must(t, leader.Signal(syscall.SIGCONT))
		testwait.Eventually(t, patience, "the end of the leader's term", func() bool { return !delivers(t, leader) })
		if seq, by := placeOf(t, database, subscription, l.topic); seq != l.last || by != next {
			t.Errorf("round %d: the place was at %d by term %d, and is at %d by term %d", round, l.last, next, seq, by)
		}
		if after := in.of(l.topic); len(after) != len(seen) {
			t.Errorf("round %d: %v came late", round, after[len(seen):])
		}
		l.bid(t, leader, 2) // The other one hears of them, and sends them.
		awaitCurrent(t, leader, subscription, l)
		wantArrivals(t, in.of(l.topic), append(upTo(1, nth), upTo(nth, l.last)...), elected(leader)+elected(other) > before+1)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	auditNow(t, database)
}

// TestStoppedDelivererWakesBesideAnother stops the server that delivers while an event is at the receiver, and wakes it while the other one
// is at the same event. That it was taken may be recorded by either, and what comes is in order.
func TestStoppedDelivererWakesBesideAnother(t *testing.T) {
	beside(t)
	database := newDatabase(t)
	servers := []*sim.Server{newServer(t, database, patientArgs()...), newServer(t, database, patientArgs()...)}
	in := newPorch(t)
	in.target(t, servers[0], "porch")
	arrived := make(chan struct{}, 2)
	for round := range testwait.Count(1, 20) {
		leader, other := delivererOf(t, servers)
		l := newLot(t, other, 3)
		nth := 1 + int64(round+1)%l.last
		first, answerFirst := context.WithCancel(t.Context())
		second, answerSecond := context.WithCancel(t.Context())
		var came atomic.Int32
		in.holding(func(a arrival) {
			if a.topic != l.topic || a.seq != nth {
				return
			}
			switch came.Add(1) {
			case 1:
				arrived <- struct{}{}
				<-first.Done()
			case 2:
				arrived <- struct{}{}
				<-second.Done()
			}
		})
		t.Cleanup(func() { _ = leader.Signal(syscall.SIGCONT) }) // It is awake, unless the test has failed.
		subscription := post(t, clientOf(t, other), "/v1/subscriptions", fmt.Sprintf(`{"name":"round-%d","target":"porch","topics":[%q],"from":"start"}`, round, l.topic)).ID
		await(t, "the event", arrived)
		testwait.Must(t, leader.Signal(syscall.SIGSTOP))
		await(t, "its repeat", arrived)

		answerFirst()
		testwait.Must(t, leader.Signal(syscall.SIGCONT))
		testwait.Eventually(t, patience, "the end of the leader's term", func() bool { return !delivers(t, leader) })
		if seq, _ := placeOf(t, database, subscription, l.topic); seq < nth-1 {
			t.Errorf("round %d: the place is %d, with %d under way", round, seq, nth)
		}
		answerSecond()
		awaitCurrent(t, other, subscription, l)
		l.bid(t, leader, 2)
		awaitCurrent(t, leader, subscription, l)
		wantArrivals(t, in.of(l.topic), upTo(1, l.last), true)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	auditNow(t, database)
}

// delivers reports whether a server says that it delivers the events of subscriptions.
func delivers(t *testing.T, server *sim.Server) bool {
	t.Helper()
	return reports(t, server, "fairlead_subscription_leading 1")
}

// delivererOf waits until one of two servers alone delivers.
func delivererOf(t *testing.T, servers []*sim.Server) (leader, other *sim.Server) {
	t.Helper()
	testwait.Eventually(t, patience, "one that delivers", func() bool {
		leader, other = servers[0], servers[1]
		if delivers(t, other) {
			leader, other = other, leader
		}
		return delivers(t, leader) && !delivers(t, other)
	})
	return leader, other
}
