package speculation

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

const (
	// maxWeight bounds the auctions that a process remembers: so many standing bids in all, of some 300 bytes each. An auction counts
	// as emptyWeight more than it has.
	maxWeight   = 640_000
	emptyWeight = 10
	// maxBackoff bounds how many transactions read under the lock after one found that another process works on the
	// auction. It is BackoffTransactions at first and doubles as long as that goes on, since each such find costs a reading of all
	// standing bids.
	maxBackoff = 1024
)

// NewMemory returns a memory of nothing.
func NewMemory() *Memory { return &Memory{entries: map[uuid.UUID]*Entry{}} }

// Memory is what a process remembers of auctions. It is safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	entries map[uuid.UUID]*Entry
	weight  int // of all entries
}

// Entry holds what is remembered of one auction while no transaction works on it.
type Entry struct {
	turn sync.Mutex // held by a run that locks the auction

	// What follows is guarded by the memory's mutex.
	users    int           // calls that have the entry
	locked   bool          // a run that locks the auction has it, or waits for it
	known    *Known        // nil while a transaction works on it, and where nothing is remembered
	weight   int           // of what was remembered last
	backoff  int           // how many more transactions read under the lock, because another process works on the auction
	length   int           // of the last backoff
	streak   int           // how many speculative ones committed since
	underWay int           // how many speculative ones are under way
	settled  chan struct{} // closed when there are none; nil while nobody waits
}

// Known is an auction as this process has left or read it. If the database has another revision, it is no longer current.
type Known struct {
	*auction.State

	Revision uuid.UUID
	Last     LastBid
	Shared   bool // another process had worked on it when this one locked it last

	// What follows is guarded by the memory's mutex while no transaction works on it.
	underWay int  // transactions that it rests on and that are under way, and one that works on it
	poisoned bool // one of them has failed
	Settled  bool // there were none when a locked run took it
}

// LastBid is the latest bid that a process remembers, to be compared with the database's: after a failover that lost
// it, a bid that was placed anew may have the same number, account, hold and amount, but not the same nonce.
type LastBid struct {
	auction.Bid

	Nonce int64 // of the batch that placed it; 0 for those of before there were nonces
}

// Is reports whether both are the very same bid.
func (b *LastBid) Is(other *LastBid) bool {
	x, y := b.Bid, other.Bid
	x.At, y.At = time.Time{}, time.Time{}
	return x == y && b.At.Equal(other.At) && b.Nonce == other.Nonce
}

// NewNonce returns a number that no other batch has.
func NewNonce() int64 { return rand.Int64() } //nolint:gosec // Nobody gains by guessing it.

// Enter returns the entry of an auction, which the caller leaves.
func (m *Memory) Enter(id uuid.UUID) *Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.entries[id]
	if t == nil {
		t = &Entry{}
		m.entries[id] = t
	}
	t.users++
	return t
}

// Leave gives an entry back. Beyond the bound, what nobody works on is forgotten, and read again when needed.
func (m *Memory) Leave(id uuid.UUID, t *Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.users--
	if t.users == 0 && t.known == nil {
		m.drop(id, t)
	}
	for other, o := range m.entries {
		if m.weight <= maxWeight {
			break
		}
		if o.users == 0 {
			m.drop(other, o)
		}
	}
}

// drop forgets an entry that nobody has. The caller holds the mutex.
func (m *Memory) drop(id uuid.UUID, t *Entry) {
	m.weight -= t.weight
	delete(m.entries, id)
}

// keep remembers an auction, unless a transaction that it rests on has failed. The caller holds the mutex.
func (m *Memory) keep(t *Entry, known *Known) {
	if known == nil || known.poisoned {
		return
	}
	t.known = known
	m.weight -= t.weight
	t.weight = emptyWeight + known.Standing.Len()
	m.weight += t.weight
}

// Lock begins a run that locks the auction. It waits for others of this process, and for speculative transactions that are under
// way, which it would overtake and make fail; it gives those up where that takes longer than patience. It hands out what is
// remembered, nil where nothing is. From then on until Unlock, nothing is handed out to speculative transactions.
func (m *Memory) Lock(ctx context.Context, t *Entry, patience time.Duration) *Known {
	t.turn.Lock()
	m.mu.Lock()
	defer m.mu.Unlock()
	t.locked = true
	if t.underWay > 0 {
		if t.settled == nil {
			t.settled = make(chan struct{})
		}
		settled := t.settled
		m.mu.Unlock()
		select {
		case <-settled:
		case <-time.After(patience):
		case <-ctx.Done():
		}
		m.mu.Lock()
	}
	known := t.known
	t.known = nil
	if known != nil {
		known.Settled = known.underWay == 0
	}
	return known
}

// Unlock ends what Lock began. known is what is remembered from now on, nil for nothing.
func (m *Memory) Unlock(t *Entry, known *Known) {
	m.mu.Lock()
	t.locked, t.known = false, nil
	m.keep(t, known)
	m.mu.Unlock()
	t.turn.Unlock()
}

// Take hands out what is remembered to a speculative transaction, which counts as under way until PutBack or Ended.
func (m *Memory) Take(t *Entry) (*Known, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.backoff > 0 {
		t.backoff--
		return nil, NotSent(Backoff, nil)
	}
	known := t.known
	if known == nil || t.locked {
		return nil, NotSent(absent, nil)
	}
	t.known = nil
	known.underWay++
	t.underWay++
	return known, nil
}

// PutBack takes back what Take has handed out, where nothing was sent.
func (m *Memory) PutBack(t *Entry, known *Known) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(t, known)
	m.left(t, known)
}

// Sent takes back what Take has handed out, with a transaction under way.
func (m *Memory) Sent(t *Entry, known *Known) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(t, known)
}

// left says that a speculative transaction is no longer under way. The caller holds the mutex.
func (m *Memory) left(t *Entry, known *Known) {
	known.underWay--
	t.underWay--
	if t.underWay == 0 && t.settled != nil {
		close(t.settled)
		t.settled = nil
	}
}

// Ended says how a speculative transaction has ended. What rests on one that failed is forgotten. stale says that
// another process was in the way.
func (m *Memory) Ended(t *Entry, known *Known, committed, stale bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left(t, known)
	if committed {
		t.streak++
		return
	}
	known.poisoned = true
	if t.known == known {
		t.known = nil
	}
	if !stale || t.backoff > 0 {
		return
	}
	if t.streak >= BackoffTransactions {
		t.length = 0
	}
	t.length = min(max(2*t.length, BackoffTransactions), maxBackoff)
	t.backoff, t.streak = t.length, 0
}

// Forget drops what is remembered and not being worked on.
func (m *Memory) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.entries {
		t.known = nil
	}
}

// End is when the open round ends; the zero time where there is none.
func (k *Known) End() (at time.Time) {
	if r := k.Auction.Open(); r != nil {
		at = *r.EndsAt
	}
	return at
}

// Settle makes the outcome of a transaction what the next one begins with. nonce is that of its batch.
func (k *Known) Settle(nonce int64) {
	if n := len(k.Placed); n > 0 {
		p := &k.Placed[n-1]
		k.Last = LastBid{auction.Bid{Account: p.Account, Amount: p.Amount, Round: p.Round, Seq: p.Seq, At: p.At, Hold: p.Hold}, nonce}
	}
	k.Keep()
}
