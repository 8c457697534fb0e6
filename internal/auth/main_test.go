package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// errStoreDown is what a store that can't be reached answers.
var errStoreDown = errors.New("connection refused")

// memStore is a KeyStore in memory whose answers can be delayed, withheld and
// counted.
type memStore struct {
	mu      sync.Mutex
	keys    map[[sha256.Size]byte]Key
	down    bool
	hang    bool          // answer only when the context ends
	latency time.Duration // before the answer; the state is read before it
	deaf    bool          // the latency ignores the context

	lookups   atomic.Int64
	inFlight  atomic.Int64
	maxFlight atomic.Int64
}

var _ KeyStore = (*memStore)(nil)

func newMemStore() *memStore { return &memStore{keys: make(map[[sha256.Size]byte]Key)} }

func (s *memStore) set(change func(*memStore)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *memStore) KeyByHash(ctx context.Context, hash [sha256.Size]byte) (Key, error) {
	s.lookups.Add(1)
	n := s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	for {
		old := s.maxFlight.Load()
		if n <= old || s.maxFlight.CompareAndSwap(old, n) {
			break
		}
	}
	s.mu.Lock()
	key, ok := s.keys[hash]
	down, hang, latency, deaf := s.down, s.hang, s.latency, s.deaf
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return Key{}, ctx.Err()
	}
	if latency > 0 {
		timer := time.NewTimer(latency)
		defer timer.Stop()
		done := ctx.Done()
		if deaf {
			done = nil
		}
		select {
		case <-timer.C:
		case <-done:
			return Key{}, ctx.Err()
		}
	}
	switch {
	case down:
		return Key{}, errStoreDown
	case !ok:
		return Key{}, ErrUnknownKey
	}
	return key, nil
}

func (s *memStore) InsertKey(_ context.Context, key Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errStoreDown
	}
	if _, ok := s.keys[key.Hash]; ok {
		return ErrKeyExists
	}
	s.keys[key.Hash] = key
	return nil
}

func (s *memStore) RevokeKey(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, k := range s.keys {
		if k.ID != id {
			continue
		}
		if k.RevokedAt == nil {
			now := time.Now()
			k.RevokedAt = &now
			s.keys[hash] = k
		}
		return nil
	}
	return ErrUnknownKey
}

// addKey puts a new key into the store and returns its secret.
func (s *memStore) addKey(tb testing.TB, role Role, id string) string {
	tb.Helper()
	secret, hash, err := GenerateKey(role)
	testwait.Must(tb, err)
	testwait.Must(tb, s.InsertKey(tb.Context(), Key{ID: id, Role: role, Name: "test " + id, Hash: hash}))
	return secret
}

// newAuth returns an Authenticator that the test's end closes.
func newAuth(tb testing.TB, opts Options) *Authenticator {
	tb.Helper()
	if opts.Store == nil {
		opts.Store = newMemStore()
	}
	a, err := New(opts)
	testwait.Must(tb, err)
	tb.Cleanup(a.Close)
	return a
}

// racingStore doesn't find a key the first few times, as if another process
// were inserting it at that moment.
type racingStore struct {
	*memStore
	misses int
}

func (s *racingStore) KeyByHash(ctx context.Context, hash [sha256.Size]byte) (Key, error) {
	if s.misses > 0 {
		s.misses--
		return Key{}, ErrUnknownKey
	}
	return s.memStore.KeyByHash(ctx, hash)
}
