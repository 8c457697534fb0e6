package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of a request.
const (
	// MaxKeys is how many keys one lock may cover. All of them are locked in one transaction, which must stay short.
	MaxKeys = 100
	// MaxNameLength bounds keys and owners, in characters.
	MaxNameLength = 200
	// MinTTL is the shortest time to live. A shorter one would be over before the lock could be used.
	MinTTL = 100 * time.Millisecond
	// MaxTTL is the longest: a holder that dies stands in the way for so long.
	MaxTTL = 24 * time.Hour
	// Forever, as a wait limit, means as long as the context lasts.
	Forever time.Duration = -1
)

// Errors of acquiring and holding.
var (
	// ErrHeld is returned when another owner holds one of the keys, or is before us in line, and the wait limit is over.
	ErrHeld = errors.New("the lock is held by another")
	// ErrLost is returned, and is a cause of the end of [Held.Context], when the lock is no longer held: its lease
	// expired, or somebody ended it.
	ErrLost = errors.New("the lock is lost")
	// ErrHeldTooLong is the cause of the end of [Held.Context] when the maximum hold is over. It is an ErrLost, too.
	ErrHeldTooLong = fmt.Errorf("%w: the maximum hold is over", ErrLost)
	// ErrUnrenewed is the cause of the end of [Held.Context] when no renewal succeeded in time, or none was wanted. It is
	// an ErrLost, too.
	ErrUnrenewed = fmt.Errorf("%w: no renewal in time", ErrLost)
	// ErrReleased is the cause of the end of [Held.Context] after [Held.Release].
	ErrReleased = errors.New("the lock was released")
	// ErrStaleToken is returned by a fence when a newer token has been seen.
	ErrStaleToken = errors.New("a newer token has been seen")
	// ErrInvalid is returned when a request is not within the limits.
	ErrInvalid = errors.New("invalid lock request")
	// ErrClosed is returned when the backend was closed.
	ErrClosed = errors.New("the lock backend is closed")
	// ErrTooManyWaiters is returned when as many requests wait as the backend takes.
	ErrTooManyWaiters = errors.New("too many requests are waiting for locks")
)

// DeadlockError is returned when waiting would not end, because the owners in the cycle wait for each other, and this
// request is the one to give way. What its owner held before, it still holds.
type DeadlockError struct {
	// Cycle names the owners, each once: each waits for the next, the last for the first. The first is the request's own.
	Cycle []string
}

// Error names the cycle.
func (e *DeadlockError) Error() string {
	if len(e.Cycle) == 0 {
		return "deadlock"
	}
	return "deadlock: " + strings.Join(e.Cycle, " waits for ") + " waits for " + e.Cycle[0]
}

// Request asks a [Backend] for a lock.
type Request struct {
	// ID names the request and the lock that it becomes; a UUID, new for each request.
	ID string
	// Keys are sorted and unique.
	Keys  []string
	Owner string
	// NewOwner says that the owner was made for this request alone. It holds nothing, so that nobody waits for it, and its
	// waiting closes no cycle.
	NewOwner bool
	TTL      time.Duration
	// Wait is how long to wait at most: 0 or less not at all, but [Forever] as long as the context lasts.
	Wait time.Duration
	// MaxHold is how long the lock may be held, renewals included: [MinTTL] or more; 0 means any time.
	MaxHold time.Duration
}

// Grant is a lock that was granted, as its holder knows it, or as an [Inspector] shows it to others.
type Grant struct {
	ID    string
	Owner string
	// Tokens has one token for each key.
	Tokens map[string]int64
	TTL    time.Duration
	// ExpiresAt is when the lease ends unless it is renewed, and GrantedAt when it began, which a backend may leave out where it
	// answers the holder. Both are by the backend's clock, and for people: compare them with no other clock.
	GrantedAt, ExpiresAt time.Time
	// Start, known to the holder alone, is a reading of the local clock from before the lease began: it can't end before
	// Start + TTL, or at the end of the maximum hold.
	Start time.Time
	// Waited, known to the holder alone, says that the request had to wait.
	Waited bool
}

// Backend keeps locks where all processes see them. Its methods are safe for concurrent use.
type Backend interface {
	// Acquire grants all keys or none, in order of asking. It returns [ErrHeld] when the wait limit is over, a
	// [DeadlockError] when the request is a victim, and the context's error when that ends. After an error nothing is
	// held, or no longer than for TTL where the backend couldn't be reached to undo it.
	Acquire(ctx context.Context, r Request) (Grant, error)
	// Renew lets the lease run for ttl from now on, or as long as before when ttl is 0. It returns [ErrLost] when the
	// lock is no longer held; it never revives one. The grant's Start is from before this renewal.
	Renew(ctx context.Context, id string, ttl time.Duration) (Grant, error)
	// Release ends a lock and hands its keys on. It returns [ErrLost] when the lock was no longer held. Of the grant only
	// the ID is needed; with the rest a release may take less time.
	Release(ctx context.Context, g Grant) error
}

