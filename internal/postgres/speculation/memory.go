package postgres

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

const (
	// maxAuctionStates is how many auctions a process remembers. One with ten thousand bidders takes some 3 MB.
	maxAuctionStates = 64
	// maxBackoffTransactions bounds how many transactions read under the lock after one found that another process works on the
	// auction. It is backoffTransactions at first and doubles as long as that goes on, since each such find costs a reading of all
	// standing bids.
	maxBackoffTransactions = 1024
)

// auctionMemory is what a process remembers of auctions.
type auctionMemory struct {
	mu    sync.Mutex
	seats map[uuid.UUID]*seat
}

// seat is where what is remembered of one auction lies while no transaction has it in hand.
type seat struct {
	turn sync.Mutex // held by a run that locks the auction

	// What follows is guarded by the memory's mutex.
	users   int           // calls that have the seat
	known   *knownAuction // nil while it is in hand, and where nothing is remembered
	backoff int           // how many more transactions read under the lock, because another process works on the auction
	length  int           // of the last backoff
	streak  int           // how many were sent ahead since, and committed
	ahead   int           // how many were sent ahead and are under way
	settled chan struct{} // closed when there are none; nil while nobody waits
}

// knownAuction is an auction as this process has left or read it. The revision tells whether it still is.
type knownAuction struct {
	*auction.State

	revision uuid.UUID
	last     lastBid

	// What follows is guarded by the memory's mutex while it is not in hand.
	ahead   int  // transactions that it rests on and that are under way
	spoilt  bool // one of them has failed
	settled bool // there were none when a locked run took it in hand
}

// lastBid is the latest bid that a process remembers. It tells whether the database still has it: after a failover that lost
// it, a bid that was placed anew may have the same number, account, hold and amount, but not the same nonce.
type lastBid struct {
	auction.Bid

	nonce int64 // of the batch that placed it; 0 for those of before there were nonces
}

// is reports whether both are the very same bid.
func (b *lastBid) is(other *lastBid) bool {
	x, y := b.Bid, other.Bid
	x.At, y.At = time.Time{}, time.Time{}
	return x == y && b.At.Equal(other.At) && b.nonce == other.nonce
}

// newNonce returns a number that no other batch has.
func newNonce() int64 { return rand.Int64() } //nolint:gosec // Nobody gains by guessing it.

// seat returns the seat of an auction, which the caller leaves.
func (m *auctionMemory) seat(id uuid.UUID) *seat {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.seats[id]
	if t == nil {
		t = &seat{}
		m.seats[id] = t
	}
	t.users++
	return t
}

// leave gives a seat back. Beyond the bound of auctions, what nobody works on is forgotten, and read again when needed.
func (m *auctionMemory) leave(id uuid.UUID, t *seat) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.users--
	if t.users == 0 && t.known == nil {
		delete(m.seats, id)
	}
	for other, o := range m.seats {
		if len(m.seats) <= maxAuctionStates {
			break
		}
		if o.users == 0 {
			delete(m.seats, other)
		}
	}
}

// take hands out what is remembered, nil where nothing is, or nothing that can be used.
func (m *auctionMemory) take(t *seat) *knownAuction {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := t.known
	t.known = nil
	if known != nil {
		known.settled = known.ahead == 0
	}
	return known
}

// takeAhead is take for a transaction that is to be sent ahead.
func (m *auctionMemory) takeAhead(t *seat) (*knownAuction, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.backoff > 0 {
		t.backoff--
		return nil, notSent(fallbackBackoff, nil)
	}
	known := t.known
	if known == nil {
		return nil, notSent(fallbackAbsent, nil)
	}
	t.known = nil
	return known, nil
}

// settle waits until nothing that was sent ahead is under way, which a transaction with locks would overtake and make fail.
// It gives up where that takes too long. It returns what take has handed out, nil where that rests on a failure.
func (m *auctionMemory) settle(ctx context.Context, t *seat, known *knownAuction, patience time.Duration) *knownAuction {
	m.wait(ctx, t, patience)
	m.mu.Lock()
	defer m.mu.Unlock()
	if known == nil || known.spoilt {
		return nil
	}
	known.settled = known.ahead == 0
	return known
}

func (m *auctionMemory) wait(ctx context.Context, t *seat, patience time.Duration) {
	m.mu.Lock()
	if t.ahead > 0 && t.settled == nil {
		t.settled = make(chan struct{})
	}
	settled := t.settled
	m.mu.Unlock()
	if settled == nil {
		return
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-settled:
	case <-timeout.C:
	case <-ctx.Done():
	}
}

// put takes back what take has handed out.
func (m *auctionMemory) put(t *seat, known *knownAuction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !known.spoilt {
		t.known = known
	}
}

// sent takes back what takeAhead has handed out, with a transaction under way.
func (m *auctionMemory) sent(t *seat, known *knownAuction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known.ahead++
	t.ahead++
	if !known.spoilt {
		t.known = known
	}
}

// ended says how a transaction that was sent ahead has ended. What rests on one that failed is forgotten. surprised says
// that another process was in the way.
func (m *auctionMemory) ended(t *seat, known *knownAuction, committed, surprised bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known.ahead--
	t.ahead--
	if t.ahead == 0 && t.settled != nil {
		close(t.settled)
		t.settled = nil
	}
	if committed {
		t.streak++
		return
	}
	known.spoilt = true
	if t.known == known {
		t.known = nil
	}
	if !surprised || t.backoff > 0 {
		return
	}
	if t.streak >= backoffTransactions {
		t.length = 0
	}
	t.length = min(max(2*t.length, backoffTransactions), maxBackoffTransactions)
	t.backoff, t.streak = t.length, 0
}

// end is when the open round ends; the zero time where there is none.
func (k *knownAuction) end() (at time.Time) {
	if r := k.Auction.Open(); r != nil {
		at = *r.EndsAt
	}
	return at
}

// settle makes the outcome of a transaction what the next one begins with. nonce is that of its batch.
func (k *knownAuction) settle(nonce int64) {
	if n := len(k.Placed); n > 0 {
		p := &k.Placed[n-1]
		k.last = lastBid{auction.Bid{Account: p.Account, Amount: p.Amount, Round: p.Round, Seq: p.Seq, At: p.At, Hold: p.Hold}, nonce}
	}
	k.Keep()
}
