package scenario

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// How many proofs a runner verifies.
const (
	validProofs   = 200
	alteredProofs = 100
)

// names are ids and names as people give them.
func names() []string {
	return []string{
		"plain", "Käse", "日本", "😀", "e\u0301", "\u2028", "\ufffd", "\ufdd0", `back\slash`, `quo"te`, "sla/sh", `\u0041`, "a b", "<&>", "\U0010ffff",
		strings.Repeat("ż", 180),
	}
}

// draw makes draw number n: campaigns of one position and of many, triangles and flat ones, with no prize, or with every position winning.
func draw(n int, rng *rand.Rand) (fairdraw.Input, *fairdraw.Proof, error) {
	texts := names()
	name := func(kind string, i int) string { return fmt.Sprintf("%s-%s-%d", kind, texts[rng.IntN(len(texts))], i) }
	in := fairdraw.Input{Campaign: name("campaign", n), Seed: fairdraw.Seed(sha256.Sum256(fmt.Append(nil, "scenario", n)))}
	layers, perLayer := 1+rng.IntN(12), map[int]int{}
	if n%10 == 0 {
		layers = 1
	}
	for layer := 1; layer <= layers; layer++ {
		sold := layer
		if n%3 == 0 {
			sold = rng.IntN(40) // Layers may be empty, and numbers missing.
		}
		for number := range sold {
			in.Positions = append(in.Positions, fairdraw.Position{
				ID: fmt.Sprintf("%s.%d", name("p", layer), number), Layer: layer, Number: 1 + 3*number, Account: name("acct", rng.IntN(5)),
			})
			perLayer[layer]++
		}
	}
	if len(in.Positions) == 0 {
		in.Positions = []fairdraw.Position{{ID: "only", Layer: fairdraw.MaxLayer, Number: fairdraw.MaxNumber, Account: strings.Repeat("😀", 200)}}
	}
	for i := range rng.IntN(5) {
		prize := fairdraw.Prize{Name: name("prize", i), Quantity: 1 + rng.IntN(len(in.Positions))}
		if layer := 1 + rng.IntN(layers); rng.IntN(2) == 0 && perLayer[layer] > 0 {
			prize.Layer, prize.Quantity = layer, 1+rng.IntN(perLayer[layer])
		}
		in.Prizes = append(in.Prizes, prize)
	}
	result, err := fairdraw.Draw(in)
	if err != nil {
		return in, nil, err
	}
	return in, fairdraw.NewProof(in, result), nil
}

// makeProofs writes the folders valid and altered, and checks each of its documents with package fairdraw.
func makeProofs(t *testing.T, dir string) {
	t.Helper()
	rng, _ := testwait.Rand(t)
	var draws, inclusions [][]byte
	for n := 0; len(draws)+len(inclusions) < validProofs; n++ {
		in, proof, err := draw(n, rng)
		testwait.Must(t, err)
		doc, err := json.Marshal(proof)
		testwait.Must(t, err)
		draws = append(draws, respell(doc, n))
		index := rng.IntN(len(in.Positions))
		if n%2 == 0 {
			inclusion, err := fairdraw.Include(in.Campaign, in.Positions, index)
			testwait.Must(t, err)
			doc, err := json.Marshal(inclusion)
			testwait.Must(t, err)
			inclusions = append(inclusions, respell(doc, n))
		}
	}
	all := append(append([][]byte{}, draws...), inclusions...)[:validProofs]
	write := func(folder string, number int, inclusion bool, doc []byte) {
		kind := "draw"
		if inclusion {
			kind = "inclusion"
		}
		file := filepath.Join(dir, folder, fmt.Sprintf("%s-%03d.json", kind, number))
		testwait.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		testwait.Must(t, os.WriteFile(file, doc, 0o600))
	}
	for i, doc := range all {
		if err := verify(doc, i >= len(draws)); err != nil {
			t.Fatalf("a valid proof: %v\n%s", err, doc)
		}
		write("valid", i, i >= len(draws), doc)
	}
	made := 0
	for what, doc := range forgeries(t) {
		if verify(doc, false) == nil {
			t.Fatalf("a forgery is valid: %s\n%s", what, doc)
		}
		write("altered", made, false, doc)
		made++
	}
	for turn := 0; made < alteredProofs; turn++ {
		i := turn % len(all)
		if turn%3 == 2 { // Every third one is of an inclusion.
			i = len(draws) + turn%(len(all)-len(draws))
		}
		doc, what := alter(all[i], turn, rng)
		if doc == nil {
			continue
		}
		if verify(doc, i >= len(draws)) == nil {
			t.Fatalf("an altered proof is valid: %s\n%s\n%s", what, all[i], doc)
		}
		write("altered", made, i >= len(draws), doc)
		made++
	}
}

// forgeries are documents that agree with themselves, and break a rule.
func forgeries(t *testing.T) map[string][]byte {
	t.Helper()
	seed := fairdraw.Seed(sha256.Sum256([]byte("forger")))
	single := []fairdraw.Position{{ID: "p", Layer: 1, Number: 1, Account: "a"}}
	double := []fairdraw.Position{single[0], {ID: "p", Layer: 2, Number: 1, Account: "b"}}
	forge := func(in fairdraw.Input) []byte {
		in.Campaign = "forged"
		builder, err := fairdraw.NewTreeBuilder(in.Campaign)
		testwait.Must(t, err)
		for _, p := range in.Positions {
			testwait.Must(t, builder.Add(p))
		}
		tree, err := builder.Tree()
		testwait.Must(t, err)
		result := &fairdraw.Result{Root: tree.Root()}
		for _, prize := range in.Prizes { // With a single position there is no choice.
			result.Winners = append(result.Winners, fairdraw.Winner{Prize: prize.Name, Position: in.Positions[0]})
		}
		return mustJSON(fairdraw.NewProof(in, result))
	}
	if err := verify(forge(fairdraw.Input{Seed: seed, Positions: single, Prizes: []fairdraw.Prize{{Name: "a", Quantity: 1}}}), false); err != nil {
		t.Fatal("what is forged well is not valid:", err)
	}
	return map[string][]byte{
		"an id twice":            forge(fairdraw.Input{Seed: seed, Positions: double}),
		"a seed of zeros":        forge(fairdraw.Input{Positions: single}),
		"a prize twice":          forge(fairdraw.Input{Seed: seed, Positions: single, Prizes: []fairdraw.Prize{{Name: "a", Quantity: 1}, {Name: "a", Quantity: 1}}}),
		"a beacon of no origin":  forge(fairdraw.Input{Seed: seed, Positions: single, Beacon: []byte{1, 2, 3}}),
		"of a layer without any": forge(fairdraw.Input{Seed: seed, Positions: single, Prizes: []fairdraw.Prize{{Name: "a", Layer: 2, Quantity: 1}}}),
	}
}

// verify is what a runner's verifier does.
func verify(doc []byte, inclusion bool) error {
	if !inclusion {
		proof, err := fairdraw.ParseProof(doc)
		if err != nil {
			return err
		}
		return proof.VerifyBeacon(func(fairdraw.Chain, fairdraw.Round) error { return fairdraw.ErrBeaconUnverified })
	}
	proof, err := fairdraw.ParseInclusionProof(doc)
	if err != nil {
		return err
	}
	root, err := fairdraw.ParseSeed(proof.Root) // 32 bytes in hexadecimal, as a seed.
	if err != nil {
		return err
	}
	return proof.Verify([32]byte(root))
}
