package speculation

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Limits of what a process remembers of the ledger.
const (
	// DefaultAccounts is how many accounts are remembered, with some tens of megabytes of memory.
	DefaultAccounts = 200_000
	// Doubtful is how many transactions read the accounts that they work on, although they are remembered, after another process was
	// found to have changed one.
	Doubtful = 128
	// staleWeight and staleOften: reading does not help where more than one transaction in staleWeight finds an account that was changed after
	// it was read. staleOften is how much of that is seen first.
	staleWeight = 8
	staleOften  = 4 * staleWeight
	// BackoffTransactions is how many transactions read under locks then.
	BackoffTransactions = 32
	// maxAccountWait bounds how long a transaction waits for others of this process that work on its accounts. After that
	// it goes the way by locks, where the database arbitrates.
	maxAccountWait = 250 * time.Millisecond
)

// Accounts remembers accounts as they were when this process last committed or read them, and which of its own
// transactions work on them. What it remembers is never believed: a transaction that uses it writes only where the version
// is still the one remembered, for every account that its decisions looked at.
//
// Speculative transactions of one connection may rest on each other, because the database executes them in order. Those of
// two connections may not, nor may a speculative transaction rest on one that holds locks. So an account is worked on by one
// connection's speculative transactions at a time, or by transactions with locks. This only saves failures that the
// database's checks would bring about; it protects nothing.
type Accounts struct {
	Patience time.Duration // bounds the wait for transactions of this process; maxAccountWait but for tests

	most     int // that are remembered
	mu       sync.Mutex
	accounts map[string]*account
	era      uint64 // what is of an earlier one counts as known only where a transaction under way changes it
	forgot   int64  // how many accounts were forgotten for others
	doubts   int    // how many more transactions read what they work on
	stale    int    // by staleWeight for each that was stale nevertheless, and one less for each other
	backoff  int
}

// account is guarded by the cache's mutex.
type account struct {
	state ledger.Account
	known bool
	era   uint64
	turns uint64 // counts the transactions that have changed what the database has, or are about to

	pipeline    *Pipeline     // whose transactions those are:
	speculative int           // under way
	sent        int           // of these, how many have been sent
	locked      int           // transactions under way that lock the account, or are about to
	released    chan struct{} // closed when either count falls to zero; nil while nobody waits
}

// NewAccounts returns what remembers nothing yet, and up to so many accounts later; 0 means [DefaultAccounts].
func NewAccounts(most int) *Accounts {
	return &Accounts{Patience: maxAccountWait, most: cmp.Or(most, DefaultAccounts), accounts: map[string]*account{}}
}

// entry returns the account's entry, which it makes where there is none. The caller holds the mutex.
func (c *Accounts) entry(id string) *account {
	e := c.accounts[id]
	if e == nil {
		c.evict()
		e = &account{}
		c.accounts[id] = e
	}
	return e
}

// Remembered returns how many accounts are remembered, and how many were forgotten for others.
func (c *Accounts) Remembered() (accounts int, forgotten int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.accounts), c.forgot
}

// knows reports whether an account is remembered. The caller holds the mutex.
func (c *Accounts) knows(e *account) bool { return e.known && (e.era == c.era || e.sent > 0) }

// evict makes room for one account. The caller holds the mutex.
func (c *Accounts) evict() {
	if len(c.accounts) < c.most {
		return
	}
	for id, e := range c.accounts {
		if e.speculative == 0 && e.locked == 0 {
			delete(c.accounts, id) // Any one: it is read again when it is needed.
			c.forgot++
			return
		}
	}
}

// enter says that a speculative transaction of p is going to work on the accounts, until leave. It waits while others of
// this process do, and reports false where that takes too long.
func (c *Accounts) enter(ctx context.Context, p *Pipeline, ids []string) bool {
	return c.await(ctx, func() <-chan struct{} {
		for _, id := range ids {
			if e := c.accounts[id]; e != nil && (e.locked > 0 || (e.speculative > 0 && e.pipeline != p)) {
				return e.wait()
			}
		}
		for _, id := range ids {
			e := c.entry(id)
			e.pipeline = p
			e.speculative++
		}
		return nil
	})
}

// leave ends what enter began; sent says whether the transaction was sent.
func (c *Accounts) leave(ids []string, sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		e := c.accounts[id]
		e.speculative--
		if sent {
			e.sent--
		}
		if e.speculative == 0 {
			e.signal()
		}
	}
}

// Lock says that a transaction locks the accounts, or is going to, until unlock. What is remembered of them is forgotten.
func (c *Accounts) Lock(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		e := c.entry(id)
		e.locked++
		e.known = false
	}
}

// Settle waits for the speculative transactions on accounts that lock was called for, and gives up where that takes too
// long.
func (c *Accounts) Settle(ctx context.Context, ids []string) {
	c.await(ctx, func() <-chan struct{} {
		for _, id := range ids {
			if e := c.accounts[id]; e.speculative > 0 {
				return e.wait()
			}
		}
		return nil
	})
}

