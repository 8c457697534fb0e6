package fairdraw

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
	"math/bits"
	"sort"
	"strconv"
)

// MaxSelection is the most values that Sample gives at once: the largest multi-draw.
const MaxSelection = 20_000_000

// Stream is a reproducible source of uniform integers: HMAC-SHA256 of a 128-bit big-endian counter under a 32-byte key. The
// counter's high half is the stream's index, its low half the block number from 0, so that 2^64 independent streams hang on
// one key and each is reached at once. A block gives four 64-bit big-endian integers, in order.
//
// A Stream belongs to one goroutine at a time. The zero Stream is not usable: [NewStream] and [Operation.At] make one.
type Stream struct {
	mac     hash.Hash
	counter [16]byte
	block   uint64
	buf     [sha256.Size]byte
	used    int
}

// NewStream gives stream number index under the key, from its first integer.
func NewStream(key [32]byte, index uint64) *Stream {
	s := &Stream{mac: hmac.New(sha256.New, key[:])}
	s.Seek(index)
	return s
}

// Seek moves to the first integer of stream number index under the same key. It costs less than a new Stream.
func (s *Stream) Seek(index uint64) {
	binary.BigEndian.PutUint64(s.counter[:8], index)
	s.block = 0
	s.used = len(s.buf)
}

// Uint64 gives the next integer of the stream.
func (s *Stream) Uint64() uint64 {
	if s.used == len(s.buf) {
		binary.BigEndian.PutUint64(s.counter[8:], s.block)
		s.block++
		s.mac.Reset()
		s.mac.Write(s.counter[:])
		s.mac.Sum(s.buf[:0])
		s.used = 0
	}
	v := binary.BigEndian.Uint64(s.buf[s.used:])
	s.used += 8
	return v
}

// Uint64n gives an exactly uniform integer in [0, n). Integers of the stream at or above the largest multiple of n that
// fits 2^64 are passed over, and the first one below it is reduced modulo n. At least one integer is taken, also for n = 1;
// on average fewer than two. It panics when n is 0.
func (s *Stream) Uint64n(n uint64) uint64 {
	if n == 0 {
		panic("fairdraw: Uint64n of 0")
	}
	// -n % n is 2^64 mod n.
	last := math.MaxUint64 - (-n % n)
	for {
		if v := s.Uint64(); v <= last {
			return v % n
		}
	}
}

// Between gives an exactly uniform integer in [low, high], both included. It returns an [*InputError] when low is over
// high.
func (s *Stream) Between(low, high int64) (int64, error) {
	if low > high {
		return 0, badInput("range", "from %d to %d is empty", low, high)
	}
	// Two's complement: the differences are right also when they pass 2^63.
	width := uint64(high) - uint64(low) + 1 //nolint:gosec // wraps on purpose
	if width == 0 {
		// All of int64: every integer of the stream is one value.
		return int64(uint64(low) + s.Uint64()), nil //nolint:gosec // wraps on purpose
	}
	return int64(uint64(low) + s.Uint64n(width)), nil //nolint:gosec // wraps on purpose
}

// Sample chooses k distinct integers of [0, n), in the order of their choice, by a partial Fisher–Yates shuffle: for i from
// 0 to k−1, place i of the list 0…n−1 changes with place i + Uint64n(n−i). It takes memory and time in the order of k. It
// returns an [*InputError] when n is negative, or k is not 0 to n or over MaxSelection.
func Sample(s *Stream, n, k int) ([]int, error) {
	if n < 0 {
		return nil, badInput("n", "%d is negative", n)
	}
	if k < 0 || k > n || k > MaxSelection {
		return nil, badInput("k", "%d is not 0 to %d", k, min(n, MaxSelection))
	}
	// Dense pays off once a good part of the list is touched.
	if k >= n/8 {
		return sampleDense(s, n, k), nil
	}
	return sampleSparse(s, n, k), nil
}

// sampleDense holds the whole list.
func sampleDense(s *Stream, n, k int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	for i := range k {
		j := i + int(s.Uint64n(uint64(n-i))) //nolint:gosec // below n
		list[i], list[j] = list[j], list[i]
	}
	return list[:k:k]
}

// sampleSparse holds only the places that no longer have their own number.
func sampleSparse(s *Stream, n, k int) []int {
	moved := make(map[int]int, k)
	at := func(i int) int {
		if v, ok := moved[i]; ok {
			return v
		}
		return i
	}
	out := make([]int, k)
	for i := range out {
		j := i + int(s.Uint64n(uint64(n-i))) //nolint:gosec // below n
		out[i] = at(j)
		moved[j] = at(i)
		// Place i is never looked at again.
		delete(moved, i)
	}
	return out
}

// MaxWeights is the most entries of a weighted choice.
const MaxWeights = 1_000_000

// Weights is a weighted choice made ready: entry i is chosen with probability weight i ÷ sum of weights, exactly. It is
// immutable and may be shared.
type Weights struct {
	// upTo[i] is the sum of the weights up to and including entry i.
	upTo []uint64
}

// NewWeights prepares a choice among len(weights) entries. An entry of weight 0 is never chosen. It returns an
// [*InputError] when there are no entries or over MaxWeights, when all weights are 0, or when their sum passes 2^64−1.
func NewWeights(weights []uint64) (*Weights, error) {
	if len(weights) == 0 || len(weights) > MaxWeights {
		return nil, badInput("weights", "%d entries, not 1 to %d", len(weights), MaxWeights)
	}
	w := &Weights{upTo: make([]uint64, len(weights))}
	var sum, carry uint64
	for i, weight := range weights {
		if sum, carry = bits.Add64(sum, weight, 0); carry != 0 {
			return nil, badInput("weights["+strconv.Itoa(i)+"]", "the sum of weights passes 2^64-1")
		}
		w.upTo[i] = sum
	}
	if sum == 0 {
		return nil, badInput("weights", "all are 0")
	}
	return w, nil
}

// Total is the sum of the weights.
func (w *Weights) Total() uint64 { return w.upTo[len(w.upTo)-1] }

// Pick chooses an entry and gives its index: with r = Uint64n(Total()), the first one whose weight, summed up to and
// including it, exceeds r.
func (w *Weights) Pick(s *Stream) int {
	r := s.Uint64n(w.Total())
	return sort.Search(len(w.upTo), func(i int) bool { return w.upTo[i] > r })
}
