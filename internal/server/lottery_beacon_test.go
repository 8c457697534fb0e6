package server

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon/beacontest"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// newBeaconEnv has campaigns drawn by a beacon of the test's own.
func newBeaconEnv(t *testing.T) (*env, *beacontest.Server) {
	t.Helper()
	random := beacontest.New(t)
	client, err := beacon.NewClient(beacon.ClientOptions{Relays: []string{random.URL()}, Timeout: patience})
	must(t, err)
	t.Cleanup(client.Close)
	return newEnvWith(t, setup{beacon: &lottery.BeaconOptions{Chain: random.Chain(), Source: client}}), random
}

// beaconHas compares some members of a campaign's, or of a proof's, beacon.
func (r *reply) beaconHas(document string) {
	r.t.Helper()
	var want map[string]any
	must(r.t, json.Unmarshal([]byte(document), &want))
	for name, value := range want {
		if got := r.at("beacon." + name); fmt.Sprint(got) != fmt.Sprint(value) {
			r.t.Errorf("beacon.%s is %v, want %v, in %s", name, got, value, r.body)
		}
	}
}

// sweepUntil looks after sealed campaigns as a server does, until the campaign's beacon has the status.
func (e *env) sweepUntil(id, status string) *reply {
	e.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := e.lottery.SweepRounds(e.t.Context())
		must(e.t, err)
		if c := e.get("/v1/campaigns/" + id).want(http.StatusOK); c.str("beacon.status") == status {
			return c
		}
		select {
		case <-tick.C:
		case <-deadline:
			e.t.Fatalf("the beacon of %s is not %s: %s", id, status, e.get("/v1/campaigns/"+id).body)
		}
	}
}

