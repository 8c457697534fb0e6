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

const (
	// keySecretBytes is the randomness of a generated key: 256 bits, so that a plain SHA-256 is all the protection that the
	// stored hash needs. A slow password hash would only slow the server down.
	keySecretBytes = 32
	// The bounds on an admin key that an operator chooses. The lower is API contract; the upper keeps a header in bounds.
	adminKeyMinBytes, adminKeyMaxBytes = 32, 4096
	// credentialStackBytes is the length up to which hashing a credential costs no allocation: every key's, and most tokens'.
	credentialStackBytes = 1024
)

// Key is an API key as it is stored: everything but the secret.
type Key struct {
	ID        string            // names the key to people and in [Principal].ID; it never changes
	Role      Role              // one for which [Role.KeyRole] holds
	Name      string            // 1 to 200 characters, chosen by whoever made the key
	Hash      [sha256.Size]byte // the SHA-256 of the secret, see [HashKey]
	CreatedAt time.Time         // UTC
	RevokedAt *time.Time        // UTC; nil while the key is in force
}

// KeyStore is what authentication needs of the API keys. Implementations are safe for concurrent use and honour the context's
// end. Every error other than those named is taken to mean that the store can't be reached.
type KeyStore interface {
	// KeyByHash returns the key with that hash, revoked or not. It returns ErrUnknownKey when there is none.
	KeyByHash(ctx context.Context, hash [sha256.Size]byte) (Key, error)
	// InsertKey stores a new key. It returns ErrKeyExists when one with the same id or hash is there.
	InsertKey(ctx context.Context, key Key) error
}

// GenerateKey makes a new API key for role, which is [RoleAdmin], [RoleService] or [RoleReader]. The secret is "fl_", the role
// and "_", by which secret scanners can know it, and 256 random bits in base64url. It is shown once and kept nowhere; the hash
// is what is stored.
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
// 4,096 visible ASCII characters, 0x21 to 0x7E. The error doesn't contain s.
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

// KeyOp is one administrative change of the API keys: exactly one of its fields is set.
type KeyOp struct {
	Create *Key
	Revoke string // the id of the key to revoke
}
