package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// multidrawDocument draws and returns the proof.
func multidrawDocument(t *testing.T, random *rand.Rand, spec multidraw.Spec, count int64, every int) string {
	t.Helper()
	var raw [32]byte
	for i := range raw {
		raw[i] = byte(random.Uint32())
	}
	seed, err := fairdraw.ParseSeed(hex.EncodeToString(raw[:]))
	testwait.Must(t, err)
	const name = "operation – 🎣"
	draws, err := multidraw.New(seed, name, spec)
	testwait.Must(t, err)
	state, err := multidraw.NewState(draws, count, every)
	testwait.Must(t, err)
	p := multidraw.Proof{
		Kind: multidraw.ProofKind, Version: 2, Operation: name, Commitment: seed.Commitment(), ServerSeed: seed.Hex(), Count: count, Every: every, Range: spec.Range, Prizes: spec.Prizes,
	}
	var saved []byte
	state, err = multidraw.Run(t.Context(), draws, state, func(_ context.Context, c multidraw.Chunk) error {
		saved = append(saved, c.Saved...)
		return nil
	})
	testwait.Must(t, err)
	p.Digest = hex.EncodeToString(state.Digest[:])
	if count <= multidraw.InlineResults {
		p.Results, p.PrizeResults, err = spec.Results(saved)
		testwait.Must(t, err)
	}
	document, err := json.Marshal(p)
	testwait.Must(t, err)
	return string(document)
}

// TestMultidrawVerifiersAgree gives proofs of multi-draws, true ones and altered ones, to the verifier in the browser and to that of
// fairlead verify. Among them are draws that refuse a third of all words, numbers that no double holds, and every width of saved draws.
func TestMultidrawVerifiersAgree(t *testing.T) {
	t.Parallel()
	b := openBrowser(t, assetHost(t))
	b.visit("/")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 11))
	many := make([]multidraw.Prize, 300)
	for i := range many {
		many[i] = multidraw.Prize{ID: fmt.Sprint("prize ", i), Name: "näme\n<b>", Weight: int64(i) << 40, Value: -int64(i)}
	}
	ints := func(low, high int64) multidraw.Spec {
		return multidraw.Spec{Range: &multidraw.Range{Min: low, Max: high}}
	}
	var documents []string
	for _, c := range []struct {
		spec  multidraw.Spec
		count int64
		every int
	}{
		{ints(1, 6), 1000, 7},
		{ints(7, 7), 10, 1000},
		{ints(-300, 300), 1001, 1000},
		{ints(0, 1<<20-1), 3000, 999},
		{ints(0, 1<<20), 500, 1000},
		{ints(-5, 1<<31), 2001, 20_000},
		{ints(math.MinInt64, math.MaxInt64), 999, 1000},
		{ints(math.MinInt64, 3074457345618258602), 1000, 13},
		{multidraw.Spec{Prizes: []multidraw.Prize{{ID: "a", Weight: 1}, {ID: "b"}, {ID: "c", Weight: 4}, {ID: "d", Weight: 5}}}, 500, 100},
		{multidraw.Spec{Prizes: many}, 5000, 1000},
	} {
		d := multidrawDocument(t, random, c.spec, c.count, c.every)
		flip := func(member string) string {
			i := strings.Index(d, `"`+member+`":"`) + len(member) + 5
			return d[:i] + string("0123456789abcdef"[(strings.IndexByte("0123456789abcdef", d[i])+1)%16]) + d[i+1:]
		}
		documents = append(documents, d, flip("digest"), flip("server_seed"), flip("commitment"),
			strings.Replace(d, `"operation":"`, `"operation":"x`, 1), strings.Replace(d, `"every":1`, `"every":2`, 1), strings.Replace(d, `"count":`, `"count":1`, 1),
			strings.Replace(d, `"results":[`, `"results":[5,`, 1), strings.Replace(d, `"prize_results":["a"`, `"prize_results":["b"`, 1), strings.Replace(d, `"weight":4`, `"weight":3`, 1),
			strings.Replace(d, `"min":`, `"min":0.`, 1), strings.Replace(d, `"version":2`, `"version":1`, 1), d+"{}", d+" \n", strings.Replace(d, ",", " ,\n\t", 1))
	}
	encoded := make([]string, len(documents))
	for i, d := range documents {
		encoded[i] = base64.StdEncoding.EncodeToString([]byte(d))
	}
	list, err := json.Marshal(encoded)
	testwait.Must(t, err)
	var got []bool
	b.eval(fmt.Sprintf(`(async () => {
		const { verifyMultidraw } = await import("/console/assets/js/verify/multidraw.js");
		const out = [];
		for (const d of %s) out.push((await verifyMultidraw(Uint8Array.from(atob(d), (c) => c.charCodeAt(0)))).valid);
		return out;
	})()`, list), &got)
	valid := 0
	for i, d := range documents {
		p, err := multidraw.ParseProof([]byte(d))
		want := err == nil && p.Verify(t.Context()) == nil
		if want {
			valid++
		}
		if len(got) != len(documents) || got[i] != want {
			t.Fatalf("fairlead verify says %v, the browser %v: %.300s", want, got[i], d)
		}
	}
	if valid < len(documents)/10 || valid > len(documents)*2/3 {
		t.Errorf("%d of %d are valid: too few of one kind to mean anything", valid, len(documents))
	}
	b.quiet("verification")
}
