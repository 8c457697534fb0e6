package multidraw

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"math/bits"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/fairdraw"
)

// Draws are all draws that an operation could ever make, each of which can be reached by its index. Draws are immutable and
// may be shared.
type Draws struct {
	keys       *keystream
	name       string
	commitment string
	spec       Spec
	wheel      *wheel // nil for a range
	n          uint64 // how many values a draw may have, or the sum of weights; 0 means 2⁶⁴
	least      uint64 // 2⁶⁴ mod n, see keystream.retry
	width      int
}

// New makes ready the draws of an operation. The name keeps operations under one seed apart; 1 to 200 characters without
// control characters. The seed is not zero. It returns a [*ParameterError].
func New(seed fairdraw.Seed, name string, spec Spec) (*Draws, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if seed.IsZero() {
		return nil, bad("seed", "was never chosen")
	}
	if name == "" || !utf8.ValidString(name) || utf8.RuneCountInString(name) > MaxTextRunes || strings.ContainsFunc(name, unicode.IsControl) {
		return nil, bad("name", "must have 1 to %d characters and no control characters", MaxTextRunes)
	}
	d := &Draws{keys: newKeystream(seed, name), name: name, commitment: seed.Commitment(), spec: spec, width: spec.Width()}
	if r := spec.Range; r != nil {
		d.n = uint64(r.Max) - uint64(r.Min) + 1 //nolint:gosec // Right also past 2^63, in two's complement.
	} else {
		d.wheel = newWheel(spec.Prizes)
		d.n = d.wheel.total()
	}
	if d.n != 0 {
		d.least = -d.n % d.n
	}
	return d, nil
}

// Spec is what is drawn from.
func (d *Draws) Spec() Spec { return d.spec }

// Append appends draws first to first+count−1 in the form in which they are saved, see [Spec.Width].
func (d *Draws) Append(dst []byte, first int64, count int) []byte {
	if count <= 0 {
		return dst
	}
	at := len(dst)
	dst = slices.Grow(dst, count*d.width)[:at+count*d.width]
	d.each(first, count, func(values []uint64) {
		putOffsets(dst[at:], d.width, values)
		at += len(values) * d.width
	})
	return dst
}

// each makes draws, each as what it is above the least one, and passes them on some at a time.
func (d *Draws) each(first int64, count int, pass func(values []uint64)) {
	index := uint64(first) //nolint:gosec // Indices are not negative.
	r := d.keys.from(index)
	defer r.done()
	for count > 0 {
		words := r.words(count)
		values := r.values[:len(words)/wordSize]
		d.values(values, words, index)
		pass(values)
		index += uint64(len(values))
		count -= len(values)
	}
}

// values makes draws of as many words. The first is draw index.
func (d *Draws) values(values []uint64, words []byte, index uint64) {
	n, least, wheel := d.n, d.least, d.wheel
	for i := range values {
		word := binary.BigEndian.Uint64(words[i*wordSize:])
		value, low := bits.Mul64(word, n)
		if low < least {
			value, word = d.keys.retry(n, least, index+uint64(i))
		}
		if wheel != nil {
			value = wheel.place(value, word)
		} else if n == 0 {
			value = word
		}
		values[i] = value
	}
}

// Int is draw i of a range. It panics where prizes are drawn.
func (d *Draws) Int(i int64) int64 { return d.Ints(i, 1)[0] }

// Ints are draws first to first+count−1 of a range. It panics where prizes are drawn.
func (d *Draws) Ints(first int64, count int) []int64 {
	if d.spec.Range == nil {
		panic("multidraw: prizes are no integers")
	}
	out, at, low := make([]int64, max(count, 0)), 0, uint64(d.spec.Range.Min) //nolint:gosec // The bits as they are.
	d.each(first, count, func(values []uint64) {
		to := out[at : at+len(values)]
		for i, v := range values {
			to[i] = int64(low + v) //nolint:gosec // Wraps on purpose.
		}
		at += len(values)
	})
	return out
}

// Prize is draw i of prizes. It panics where integers are drawn.
func (d *Draws) Prize(i int64) Prize { return d.spec.Prizes[d.Places(i, 1)[0]] }

// Places are draws first to first+count−1 of prizes, each as the prize's place in the list, from 0. It panics where
// integers are drawn.
func (d *Draws) Places(first int64, count int) []int {
	if d.wheel == nil {
		panic("multidraw: integers are no prizes")
	}
	out, at := make([]int, max(count, 0)), 0
	d.each(first, count, func(values []uint64) {
		to := out[at : at+len(values)]
		for i, v := range values {
			to[i] = int(v) //nolint:gosec // A place in a list.
		}
		at += len(values)
	})
	return out
}

// Prizes are draws first to first+count−1 of prizes. It panics where integers are drawn. [Draws.Places] is quicker.
func (d *Draws) Prizes(first int64, count int) []Prize {
	places := d.Places(first, count)
	out := make([]Prize, len(places))
	for i, place := range places {
		out[i] = d.spec.Prizes[place]
	}
	return out
}

// InRange draws one integer from low to high, both included, under a fresh seed that is read from random, which must be a
// cryptographic source such as crypto/rand.Reader. To draw often, make [Draws] once. Errors are those of [New], and
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
