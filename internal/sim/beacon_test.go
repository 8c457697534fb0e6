//go:build unix

package sim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/fairdraw/beacon/beacontest"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// raffle is what these tests read of a campaign in beacon mode.
type raffle struct {
	ID         string `json:"id"`
	Status     string `json:"status"`
	Commitment string `json:"commitment"`
	Beacon     struct {
		Status string  `json:"status"`
		Round  *uint64 `json:"round"`
		Root   *string `json:"root"`
	} `json:"beacon"`
}

// beaconFlags has a server draw by the beacon: with no lead but the chain's period, so that nobody waits for long.
func beaconFlags(t *testing.T, random *beacontest.Server) []string {
	t.Helper()
	chain, err := json.Marshal(random.Chain())
	testwait.Must(t, err)
	file := filepath.Join(t.TempDir(), "chain.json")
	testwait.Must(t, os.WriteFile(file, chain, 0o600))
	return []string{"--beacon-chain", file, "--beacon-relays", random.URL(), "--beacon-lead", "0s"}
}

// raffleOf makes the house, a funded buyer and a campaign of three positions in beacon mode, on sale. name is new in the
// test, since accounts are made under it.
func raffleOf(t *testing.T, client *sim.Client, name string) raffle {
	t.Helper()
	var r raffle
	for i, step := range []struct{ path, body string }{
		{"/v1/accounts", fmt.Sprintf(`{"id":"house-%s","currency":"SIM"}`, name)},
		{"/v1/accounts", fmt.Sprintf(`{"id":"buyer-%s","currency":"SIM"}`, name)},
		{"/v1/deposits", fmt.Sprintf(`{"account":"buyer-%s","amount":30}`, name)},
		{"/v1/campaigns", fmt.Sprintf(`{"name":%q,"base_length":2,"price":10,"currency":"SIM","beneficiary":"house-%s","draw":"beacon",
			"prizes":[{"name":"grand","quantity":1},{"name":"row","layer":2,"quantity":2}]}`, name, name)},
		{"/v1/campaigns/%s/publish", ``},
	} {
		path := step.path
		if strings.Contains(path, "%s") {
			path = fmt.Sprintf(path, r.ID)
		}
		answer := settle(t, client, path, fmt.Sprintf("%s-%d", name, i), step.body)
		if answer.Status/100 != 2 {
			t.Fatal(answer)
		}
		if strings.HasPrefix(step.path, "/v1/campaigns") {
			testwait.Must(t, answer.JSON(&r))
		}
	}
	return r
}

// settle sends a command until it has a final answer.
func settle(t *testing.T, client *sim.Client, path, key, body string) sim.Answer {
	t.Helper()
	answer, err := client.Settle(testwait.Context(t, patience), &sim.Op{Method: http.MethodPost, Path: path, Key: key, Body: []byte(body)})
	testwait.Must(t, err)
	return answer
}

func readRaffle(t *testing.T, client *sim.Client, id string) (r raffle) {
	t.Helper()
	testwait.Must(t, client.GetJSON(testwait.Context(t, patience), "/v1/campaigns/"+id, &r))
	return r
}

// awaitRaffle polls until a campaign is drawn.
func awaitRaffle(t *testing.T, client *sim.Client, id string) (r raffle) {
	t.Helper()
	testwait.Eventually(t, patience, "the draw of "+id, func() bool {
		r = readRaffle(t, client, id)
		return r.Status == "completed"
	})
	return r
}

// verifyRaffle runs the binary's verifier against everything that was public before the draw, and against something else.
func verifyRaffle(t *testing.T, client *sim.Client, random *beacontest.Server, sealed raffle) {
	t.Helper()
	proof := proofOf(t, client, "/v1/campaigns/"+sealed.ID)
	run := func(round uint64, more ...string) (string, error) {
		return verifier(t, proof, append([]string{"--commitment", sealed.Commitment, "--root", *sealed.Beacon.Root, "--round", fmt.Sprint(round)}, more...)...)
	}
	trust := []string{"--chain", random.Chain().Hash()}
	if out, err := run(*sealed.Beacon.Round, trust...); err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if out, err := run(*sealed.Beacon.Round+1, trust...); err == nil || !strings.Contains(out, "beacon.round differs") {
		t.Errorf("verify with another round: %v\n%s", err, out)
	}
	if out, err := run(*sealed.Beacon.Round); err == nil || !strings.Contains(out, "not one of those that are trusted") {
		t.Errorf("verify without trust: %v\n%s", err, out)
	}
}

// beaconCrashes are the places at which a server dies on the way to a draw by a beacon. Before the last sale's commit, a
// server of this test has passed lottery.before_commit three times: at publication and with two sales.
func beaconCrashes() []string {
	return []string{"lottery.before_commit:4", "lottery.sealed", "lottery.round", "lottery.draw", "lottery.round_drawn"}
}

