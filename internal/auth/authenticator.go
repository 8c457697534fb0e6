package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// How long what is known of a key may be used, counted from the moment before the store was asked, so that a slow answer is
// not a young one. The last of them bounds the whole: whatever the store does, a key that was revoked is refused at most
// keyGrace later.
const (
	keyRefreshAfter  = 1 * time.Second        // the age from which a key in use is looked up again in the background
	keyFresh         = 2 * time.Second        // the age up to which a key is accepted without asking the store
	keyGrace         = 4 * time.Second        // and although the store doesn't answer; a revocation must be in force within 5 s
	keyGraceWait     = 250 * time.Millisecond // how long a request waits for the store before it falls back on the grace
	keyLookupTimeout = 2 * time.Second        // bounds the look-up of a key in the store
	refusalFresh     = 1 * time.Second        // how long a bad credential is remembered as one
	tokenFresh       = 5 * time.Second        // how long a verified token is remembered as one, unless it expires before
)

// The bounds of the caches, and of the look-ups that a flood of unknown keys can have under way at once; keys that are
// already known don't queue for those.
const (
	keyCacheEntries     = 4096
	refusalCacheEntries = 8192
	tokenCacheEntries   = 8192
	strangerLookups     = 4
)

// Options are what an [Authenticator] is made of.
type Options struct {
	Store KeyStore         // of the API keys; required
	JWT   JWTOptions       // how users' tokens are verified; its zero value refuses them all
	Now   func() time.Time // the clock for tokens, and for the age of what is cached; nil means [time.Now]
}

// Authenticator tells who is asking. It is safe for concurrent use.
type Authenticator struct {
	store  KeyStore
	tokens *verifier // nil when no way to verify tokens is configured
	now    func() time.Time

	keys     *cache[*keyEntry]
	accepted *cache[tokenEntry]
	refused  *cache[time.Time] // until when

	flights   singleflight.Group
	strangers chan struct{} // one place for each look-up of an unknown key

	// background ends what outlives the request that started it.
	background context.Context
	stop       context.CancelFunc
}

// keyEntry is a key that the store knew when it was last asked.
type keyEntry struct {
	principal  Principal
	askedAt    time.Time
	refreshing atomic.Bool
}

// tokenEntry is a token that has been verified.
type tokenEntry struct {
	principal Principal
	until     time.Time
}

