//go:build unix

package sim_test

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw/beacon/beacontest"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// gated is what these tests read of a campaign that requires witnesses.
type gated struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Beacon struct {
		Failure *string `json:"failure"`
		Seen    int     `json:"seen_by"`
	} `json:"beacon"`
}

// TestWitnessesGateDraws has two campaigns require two witnesses of their seals. Both witnesses see the first one's, and it is drawn. One of
// them is away when the second is sold out: that is not drawn when its round comes, and is cancelled with refunds a minute later. On a machine
// that stalls, a round comes before the leaf of the seal is cosigned: then another campaign is made.
func TestWitnessesGateDraws(t *testing.T) {
	beside(t)
	random := beacontest.New(t)
	// The seal must become a leaf, and the leaf be cosigned, well before the round, on a slow machine too.
	s := newLogSite(t, newDatabase(t), 1, 2, 1, append(beaconFlags(t, random), "--beacon-lead", "20s")...)
	c := clientOf(t, s.servers[0])
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), c, []string{"house"}, 0))
	read := func(id string) (g gated) {
		t.Helper()
		testwait.Must(t, c.GetJSON(testwait.Context(t, patience), "/v1/campaigns/"+id, &g))
		return g
	}
	// soldOut returns a campaign of two positions, both an account's, whose seal so many witnesses have seen before its round.
	soldOut := func(account string, witnesses int) (id string) {
		t.Helper()
		testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), c, []string{account}, 100))
		id = post(t, c, "/v1/campaigns", `{"name":"gated","layers":[{"positions":2}],"price":10,"currency":"SIM","beneficiary":"house","draw":"beacon","witnesses":2,
			"prizes":[{"name":"grand","quantity":1}]}`).ID
		post(t, c, "/v1/campaigns/"+id+"/publish", ``)
		for range 2 {
			post(t, c, "/v1/campaigns/"+id+"/purchases", fmt.Sprintf(`{"account":%q}`, account))
		}
		var g gated
		testwait.Eventually(t, patience, fmt.Sprintf("%d witnesses of the seal, or its round", witnesses), func() bool {
			g = read(id)
			return g.Beacon.Seen == witnesses || g.Beacon.Failure != nil
		})
		if g.Beacon.Seen != witnesses {
			t.Logf("%s: %+v", account, g)
			return ""
		}
		return id
	}
	inTime := func(account string, witnesses int) (id, by string) {
		t.Helper()
		for try := range 5 {
			by = fmt.Sprintf("%s-%d", account, try)
			if id = soldOut(by, witnesses); id != "" {
				return id, by
			}
		}
		t.Fatalf("no seal was seen by %d witnesses in time", witnesses)
		return "", ""
	}
	seen, ann := inTime("ann", 2)
	testwait.Must(t, s.witnesses[1].end(syscall.SIGKILL))
	unseen, bob := inTime("bob", 1)
	testwait.Eventually(t, patience, "the draw that was witnessed", func() bool { return read(seen).Status == "completed" })
	if g := read(seen); g.Beacon.Seen != 2 {
		t.Errorf("drawn: %+v", g)
	}
	testwait.Eventually(t, patience, "the round of the other", func() bool {
		g := read(unseen)
		return g.Beacon.Failure != nil && *g.Beacon.Failure == "unwitnessed"
	})
	// The witness is back, and too late.
	testwait.Must(t, s.witnesses[1].start(testwait.Context(t, patience), s.vkey))
	fact(t, s.servers[0])
	testwait.Eventually(t, patience, "the witness signs again", func() bool {
		_, body := fetch(t.Context(), s.servers[0].URL()+"/log/checkpoint", "")
		h, err := openHead(string(body), s.vkey, s.witnesses[0].vkey, s.witnesses[1].vkey)
		return err == nil && h.by == 2
	})
	command := func(what string) sim.Answer {
		t.Helper()
		return decided(testwait.Context(t, patience), c, &sim.Op{Method: http.MethodPost, Path: "/v1/campaigns/" + unseen + "/" + what, Key: uuid.NewString()})
	}
	if a := command("draw"); a.Code() != "unwitnessed" {
		t.Errorf("draw: %v", a)
	}
	conn := pgtest.Connect(t, s.database)
	atOnce := command("cancel")
	var minuteOver bool // on a slow machine
	testwait.Must(t, conn.QueryRow(t.Context(), `SELECT clock_timestamp() >= due_at + interval '1 minute' FROM campaign_beacons WHERE campaign = $1`, unseen).Scan(&minuteOver))
	if atOnce.Status != http.StatusOK || !minuteOver {
		if atOnce.Code() != "bad_transition" {
			t.Errorf("cancel at once: %v", atOnce)
		}
		if g := read(unseen); g.Status != "drawing" || g.Beacon.Seen != 1 {
			t.Errorf("unseen: %+v", g)
		}
		_, err := conn.Exec(t.Context(), `UPDATE campaign_beacons SET sealed_at = sealed_at - interval '2 minutes', due_at = due_at - interval '2 minutes' WHERE campaign = $1`, unseen)
		testwait.Must(t, err)
		if a := command("cancel"); a.Status != http.StatusOK {
			t.Errorf("cancel after a minute: %v", a)
		}
	}
	testwait.Check(t, conn.Close(t.Context()))
	if g := read(unseen); g.Status != "cancelled" {
		t.Errorf("cancelled: %+v", g)
	}
	for account, left := range map[string]int64{ann: 80, bob: 100} { // The first campaign was paid.
		var has struct{ Available, Held int64 }
		testwait.Must(t, c.GetJSON(testwait.Context(t, patience), "/v1/accounts/"+account, &has))
		if has.Available != left || has.Held != 0 {
			t.Errorf("%s has %+v, want %d", account, has, left)
		}
	}
	testwait.Eventually(t, patience, "the leaf of the cancellation", func() bool {
		var leaves struct{ Items []struct{ Type string } }
		testwait.Must(t, c.GetJSON(testwait.Context(t, patience), "/v1/campaigns/"+unseen+"/log", &leaves))
		return len(leaves.Items) == 4 && leaves.Items[3].Type == "campaign.cancelled"
	})
}
