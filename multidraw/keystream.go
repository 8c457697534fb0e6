package multidraw

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"sync"

	"github.com/fairlead-dev/fairlead/fairdraw"
)

// keySalt keeps the keys of this package apart from all others, and carries the version of how draws are made.
const keySalt = "fairlead/multidraw/v2"

// keystream gives the random words, of 64 bits each, that the draws of one operation are made of: AES-256 over counters. Block
// (h, l) is the encryption of h ‖ l, both 64 bits big-endian; its two halves are words. Word i of the draws is half i mod 2 of
// block (0, i ÷ 2), and where draw i cannot use it, it goes on with the words of blocks (i+1, 0), (i+1, 1), … So each draw
// has words of its own, which are reached at once, and a walk over many draws is one run of AES in counter mode.
//
// A keystream is immutable and may be shared.
type keystream struct {
	block   cipher.Block
	readers sync.Pool
}

func newKeystream(seed fairdraw.Seed, name string) *keystream {
	key, err := hkdf.Key(sha256.New, seed[:], []byte(keySalt), string(appendText(nil, name)), 32)
	if err != nil {
		panic("multidraw: " + err.Error()) // Only a longer key fails.
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("multidraw: " + err.Error()) // Only another length fails.
	}
	return &keystream{block: block}
}

const (
	wordSize = 8 // bytes
	// wordsAtOnce is how many words are made at once: enough for AES to run at full speed, few enough for the fastest cache.
	wordsAtOnce = 512
)

// reader reads the draws' words one after the other.
type reader struct {
	keys   *keystream
	ctr    cipher.Stream
	left   []byte
	buf    [wordsAtOnce * wordSize]byte
	values [wordsAtOnce]uint64 // what the words become
}

// from puts a reader before word first. It is to be given back when it is done.
func (k *keystream) from(first uint64) *reader {
	r, ok := k.readers.Get().(*reader)
	if !ok {
		r = &reader{keys: k}
	}
	var counter [aes.BlockSize]byte
	binary.BigEndian.PutUint64(counter[8:], first/2)
	r.ctr, r.left = cipher.NewCTR(k.block, counter[:]), nil
	if first%2 == 1 {
		r.fill(aes.BlockSize)
		r.left = r.left[wordSize:]
	}
	return r
}

// done gives a reader back. It must not be used after it.
func (r *reader) done() { r.keys.readers.Put(r) }

func (r *reader) fill(size int) {
	r.left = r.buf[:size]
	clear(r.left)
	r.ctr.XORKeyStream(r.left, r.left)
}

// words are the next of up to most words. They are valid until the next call.
func (r *reader) words(most int) []byte {
	if len(r.left) == 0 {
		// Whole blocks, so that the counter stays at a block's beginning.
		r.fill(min(len(r.buf), (most*wordSize+aes.BlockSize-1)/aes.BlockSize*aes.BlockSize))
	}
	n := min(len(r.left), most*wordSize)
	words := r.left[:n]
	r.left = r.left[n:]
	return words
}

// retry goes on where draw index could not use its word.
//
// An exactly uniform integer below n comes from a word by Lemire's multiplication: it is the upper half of word × n, unless the
// lower half is below 2⁶⁴ mod n, the least that can be used. That happens with less than n ÷ 2⁶⁴ of all words, which are passed
// over. See D. Lemire, Fast Random Integer Generation in an Interval, ACM TOMACS 29(1), 2019. It returns the word that it used,
// too.
func (k *keystream) retry(n, least, index uint64) (value, used uint64) {
	var counter, block [aes.BlockSize]byte
	binary.BigEndian.PutUint64(counter[:8], index+1)
	for i := uint64(0); ; i++ {
		binary.BigEndian.PutUint64(counter[8:], i)
		k.block.Encrypt(block[:], counter[:])
		for half := block[:]; len(half) > 0; half = half[wordSize:] {
			word := binary.BigEndian.Uint64(half)
			if high, low := bits.Mul64(word, n); low >= least {
				return high, word
			}
		}
	}
}

// wheel finds the prize that an integer below the sum of weights stands for.
type wheel struct {
	// upTo[i] is the sum of the weights up to and including prize i.
	upTo []uint64
	// guide[b] is the first prize that a word may stand for whose upper bits are b. From there it is found in about one step:
	// there are more entries than prizes. See Chen and Asau, On Generating Random Variates from an Empirical Distribution, 1974.
	guide []uint16
	shift int // of a word, to its upper bits
}

func newWheel(prizes []Prize) *wheel {
	w := &wheel{upTo: make([]uint64, len(prizes))}
	var sum uint64
	for i, p := range prizes {
		sum += uint64(p.Weight) //nolint:gosec // Validate refuses negative ones.
		w.upTo[i] = sum
	}
	size := bits.Len(uint(4*len(prizes) - 1))
	w.shift = 64 - max(size, 8)
	w.guide = make([]uint16, 1<<(64-w.shift))
	place := 0
	for b := range w.guide {
		least, _ := bits.Mul64(uint64(b)<<w.shift, sum)
		for w.upTo[place] <= least {
			place++
		}
		w.guide[b] = uint16(place)
	}
	return w
}

func (w *wheel) total() uint64 { return w.upTo[len(w.upTo)-1] }

// place is the prize that a value stands for which came from a word.
func (w *wheel) place(value, word uint64) uint64 {
	i := int(w.guide[word>>w.shift])
	for w.upTo[i] <= value {
		i++
	}
	return uint64(i) //nolint:gosec // Not negative.
}