// New returns an Authenticator. It opens no connection: a key set is fetched when the first token needs it. It returns
// [ErrInvalidOptions] when the store is missing or a JWT option can't be used. The caller ends it with
// [Authenticator.Close].
func New(opts Options) (*Authenticator, error) {
	if opts.Store == nil {
		return nil, fmt.Errorf("%w: no key store", ErrInvalidOptions)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	ctx, stop := context.WithCancel(context.Background())
	tokens, err := newVerifier(ctx, opts.JWT, opts.Now)
	if err != nil {
		stop()
		return nil, err
	}
	return &Authenticator{
		store:      opts.Store,
		tokens:     tokens,
		now:        opts.Now,
		keys:       newCache[*keyEntry](keyCacheEntries),
		accepted:   newCache[tokenEntry](tokenCacheEntries),
		refused:    newCache[time.Time](refusalCacheEntries),
		strangers:  make(chan struct{}, strangerLookups),
		background: ctx,
		stop:       stop,
	}, nil
}

// Close ends the look-ups and fetches that are under way, without waiting for them. Credentials that need one are then
// answered with [ErrUnavailable].
func (a *Authenticator) Close() { a.stop() }

// Authenticate returns who presents the given value of the Authorization header, which is "Bearer" in any case, spaces, and
// an API key or a JWT.
//
// It returns [ErrNoCredential] when the value is empty, [ErrBadCredential] when it is refused, and [ErrUnavailable] when
// neither can be said now, also because ctx ended. What wraps them is for the log alone.
func (a *Authenticator) Authenticate(ctx context.Context, authorization string) (Principal, error) {
	credential, err := bearer(authorization)
	if err != nil {
		return Principal{}, err
	}
	hash := HashKey(credential)
	now := a.now()

	entry, known := a.keys.get(&hash)
	if known {
		if age := now.Sub(entry.askedAt); age < keyFresh {
			if age >= keyRefreshAfter && entry.refreshing.CompareAndSwap(false, true) {
				_ = a.startLookup(&hash, true) //nolint:contextcheck // It outlives the request on purpose.
			}
			return entry.principal, nil
		}
	}
	if until, ok := a.refused.get(&hash); ok && now.Before(until) {
		return Principal{}, ErrBadCredential
	}
	if known || a.tokens == nil || !tokenShaped(credential) {
		return a.refuseOnce(&hash, func() (Principal, error) { return a.key(ctx, &hash, entry) })
	}
	if e, ok := a.accepted.get(&hash); ok && now.Before(e.until) {
		return e.principal, nil
	}
	return a.refuseOnce(&hash, func() (Principal, error) { return a.token(ctx, &hash, credential) })
}

// refuseOnce remembers the refusal of a credential, so that repeating it costs one hash and a look into a map.
func (a *Authenticator) refuseOnce(hash *[sha256.Size]byte, check func() (Principal, error)) (Principal, error) {
	p, err := check()
	if errors.Is(err, ErrBadCredential) {
		a.refused.put(hash, a.now().Add(refusalFresh))
	}
	return p, err
}

// token verifies a credential that has the shape of a JWT. An operator's own admin key may have that shape by chance, so
// that what is not a good token is looked up as a key before it is refused.
func (a *Authenticator) token(ctx context.Context, hash *[sha256.Size]byte, credential string) (Principal, error) {
	p, expiresAt, err := a.tokens.verify(ctx, credential)
	if err == nil {
		until := a.now().Add(tokenFresh)
		if expiresAt.Before(until) {
			until = expiresAt
		}
		a.accepted.put(hash, tokenEntry{principal: p, until: until})
		return p, nil
	}
	if len(credential) <= adminKeyMaxBytes {
		if p, keyErr := a.key(ctx, hash, nil); keyErr == nil {
			return p, nil
		}
	}
	return Principal{}, err
}

// key looks a key up in the store. entry is what is known of it, nil for nothing.
func (a *Authenticator) key(ctx context.Context, hash *[sha256.Size]byte, entry *keyEntry) (Principal, error) {
	wait := keyLookupTimeout
	inGrace := entry != nil && a.now().Sub(entry.askedAt) < keyGrace
	if inGrace {
		wait = keyGraceWait
	}
	fresh, err := await[*keyEntry](ctx, wait, a.startLookup(hash, entry != nil), "the key store") //nolint:contextcheck // As above.
	if err == nil {
		if a.now().Sub(fresh.askedAt) < keyGrace {
			return fresh.principal, nil
		}
		// A store that doesn't honour its deadline answers for a past in which the key may not have been revoked yet.
		err = fmt.Errorf("%w: the key store answered too late", ErrUnavailable)
	}
	if errors.Is(err, ErrUnavailable) && entry != nil && ctx.Err() == nil && a.now().Sub(entry.askedAt) < keyGrace {
		return entry.principal, nil
	}
	return Principal{}, err
}

// await waits for what somebody was asked, up to a time. It returns [ErrUnavailable] when no answer comes.
func await[V any](ctx context.Context, wait time.Duration, asked <-chan singleflight.Result, whom string) (v V, err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case result := <-asked:
		v, _ = result.Val.(V)
		return v, result.Err
	case <-timer.C:
		return v, fmt.Errorf("%w: %s doesn't answer", ErrUnavailable, whom)
	case <-ctx.Done():
		return v, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
}

// startLookup looks a key up in the store, together with whoever else is doing so, and independently of the request that
// asks, so that one client's hanging up doesn't fail the others. The result is a *keyEntry, [ErrBadCredential] or
// [ErrUnavailable].
func (a *Authenticator) startLookup(hash *[sha256.Size]byte, known bool) <-chan singleflight.Result {
	h := *hash
	return a.flights.DoChan(string(h[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(a.background, keyLookupTimeout)
		defer cancel()
		if !known {
			select {
			case a.strangers <- struct{}{}:
				defer func() { <-a.strangers }()
			case <-ctx.Done():
				return nil, fmt.Errorf("%w: too many unknown keys are being looked up", ErrUnavailable)
			}
		}
		return a.lookup(ctx, &h)
	})
}

// lookup asks the store and keeps what it says.
func (a *Authenticator) lookup(ctx context.Context, hash *[sha256.Size]byte) (*keyEntry, error) {
	askedAt := a.now()
	key, err := a.store.KeyByHash(ctx, *hash)
	switch {
	case errors.Is(err, ErrUnknownKey):
		a.keys.remove(hash)
		return nil, fmt.Errorf("%w: %w", ErrBadCredential, ErrUnknownKey)
	case err != nil:
		if old, ok := a.keys.get(hash); ok {
			old.refreshing.Store(false) // The next request tries again.
		}
		return nil, fmt.Errorf("%w: key store: %w", ErrUnavailable, err)
	case subtle.ConstantTimeCompare(key.Hash[:], hash[:]) != 1 || !key.Role.KeyRole() || key.ID == "":
		a.keys.remove(hash)
		return nil, fmt.Errorf("%w: the store's key %q can't be used", ErrBadCredential, key.ID)
	case key.RevokedAt != nil:
		a.keys.remove(hash)
		return nil, fmt.Errorf("%w: key %s is revoked", ErrBadCredential, key.ID)
	}
	entry := &keyEntry{
		principal: Principal{Role: key.Role, ID: "key:" + key.ID, Name: key.Name},
		askedAt:   askedAt,
	}
	a.keys.put(hash, entry)
	return entry, nil
}

// tokenShaped reports whether a credential has the three parts of a JWT.
func tokenShaped(credential string) bool { return strings.Count(credential, ".") == 2 }

// cache is a bounded map from the hash of a credential to what is known of it. When it is full, any one entry makes room:
// every entry can be learned anew, and no order of eviction would be harder for a flood to exploit than a random one. Expiry
// is in the values and their users' business.
type cache[V any] struct {
	mu         sync.RWMutex
	maxEntries int
	entries    map[[sha256.Size]byte]V
}

func newCache[V any](maxEntries int) *cache[V] {
	return &cache[V]{maxEntries: maxEntries, entries: make(map[[sha256.Size]byte]V)}
}

func (c *cache[V]) get(hash *[sha256.Size]byte) (V, bool) {
	c.mu.RLock()
	v, ok := c.entries[*hash]
	c.mu.RUnlock()
	return v, ok
}

func (c *cache[V]) put(hash *[sha256.Size]byte, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.entries[*hash]; !known && len(c.entries) >= c.maxEntries {
		for victim := range c.entries {
			delete(c.entries, victim)
			break
		}
	}
	c.entries[*hash] = v
}

func (c *cache[V]) remove(hash *[sha256.Size]byte) {
	c.mu.Lock()
	delete(c.entries, *hash)
	c.mu.Unlock()
}
