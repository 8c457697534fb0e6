//go:build unix

package explore

import (
	"hash/fnv"
	"math"
	"strconv"
	"strings"
)

// Decision is what happened in one step.
type Decision struct {
	Label string
	Mode  Mode
}

func (d Decision) String() string {
	if d.Mode == Go {
		return d.Label
	}
	return d.Label + " — " + string(d.Mode)
}

// Strategy decides what happens next. It is called with at least one option, and the options are in the order of their labels.
type Strategy interface {
	Choose(step int, options []Option) (i int, mode Mode)
}

// The threads and labels of what is no message. Time passes by itself only where nothing else is left to do.
const (
	timeThread  = "time"
	faultThread = "fault"
)

// inOrder lets everything through as it came, and nothing goes wrong.
type inOrder struct{}

// Choose implements [Strategy].
func (inOrder) Choose(_ int, options []Option) (int, Mode) {
	best := -1
	for i, o := range options {
		if o.Thread != timeThread && o.Thread != faultThread && (best < 0 || o.Since < options[best].Since) {
			best = i
		}
	}
	if best < 0 {
		best = 0
		for i, o := range options {
			if o.Thread == timeThread {
				best = i // The longest time: its label comes last.
			}
		}
	}
	return best, Go
}

// seeded draws a schedule from a seed. Each choice is made by hashes of the seed, the step and the labels, so that an option more or
// less changes few of the others.
//
// Half of the seeds choose uniformly. The other half give each thread a priority, and change that of the leading thread at a few
// steps (probabilistic concurrency testing: Burckhardt and others, ASPLOS 2010): orders that few switches lead to are found soon,
// however long a schedule is.
type seeded struct {
	seed   uint64
	length int // of a schedule, about
	faults int // that may still happen

	priorities bool
	changes    map[int]bool // steps at which the leading thread falls back
	fallen     map[string]int
	rate       float64 // of faults
	passing    float64 // of time passing though there is something to do
}

func newSeeded(seed uint64, length int) *seeded {
	s := &seeded{seed: seed, length: max(length, 1), changes: map[int]bool{}, fallen: map[string]int{}}
	s.priorities = s.hash("kind")%2 == 0
	for i := range s.hash("changes")%6 + 1 {
		s.changes[int(s.hash("change", strconv.FormatUint(i, 10))%uint64(s.length))] = true //nolint:gosec // It is small.
	}
	s.faults = int(s.hash("faults") % 4)
	s.rate = 2 * float64(s.faults) / float64(s.length)
	s.passing = []float64{0, 0, 0.02, 0.1}[s.hash("time")%4]
	return s
}

func (s *seeded) hash(words ...string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(strconv.AppendUint(nil, s.seed, 16)) // It never fails.
	for _, w := range words {
		_, _ = h.Write(append([]byte{0}, w...))
	}
	x := h.Sum64() // FNV mixes the last bytes badly.
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (s *seeded) chance(words ...string) float64 {
	return float64(s.hash(words...)>>11) / (1 << 53)
}

// Choose implements [Strategy].
func (s *seeded) Choose(step int, options []Option) (int, Mode) {
	at := strconv.Itoa(step)
	thread := ""
	switch {
	case s.faults > 0 && s.chance("kill", at) < s.rate/4 && has(options, faultThread):
		s.faults--
		thread = faultThread
	case s.chance("pass", at) < s.passing && has(options, timeThread):
		thread = timeThread
	}
	best := s.best(at, options, thread)
	if thread == "" && s.priorities && s.changes[step] {
		s.fallen[options[best].Thread] = step
		best = s.best(at, options, "")
	}
	o := options[best]
	rate := s.rate / 2
	if strings.Contains(o.Label, "commit") || strings.Contains(o.Label, "pipeline") {
		rate *= 6 // The answer that counts.
	}
	if s.faults > 0 && len(o.Faults) > 0 && s.chance("fault", at, o.Label) < rate {
		mode := o.Faults[s.hash("mode", at, o.Label)%uint64(len(o.Faults))]
		if mode != Hold {
			s.faults--
		}
		return best, mode
	}
	return best, Go
}

func has(options []Option, thread string) bool {
	for _, o := range options {
		if o.Thread == thread {
			return true
		}
	}
	return false
}

// best chooses among the options of a thread, or else of all that send messages. Where there are none it lets time pass.
func (s *seeded) best(at string, options []Option, thread string) int {
	best, top := -1, -math.MaxFloat64
	for i, o := range options {
		special := o.Thread == timeThread || o.Thread == faultThread
		if thread == "" && special || thread != "" && o.Thread != thread {
			continue
		}
		p := s.chance("option", at, o.Label)
		if s.priorities && !special {
			p = s.chance("thread", o.Thread)
			if fell := s.fallen[o.Thread]; fell > 0 {
				p = -float64(fell)
			}
		}
		if p > top {
			best, top = i, p
		}
	}
	if best < 0 {
		best, _ = inOrder{}.Choose(0, options)
	}
	return best
}

// replayed repeats decisions. Those that cannot be made are passed over, and after the last one everything goes on in order.
type replayed struct{ decisions []Decision }

// Choose implements [Strategy].
func (r *replayed) Choose(step int, options []Option) (int, Mode) {
	for len(r.decisions) > 0 {
		d := r.decisions[0]
		r.decisions = r.decisions[1:]
		for i, o := range options {
			if o.Label == d.Label {
				return i, d.Mode
			}
		}
	}
	return inOrder{}.Choose(step, options)
}
