package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/fairdraw"
)

// seedOf reads a campaign's secret where nobody but the server should.
func (e *env) seedOf(id string) []byte {
	e.t.Helper()
	var seed []byte
	e.sql(&seed, `SELECT seed FROM campaign_seeds WHERE campaign = $1`, id)
	return seed
}

// campaignReads are all the GET routes that tell of a campaign.
func (e *env) campaignReads(id string) []string {
	e.t.Helper()
	base := "/v1/campaigns/" + id
	paths := []string{
		"/v1/campaigns", base, base + "/positions", base + "/purchases", base + "/draw", base + "/proof", base + "/statistics",
		"/v1/accounts/alice", "/v1/accounts/alice/entries", "/v1/integrity", "/v1/keys", "/healthz", "/readyz", "/metrics",
	}
	for i := range e.get(base + "/positions").items() {
		paths = append(paths, base+"/proof/positions/"+e.get(base+"/positions").str(fmt.Sprintf("items.%d.id", i)))
	}
	return paths
}

func TestDraw(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1000)
	e.account("bob", "EUR", 1000)
	id := e.campaign(`"base_length":3`, `,"prizes":[{"name":"car","layer":1,"quantity":1},{"name":"mug","quantity":4},{"name":"pin","layer":3,"quantity":3}]`)
	base := "/v1/campaigns/" + id
	seed := e.seedOf(id)
	commitment := sha256.Sum256(seed)
	published := e.get(base).want(http.StatusOK).str("commitment")
	if published != hex.EncodeToString(commitment[:]) {
		t.Fatalf("commitment %s is not the SHA-256 of the seed", published)
	}
	spellings := []string{
		hex.EncodeToString(seed), strings.ToUpper(hex.EncodeToString(seed)), base64.StdEncoding.EncodeToString(seed), base64.RawURLEncoding.EncodeToString(seed), string(seed),
	}
	var answers []*reply
	look := func() {
		t.Helper()
		for _, path := range e.campaignReads(id) {
			r := e.get(path)
			answers = append(answers, r)
			for suffix, code := range map[string]string{"/draw": "not_drawn", "/proof": "not_drawn"} {
				if path == base+suffix {
					r.problem(http.StatusNotFound, code)
				}
			}
			if strings.Contains(path, "/proof/positions/") {
				r.problem(http.StatusNotFound, "not_drawn")
			}
		}
	}
	look()
	answers = append(answers, e.campaignPost(id, "draw", ``).problem(http.StatusConflict, "not_sold_out"))
	answers = append(answers, e.campaignPost(id, "publish", ``).want(http.StatusOK))
	var last *reply
	for n := range 6 {
		answers = append(answers, e.campaignPost(id, "draw", ``).problem(http.StatusConflict, "not_sold_out"))
		if n == 5 {
			look()
		}
		last = e.buy(id, []string{"alice", "bob"}[n%2]).want(http.StatusCreated)
		answers = append(answers, last)
	}
	for _, r := range answers {
		for _, spelling := range spellings {
			if strings.Contains(string(r.body), spelling) || strings.Contains(fmt.Sprint(r.header), spelling) {
				t.Fatalf("%s gives the seed away: %s", r.what, r.body)
			}
		}
	}

	// The draw is there when the last sale's answer is.
	draw := e.get(base + "/draw").want(http.StatusOK)
	draw.exactly(draw.decoded, "campaign", "winners", "root", "completed_at").times("completed_at").equal(fmt.Sprintf(`{"campaign":%q}`, id))
	e.get(base).want(http.StatusOK).equal(`{"status":"completed","sold_positions":6}`).times("completed_at")
	if draw.str("completed_at") != last.str("at") {
		t.Errorf("drawn at %s, last sale at %s: not one transaction", draw.str("completed_at"), last.str("at"))
	}
	e.checkWinners(draw, id, map[string]int{"car": 1, "mug": 4, "pin": 3})
	for range 3 {
		if asked := e.campaignPost(id, "draw", ``).want(http.StatusOK); string(asked.body) != string(draw.body) {
			t.Errorf("asked for the draw: %s, want %s", asked.body, draw.body)
		}
	}
	e.balance("house", 600, 0)
	e.campaignPost(id, "cancel", ``).problem(http.StatusConflict, "bad_transition")
	e.campaignPost(id, "publish", ``).problem(http.StatusConflict, "bad_transition")
	if n := e.count("draws"); n != 1 {
		t.Errorf("%d result rows", n)
	}
	e.checkProofs(id, draw, published, seed)
}

