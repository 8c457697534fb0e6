package main

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon/beacontest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
	"github.com/fairlead-dev/fairlead/translog/seal"
	"github.com/fairlead-dev/fairlead/translog/witness"
)

// TestConsoleSeals looks at what the console and the public page say of a seal that a witness has seen: before the round, and after a draw.
// The rounds are due in an hour, so that a slow machine has the witness's signature in time, and the beacon's clock is ahead of them for
// the second campaign, which is drawn at once.
func TestConsoleSeals(t *testing.T) {
	t.Parallel()
	chromiumPath(t)
	random := beacontest.New(t)
	key, err := translog.GenerateKey("log.example.com/shop")
	testwait.Must(t, err)
	cosigner, err := translog.GenerateCosigner("witness.example.com/w1")
	testwait.Must(t, err)
	w, err := witness.New(witness.Options{Key: cosigner, StateFile: filepath.Join(t.TempDir(), "state"), Logs: []string{key.Verifier()}})
	testwait.Must(t, err)
	t.Cleanup(w.Close)
	served := httptest.NewServer(w)
	t.Cleanup(served.Close)
	chain, err := json.Marshal(random.Chain())
	testwait.Must(t, err)
	chainFile := filepath.Join(t.TempDir(), "chain.json")
	testwait.Must(t, os.WriteFile(chainFile, chain, 0o600))

	s := startSceneWith(t, func(o *fairlead.Options) {
		testwait.Must(t, key.WriteFile(fairlead.LogKeyFile(o.Data)))
		o.BeaconChain, o.BeaconRelays, o.BeaconLead = chainFile, []string{random.URL()}, time.Hour
		o.Witnesses = []string{cosigner.Verifier() + "=" + served.URL}
	})
	s.account("shop", 0)
	for i := range 5 {
		s.account(fmt.Sprintf("buyer-%d", i), 10_000)
	}
	sold := func(name string, witnesses int) (id string) {
		id = s.id("POST", "/v1/campaigns", obj{
			"name": name, "base_length": 2, "price": 250, "currency": "EUR", "beneficiary": "shop", "draw": "beacon", "witnesses": witnesses,
			"prizes": []obj{{"name": "A pennant", "quantity": 1}},
		})
		s.call("POST", "/v1/campaigns/"+id+"/publish", nil)
		s.buy(id, 3)
		return id
	}
	beaconOf := func(id string) obj { b, _ := s.call("GET", "/v1/campaigns/"+id, nil)["beacon"].(obj); return b }
	random.SetAhead(2 * time.Hour)
	drawn := sold("Winter raffle", 0)
	s.eventually("the draw", func() bool { b := beaconOf(drawn); return b["status"] == "drawn" && b["seen_by"] == 1.0 })
	random.SetAhead(0) // The next one's round is an hour away, for as long as the test may take.
	waiting := sold("Autumn raffle", 1)
	s.eventually("the witness's signature", func() bool { return beaconOf(waiting)["seen_by"] == 1.0 })
	before := fmt.Sprintf("Sealed %.0f s before the round. Seen by 1 witness.", s.call("GET", "/v1/campaigns/"+drawn+"/seal", nil)["seconds_before"])

	b := openBrowser(t, s.url)
	s.signsIn(b)
	for _, p := range []struct{ name, path, says string }{
		{"sealed", "/console/campaigns/" + waiting, "Sealed; seen by 1 of 1 required witnesses."},
		{"sealed-drawn", "/console/campaigns/" + drawn, before},
		{"public-sealed", "/p/campaigns/" + waiting, "Sealed; seen by 1 of 1 required witnesses."},
		{"public-sealed-drawn", "/p/campaigns/" + drawn, before},
		{"check", "/p/check", "What the check cannot tell"},
	} {
		b.visit(p.path)
		// The page writes thousands as count does.
		b.await(p.says, fmt.Sprintf(`document.body.textContent.replaceAll(",", "").includes(%q)`, p.says))
		b.everywhere(p.name)
	}
	b.visit("/p/campaigns/" + drawn)
	b.click("footer", "How you can check this draw")
	b.await("the page", `document.querySelector("h1")?.textContent === "How you can check this draw"`)

	// In the browser, all of the seal is verified that needs no key.
	b.look(1440, "light")
	b.visit("/console/campaigns/" + drawn)
	b.click("main", "Verify in this browser")
	b.await("the verdict", `document.querySelector("[data-verdict]")?.dataset.verdict === "unchecked" && document.querySelector(".steps").textContent.includes("The public log has the seal")`)
	b.shoot("sealed-verified")

	// An entrant finds itself by 8 digits or by 32, and by none in between.
	alias := fmt.Sprint(s.call("GET", "/v1/accounts/buyer-1/aliases?topic=campaign:"+drawn, nil)["alias"])
	b.visit("/p/campaigns/" + drawn)
	for _, digits := range []int{8, 32} {
		b.write("main", "alias", alias[:digits])
		b.await("the entrant", fmt.Sprintf(`document.body.textContent.includes(%q) && !document.body.textContent.includes(%q)`, alias[:8], alias[:9]))
	}
	b.quiet("seals")
}

