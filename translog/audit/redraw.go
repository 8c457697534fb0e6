package audit

import (
	"crypto/aes"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"sort"
)

// This file makes the draws of a multi-draw again. It is written from docs/design/multidraw.md, §1 and §5, alone, and shares nothing
// with package multidraw.

// option is one of the prizes of a multi-draw.
type option struct {
	id, name      string
	weight, value int64
}

// operation is what a multi-draw has committed to.
type operation struct {
	id         string
	count      int64
	every      int64
	commitment [sha256.Size]byte
	options    []option // nil for a range
	min, max   int64
}

// pageBytes is how many bytes of draws are hashed at once: a checkpoint may have 160 MB.
const pageBytes = 4096

const version = "fairlead/multidraw/v2"

//nolint:gosec // Two's complement, as the document has it.
func int64s(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) }

func text64(b []byte, s string) []byte { return append(int64s(b, int64(len(s))), s...) }

// begin is the digest before the first draw (§5).
func (o *operation) begin() [sha256.Size]byte {
	p := int64s(append([]byte(version), 0x00), o.count)
	if o.options == nil {
		p = int64s(int64s(append(p, 'r'), o.min), o.max)
	} else {
		p = int64s(append(p, 'p'), int64(len(o.options)))
		for _, option := range o.options {
			p = int64s(int64s(text64(text64(p, option.id), option.name), option.weight), option.value)
		}
	}
	parameters := sha256.Sum256(p)
	return sha256.Sum256(text64(append(append([]byte(version), 0x01), parameters[:]...), o.id))
}

// width is how many bytes a draw is saved in (§1), of which most is the largest.
func width(most uint64) int {
	switch bits.Len64(most) {
	case 0, 1, 2, 3, 4, 5, 6, 7, 8:
		return 1
	case 9, 10, 11, 12, 13, 14, 15, 16:
		return 2
	}
	if bits.Len64(most) <= 32 {
		return 4
	}
	return 8
}

// digest draws all again, and returns the digest behind the last checkpoint (§5).
func (o *operation) digest(seed []byte) [sha256.Size]byte {
	// HKDF with 32 bytes of output, as fairdraw §1 writes it out.
	key := mac(mac([]byte(version), seed), append(text64(nil, o.id), 0x01))
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("audit: a key of 32 bytes is refused: " + err.Error())
	}

	n := uint64(o.max) - uint64(o.min) + 1 //nolint:gosec // 0 stands for 2^64.
	size := width(n - 1)
	var upTo []uint64
	if o.options != nil {
		n = 0
		for _, option := range o.options {
			n += uint64(option.weight) //nolint:gosec // Not negative.
			upTo = append(upTo, n)
		}
		size = width(uint64(len(o.options) - 1)) //nolint:gosec // At least one.
	}
	var least uint64 // A word whose product has lower bits under this can't be used.
	if n > 0 {
		least = -n % n
	}

	var counter, words, again, tried [aes.BlockSize]byte
	digest := o.begin()
	hashed := sha256.New()
	hashed.Write(digest[:]) // A hash takes everything.
	saved := make([]byte, 0, pageBytes)
	for i := range uint64(o.count) { //nolint:gosec // Not negative.
		if i%2 == 0 {
			binary.BigEndian.PutUint64(counter[8:], i/2)
			block.Encrypt(words[:], counter[:])
		}
		word := binary.BigEndian.Uint64(words[i%2*8:])
		value := word
		if n > 0 {
			high, low := bits.Mul64(word, n)
			for k := uint64(0); low < least; k++ {
				binary.BigEndian.PutUint64(again[:8], i+1)
				binary.BigEndian.PutUint64(again[8:], k/2)
				block.Encrypt(tried[:], again[:])
				high, low = bits.Mul64(binary.BigEndian.Uint64(tried[k%2*8:]), n)
			}
			value = high
		}
		if upTo != nil {
			value = uint64(sort.Search(len(upTo), func(p int) bool { return upTo[p] > value })) //nolint:gosec // Not negative.
		}
		for shift := 8 * (size - 1); shift >= 0; shift -= 8 {
			saved = append(saved, byte(value>>shift)) //nolint:gosec // The last eight bits.
		}
		done := int64(i) + 1
		checkpoint := done%o.every == 0 || done == o.count
		if checkpoint || len(saved) > pageBytes-8 {
			hashed.Write(saved)
			saved = saved[:0]
		}
		if checkpoint {
			hashed.Sum(digest[:0])
			hashed.Reset()
			hashed.Write(digest[:])
		}
	}
	return digest
}