// StoreObserver counts what happens in a backend's store. Its methods must not block and may be called concurrently.
type StoreObserver interface {
	// Expired is called when leases are found expired.
	Expired(n int)
	// Victim is called when a request is chosen to break a deadlock.
	Victim()
	// HandedOver is called when a lock passes from one owner to the next in line.
	HandedOver()
}

// FallbackObserver is a [StoreObserver] that also counts what left the fast path. Packages lockprom and lockotel have one.
type FallbackObserver interface {
	// Fallback is called with the reason each time: a few words that a backend's package lists.
	Fallback(reason string)
}

// Snapshot is who holds, who waits, and for whom, at one instant.
type Snapshot struct {
	// At is the instant by the backend's clock, as all times in it are; zero where the backend does not tell.
	At      time.Time
	Holders []Grant  // oldest first
	Waiters []Waiter // oldest first
	Edges   []Edge
}

// Ages are how long the oldest lock had been held, and how long the first in line had waited; 0 where there is none. They are not
// known of a snapshot without its instant.
func (s *Snapshot) Ages() (oldestHold, longestWait time.Duration) {
	if len(s.Holders) > 0 && !s.At.IsZero() {
		oldestHold = max(0, s.At.Sub(s.Holders[0].GrantedAt))
	}
	if len(s.Waiters) > 0 && !s.At.IsZero() {
		longestWait = max(0, s.At.Sub(s.Waiters[0].Since))
	}
	return oldestHold, longestWait
}

// Inspector is a [Backend] that can be looked into.
type Inspector interface {
	Snapshot(ctx context.Context) (Snapshot, error)
	// Find returns the lock that covers a key now; ok is false when none does.
	Find(ctx context.Context, key string) (g Grant, ok bool, err error)
}

// CleanKeys checks a request's keys and returns them sorted by byte, each once. It returns an [ErrInvalid].
func CleanKeys(keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no keys", ErrInvalid)
	}
	clean := slices.Clone(keys)
	slices.Sort(clean)
	clean = slices.Compact(clean)
	if len(clean) > MaxKeys {
		return nil, fmt.Errorf("%w: %d keys, at most %d", ErrInvalid, len(clean), MaxKeys)
	}
	for _, k := range clean {
		if !ValidName(k) {
			return nil, fmt.Errorf("%w: key %q must have 1 to %d characters and no control characters", ErrInvalid, k, MaxNameLength)
		}
	}
	return clean, nil
}

// Clean checks a request, and returns it with its keys as [CleanKeys] gives them. It returns an [ErrInvalid].
func (r Request) Clean() (Request, error) {
	keys, err := CleanKeys(r.Keys)
	r.Keys = keys
	if r.Wait < 0 && r.Wait != Forever { // A limit that was over before it was asked.
		r.Wait = 0
	}
	switch {
	case err != nil:
	case r.ID == "":
		err = fmt.Errorf("%w: no ID", ErrInvalid)
	case !ValidTTL(r.TTL):
		err = fmt.Errorf("%w: the TTL must be from %s to %s", ErrInvalid, MinTTL, MaxTTL)
	case !ValidName(r.Owner):
		err = fmt.Errorf("%w: the owner must have 1 to %d characters and no control characters", ErrInvalid, MaxNameLength)
	case !ValidMaxHold(r.MaxHold):
		err = fmt.Errorf("%w: the maximum hold must be 0 or at least %s", ErrInvalid, MinTTL)
	}
	return r, err
}

// ValidName reports whether s can be a key or an owner: 1 to [MaxNameLength] characters of valid UTF-8 without control
// characters.
func ValidName(s string) bool {
	plain := true // as most names are
	for i := range len(s) {
		plain = plain && ' ' <= s[i] && s[i] <= '~'
	}
	if plain {
		return len(s) >= 1 && len(s) <= MaxNameLength
	}
	return utf8.RuneCountInString(s) <= MaxNameLength && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// ValidTTL reports whether a lease may live that long.
func ValidTTL(ttl time.Duration) bool { return ttl >= MinTTL && ttl <= MaxTTL }

// ValidMaxHold reports whether a lock may be bounded so: not at all, or to a time in which it could be used.
func ValidMaxHold(d time.Duration) bool { return d == 0 || d >= MinTTL }

// Renewal asks for a longer lease of a lock that was granted; of its release only the ID matters.
type Renewal struct {
	ID  string
	TTL time.Duration // 0: as long as before
}
