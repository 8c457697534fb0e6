package postgres

import (
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/ledger"
)

// Limits of what a process remembers of the ledger.
const (
	// maxCachedAccounts bounds the memory to some tens of megabytes.
	maxCachedAccounts = 200_000
	// clockTrust is how long the database's clock is carried on by the local one. In this time the two drift apart by
	// less than the microseconds that timestamps are kept to would show.
	clockTrust = time.Second
	// clockPatience bounds what asking for the time may add to the answers of a batch that is committed.
	clockPatience = 50 * time.Millisecond
	// waryFor is how many transactions read under locks after one found what it remembered to be stale: where several
	// processes write the same accounts, remembering does not pay.
	waryFor = 32
)

// accountCache remembers accounts as they were when this process last committed or read them. What it says is never
// believed: a transaction that uses it writes only where the version is still the one remembered, for every account
// that its decisions looked at.
type accountCache struct {
	mu       sync.Mutex
	accounts map[string]ledger.Account
	wary     int

	database time.Time // the database's clock …
	local    time.Time // … when the local one showed this, which includes the monotonic reading
}

func newAccountCache() *accountCache {
	return &accountCache{accounts: map[string]ledger.Account{}}
}

// now is the database's clock as far as it can be told without asking; ok is false when it was not asked recently.
func (c *accountCache) now() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := time.Since(c.local)
	return c.database.Add(passed).Truncate(time.Microsecond), !c.database.IsZero() && passed < clockTrust
}

// clockDue reports whether the database's clock was asked so long ago that it should be asked again soon.
func (c *accountCache) clockDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.local) > clockTrust/2
}

// trusted reports whether the next transaction may use the cache.
func (c *accountCache) trusted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wary > 0 {
		c.wary--
		return false
	}
	return true
}

// load puts the remembered accounts into a book and returns the ids of the others.
func (c *accountCache) load(ids []string, into *ledger.Book) (missing []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if a, ok := c.accounts[id]; ok {
			into.LoadAccount(a)
		} else {
			missing = append(missing, id)
		}
	}
	return missing
}

// loadAll is load for accounts of which the unknown ones were read just before. It returns the ids of those that do not
// exist; ok is false when one was forgotten meanwhile: somebody else writes it.
func (c *accountCache) loadAll(ids []string, read map[string]*ledger.Account, into *ledger.Book) (absent []string, ok bool) {
	for _, id := range c.load(ids, into) {
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
		if _, ok := c.accounts[id]; !ok {
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
		if known, ok := c.accounts[a.ID]; ok && known.Version > a.Version {
			continue
		}
		for other := range c.accounts {
			if len(c.accounts) < maxCachedAccounts {
				break
			}
			delete(c.accounts, other) // Any one: it is read again when it is needed.
		}
		c.accounts[a.ID] = a
	}
}

// asked remembers what the database's clock showed at a local time.
func (c *accountCache) asked(database, local time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.database, c.local = database, local
}

// forget drops accounts that another writer of this process changes, or whose transaction failed.
func (c *accountCache) forget(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		delete(c.accounts, id)
	}
}

// beWary makes the next transactions read under locks.
func (c *accountCache) beWary() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wary = waryFor
}