func TestACampaignInBeaconMode(t *testing.T) {
	t.Parallel()
	e, random := newBeaconEnv(t)
	random.Set(beacontest.Absent)
	e.account("alice", "EUR", 1000)
	id := e.campaign(`"base_length":2`, `,"draw":"beacon"`)
	base := "/v1/campaigns/" + id
	made := e.get(base).want(http.StatusOK).equal(`{"draw":"beacon"}`)
	made.beaconHas(fmt.Sprintf(`{"status":"unsealed","chain_hash":%q,"public_key":%q,"period":1,"round":null,"root":null,"sealed_at":null,
		"due_at":null,"attempts":0,"failure":null,"early":false}`, random.Chain().Hash(), random.Chain().PublicKey))
	e.campaignPost(id, "publish", ``).want(http.StatusOK).beaconHas(`{"status":"unsealed"}`)
	for range 2 {
		e.buy(id, "alice").want(http.StatusCreated)
	}
	place := e.get(base + "/positions").str("items.0.id")
	e.get(base+"/proof/positions/"+place).problem(http.StatusNotFound, "not_drawn")
	e.buy(id, "alice").want(http.StatusCreated)
	e.buy(id, "alice").problem(http.StatusConflict, "sold_out")

	sealed := e.get(base).want(http.StatusOK).equal(`{"status":"drawing","completed_at":null}`).times("beacon.sealed_at", "beacon.due_at")
	sealed.beaconHas(`{"status":"waiting"}`)
	round, root := sealed.num("beacon.round"), sealed.str("beacon.root")
	if len(root) != 64 || round < 1 {
		t.Errorf("sealed %s", sealed.body)
	}
	// The list is closed, and everyone can see that they are in it; the draw and the seed are nowhere.
	inclusion, err := fairdraw.ParseInclusionProof(e.get(base + "/proof/positions/" + place).want(http.StatusOK).body)
	must(t, err)
	raw, err := hex.DecodeString(root)
	must(t, err)
	must(t, inclusion.Verify([32]byte(raw)))
	if inclusion.Position.ID != place || inclusion.Position.Account != "alice" {
		t.Errorf("included is %+v, asked for %s", inclusion.Position, place)
	}
	e.get(base+"/draw").problem(http.StatusNotFound, "not_drawn")
	e.get(base+"/proof").problem(http.StatusNotFound, "not_drawn")
	e.campaignPost(id, "cancel", ``).problem(http.StatusConflict, "bad_transition")
	pending := e.campaignPost(id, "draw", ``).problem(http.StatusConflict, "beacon_pending")
	if !strings.Contains(pending.str("detail"), fmt.Sprint(round)) || pending.at("retryable") != true || pending.str("outcome") != "not_applied" {
		t.Errorf("%s", pending.body)
	}
	seed := hex.EncodeToString(e.seedOf(id))
	for _, path := range []string{base, base + "/positions", base + "/statistics", "/metrics"} {
		if strings.Contains(string(e.get(path).body), seed) {
			t.Errorf("%s tells the seed", path)
		}
	}

	// It says that it waits, why, and since when.
	late := e.sweepUntil(id, "delayed")
	late.equal(`{"status":"drawing"}`).beaconHas(fmt.Sprintf(`{"root":%q,"failure":"not_published"}`, root))
	if late.num("beacon.attempts") < 1 || late.num("beacon.round") != round {
		t.Errorf("%s", late.body)
	}
	if p := e.campaignPost(id, "draw", ``).problem(http.StatusConflict, "beacon_pending"); !strings.Contains(p.str("detail"), "not_published") {
		t.Errorf("%s", p.body)
	}
	_, err = e.lottery.Sweep(t.Context())
	must(t, err)
	metrics := string(e.get("/metrics").body)
	for _, line := range []string{"fairlead_lottery_beacon_waiting 1\n", `fairlead_lottery_beacon_attempts_total{result="not_published"}`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("no %q among the metrics", line)
		}
	}
	if overdue := e.metric("fairlead_lottery_beacon_overdue_seconds"); overdue < lottery.DelayedAfter.Seconds() {
		t.Errorf("overdue by %v s", overdue)
	}
	if !strings.Contains(e.logs.String(), "the beacon's round is missing") {
		t.Error("nothing in the log")
	}

	random.Set(beacontest.Healthy)
	// The refusals were not kept under their keys; and whoever asks gets the draw without waiting for the sweeper.
	draw := e.campaignPost(id, "draw", ``).want(http.StatusOK)
	e.get(base + "/draw").want(http.StatusOK).equal(string(draw.body))
	e.get(base).equal(`{"status":"completed"}`).beaconHas(fmt.Sprintf(`{"status":"drawn","root":%q}`, root))
	e.balance("house", 300, 0)
	document := e.get(base + "/proof").want(http.StatusOK).equal(fmt.Sprintf(`{"root":%q,"commitment":%q}`, root, made.str("commitment")))
	document.beaconHas(fmt.Sprintf(`{"chain_hash":%q,"public_key":%q,"signature":"%x"}`,
		random.Chain().Hash(), random.Chain().PublicKey, random.Sign(uint64(round)).Signature))
	if document.num("beacon.round") != round {
		t.Errorf("proof of %s, sealed for %d", document.body, round)
	}
	proof, err := fairdraw.ParseProof(document.body)
	must(t, err)
	must(t, proof.VerifyBeacon(beacon.Trust(random.Chain().Hash())))
	if proof.Versions.Document != fairdraw.BeaconDocumentVersion || proof.Seal != nil {
		t.Errorf("no witness has seen the seal, and the proof is %s", document.body)
	}
	notSealed(e.get(base+"/seal"), "before its round was due")
	inclusion, err = fairdraw.ParseInclusionProof(e.get(base + "/proof/positions/" + place).want(http.StatusOK).body)
	must(t, err)
	must(t, inclusion.Verify([32]byte(raw)))
	if inclusion.Position.ID != place || inclusion.Position.Account != "alice" {
		t.Errorf("included is %+v, asked for %s", inclusion.Position, place)
	}
}

func TestAServerWithoutABeacon(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("house", "EUR", 0)
	e.post("/v1/campaigns", `{"name":"n","base_length":1,"price":1,"currency":"EUR","beneficiary":"house","prizes":[{"name":"p","quantity":1}],"draw":"beacon"}`).
		problem(http.StatusUnprocessableEntity, "beacon_unavailable")
}
