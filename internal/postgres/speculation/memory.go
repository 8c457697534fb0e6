package speculation

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

const (
	// MaxStanding bounds the auctions that a process remembers: so many standing bids in all, of some 300 bytes each. An auction counts
	// as emptyWeight more than it has.
	MaxStanding = 640_000
	emptyWeight = 10
	// maxBackoff bounds how many transactions read under the lock after one found that another process works on the
	// target. It is BackoffTransactions at first and doubles as long as that goes on, since each such find costs a reading of what
	// that has done.
	maxBackoff = 1024
)

// Remembered is what a process remembers of a target, an auction or a campaign. It embeds [Kept].
type Remembered interface {
	comparable
	kept() *Kept
	Weight() int // what it counts for in the memory's bound
}

// Kept is what a [Memory] notes beside a target. The memory's mutex guards it while no transaction works on the target.
type Kept struct {
	underWay int     // transactions that it rests on and that are under way, and one that works on it
	poisoned bool    // one of them has failed
	sent     []*Sent // those that have not committed, in order
	lost     bool    // what was changed in vain can't be taken back
	Settled  bool    // none was under way when a locked run took it
}

func (k *Kept) kept() *Kept { return k }

// Sent is a speculative transaction that has been sent.
type Sent struct {
	// Undo takes back what the transaction has changed in what is remembered. It is called where PostgreSQL has undone the
	// transaction and all that rested on it, the last one first. nil: that can't be done, and what is remembered is dropped.
	Undo func()
}

// NewMemory returns a memory of nothing that remembers targets up to a weight.
func NewMemory[K Remembered](most int) *Memory[K] {
	return &Memory[K]{most: most, entries: map[uuid.UUID]*Entry[K]{}}
}

// Memory is what a process remembers of targets. It is safe for concurrent use.
type Memory[K Remembered] struct {
	most int

	mu      sync.Mutex
	entries map[uuid.UUID]*Entry[K]
	weight  int // of all entries
}

// Entry holds what is remembered of one target while no transaction works on it.
type Entry[K Remembered] struct {
	turn sync.Mutex // held by a run that locks the target

	// What follows is guarded by the memory's mutex.
	users    int           // calls that have the entry
	locked   bool          // a run that locks the target has it, or waits for it
	known    K             // nil while a transaction works on it, and where nothing is remembered
	weight   int           // of what was remembered last
	backoff  int           // how many more transactions read under the lock, because another process works on the target
	length   int           // of the last backoff
	streak   int           // how many speculative ones committed since
	underWay int           // how many speculative ones are under way
	settled  chan struct{} // closed when there are none; nil while nobody waits
}

// Known is an auction as this process has left or read it. If the database has another revision, it is no longer current.
type Known struct {
	Kept
	*auction.State

	Revision uuid.UUID
	Last     LastBid
	Shared   bool // another process had worked on it when this one locked it last
}

// Weight implements [Remembered].
func (k *Known) Weight() int { return emptyWeight + k.Standing.Len() }

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

// Enter returns the entry of a target, which the caller leaves.
func (m *Memory[K]) Enter(id uuid.UUID) *Entry[K] {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.entries[id]
	if t == nil {
		t = &Entry[K]{}
		m.entries[id] = t
	}
	t.users++
	return t
}

// Leave gives an entry back. Beyond the bound, what nobody works on is forgotten, and read again when needed.
func (m *Memory[K]) Leave(id uuid.UUID, t *Entry[K]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.users--
	if t.users == 0 && t.nothing() {
		m.drop(id, t)
	}
	for other, o := range m.entries {
		if m.weight <= m.most {
			break
		}
		if o.users == 0 {
			m.drop(other, o)
		}
	}
}

// drop forgets an entry that nobody has. The caller holds the mutex.
func (m *Memory[K]) drop(id uuid.UUID, t *Entry[K]) {
	m.weight -= t.weight
	delete(m.entries, id)
}

func (t *Entry[K]) nothing() bool { return isNone(t.known) }

func isNone[K Remembered](known K) bool {
	var none K
	return known == none
}

