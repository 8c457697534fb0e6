//go:build unix

package sim_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// calm are rules of one long round, to be cancelled when the storm is over.
func calm(winners int) replay.Rules {
	return replay.Rules{
		Seller: "gallery", Rounds: []replay.RoundRule{{Winners: winners, Duration: time.Hour}},
		MinBid: 1, MinIncrement: 1, UniqueAmounts: true,
	}
}

// TestAuctionStorms lets the requirement's storms loose on one server. No answer is a 5xx, nothing is done twice, and no
// acknowledged bid is lost: the auditor plays every auction after its storm.
func TestAuctionStorms(t *testing.T) {
	beside(t)
	const most = 300
	accounts := names("bidder", most)
	h := openHouse(t, 1, append(accounts, "gallery"), 1_000_000)
	for run := range testwait.Count(1, 20) {
		name := func(what string) string { return fmt.Sprintf("%s-%d", what, run) }
		for _, n := range []int{100, most} {
			stormOfAccounts(t, h, name(fmt.Sprint("accounts-", n)), accounts[:n])
		}
		stormOfOneAccount(t, h, name("cooldown"), accounts[0], time.Hour)
		stormOfOneAccount(t, h, name("no-cooldown"), accounts[0], 0)
		stormOnOneKey(t, h, name("one-key"), accounts[0])
		stormOnOneAmount(t, h, name("one-amount"), accounts[:10])
		rapidRaises(t, h, name("rapid-cooldown"), accounts[0], time.Second)
		rapidRaises(t, h, name("rapid"), accounts[0], 0)
		if t.Failed() {
			break
		}
	}
	h.close(t, 1)
}

// want compares the counts of a storm's answers.
func want(t *testing.T, what string, counts, wanted map[string]int) {
	t.Helper()
	if !maps.Equal(counts, wanted) {
		t.Errorf("%s: answers %v, want %v", what, counts, wanted)
	}
}

func stormOfAccounts(t *testing.T, h *auctionHouse, name string, accounts []string) {
	t.Helper()
	b := h.launch(t, name, accounts, calm(10))
	ops := make([]*sim.Op, len(accounts))
	for i, account := range accounts {
		ops[i] = sim.NewBid(fmt.Sprintf("%s-%d", name, i), b.id, account, int64(1000+i))
	}
	began := time.Now()
	want(t, name, statuses(t, storm(testwait.Context(t, patience), h.client, ops)), map[string]int{"201": len(accounts)})
	t.Logf("%s: %v", name, time.Since(began).Round(time.Millisecond))
	b.act(t, "cancel")
	if out := b.finish(t, patience); len(out.Bids) != len(accounts) {
		t.Errorf("%s: %d bids", name, len(out.Bids))
	}
}

// stormOfOneAccount sends ten bids of one account. With a cooldown one is accepted and nine are told to wait; without one
// those are accepted that are higher than what came before, in whatever order that was.
func stormOfOneAccount(t *testing.T, h *auctionHouse, name, account string, cooldown time.Duration) {
	t.Helper()
	rules := calm(1)
	rules.Cooldown = cooldown
	b := h.launch(t, name, []string{account}, rules)
	ops := make([]*sim.Op, 10)
	for i := range ops {
		ops[i] = sim.NewBid(fmt.Sprintf("%s-%d", name, i), b.id, account, int64(100+i))
	}
	counts := statuses(t, storm(testwait.Context(t, patience), h.client, ops))
	accepted := counts["201"]
	if cooldown > 0 {
		want(t, name, counts, map[string]int{"201": 1, "429 cooldown": 9})
	} else if accepted < 1 || accepted+counts["422 bid_too_low"] != 10 {
		t.Errorf("%s: answers %v", name, counts)
	}
	b.act(t, "cancel")
	out := b.finish(t, patience)
	if len(out.Bids) != accepted || len(out.Board) != 1 {
		t.Errorf("%s: %d bids and %d on the board, %d accepted", name, len(out.Bids), len(out.Board), accepted)
	}
}

// stormOnOneKey sends the same bid ten times under the same key.
func stormOnOneKey(t *testing.T, h *auctionHouse, name, account string) {
	t.Helper()
	b := h.launch(t, name, []string{account}, calm(1))
	op := sim.NewBid(name, b.id, account, 77)
	ops := make([]*sim.Op, 10)
	for i := range ops {
		ops[i] = op
	}
	answers := storm(testwait.Context(t, patience), h.client, ops)
	want(t, name, statuses(t, answers), map[string]int{"201": 10})
	own := 0
	for _, a := range answers {
		if !bytes.Equal(a.Body, answers[0].Body) {
			t.Errorf("%s: %s and %s", name, a.Body, answers[0].Body)
		}
		if !a.Replayed {
			own++
		}
	}
	if own != 1 {
		t.Errorf("%s: %d of the answers say that they are the execution's own", name, own)
	}
	b.act(t, "cancel")
	if out := b.finish(t, patience); len(out.Bids) != 1 {
		t.Errorf("%s: %d bids", name, len(out.Bids))
	}
}

func stormOnOneAmount(t *testing.T, h *auctionHouse, name string, accounts []string) {
	t.Helper()
	b := h.launch(t, name, accounts, calm(1))
	ops := make([]*sim.Op, len(accounts))
	for i, account := range accounts {
		ops[i] = sim.NewBid(fmt.Sprintf("%s-%d", name, i), b.id, account, 500)
	}
	want(t, name, statuses(t, storm(testwait.Context(t, patience), h.client, ops)), map[string]int{"201": 1, "409 amount_taken": len(accounts) - 1})
	b.act(t, "cancel")
	b.finish(t, patience)
}

// rapidRaises sends one raise after the other. With a cooldown only those are accepted that come late enough.
func rapidRaises(t *testing.T, h *auctionHouse, name, account string, cooldown time.Duration) {
	t.Helper()
	const raises = 20
	rules := calm(1)
	rules.Cooldown = cooldown
	b := h.launch(t, name, []string{account}, rules)
	var answers []sim.Answer
	for i := range raises {
		answers = append(answers, decided(testwait.Context(t, patience), h.client, sim.NewBid(fmt.Sprintf("%s-%d", name, i), b.id, account, int64(10+i))))
	}
	counts := statuses(t, answers)
	switch {
	case cooldown == 0:
		want(t, name, counts, map[string]int{"201": raises})
	case answers[0].Status != http.StatusCreated || counts["429 cooldown"] == 0 || counts["201"]+counts["429 cooldown"] != raises:
		t.Errorf("%s: answers %v", name, counts)
	}
	if cooldown > 0 {
		// Whoever waits is let in.
		late := sim.NewBid(name+"-late", b.id, account, 1000)
		if a, err := h.client.Settle(testwait.Context(t, patience), late); err != nil || a.Status != http.StatusCreated {
			t.Errorf("%s: after the cooldown: %v %v", name, a, err)
		}
	}
	b.act(t, "cancel")
	b.finish(t, patience)
}