// TestABeaconsDrawSurvivesEveryCrash kills the server at each place between the last sale and the draw; the next one goes
// on. The root and the round that were once sealed stay, and there is one draw, of them.
func TestABeaconsDrawSurvivesEveryCrash(t *testing.T) {
	beside(t)
	random := beacontest.New(t)
	database := newDatabase(t)
	server := newServer(t, database, beaconFlags(t, random)...)
	client, _ := newClient(t, server)
	for turn := range testwait.Count(1, 10) {
		for _, point := range beaconCrashes() {
			name := fmt.Sprintf("t%d-%s", turn, strings.ReplaceAll(point, ":", "-"))
			willDie(t, server, point)
			r := raffleOf(t, client, name)
			buy := func(n int) (string, string, string) {
				return "/v1/campaigns/" + r.ID + "/purchases", fmt.Sprintf("%s-buy-%d", name, n), fmt.Sprintf(`{"account":"buyer-%s"}`, name)
			}
			for n := range 2 {
				path, key, body := buy(n)
				if a := settle(t, client, path, key, body); a.Status != http.StatusCreated {
					t.Fatal(a)
				}
			}
			// The last sale's answer may be lost with the server; its key tells afterwards.
			path, key, body := buy(2)
			last := &sim.Op{Method: http.MethodPost, Path: path, Key: key, Body: []byte(body)}
			_ = client.Once(t.Context(), last)
			dies(t, server, point)
			auditNow(t, database)
			before := sealOf(t, database, r.ID)
			if (before == "") != (point == "lottery.before_commit:4") {
				t.Errorf("after %s the seal is %q", point, before)
			}
			start(t, server)
			if a, err := client.Settle(testwait.Context(t, patience), last); err != nil || a.Status != http.StatusCreated {
				t.Errorf("after %s the last sale: %v, %v", point, a, err)
			}
			done := awaitRaffle(t, client, r.ID)
			if after := sealOf(t, database, r.ID); before != "" && after != before {
				t.Errorf("after %s the seal became %s, was %s", point, after, before)
			}
			verifyRaffle(t, client, random, done)
			auditNow(t, database)
			t.Logf("%s: drawn", point)
			if t.Failed() {
				t.FailNow()
			}
		}
	}
}

// sealOf reads a campaign's seal from the database, empty where there is none.
func sealOf(t *testing.T, database, id string) (seal string) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	if err := conn.QueryRow(t.Context(), `SELECT coalesce(format('%s/%s/%s', encode(root, 'hex'), round, sealed_at), '')
		FROM campaign_beacons WHERE campaign = $1 AND round IS NOT NULL UNION ALL SELECT '' LIMIT 1`, id).Scan(&seal); err != nil {
		t.Fatal(err)
	}
	testwait.Check(t, conn.Close(t.Context()))
	return seal
}

// TestServersRaceToDrawByABeacon has two servers sweep, and be asked, for the draw of many campaigns whose beacon was gone
// when they were sold out and comes back at once for all; one of the servers is killed meanwhile.
func TestServersRaceToDrawByABeacon(t *testing.T) {
	beside(t)
	rng, _ := testwait.Rand(t)
	random := beacontest.New(t)
	database := newDatabase(t)
	flags := beaconFlags(t, random)
	servers := []*sim.Server{newServer(t, database, flags...), newServer(t, database, flags...)}
	client, _ := newClient(t, servers...)
	survivor, _ := newClient(t, servers[1])
	for turn := range testwait.Count(2, 20) {
		random.Set([]beacontest.Fault{beacontest.Absent, beacontest.WrongSignature, beacontest.Failing}[turn%3])
		raffles := make([]raffle, testwait.Count(4, 8))
		for i := range raffles {
			name := fmt.Sprintf("race-%d-%d", turn, i)
			raffles[i] = raffleOf(t, client, name)
			for n := range 3 {
				a := settle(t, client, "/v1/campaigns/"+raffles[i].ID+"/purchases", fmt.Sprintf("%s-buy-%d", name, n), fmt.Sprintf(`{"account":"buyer-%s"}`, name))
				if a.Status != http.StatusCreated {
					t.Fatal(a)
				}
			}
			raffles[i] = readRaffle(t, survivor, raffles[i].ID)
			if raffles[i].Status != "drawing" || raffles[i].Beacon.Round == nil {
				t.Fatalf("%+v", raffles[i])
			}
		}
		random.Set(beacontest.Healthy)
		var askers sync.WaitGroup
		for i := range raffles {
			for n := range 4 {
				// Whatever they are told: a draw, or that it is pending, or nothing by the server that dies.
				askers.Go(func() {
					_ = client.Once(t.Context(), &sim.Op{Method: http.MethodPost, Path: "/v1/campaigns/" + raffles[i].ID + "/draw", Key: fmt.Sprintf("ask-%d-%d-%d", turn, i, n)})
				})
			}
		}
		pause(t, rng, 100*time.Millisecond)
		testwait.Must(t, servers[0].Kill(testwait.Context(t, patience)))
		askers.Wait()
		for _, sealed := range raffles {
			done := awaitRaffle(t, survivor, sealed.ID)
			if *done.Beacon.Round != *sealed.Beacon.Round || *done.Beacon.Root != *sealed.Beacon.Root {
				t.Errorf("sealed %+v, drawn %+v", sealed, done)
			}
		}
		verifyRaffle(t, survivor, random, raffles[turn%len(raffles)])
		auditNow(t, database)
		if t.Failed() {
			t.FailNow()
		}
		start(t, servers[0])
	}
}
