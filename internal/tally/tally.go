// Package tally counts what became of faults: how often each was tried, what was acknowledged meanwhile, what of that was lost or
// happened twice, and how long clients waited at worst.
//
// A [Recorder] counts during one run; [Rows] are the faults that have a row in docs/operations/faults.md. The long tests record into
// it, and so does fairlead torture. A run's counts are lines in a file ([Append]), which [Read] adds up.
package tally

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// Count is what was counted of one row.
type Count struct {
	Row string `json:"row"`
	// Tries is how often the fault happened.
	Tries int `json:"tries"`
	// Acknowledged is how much clients were told is done, and was looked for afterwards.
	Acknowledged int `json:"acknowledged"`
	// Lost is how much of that was not there afterwards, or was there otherwise; Doubled is what was there twice, or without an answer that
	// says so.
	Lost    int `json:"lost"`
	Doubled int `json:"doubled"`
	// Worst is the longest time after a fault for which a client waited for the final answer to one command.
	Worst time.Duration `json:"worst_ns"`
	// Failed is how many runs failed, for whatever reason.
	Failed int `json:"failed,omitempty"`
}

// Add adds what was counted in another run.
func (c *Count) Add(o Count) {
	c.Tries += o.Tries
	c.Acknowledged += o.Acknowledged
	c.Lost += o.Lost
	c.Doubled += o.Doubled
	c.Failed += o.Failed
	c.Worst = max(c.Worst, o.Worst)
}

// Recorder counts during one run. It is safe for concurrent use.
type Recorder struct {
	mu     sync.Mutex
	counts []*Count // in the order of their first faults
	now    []*Count // those of the last fault
	since  time.Time
	before int // acknowledged before the first fault
}

// Fault notes that a fault of a row happens at a time. What is acknowledged from then on counts there.
func (r *Recorder) Fault(row string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.of(row)
	c.Tries++
	r.now, r.since = []*Count{c}, at
}

// Also notes n more faults, of another row that comes with the last fault, and for how long they were felt. What is acknowledged from
// then on counts in both rows.
func (r *Recorder) Also(row string, n int, felt time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.of(row)
	if !slices.Contains(r.now, c) {
		r.now = append(r.now, c)
	}
	c.Tries += n
	c.Worst = max(c.Worst, felt)
}

// of finds the count of a row.
func (r *Recorder) of(row string) *Count {
	i := slices.IndexFunc(r.counts, func(c *Count) bool { return c.Row == row })
	if i < 0 {
		i = len(r.counts)
		r.counts = append(r.counts, &Count{Row: row, Acknowledged: r.before})
		r.before = 0
	}
	return r.counts[i]
}

// Answered notes the final answer to a command that was first sent at began. It was a success if done.
func (r *Recorder) Answered(began, at time.Time, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.now) == 0 {
		if done {
			r.before++
		}
		return
	}
	if r.since.After(began) { // It was under way when the fault came.
		began = r.since
	}
	for _, c := range r.now {
		if done {
			c.Acknowledged++
		}
		c.Worst = max(c.Worst, at.Sub(began))
	}
}

// Include adds what was counted elsewhere.
func (r *Recorder) Include(o Count) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(o.Row).Add(o)
}

// Differ notes what was lost or doubled, in each row of the run: nobody can say which fault did it.
func (r *Recorder) Differ(lost, doubled int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.counts {
		c.Lost += lost
		c.Doubled += doubled
	}
}

// Counts returns what was counted so far.
func (r *Recorder) Counts() []Count {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make([]Count, len(r.counts))
	for i, c := range r.counts {
		counts[i] = *c
	}
	return counts
}

// Append adds the counts of a run to a file.
func Append(path string, counts []Count) error {
	var lines []byte
	for _, c := range counts {
		line, err := json.Marshal(c)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(lines) // In one go: several tests may have ended at once.
	return errors.Join(err, f.Close())
}

// Read adds up the counts in a file by row; a file that is not there has none.
func Read(path string) (map[string]Count, error) {
	sums := map[string]Count{}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return sums, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // It was only read.
	for lines := bufio.NewScanner(f); ; {
		if !lines.Scan() {
			return sums, lines.Err()
		}
		var c Count
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, err
		}
		sum := sums[c.Row]
		sum.Row = c.Row
		sum.Add(c)
		sums[c.Row] = sum
	}
}
