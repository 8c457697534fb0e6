package multidraw

import (
	"crypto/sha256"
	"io"

	"github.com/fairlead-dev/fairlead/fairdraw"
)

// Draws are all draws that an operation could ever make, each of which can be reached by its index. Draws are immutable and
// may be shared.
type Draws struct {
	op         *fairdraw.Operation
	name       string
	commitment string
	spec       Spec
	weights    *fairdraw.Weights // nil for a range
	width      int
}

// New makes ready the draws of an operation. The name keeps operations under one seed apart; 1 to 200 characters without
// control characters. It returns a [*ParameterError], or fairdraw's error about seed and name.
func New(seed fairdraw.Seed, name string, spec Spec) (*Draws, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	op, err := fairdraw.NewOperation(seed, name)
	if err != nil {
		return nil, err
	}
	d := &Draws{op: op, name: name, commitment: seed.Commitment(), spec: spec, width: spec.Width()}
	if spec.Range != nil {
		return d, nil
	}
	weights := make([]uint64, len(spec.Prizes))
	for i, p := range spec.Prizes {
		weights[i] = uint64(p.Weight) //nolint:gosec // Validate refuses negative ones.
	}
	d.weights, err = fairdraw.NewWeights(weights)
	return d, err
}

// Spec is what is drawn from.
func (d *Draws) Spec() Spec { return d.spec }

// Append appends draws first to first+count−1 in the form in which they are saved, see [Spec.Width].
func (d *Draws) Append(dst []byte, first int64, count int) []byte {
	if count <= 0 {
		return dst
	}
	s := d.op.At(uint64(first)) //nolint:gosec // Indices are not negative.
	for i := range count {
		if i > 0 {
			s.Seek(uint64(first) + uint64(i)) //nolint:gosec // As above.
		}
		dst = appendOffset(dst, d.width, d.draw(s))
	}
	return dst
}

// draw takes one draw from the beginning of its stream, as what it is above the least one.
func (d *Draws) draw(s *fairdraw.Stream) uint64 {
	if d.weights != nil {
		return uint64(d.weights.Pick(s)) //nolint:gosec // A place in a list.
	}
	v, err := s.Between(d.spec.Range.Min, d.spec.Range.Max)
	if err != nil {
		panic("multidraw: a range that was validated is refused: " + err.Error())
	}
	return uint64(v) - uint64(d.spec.Range.Min) //nolint:gosec // Right also past 2^63, in two's complement.
}

// Int is draw i of a range. It panics where prizes are drawn.
func (d *Draws) Int(i int64) int64 { return d.Ints(i, 1)[0] }

// Ints are draws first to first+count−1 of a range. It panics where prizes are drawn.
func (d *Draws) Ints(first int64, count int) []int64 {
	if d.spec.Range == nil {
		panic("multidraw: prizes are no integers")
	}
	return d.spec.AppendInts(make([]int64, 0, max(count, 0)), d.Append(nil, first, count))
}

// Prize is draw i of prizes. It panics where integers are drawn.
func (d *Draws) Prize(i int64) Prize { return d.Prizes(i, 1)[0] }

// Prizes are draws first to first+count−1 of prizes. It panics where integers are drawn.
func (d *Draws) Prizes(first int64, count int) []Prize {
	if d.weights == nil {
		panic("multidraw: integers are no prizes")
	}
	places, err := d.spec.AppendPrizes(make([]int, 0, max(count, 0)), d.Append(nil, first, count))
	if err != nil {
		panic("multidraw: " + err.Error()) // They were drawn a moment ago.
	}
	out := make([]Prize, len(places))
	for i, place := range places {
		out[i] = d.spec.Prizes[place]
	}
	return out
}

// InRange draws one integer from low to high, both included, under a fresh seed that is read from random, which must be a
// cryptographic source such as crypto/rand.Reader. Whoever draws often makes [Draws] once. Errors are those of [New], and
// random's.
func InRange(random io.Reader, low, high int64) (int64, error) {
	d, err := fresh(random, Spec{Range: &Range{Min: low, Max: high}})
	if err != nil {
		return 0, err
	}
	return d.Int(0), nil
}

// FromPrizes draws one prize, as [InRange] draws an integer.
func FromPrizes(random io.Reader, prizes []Prize) (Prize, error) {
	if prizes == nil {
		prizes = []Prize{}
	}
	d, err := fresh(random, Spec{Prizes: prizes})
	if err != nil {
		return Prize{}, err
	}
	return d.Prize(0), nil
}

func fresh(random io.Reader, spec Spec) (*Draws, error) {
	seed, err := fairdraw.NewSeed(random)
	if err != nil {
		return nil, err
	}
	return New(seed, "single", spec)
}

// firstDigest is the digest of an operation without draws: it binds the parameters and the name.
func firstDigest(parameters [sha256.Size]byte, name string) [sha256.Size]byte {
	return sha256.Sum256(appendText(append(append([]byte(hashTag), 1), parameters[:]...), name))
}

// nextDigest is the digest after another checkpoint: each binds the one before it and the bytes that were saved.
func nextDigest(digest [sha256.Size]byte, saved []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(digest[:])
	h.Write(saved)
	return [sha256.Size]byte(h.Sum(nil))
}
