package speculation

import (
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

// Limits of what a process believes about the database's clock.
const (
	// clockTrust is how long an answer is carried on by the local clock.
	clockTrust = time.Second
	// clockDrift is the time in which the two clocks may drift apart by one of its unit. NTP slews by at most 500 ppm.
	clockDrift = 1000
	// maxClockWidth is the widest interval that is used: a time that a process writes may be later than the database's by as much.
	maxClockWidth = 100 * time.Millisecond
	// clockPatience bounds what asking for the time may add to the answers of a batch that is committed.
	clockPatience = 50 * time.Millisecond
)

// What is written must not look like something from a clock that was ahead. It does not compile where it might.
const _ = uint64(auction.MaxAhead - maxClockWidth - 2*clockTrust/clockDrift)

// Clock is what a process knows of the database's clock. The database reads its clock at some instant between the question
// and the answer, so all that is known is an interval. It is safe for concurrent use.
type Clock struct {
	mu       sync.Mutex
	database time.Time // what the database's clock showed …
	asked    time.Time // … at some instant after this one of the local clock …
	answered time.Time // … and before this one; both include the monotonic reading
}

// Learned notes what the database's clock showed between two readings of the local clock. An answer that took too long is
// worth nothing, and one that took longer than a fresh one adds nothing.
func (c *Clock) Learned(database, asked, answered time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	width := answered.Sub(asked)
	if width > maxClockWidth || (width > c.answered.Sub(c.asked) && time.Since(c.asked) < clockTrust/2) {
		return
	}
	c.database, c.asked, c.answered = database, asked, answered
}

// Now returns the present time by the database's clock, which is not before earliest and not after latest; ok is false where the database was not asked lately.
func (c *Clock) Now() (earliest, latest time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	least, most := time.Since(c.answered), time.Since(c.asked)
	if c.database.IsZero() || most >= clockTrust {
		return earliest, latest, false
	}
	drift := max(most, 0)/clockDrift + time.Microsecond // Timestamps are kept in microseconds.
	earliest = c.database.Add(least - drift).Truncate(time.Microsecond).UTC()
	return earliest, c.database.Add(most + drift).Truncate(time.Microsecond).UTC(), true
}

// Due reports whether the database should be asked again soon.
func (c *Clock) Due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.asked) > clockTrust/2
}