// TestSealVerifiersAgree gives the browser and package seal the same documents, whose seals are altered in a byte: they agree on each.
func TestSealVerifiersAgree(t *testing.T) {
	t.Parallel()
	chromiumPath(t)
	kept, err := os.ReadFile("../../translog/seal/testdata/sealed.json")
	testwait.Must(t, err)
	var vector struct{ Proof struct{ Seal jsontext.Value } }
	testwait.Must(t, json.Unmarshal(kept, &vector, json.MatchCaseInsensitiveNames(true)))
	var whole struct{ Proof jsontext.Value }
	testwait.Must(t, json.Unmarshal(kept, &whole, json.MatchCaseInsensitiveNames(true)))
	b := openBrowser(t, assetHost(t))
	b.visit("/")
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 7))
	var documents []string
	var want []bool
	const n = 300
	for i := range n {
		sealed := []byte(string(vector.Proof.Seal))
		if i > 0 {
			at := random.IntN(len(sealed))
			switch random.IntN(3) {
			case 0:
				sealed[at] ^= 1 << random.IntN(8)
			case 1:
				sealed = append(sealed[:at:at], sealed[at+1:]...)
			case 2:
				sealed = append(sealed[:at:at], append([]byte{sealed[at]}, sealed[at:]...)...)
			}
		}
		document := strings.Replace(string(whole.Proof), string(vector.Proof.Seal), string(sealed), 1)
		p, err := fairdraw.ParseProof([]byte(document))
		if err == nil {
			_, err = seal.Verify(p, seal.Keys{})
		}
		documents, want = append(documents, base64.StdEncoding.EncodeToString([]byte(document))), append(want, err == nil)
	}
	list, err := json.Marshal(documents)
	testwait.Must(t, err)
	var got []bool
	b.eval(fmt.Sprintf(`(async () => {
		const { verify } = await import("/console/assets/js/verify/verify.js");
		const out = [];
		for (const d of %s) out.push((await verify(Uint8Array.from(atob(d), (c) => c.charCodeAt(0)))).unchecked);
		return out;
	})()`, list), &got)
	right := 0
	for i := range want {
		if want[i] {
			right++
		}
		if len(got) != len(want) || got[i] != want[i] {
			document, _ := base64.StdEncoding.DecodeString(documents[i])
			t.Fatalf("package seal says %v, the browser %v: %s", want[i], got, document)
		}
	}
	// Bytes of signatures and white space may change: nothing of them is known without keys.
	if right < n/10 || right > n*9/10 {
		t.Errorf("%d of %d are right: too few of one kind to mean anything", right, n)
	}
	b.quiet("verification")
}
