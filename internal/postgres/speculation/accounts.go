package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Limits of what a process remembers of the ledger.
const (
	// maxCachedAccounts bounds the memory to some tens of megabytes.
	maxCachedAccounts = 200_000
	// backoffTransactions is how many transactions read under locks after one found what it remembered to be stale: where
	// several processes write the same accounts, remembering does not pay.
	backoffTransactions = 32
	// maxAccountWait bounds how long a transaction waits for others of this process that work on its accounts. After that
	// it goes the way by locks, where the database arbitrates.
	maxAccountWait = 250 * time.Millisecond
)

// accountCache remembers accounts as they were when this process last committed or read them, and which of its own
// transactions work on them. What it remembers is never believed: a transaction that uses it writes only where the version
// is still the one remembered, for every account that its decisions looked at.
//
// Speculative transactions of one connection may rest on each other, because the database executes them in order. Those of
// two connections may not, nor may a speculative transaction rest on one that holds locks. So an account is worked on by one
// connection's speculative transactions at a time, or by transactions with locks. This only saves failures that the
// database's checks would bring about; it protects nothing.
type accountCache struct {
	patience time.Duration // maxAccountWait, but for tests

	mu       sync.Mutex
	accounts map[string]*cachedAccount
	backoff  int
}

// cachedAccount is guarded by the cache's mutex.
type cachedAccount struct {
	account ledger.Account
	known   bool

	pipeline    *pipeline     // whose transactions those are:
	speculative int           // under way
	locked      int           // transactions under way that lock the account, or are about to
	released    chan struct{} // closed when either count falls to zero; nil while nobody waits
}

func newAccountCache() *accountCache {
	return &accountCache{patience: maxAccountWait, accounts: map[string]*cachedAccount{}}
}

// entry returns the account's entry, which it makes where there is none. The caller holds the mutex.
func (c *accountCache) entry(id string) *cachedAccount {
	e := c.accounts[id]
	if e == nil {
		c.evict()
		e = &cachedAccount{}
		c.accounts[id] = e
	}
	return e
}

// evict makes room for one account. The caller holds the mutex.
func (c *accountCache) evict() {
	if len(c.accounts) < maxCachedAccounts {
		return
	}
	for id, e := range c.accounts {
		if e.speculative == 0 && e.locked == 0 {
			delete(c.accounts, id) // Any one: it is read again when it is needed.
			return
		}
	}
}

// enter says that a speculative transaction of p is going to work on the accounts, until leave. It waits while others of
// this process do, and reports false where that takes too long.
func (c *accountCache) enter(ctx context.Context, p *pipeline, ids []string) bool {
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

// leave ends what enter began.
func (c *accountCache) leave(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		e := c.accounts[id]
		e.speculative--
		if e.speculative == 0 {
			e.signal()
		}
	}
}

// lock says that a transaction locks the accounts, or is going to, until unlock. What is remembered of them is forgotten.
func (c *accountCache) lock(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		e := c.entry(id)
		e.locked++
		e.known = false
	}
}

// settle waits for the speculative transactions on accounts that lock was called for, and gives up where that takes too
// long.
func (c *accountCache) settle(ctx context.Context, ids []string) {
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

// unlock ends what lock began. committed is the book of the transaction, nil where it did not commit: what it left of the
// accounts is remembered, and of others nothing.
func (c *accountCache) unlock(ids []string, committed *ledger.Book) {
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
		case !e.known || e.account.Version <= a.Version: // Another one may have committed later and ended sooner.
			e.account, e.known = a, true
		}
		e.locked--
		if e.locked == 0 {
			e.signal()
		}
	}
}

// await calls busy, under the mutex, until it returns nil, and each time waits for the channel that it returned.
func (c *accountCache) await(ctx context.Context, busy func() <-chan struct{}) bool {
	var timeout *time.Timer
	for {
		c.mu.Lock()
		wait := busy()
		c.mu.Unlock()
		if wait == nil {
			return true
		}
		if timeout == nil {
			timeout = time.NewTimer(c.patience)
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

func (e *cachedAccount) wait() <-chan struct{} {
	if e.released == nil {
		e.released = make(chan struct{})
	}
	return e.released
}

func (e *cachedAccount) signal() {
	if e.released != nil {
		close(e.released)
		e.released = nil
	}
}

// trusted reports whether the next transaction may use the cache.
func (c *accountCache) trusted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.backoff > 0 {
		c.backoff--
		return false
	}
	return true
}

// loadAll puts accounts into a book: as they are remembered, or else as they were read just before. It returns the ids of
// those that do not exist; ok is false when one was forgotten meanwhile.
func (c *accountCache) loadAll(ids []string, read map[string]*ledger.Account, into *ledger.Book) (absent []string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if e := c.accounts[id]; e != nil && e.known {
			into.LoadAccount(e.account)
			continue
		}
		a, ok := read[id]
		switch {
		case !ok:
			return nil, false
		case a == nil:
			absent = append(absent, id)
		default:
			into.LoadAccount(*a)
		}
	}
	return absent, true
}

// unknown returns the ids of accounts that are not remembered.
func (c *accountCache) unknown(ids []string) (unknown []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if e := c.accounts[id]; e == nil || !e.known {
			unknown = append(unknown, id)
		}
	}
	return unknown
}

// keep remembers the accounts of a book whose transaction has committed, or will have once those that rest on it are
// decided; one that is known in a later version stays as it is.
func (c *accountCache) keep(b *ledger.Book) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a := range b.Accounts() {
		if e := c.entry(a.ID); !e.known || e.account.Version <= a.Version {
			e.account, e.known = a, true
		}
	}
}

// forget drops accounts whose transaction failed.
func (c *accountCache) forget(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if e := c.accounts[id]; e != nil {
			e.known = false
		}
	}
}

// backOff makes the next transactions read under locks.
func (c *accountCache) backOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.backoff = backoffTransactions
}
