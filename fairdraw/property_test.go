package fairdraw

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// genText gives texts that the package accepts.
func genText() *rapid.Generator[string] {
	return rapid.StringOfN(rapid.Rune(), 1, 20, -1).Filter(func(s string) bool { return textProblem(s) == "" })
}

func genSeed() *rapid.Generator[Seed] {
	return rapid.Custom(func(t *rapid.T) Seed {
		return Seed(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "seed bytes"))
	}).Filter(func(s Seed) bool { return !s.IsZero() })
}

// genInput gives inputs that the package accepts.
func genInput() *rapid.Generator[Input] {
	return rapid.Custom(func(t *rapid.T) Input {
		in := Input{Campaign: genText().Draw(t, "campaign"), Seed: genSeed().Draw(t, "seed")}
		if rapid.Bool().Draw(t, "with beacon") {
			in.Beacon = rapid.SliceOfN(rapid.Byte(), 1, 96).Draw(t, "beacon")
		}
		ids := rapid.SliceOfNDistinct(genText(), 1, 40, rapid.ID[string]).Draw(t, "ids")
		perLayer := map[int]int{}
		layer, number := 1, 0
		for _, id := range ids {
			if number > 0 && rapid.IntRange(0, 3).Draw(t, "next layer") == 0 {
				layer, number = layer+rapid.IntRange(1, 3).Draw(t, "layers"), 0
			}
			number += rapid.IntRange(1, 3).Draw(t, "numbers")
			perLayer[layer]++
			in.Positions = append(in.Positions, Position{ID: id, Layer: layer, Number: number, Account: genText().Draw(t, "account")})
		}
		for _, name := range rapid.SliceOfNDistinct(genText(), 0, 5, rapid.ID[string]).Draw(t, "prizes") {
			prize := Prize{Name: name}
			eligible := len(ids)
			if rapid.Bool().Draw(t, "of a layer") {
				prize.Layer = rapid.SampledFrom(in.Positions).Draw(t, "layer").Layer
				eligible = perLayer[prize.Layer]
			}
			prize.Quantity = rapid.IntRange(1, eligible).Draw(t, "quantity")
			in.Prizes = append(in.Prizes, prize)
		}
		return in
	})
}

func TestPropertyDraw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := genInput().Draw(t, "input")
		res, err := Draw(in)
		testwait.Must(t, err)
		rest := res.Winners
		for _, prize := range in.Prizes {
			seen := map[string]bool{}
			for _, w := range rest[:prize.Quantity] {
				if w.Prize != prize.Name || prize.Layer != 0 && w.Position.Layer != prize.Layer {
					t.Fatalf("%v wins %v", w, prize)
				}
				if seen[w.Position.ID] || !slices.Contains(in.Positions, w.Position) {
					t.Fatalf("%v is no position, or wins twice", w)
				}
				seen[w.Position.ID] = true
			}
			rest = rest[prize.Quantity:]
		}
		if len(rest) != 0 {
			t.Fatalf("%d winners of no prize", len(rest))
		}
		doc, err := json.Marshal(NewProof(in, res))
		testwait.Must(t, err)
		p, err := ParseProof(doc)
		if err != nil {
			t.Fatalf("%v in %s", err, doc)
		}
		testwait.Must(t, p.Verify())
		testwait.Must(t, p.VerifyCommitment(in.Seed.Commitment()))
	})
}

func TestPropertyInclusion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := genInput().Draw(t, "input")
		root, err := Root(in.Campaign, in.Positions)
		testwait.Must(t, err)
		index := rapid.IntRange(0, len(in.Positions)-1).Draw(t, "index")
		ip, err := Include(in.Campaign, in.Positions, index)
		testwait.Must(t, err)
		if ip.Root != hex.EncodeToString(root[:]) {
			t.Fatalf("root %s, want %x", ip.Root, root)
		}
		doc, err := json.Marshal(ip)
		testwait.Must(t, err)
		testwait.Must(t, checkInclusionDocument(doc, root))
		// The path of one position does not carry another.
		other := rapid.SampledFrom(in.Positions).Draw(t, "other")
		if other != ip.Position {
			ip.Position = other
			if ip.Verify(root) == nil {
				t.Fatalf("%v in the place of %v", other, in.Positions[index])
			}
		}
	})
}

func TestPropertySample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 300).Draw(t, "n")
		k := rapid.IntRange(0, n).Draw(t, "k")
		seed := genSeed().Draw(t, "seed")
		dense, sparse := sampleDense(NewStream(seed, 1), n, k), sampleSparse(NewStream(seed, 1), n, k)
		if !slices.Equal(dense, sparse) {
			t.Fatalf("dense %v, sparse %v", dense, sparse)
		}
		sorted := slices.Compact(slices.Sorted(slices.Values(dense)))
		if len(sorted) != k || k > 0 && (sorted[0] < 0 || sorted[k-1] >= n) {
			t.Fatalf("%v is not %d distinct of %d", dense, k, n)
		}
		// A longer choice begins like a shorter one.
		if longer := sampleDense(NewStream(seed, 1), n, n); !slices.Equal(longer[:k], dense) {
			t.Fatalf("%v does not begin with %v", longer, dense)
		}
	})
}

func TestPropertyStreamIsReachedByIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, name := genSeed().Draw(t, "seed"), genText().Draw(t, "operation")
		op, err := NewOperation(seed, name)
		testwait.Must(t, err)
		roving := op.At(rapid.Uint64().Draw(t, "start"))
		for _, index := range rapid.SliceOfN(rapid.Uint64(), 1, 10).Draw(t, "indices") {
			roving.Seek(index)
			direct := op.At(index)
			for range rapid.IntRange(0, 9).Draw(t, "integers") {
				if a, b := roving.Uint64(), direct.Uint64(); a != b {
					t.Fatalf("stream %d: %d and %d", index, a, b)
				}
			}
		}
		low, high := rapid.Int64().Draw(t, "low"), rapid.Int64().Draw(t, "high")
		if low > high {
			low, high = high, low
		}
		if v, err := roving.Between(low, high); err != nil || v < low || v > high {
			t.Fatalf("%d is not in [%d, %d], %v", v, low, high, err)
		}
	})
}

func TestPropertyWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Uint64Range(0, 1<<50), 1, 50).Draw(t, "weights")
		w, err := NewWeights(weights)
		if err != nil {
			if slices.Max(weights) != 0 {
				t.Fatal(err)
			}
			return
		}
		s := NewStream(genSeed().Draw(t, "seed"), 0)
		for range 20 {
			if i := w.Pick(s); weights[i] == 0 {
				t.Fatalf("entry %d of weight 0 was chosen", i)
			}
		}
	})
}
