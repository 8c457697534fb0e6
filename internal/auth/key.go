package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"
)

// keySecretBytes is the randomness of a generated key: 256 bits, so that a plain SHA-256 is all the protection that the
// stored hash needs. A slow password hash would only slow the server down.
const keySecretBytes = 32

// The bounds on an admin key that an operator chooses. The lower is API contract; the upper keeps a header in bounds.
const (
	adminKeyMinBytes = 32
	adminKeyMaxBytes = 512
)

// credentialStackBytes is the length up to which hashing a credential costs no allocation: every key's, and most tokens'.
const credentialStackBytes = 1024

// Key is an API key as it is stored: everything but the secret.
type Key struct {
	// ID names the key to people and in [Principal].ID. It never changes.
	ID string
	// Role is [RoleAdmin] or [RoleService].
	Role Role
	// Name is chosen by whoever made the key, 1 to 200 characters.
	Name string
	// Hash is the SHA-256 of the secret, see [HashKey].
	Hash [sha256.Size]byte
	// CreatedAt is when the key was made, UTC.
	CreatedAt time.Time
	// RevokedAt is when the key was revoked, UTC; nil while it is in force.
	RevokedAt *time.Time
}

// KeyStore keeps API keys. Implementations are safe for concurrent use and honour the context's end. Every error other than
// those named is taken to mean that the store can't be reached.
type KeyStore interface {
	// KeyByHash returns the key with that hash, revoked or not. It returns ErrUnknownKey when there is none.
	KeyByHash(ctx context.Context, hash [sha256.Size]byte) (Key, error)
	// InsertKey stores a new key. It returns ErrKeyExists when one with the same id or hash is there.
	InsertKey(ctx context.Context, key Key) error
	// Keys returns all keys, revoked ones too, oldest first.
	Keys(ctx context.Context) ([]Key, error)
}

// GenerateKey makes a new API key for role, which is [RoleAdmin] or [RoleService]. The secret is "fl_admin_" or
// "fl_service_", by which secret scanners can know it, and 256 random bits in base64url. It is shown once and kept nowhere;
// the hash is what is stored.
func GenerateKey(role Role) (secret string, hash [sha256.Size]byte, err error) {
	if !role.KeyRole() {
		return "", hash, fmt.Errorf("auth: generate key: role %q can't have one", role)
	}
	var random [keySecretBytes]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", hash, fmt.Errorf("auth: generate key: %w", err)
	}
	secret = "fl_" + string(role) + "_" + base64.RawURLEncoding.EncodeToString(random[:])
	return secret, HashKey(secret), nil
}

// HashKey returns the SHA-256 of a key's secret: what is stored and looked up.
func HashKey(secret string) [sha256.Size]byte {
	var buf [credentialStackBytes]byte
	return sha256.Sum256(append(buf[:0], secret...))
}

// ValidAdminKey returns an error that wraps [ErrInvalidAdminKey] unless s can be an admin key that an operator sets: 32 to
// 512 visible ASCII characters, 0x21 to 0x7E. The error doesn't contain s.
func ValidAdminKey(s string) error {
	if len(s) < adminKeyMinBytes || len(s) > adminKeyMaxBytes {
		return fmt.Errorf("%w: got %d bytes", ErrInvalidAdminKey, len(s))
	}
	if i := firstInvisible(s); i >= 0 {
		return fmt.Errorf("%w: byte %d is none", ErrInvalidAdminKey, i+1)
	}
	return nil
}

// EnsureAdminKey makes the secret that an operator chose an admin key of the store, unless it is one. Processes that start
// together with the same secret agree on one key. id and createdAt are those of the key if it is new.
//
// It returns [ErrInvalidAdminKey] when the secret can't be a key, [ErrKeyRevoked] when it has been revoked (which setting it
// again doesn't undo: whoever learned it may still know it), and the store's error.
func EnsureAdminKey(ctx context.Context, store KeyStore, secret, id string, createdAt time.Time) (Key, error) {
	if err := ValidAdminKey(secret); err != nil {
		return Key{}, err
	}
	fresh := Key{ID: id, Role: RoleAdmin, Name: "first admin key", Hash: HashKey(secret), CreatedAt: createdAt.UTC()}

	key, err := store.KeyByHash(ctx, fresh.Hash)
	if errors.Is(err, ErrUnknownKey) {
		key, err = fresh, store.InsertKey(ctx, fresh)
		if errors.Is(err, ErrKeyExists) {
			// Another process was faster; its key is ours too.
			key, err = store.KeyByHash(ctx, fresh.Hash)
		}
	}
	switch {
	case err != nil:
		return Key{}, fmt.Errorf("auth: ensure admin key: %w", err)
	case key.RevokedAt != nil:
		return Key{}, fmt.Errorf("auth: ensure admin key %s: %w", key.ID, ErrKeyRevoked)
	case key.Role != RoleAdmin:
		return Key{}, fmt.Errorf("auth: ensure admin key %s: it exists with role %s", key.ID, key.Role)
	}
	return key, nil
}

// firstInvisible returns the index of the first byte of s that is not visible ASCII, or -1.
func firstInvisible(s string) int {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7E {
			return i
		}
	}
	return -1
}