// keep remembers a target, unless a transaction that it rests on has failed. The caller holds the mutex.
func (m *Memory[K]) keep(t *Entry[K], known K) {
	if isNone(known) || known.kept().poisoned {
		return
	}
	t.known = known
	m.weight -= t.weight
	t.weight = known.Weight()
	m.weight += t.weight
}

// Lock begins a run that locks the target. It waits for others of this process, and for speculative transactions that are under
// way, which it would overtake and make fail; it gives those up where that takes longer than patience. It hands out what is
// remembered, nil where nothing is. From then on until Unlock, nothing is handed out to speculative transactions.
func (m *Memory[K]) Lock(ctx context.Context, t *Entry[K], patience time.Duration) K {
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
	var none K
	known := t.known
	t.known = none
	if known != none {
		k := known.kept()
		k.Settled = k.underWay == 0
		k.lost = k.lost || !k.Settled // It is the run's from now on.
	}
	return known
}

// Unlock ends what Lock began. known is what is remembered from now on, nil for nothing.
func (m *Memory[K]) Unlock(t *Entry[K], known K) {
	m.mu.Lock()
	var none K
	t.locked, t.known = false, none
	m.keep(t, known)
	m.mu.Unlock()
	t.turn.Unlock()
}

// Look calls check with what is remembered, where no transaction works on it, and returns its error: whether Take may be worth it, before anything
// is read for that. check changes nothing.
func (m *Memory[K]) Look(t *Entry[K], check func(K) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !t.nothing():
		return check(t.known)
	case t.underWay == 0 && !t.locked:
		return NotSent(absent, nil)
	}
	return nil
}

// Take hands out what is remembered to a speculative transaction, which counts as under way until PutBack or Ended. In a turn of this
// process, no other one is in its way.
func (m *Memory[K]) Take(t *Entry[K], inTurn bool) (K, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var none K
	if t.backoff > 0 && !inTurn {
		t.backoff--
		return none, NotSent(Backoff, nil)
	}
	known := t.known
	if known == none || t.locked {
		return none, NotSent(absent, nil)
	}
	t.known = none
	known.kept().underWay++
	t.underWay++
	return known, nil
}

// PutBack takes back what Take has handed out, where nothing was sent.
func (m *Memory[K]) PutBack(t *Entry[K], known K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(t, known)
	m.left(t, known)
}

// Sent takes back what Take has handed out, with a transaction under way.
func (m *Memory[K]) Sent(t *Entry[K], known K, tx *Sent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := known.kept()
	k.sent = append(k.sent, tx)
	m.keep(t, known)
}

// left says that a speculative transaction is no longer under way. Where it was the last one of what rests on a failure, and nothing else
// is remembered, that is brought back to what was committed. The caller holds the mutex.
func (m *Memory[K]) left(t *Entry[K], known K) {
	k := known.kept()
	k.underWay--
	t.underWay--
	if k.poisoned && k.underWay == 0 && !k.lost && t.nothing() {
		for _, tx := range slices.Backward(k.sent) {
			tx.Undo()
		}
		k.sent, k.poisoned = nil, false
		m.keep(t, known)
	}
	if t.underWay == 0 && t.settled != nil {
		close(t.settled)
		t.settled = nil
	}
}

// Ended says how a speculative transaction has ended, by the error of [Pipeline.Commit]. What rests on one that failed is not used any more.
// If a guard has refused, another process was in the way.
func (m *Memory[K]) Ended(t *Entry[K], known K, tx *Sent, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := known.kept()
	if err == nil {
		k.sent = slices.DeleteFunc(k.sent, func(other *Sent) bool { return other == tx })
		m.left(t, known)
		t.streak++
		return
	}
	k.poisoned = true
	k.lost = k.lost || !undone(err) || tx.Undo == nil
	var none K
	if t.known == known {
		t.known = none
	}
	m.left(t, known)
	if Reason(err) != Stale || t.backoff > 0 {
		return
	}
	if t.streak >= BackoffTransactions {
		t.length = 0
	}
	t.length = min(max(2*t.length, BackoffTransactions), maxBackoff)
	t.backoff, t.streak = t.length, 0
}

// Forget drops what is remembered and not being worked on.
func (m *Memory[K]) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	var none K
	for _, t := range m.entries {
		if !t.nothing() {
			t.known.kept().lost = true
			t.known = none
		}
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
