package fairdraw

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
)

// MaxSelection is the most values that Sample or Integers gives at once: the largest multi-draw.
const MaxSelection = 20_000_000

// Stream is a reproducible source of uniform integers: HMAC-SHA256 of a 128-bit big-endian counter under a 32-byte key. The
// counter's high half is the stream's index, its low half the block number from 0, so that 2^64 independent streams hang on
// one key and each is reached at once. A block gives four 64-bit big-endian integers, in order.
//
// A Stream belongs to one goroutine at a time. The zero Stream is not usable: [NewStream], [DrawAt] and [Operation.At] make
// one.
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

// Integers gives count independent uniform integers in [low, high]. It returns an [*InputError] when low is over high, or
// count is not 0 to MaxSelection.
func Integers(s *Stream, low, high int64, count int) ([]int64, error) {
	if count < 0 || count > MaxSelection {
		return nil, badInput("count", "%d is not 0 to %d", count, MaxSelection)
	}
	if low > high {
		return nil, badInput("range", "from %d to %d is empty", low, high)
	}
	out := make([]int64, count)
	for i := range out {
		v, err := s.Between(low, high)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
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

// Shuffle puts n things in a uniformly random order: swap(i, j) is called for i from 0 to n−1 with j = i + Uint64n(n−i),
// the full run of what Sample does in part. It does nothing when n is not positive.
func Shuffle(s *Stream, n int, swap func(i, j int)) {
	for i := range n {
		swap(i, i+int(s.Uint64n(uint64(n-i)))) //nolint:gosec // below n
	}
}
