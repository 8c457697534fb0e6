package multidraw

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"
)

// Limits of an operation.
const (
	MaxCount     = 20_000_000 // the most draws of an operation
	MaxPrizes    = 10_000     // the most prizes to draw from
	MaxTextRunes = 200        // the longest name of a prize or lock key, in characters
	MaxIDBytes   = 64         // the longest id of a prize, in bytes
)

// Range is what integers are drawn from: Min to Max, both included. Both may be any int64.
type Range struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
}

// Prize is won with probability Weight ÷ the sum of all weights, exactly.
type Prize struct {
	ID   string `json:"id"`   // unique among the prizes
	Name string `json:"name"` // for people
	// Weight is not negative; a prize of weight 0 is never won. The weights' sum is positive and fits an int64.
	Weight int64 `json:"weight"`
	Value  int64 `json:"value"` // the caller's; nothing is computed from it
}

// Spec is what is drawn from: exactly one of a range and a list of prizes. It must not be changed while in use.
type Spec struct {
	Range  *Range
	Prizes []Prize
}

// Validate returns the first rule that the specification breaks, as a [*ParameterError], or nil.
func (s *Spec) Validate() error {
	switch {
	case (s.Range == nil) == (s.Prizes == nil):
		return bad("range", "or prizes is needed, and not both")
	case s.Range != nil:
		if s.Range.Min > s.Range.Max {
			return bad("range", "is empty: min %d is over max %d", s.Range.Min, s.Range.Max)
		}
		return nil
	case len(s.Prizes) == 0 || len(s.Prizes) > MaxPrizes:
		return bad("prizes", "must have 1 to %d entries, not %d", MaxPrizes, len(s.Prizes))
	}
	var sum int64
	seen := make(map[string]struct{}, len(s.Prizes))
	for i, p := range s.Prizes {
		field := "prizes[" + strconv.Itoa(i) + "]"
		switch {
		case p.ID == "" || len(p.ID) > MaxIDBytes || !utf8.ValidString(p.ID):
			return bad(field+".id", "must have 1 to %d bytes of UTF-8", MaxIDBytes)
		case !utf8.ValidString(p.Name) || utf8.RuneCountInString(p.Name) > MaxTextRunes:
			return bad(field+".name", "must have at most %d characters", MaxTextRunes)
		case p.Weight < 0:
			return bad(field+".weight", "must not be negative")
		case p.Weight > math.MaxInt64-sum:
			return bad(field+".weight", "makes the sum of weights pass %d", int64(math.MaxInt64))
		}
		if _, twice := seen[p.ID]; twice {
			return bad(field+".id", "is there twice")
		}
		seen[p.ID] = struct{}{}
		sum += p.Weight
	}
	if sum == 0 {
		return bad("prizes", "have weights of 0 alone")
	}
	return nil
}

// hashTag keeps the hashes of this package apart from all others, and carries the version of what is hashed.
const hashTag = "fairlead/multidraw/v2"

// Hash binds a state to the specification and the number of draws. Each part is preceded by its length or is of a fixed
// one, so that no two specifications share an encoding.
func (s *Spec) Hash(count int64) [sha256.Size]byte {
	b := append([]byte(hashTag), 0)
	b = appendInt(b, count)
	if s.Range != nil {
		b = append(b, 'r')
		b = appendInt(appendInt(b, s.Range.Min), s.Range.Max)
		return sha256.Sum256(b)
	}
	b = append(b, 'p')
	b = appendInt(b, int64(len(s.Prizes)))
	for _, p := range s.Prizes {
		b = appendText(appendText(b, p.ID), p.Name)
		b = appendInt(appendInt(b, p.Weight), p.Value)
	}
	return sha256.Sum256(b)
}

func appendInt(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(n)) //nolint:gosec // The bits as they are.
}

func appendText(b []byte, s string) []byte { return append(appendInt(b, int64(len(s))), s...) }

// Width is how many bytes a saved draw takes: 1, 2, 4 or 8. A draw is saved as what it is above the range's minimum, or as
// the prize's place in the list from 0, big-endian.
func (s *Spec) Width() int {
	var most uint64
	if s.Range != nil {
		most = uint64(s.Range.Max) - uint64(s.Range.Min) //nolint:gosec // Right also past 2^63, in two's complement.
	} else {
		most = uint64(len(s.Prizes)) - 1
	}
	switch {
	case most <= math.MaxUint8:
		return 1
	case most <= math.MaxUint16:
		return 2
	case most <= math.MaxUint32:
		return 4
	}
	return 8
}

// Len is the number of draws in saved bytes.
func (s *Spec) Len(saved []byte) int { return len(saved) / s.Width() }

// Slice is the saved bytes of draws from to to (not included) of these.
func (s *Spec) Slice(saved []byte, from, to int) []byte {
	w := s.Width()
	return saved[from*w : to*w]
}

func offset(b []byte, width int) (n uint64) {
	for _, c := range b[:width] {
		n = n<<8 | uint64(c)
	}
	return n
}

// putOffsets writes what offset reads, one after the other.
//
//nolint:gosec // The width is that of the largest offset there is.
func putOffsets(b []byte, width int, values []uint64) {
	switch width {
	case 1:
		for i, v := range values {
			b[i] = byte(v)
		}
	case 2:
		for i, v := range values {
			binary.BigEndian.PutUint16(b[2*i:], uint16(v))
		}
	case 4:
		for i, v := range values {
			binary.BigEndian.PutUint32(b[4*i:], uint32(v))
		}
	default:
		for i, v := range values {
			binary.BigEndian.PutUint64(b[8*i:], v)
		}
	}
}
