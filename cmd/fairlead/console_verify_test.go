package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/console"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// agreeVariable makes the comparison long.
const agreeVariable = "FAIRLEAD_TORTURE"

// TestVerifiersAgree gives the same documents to the verifier in the browser and to the one of fairlead verify: true ones, ones
// altered in a byte, and ones altered in a way that a person would try. They agree on each.
func TestVerifiersAgree(t *testing.T) {
	t.Parallel()
	chromiumPath(t)
	n := 150
	if os.Getenv(agreeVariable) != "" {
		n = 1000
	}
	b := openBrowser(t, assetHost(t))
	b.visit("/")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 7))
	const batch = 25
	valid := 0
	for from := 0; from < n; from += batch {
		documents := make([]string, 0, batch)
		want := make([]bool, 0, batch)
		for i := range batch {
			document := proofDocument(t, random)
			if (from+i)%3 != 0 {
				document = altered(random, document)
			}
			documents = append(documents, base64.StdEncoding.EncodeToString(document))
			want = append(want, verifies(document))
		}
		list, err := json.Marshal(documents)
		testwait.Must(t, err)
		var got []bool
		b.eval(fmt.Sprintf(`(async () => {
			const { verify } = await import("/console/assets/js/verify/verify.js");
			const out = [];
			for (const d of %s) out.push((await verify(Uint8Array.from(atob(d), (c) => c.charCodeAt(0)))).valid);
			return out;
		})()`, list), &got)
		for i := range want {
			if want[i] {
				valid++
			}
			if len(got) != len(want) || got[i] != want[i] {
				document, _ := base64.StdEncoding.DecodeString(documents[i])
				t.Fatalf("fairlead verify says %v, the browser %v: %s", want[i], got, document)
			}
		}
	}
	t.Logf("%d documents, %d valid, no disagreement", n, valid)
	if valid < n/4 || valid > n*3/4 {
		t.Errorf("%d of %d are valid: too few of one kind to mean anything", valid, n)
	}
	b.quiet("verification")
}

// assetHost serves the console's modules: those of the verification need no server of ours.
func assetHost(t *testing.T) (url string) {
	t.Helper()
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _ := strings.CutPrefix(r.URL.Path, "/console/assets/")
		if asset, ok := console.Assets()[name]; ok {
			asset.Serve(w, r, http.StatusOK)
			return
		}
		_, _ = fmt.Fprint(w, "<!doctype html><title>verifier</title><link rel=icon href=/console/assets/mark.svg><h1>verifier</h1>")
	}))
	t.Cleanup(host.Close)
	return host.URL
}

// verifies is what fairlead verify says of a document.
func verifies(document []byte) bool {
	p, err := fairdraw.ParseProof(document)
	return err == nil && p.Verify() == nil
}

// proofDocument draws a campaign of random shape.
func proofDocument(t *testing.T, random *rand.Rand) []byte {
	t.Helper()
	var raw [32]byte
	for i := 0; i < len(raw); i += 8 {
		binary.BigEndian.PutUint64(raw[i:], random.Uint64())
	}
	seed, err := fairdraw.ParseSeed(fmt.Sprintf("%x", sha256.Sum256(raw[:])))
	testwait.Must(t, err)
	in := fairdraw.Input{Campaign: fmt.Sprintf("campaign %d – naïve 🎣 \"<b>\"", random.IntN(100)), Seed: seed}
	layers := 1 + random.IntN(6)
	for layer := 1; layer <= layers; layer++ {
		for number := 1; number <= 1+random.IntN(9); number++ {
			in.Positions = append(in.Positions, fairdraw.Position{
				ID: fmt.Sprintf("p-%d-%d", layer, number), Layer: layer, Number: number, Account: fmt.Sprintf("konto-%d-ü", random.IntN(7)),
			})
		}
	}
	for i := range random.IntN(4) {
		prize := fairdraw.Prize{Name: fmt.Sprintf("prize %d", i), Quantity: 1}
		if random.IntN(2) == 0 {
			prize.Quantity = 1 + random.IntN(len(in.Positions))
		} else {
			prize.Layer = 1 + random.IntN(layers)
		}
		in.Prizes = append(in.Prizes, prize)
	}
	result, err := fairdraw.Draw(in)
	testwait.Must(t, err)
	document, err := json.Marshal(fairdraw.NewProof(in, result))
	testwait.Must(t, err)
	return document
}

// altered changes a document: in a byte, or as a person would who wants another winner, or in what does not matter.
func altered(random *rand.Rand, document []byte) []byte {
	out := []byte(string(document))
	swap := func(old, replacement string) []byte { return []byte(strings.Replace(string(out), old, replacement, 1)) }
	switch random.IntN(16) {
	case 0: // A bit.
		out[random.IntN(len(out))] ^= 1 << random.IntN(8)
	case 1: // A byte less.
		i := random.IntN(len(out))
		out = append(out[:i:i], out[i+1:]...)
	case 2: // A byte twice.
		i := random.IntN(len(out))
		out = append(out[:i:i], append([]byte{out[i]}, out[i:]...)...)
	case 3:
		out = swap(`konto-1`, `konto-2`)
	case 4:
		out = swap(`"number":1`, `"number":2`)
	case 5:
		out = swap(`"quantity":1`, `"quantity":2`)
	case 6:
		out = swap(`"layer":1`, `"layer":1.0`)
	case 7:
		out = swap(`"layer":1`, `"layer":1e0`)
	case 8:
		out = swap(`"campaign":`, `"Campaign":`)
	case 9: // White space says nothing.
		out = swap(`,`, " ,\n\t")
	case 10: // Neither does an escape in a text.
		out = swap(`konto`, `\u006bonto`)
	case 11:
		out = swap(`"campaign":`, `"c\u0061mpaign":`)
	case 12:
		out = append(out, []byte(`{}`)[random.IntN(2)])
	case 13:
		out = swap(`"prizes":[`, `"prizes":[null,`)
	case 14:
		out = swap(`{"versions":`, `{"campaign":"again","versions":`)
	case 15:
		out = append(out, " \n"...)
	}
	return out
}
