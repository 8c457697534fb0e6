package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
)

// Limits of multi-draws, of multidraw §1 and the list of routes.
const (
	maxDraws   = 20_000_000
	maxOptions = 10_000
)

// drawing plays the two leaves of one multi-draw.
type drawing struct {
	operation

	made   bool
	counts *Counts
}

func (m *drawing) apply(l *leaf) (over bool, p *problem) {
	o := newObject(l.data)
	want := multidrawMade
	if m.made {
		want = multidrawEnded
	}
	if l.kind != want {
		return false, &problem{"order", l.kind, want}
	}
	if !m.made {
		m.made = true
		m.counts.Multidraws++
		m.committed(o)
		return false, o.problem()
	}
	m.ended(o)
	return true, o.problem()
}

func (m *drawing) committed(o object) {
	m.count = o.integer("count", 1, maxDraws)
	m.every = o.integer("every", 1, maxDraws)
	m.commitment = [sha256.Size]byte(o.hex("commitment", sha256.Size, 0))
	if o.has("range") == o.has("prizes") {
		o.wrong("range", "both or neither of range and prizes", "one of them")
		return
	}
	if o.has("range") {
		r := o.object("range")
		m.min = r.integer("min", math.MinInt64, math.MaxInt64)
		m.max = r.integer("max", math.MinInt64, math.MaxInt64)
		if m.min > m.max {
			r.wrong("max", fmt.Sprint(m.max), fmt.Sprintf("at least %d", m.min))
		}
		return
	}
	m.options = []option{}
	var sum int64
	for i, item := range o.objects("prizes") {
		p := option{
			id: item.str("id"), name: item.str("name"),
			weight: item.integer("weight", 0, math.MaxInt64), value: item.integer("value", math.MinInt64, math.MaxInt64),
		}
		if i >= maxOptions {
			item.wrong("", "one more", fmt.Sprintf("at most %d", maxOptions))
		}
		if p.weight > math.MaxInt64-sum {
			item.wrong("weight", fmt.Sprint(p.weight), "a sum of weights that fits 63 bits")
		}
		if o.problem() != nil {
			return
		}
		sum += p.weight
		m.options = append(m.options, p)
	}
	if sum == 0 {
		o.wrong("prizes", "a sum of weights of 0", "a positive one")
	}
}

func (m *drawing) ended(o object) {
	status := o.str("status")
	completed := o.integer("completed", 0, m.count)
	digest := hex.EncodeToString(o.hex("digest", sha256.Size, 0))
	all := completed == m.count
	if o.problem() != nil {
		return
	}
	switch {
	case status == "completed" && all:
	case status == "rolled_back" && !all:
		// The seed stays secret, so the draws so far can't be made again; where there are none, the digest is known.
		o.absent("seed", "not all draws were made")
		if want := m.begin(); completed == 0 && digest != hex.EncodeToString(want[:]) {
			o.wrong("digest", digest, hex.EncodeToString(want[:]))
		}
		if completed%m.every != 0 {
			o.wrong("completed", fmt.Sprint(completed), fmt.Sprintf("a multiple of %d", m.every))
		}
		return
	default:
		o.wrong("status", fmt.Sprintf("%s, with %d of %d draws", quote(status), completed, m.count), "completed with all draws, or rolled_back with fewer")
		return
	}
	seed := o.hex("seed", sha256.Size, 0)
	if o.problem() != nil {
		return
	}
	if sum := sha256.Sum256(seed); sum != m.commitment {
		o.wrong("seed", fmt.Sprintf("%x, whose SHA-256 is %x", seed, sum), fmt.Sprintf("one whose SHA-256 is %x", m.commitment))
		return
	}
	if want := m.digest(seed); digest != hex.EncodeToString(want[:]) {
		o.wrong("digest", digest, hex.EncodeToString(want[:]))
		return
	}
	m.counts.Redrawn += m.count
}