var errUncommitted = errors.New("not committed")

// Unlock ends what lock began. committed is the book of the transaction, nil where it did not commit: what it left of the
// accounts is remembered, and of others nothing.
func (c *Accounts) Unlock(ids []string, committed *ledger.Book) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		e := c.accounts[id]
		var a ledger.Account
		err := errUncommitted
		if committed != nil {
			a, err = committed.Account(id)
		}
		switch {
		case err != nil:
			e.known = false
		case !e.known || e.state.Version <= a.Version: // Another one may have committed later and ended sooner.
			e.state, e.known, e.era = a, true, c.era
		}
		e.turns++
		e.locked--
		if e.locked == 0 {
			e.signal()
		}
	}
}

// await calls busy, under the mutex, until it returns nil, and each time waits for the channel that it returned.
func (c *Accounts) await(ctx context.Context, busy func() <-chan struct{}) bool {
	var timeout *time.Timer
	for {
		c.mu.Lock()
		wait := busy()
		c.mu.Unlock()
		if wait == nil {
			return true
		}
		if timeout == nil {
			timeout = time.NewTimer(c.Patience)
			defer timeout.Stop()
		}
		select {
		case <-wait:
		case <-timeout.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

func (e *account) wait() <-chan struct{} {
	if e.released == nil {
		e.released = make(chan struct{})
	}
	return e.released
}

func (e *account) signal() {
	if e.released != nil {
		close(e.released)
		e.released = nil
	}
}

// Trusted reports whether the next transaction may use the cache.
func (c *Accounts) Trusted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.backoff > 0 {
		c.backoff--
		return false
	}
	return true
}

// reading is an account as it was read; nil is one that isn't there.
type reading struct {
	*ledger.Account

	turns uint64 // of its entry, before it was read
}

// loadAll puts accounts into a book: as they were read just before, unless a transaction has changed them since, or else as they are
// remembered. It returns the ids of those that do not exist, and whether another process has changed one; ok is false when one was
// forgotten meanwhile.
func (c *Accounts) loadAll(ids []string, read map[string]reading, into *ledger.Book) (absent []string, changed, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if changed {
			c.doubts = Doubtful
		}
	}()
	for _, id := range ids {
		e := c.accounts[id]
		a, read := read[id]
		switch read = read && a.turns == e.turns; {
		case read && a.Account == nil:
			absent = append(absent, id)
		case read:
			changed = changed || e.state.ID != "" && e.state.Version != a.Version
			into.LoadAccount(*a.Account)
		case c.knows(e):
			into.LoadAccount(e.state)
		default:
			return nil, changed, false
		}
	}
	return absent, changed, true
}

// unknown returns the accounts that are not remembered, to be read, and, with doubt, those that no transaction under way changes; the caller
// has entered them. ok is false where one can't be read now: a run with locks has made it forgotten while a transaction is under way
// that changes it.
func (c *Accounts) unknown(ids []string, doubt bool) (unknown map[string]reading, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		e := c.accounts[id]
		if c.knows(e) && (!doubt || e.sent > 0) {
			continue
		}
		if e.sent > 0 {
			return nil, false
		}
		if unknown == nil {
			unknown = map[string]reading{}
		}
		unknown[id] = reading{turns: e.turns}
	}
	return unknown, true
}

// keep remembers the accounts of a book whose transaction has committed, or will have once those that rest on it are
// decided; one that is known in a later version stays as it is. The transaction has entered ids.
func (c *Accounts) keep(ids []string, b *ledger.Book) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		e := c.accounts[id]
		e.sent++
		e.turns++
	}
	for a := range b.Accounts() {
		if e := c.entry(a.ID); !e.known || e.state.Version <= a.Version {
			e.state, e.known, e.era = a, true, c.era
		}
	}
}

// Forget drops accounts whose transaction failed.
func (c *Accounts) Forget(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if e := c.accounts[id]; e != nil {
			e.known = false
		}
	}
}

func (c *Accounts) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.accounts {
		e.known = false
	}
}

// Doubted reports whether the next transaction should read the accounts that it works on.
func (c *Accounts) Doubted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.doubts == 0 {
		return false
	}
	c.doubts--
	c.stale = max(c.stale-1, 0)
	return true
}

// Doubt makes the next transactions read, because what one was decided on was stale. Where that comes often although they read, the next
// ones are to lock, and it reports that.
func (c *Accounts) Doubt() (often bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.doubts > 0 {
		c.stale = min(c.stale+staleWeight, 2*staleOften)
	}
	c.doubts = Doubtful
	if often = c.stale >= staleOften; often {
		c.backoff = BackoffTransactions
	}
	return often
}

// ForgetIdle drops the accounts that no transaction under way changes.
func (c *Accounts) ForgetIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.era++
}