// checkWinners compares the winners with the positions and the prizes.
func (e *env) checkWinners(draw *reply, id string, quantities map[string]int) {
	e.t.Helper()
	positions := e.get("/v1/campaigns/" + id + "/positions").want(http.StatusOK)
	owner := map[string]string{}
	for i := range positions.items() {
		at := fmt.Sprintf("items.%d.", i)
		owner[positions.str(at+"id")] = fmt.Sprintf("%d/%d %s", positions.num(at+"layer"), positions.num(at+"number"), positions.str(at+"account"))
	}
	winners, ok := draw.at("winners").([]any)
	if !ok {
		e.t.Fatalf("no winners in %s", draw.body)
	}
	seen, won := map[string]bool{}, map[string]int{}
	for i, w := range winners {
		draw.exactly(w, "prize", "layer", "position", "account")
		at := fmt.Sprintf("winners.%d.", i)
		draw.exactly(draw.at(at+"position"), "id", "layer", "number")
		prize, place := draw.str(at+"prize"), draw.str(at+"position.id")
		won[prize]++
		if seen[prize+place] {
			e.t.Errorf("position %s wins %s twice", place, prize)
		}
		seen[prize+place] = true
		got := fmt.Sprintf("%d/%d %s", draw.num(at+"position.layer"), draw.num(at+"position.number"), draw.str(at+"account"))
		if owner[place] != got || draw.num(at+"layer") != draw.num(at+"position.layer") {
			e.t.Errorf("winner %s, the position is %s", got, owner[place])
		}
		if layer := draw.num(at + "layer"); prize == "car" && layer != 1 || prize == "pin" && layer != 3 {
			e.t.Errorf("%s is won in layer %d", prize, layer)
		}
	}
	if fmt.Sprint(won) != fmt.Sprint(quantities) {
		e.t.Errorf("won %v, want %v", won, quantities)
	}
}

func (e *env) checkProofs(id string, draw *reply, commitment string, seed []byte) {
	e.t.Helper()
	base := "/v1/campaigns/" + id
	document := e.get(base + "/proof").want(http.StatusOK)
	proof, err := fairdraw.ParseProof(document.body)
	must(e.t, err)
	must(e.t, proof.Verify())
	must(e.t, proof.VerifyCommitment(commitment))
	document.equal(fmt.Sprintf(`{"campaign":%q,"commitment":%q,"server_seed":%q,"root":%q}`, id, commitment, hex.EncodeToString(seed), draw.str("root")))
	if got, want := mustMarshal(document.at("winners")), mustMarshal(draw.at("winners")); string(got) != string(want) {
		e.t.Errorf("the proof's winners %s, the draw's %s", got, want)
	}
	if again := e.get(base + "/proof"); string(again.body) != string(document.body) {
		e.t.Error("the proof changes from one reading to the next")
	}
	if forged := strings.Replace(string(document.body), `"alice"`, `"mallory"`, 1); forged == string(document.body) {
		e.t.Error("nobody to forge")
	} else if p, err := fairdraw.ParseProof([]byte(forged)); err == nil && p.Verify() == nil {
		e.t.Error("a forged proof verifies")
	}

	root, err := hex.DecodeString(draw.str("root"))
	must(e.t, err)
	positions := e.get(base + "/positions").want(http.StatusOK)
	for i := range positions.items() {
		place := positions.str("items." + strconv.Itoa(i) + ".id")
		inclusion, err := fairdraw.ParseInclusionProof(e.get(base + "/proof/positions/" + place).want(http.StatusOK).body)
		must(e.t, err)
		must(e.t, inclusion.Verify([32]byte(root)))
		if inclusion.Position.ID != place || inclusion.Position.Account != positions.str("items."+strconv.Itoa(i)+".account") {
			e.t.Errorf("the proof of %s is of %+v", place, inclusion.Position)
		}
	}
	place := positions.str("items.0.id")
	for _, absent := range []string{newUUID(), "x", strings.ReplaceAll(place, "-", ""), "urn:uuid:" + place, "{" + place + "}", id} {
		e.get(base+"/proof/positions/"+absent).problem(http.StatusNotFound, "not_found")
	}
}

func TestOnePositionCampaign(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100)
	id := e.onSale(`"base_length":1`, `,"prizes":[{"name":"a","quantity":1},{"name":"b","layer":1,"quantity":1}]`)
	e.buyIn(id, "alice", 1).want(http.StatusCreated).equal(`{"price":100}`)
	draw := e.get("/v1/campaigns/" + id + "/draw").want(http.StatusOK)
	e.checkWinners(draw, id, map[string]int{"a": 1, "b": 1})
	e.checkProofs(id, draw, e.get("/v1/campaigns/"+id).str("commitment"), e.seedOf(id))
	e.balance("alice", 0, 0)
	e.balance("house", 100, 0)
	e.buy(id, "alice").problem(http.StatusConflict, "sold_out")
}

// TestBuyerIsBeneficiary pays oneself through the escrow.
func TestBuyerIsBeneficiary(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	id := e.onSale(`"base_length":2`, "")
	e.post("/v1/deposits", `{"account":"house","amount":300}`).want(http.StatusCreated)
	for range 3 {
		e.buy(id, "house").want(http.StatusCreated)
	}
	e.balance("house", 300, 0)
	e.get("/v1/campaigns/" + id).want(http.StatusOK).equal(`{"status":"completed"}`)
}
