package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
)

// This file draws the winners of a campaign again. It is written from docs/design/fairdraw.md alone, whose sections it names, and
// shares nothing with package fairdraw.

// prize is one kind of prize: layer 0 is any.
type prize struct {
	name     string
	layer    int
	quantity int
}

// salt is that of version 1 of the algorithm (§1).
const salt = "fairlead/fairdraw/v1"

func text(b []byte, s string) []byte { return append(u32(b, len(s)), s...) }

//nolint:gosec // Lengths, layers and quantities are below 2^32: the reader has bounded them.
func u32(b []byte, n int) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }

func mac(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message) // A hash takes everything.
	return h.Sum(nil)
}

// drawSeed derives the seed of a draw (§5).
func drawSeed(serverSeed, beacon, root []byte, campaign string, prizes []prize) [sha256.Size]byte {
	list := u32([]byte{0x03}, len(prizes))
	for _, p := range prizes {
		list = u32(u32(text(list, p.name), p.layer), p.quantity)
	}
	listed := sha256.Sum256(list)
	ikm := append(append(append([]byte(nil), serverSeed...), beacon...), root...)
	info := append(text(text(nil, "draw"), campaign), listed[:]...)
	// HKDF with 32 bytes of output (§1).
	return [sha256.Size]byte(mac(mac([]byte(salt), ikm), append(info, 0x01)))
}

// stream is one of the streams under a key (§6).
type stream struct {
	mac   hash.Hash
	index uint64
	next  uint64 // number of the next block
	block []byte // what is left of the last one
	room  [sha256.Size]byte
}

func newStream(key []byte, index uint64) *stream {
	return &stream{mac: hmac.New(sha256.New, key), index: index}
}

// integer takes the next 64 bits.
func (s *stream) integer() uint64 {
	if len(s.block) == 0 {
		counter := binary.BigEndian.AppendUint64(make([]byte, 0, 16), s.index)
		counter = binary.BigEndian.AppendUint64(counter, s.next)
		s.mac.Reset()
		s.mac.Write(counter)
		s.block = s.mac.Sum(s.room[:0])
		s.next++
	}
	n := binary.BigEndian.Uint64(s.block)
	s.block = s.block[8:]
	return n
}

// below is a uniform integer under n, which is positive.
func (s *stream) below(n uint64) uint64 {
	last := math.MaxUint64 - -n%n // −n is 2^64 − n: the last one that can be used.
	for {
		if i := s.integer(); i <= last {
			return i % n
		}
	}
}

// sampler chooses among integers. It keeps its list from one sample to the next, so that a prize costs its winners alone.
type sampler struct{ list []uint32 }

// sample returns the first k of the list 0 to n−1 after so many swaps (§6).
func (a *sampler) sample(s *stream, n, k int) []uint32 {
	for i := len(a.list); i < n; i++ {
		a.list = append(a.list, uint32(i)) //nolint:gosec // At most a million.
	}
	chosen, swapped := make([]uint32, k), make([]int, k)
	for i := range k {
		j := i + int(s.below(uint64(n-i))) //nolint:gosec // Below n.
		a.list[i], a.list[j] = a.list[j], a.list[i]
		chosen[i], swapped[i] = a.list[i], j
	}
	for i := k - 1; i >= 0; i-- { // Back to 0, 1, 2, …
		j := swapped[i]
		a.list[i], a.list[j] = a.list[j], a.list[i]
	}
	return chosen
}

// draw returns the winning positions' ordinals for each prize (§7). Layer l has sizes[l-1] positions.
func draw(seed [sha256.Size]byte, sizes []int, prizes []prize) [][]uint32 {
	firsts, total := make([]int, len(sizes)), 0
	for i, size := range sizes {
		firsts[i], total = total, total+size
	}
	var choose sampler
	winners := make([][]uint32, len(prizes))
	for i, p := range prizes {
		from, eligible := 0, total
		if p.layer > 0 {
			from, eligible = firsts[p.layer-1], sizes[p.layer-1]
		}
		winners[i] = choose.sample(newStream(seed[:], uint64(i)), eligible, p.quantity)
		for k := range winners[i] {
			winners[i][k] += uint32(from)
		}
	}
	return winners
}
