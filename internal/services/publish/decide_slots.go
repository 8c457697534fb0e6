package publish

import "time"

// How many attempts a worker makes at once, in all and for one target.
const (
	DefaultConcurrency = 256 // they mostly wait for the targets' servers
	// DefaultPerTarget is how many of them go to one target at most. A target begins with firstSlots of them and gets one
	// more with each answer that takes at least slowAnswer; when answers are quick, more attempts would only compete with
	// each other and with the claims. Nor does it get more when attempts are long: their places are not free again soon. A target
	// whose attempts fail gets fewer, down to one.
	DefaultPerTarget = 32
	firstSlots       = 4
	slowAnswer       = 25 * time.Millisecond
	longAnswer       = 5 * time.Second
	// leastPart of all places may be taken by one claim, though it be more than half of those that are free.
	leastPart = 8
)

// share is how many attempts a target may have of its limit, while those of others have so many of all places. It shrinks with the
// places that are left, down to one, so that a few targets whose attempts take minutes don't take every place. To take all of 256
// places takes over a hundred of them, or twenty that have earned the most places with quick answers and all turn slow at once.
func share(limit, others, all int) int { return max(1, limit*(all-others)/all) }

// portion is how many of the free places one claim may take. The shares of the next claim are smaller.
func portion(free, all int) int { return max((free+1)/2, min(free, all/leastPart)) }

// nextLimit is a target's limit after an attempt has ended; first is what it begins with, and most what it may become.
func nextLimit(limit, first, most int, class Class, took time.Duration) int {
	switch {
	case class == Transient:
		return max(1, limit/2)
	case limit < first || took >= slowAnswer && took < longAnswer:
		return min(most, limit+1)
	}
	return max(first, limit-1)
}
