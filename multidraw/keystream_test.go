package multidraw_test

import (
	"bytes"
	"crypto/aes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// reference makes one draw as docs/design/multidraw.md says it, slowly, and with nothing of the package's own.
type reference struct {
	encrypt func(dst, src []byte)
}

func newReference(seed fairdraw.Seed, name string) reference {
	info := append(binary.BigEndian.AppendUint64(nil, uint64(len(name))), name...)
	key, err := hkdf.Key(sha256.New, seed[:], []byte("fairlead/multidraw/v2"), string(info), 32)
	if err != nil {
		panic(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	return reference{encrypt: block.Encrypt}
}

// word is half of block (high, low).
func (r reference) word(high, low, half uint64) *big.Int {
	counter := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, high), low)
	block := make([]byte, 16)
	r.encrypt(block, counter)
	return new(big.Int).SetBytes(block[8*half : 8*half+8])
}

// below is draw i of n values.
func (r reference) below(i uint64, n *big.Int) *big.Int {
	two64 := new(big.Int).Lsh(big.NewInt(1), 64)
	least := new(big.Int).Mod(two64, n)
	word := r.word(0, i/2, i%2)
	for next := uint64(0); ; next++ {
		high, low := new(big.Int).DivMod(new(big.Int).Mul(word, n), two64, new(big.Int))
		if low.Cmp(least) >= 0 {
			return high
		}
		word = r.word(i+1, next/2, next%2)
	}
}

// wide is a range of which every other word is passed over, or nearly.
func wide(t *rapid.T) multidraw.Spec {
	span := rapid.Uint64Range(1<<63, 1<<63+1<<61).Draw(t, "span")
	return ranged(math.MinInt64, int64(uint64(1)<<63+span))
}

// TestReference compares draws with the reference's: over all widths, with many words passed over, from odd and even indices.
func TestReference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		if rapid.Bool().Draw(t, "wide") {
			spec = wide(t)
		}
		if rapid.Bool().Draw(t, "heavy") {
			spec = prizes(rapid.Int64Range(1, 1<<62).Draw(t, "a"), rapid.Int64Range(0, 1<<61).Draw(t, "b"), rapid.Int64Range(0, 1<<61).Draw(t, "c"))
		}
		seed := fairdraw.Seed{byte(rapid.IntRange(1, 255).Draw(t, "seed"))}
		d, err := multidraw.New(seed, "op", spec)
		testwait.Must(t, err)
		first := rapid.Int64Range(0, 1<<40).Draw(t, "first")
		count := rapid.IntRange(1, 1200).Draw(t, "count")
		saved := d.Append(nil, first, count)
		ref := newReference(seed, "op")
		for _, i := range []int{0, 1, count / 2, count - 1} {
			if i >= count {
				continue
			}
			one := spec.Slice(saved, i, i+1)
			got := new(big.Int).SetBytes(one)
			want := new(big.Int)
			if spec.Range != nil {
				n := new(big.Int).Sub(big.NewInt(spec.Range.Max), big.NewInt(spec.Range.Min))
				want = ref.below(uint64(first)+uint64(i), n.Add(n, big.NewInt(1)))
			} else {
				sum := new(big.Int)
				for _, p := range spec.Prizes {
					sum.Add(sum, big.NewInt(p.Weight))
				}
				value := ref.below(uint64(first)+uint64(i), sum)
				upTo := new(big.Int)
				for place, p := range spec.Prizes {
					if upTo.Add(upTo, big.NewInt(p.Weight)); upTo.Cmp(value) > 0 {
						want.SetInt64(int64(place))
						break
					}
				}
			}
			if got.Cmp(want) != 0 {
				t.Fatalf("draw %d of %+v is %s, and %s by the reference", first+int64(i), spec, got, want)
			}
			if !bytes.Equal(one, d.Append(nil, first+int64(i), 1)) {
				t.Fatalf("draw %d alone is another one", first+int64(i))
			}
		}
	})
}

// TestVectors pins the draws of docs/design/multidraw.md: they never change under this version.
func TestVectors(t *testing.T) {
	t.Parallel()
	var seed fairdraw.Seed
	for i := range seed {
		seed[i] = byte(i)
	}
	draw := func(spec multidraw.Spec, first int64, count int) string {
		d, err := multidraw.New(seed, "vector", spec)
		testwait.Must(t, err)
		return hex.EncodeToString(d.Append(nil, first, count))
	}
	for _, c := range []struct {
		name, want string
		got        string
	}{
		{"all of int64", "c2d45872769273cf2b6a4ba1899a3ac0bdd5d1f20db90bd0", draw(ranged(math.MinInt64, math.MaxInt64), 0, 3)},
		{"dice", "040104040502000103010001", draw(ranged(1, 6), 0, 12)},
		{"a third of all words is passed over", "3429957b1e9b79215d91a6c94ff4014568de3f20273599b3", draw(ranged(math.MinInt64, math.MaxInt64/3), 7, 3)},
		{"prizes", "030302030003020200020202", draw(prizes(1, 0, 4, 5), 999_999, 12)},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.name, c.got, c.want)
		}
	}
}

// TestManyPrizes holds the search to the weights where there are as many prizes as may be, most of them of no weight.
func TestManyPrizes(t *testing.T) {
	t.Parallel()
	weights := make([]int64, multidraw.MaxPrizes)
	for i := range weights {
		if i%7 == 3 {
			weights[i] = int64(i) << 20
		}
	}
	spec := prizes(weights...)
	for i := range spec.Prizes {
		spec.Prizes[i].ID = hex.EncodeToString(binary.BigEndian.AppendUint16(nil, uint16(i)))
	}
	d := newDraws(t, spec)
	ref := newReference(fairdraw.Seed{1, 2, 3}, "op")
	sum := new(big.Int)
	for _, w := range weights {
		sum.Add(sum, big.NewInt(w))
	}
	_, ids, err := spec.Results(d.Append(nil, 0, 3000))
	testwait.Must(t, err)
	for i, place := range d.Places(0, 3000) {
		if ids[i] != spec.Prizes[place].ID {
			t.Fatalf("draw %d is prize %s, saved as %s", i, spec.Prizes[place].ID, ids[i])
		}
		value := ref.below(uint64(i), sum).Int64()
		for _, w := range weights[:place] {
			value -= w
		}
		if value < 0 || value >= weights[place] {
			t.Fatalf("draw %d is prize %d, which it misses by %d", i, place, value)
		}
	}
}
