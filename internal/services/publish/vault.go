package publish

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// VaultKeySize is the size of a vault's keys, in bytes.
const VaultKeySize = 32

// ErrUnknownVaultKey is returned when a secret was sealed under a key that this vault does not have.
var ErrUnknownVaultKey = errors.New("publish: the secret was sealed under a key that is not here")

// Vault seals secrets with AES-256-GCM. The first of its keys seals, each of them opens, so that keys can be replaced one
// after the other. It is safe for concurrent use.
type Vault struct {
	ids   []string
	aeads map[string]cipher.AEAD
}

// NewVault makes a vault of one key or more, each of [VaultKeySize] bytes.
func NewVault(keys ...[]byte) (*Vault, error) {
	v := &Vault{aeads: map[string]cipher.AEAD{}}
	for _, key := range keys {
		if len(key) != VaultKeySize {
			return nil, fmt.Errorf("publish: a key for secrets has %d bytes, not %d", len(key), VaultKeySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		// The id distinguishes keys and discloses nothing of them.
		sum := sha256.Sum256(append([]byte("fairlead secrets key id\x00"), key...))
		id := hex.EncodeToString(sum[:8])
		if _, twice := v.aeads[id]; !twice {
			v.ids = append(v.ids, id)
			v.aeads[id] = aead
		}
	}
	if len(v.ids) == 0 {
		return nil, errors.New("publish: a vault needs a key")
	}
	return v, nil
}

// KeyIDs names the keys, the sealing one first.
func (v *Vault) KeyIDs() []string { return v.ids }

// Seal encrypts a secret for the purpose that about names, under a nonce of its own.
func (v *Vault) Seal(secret, about []byte) Sealed {
	id := v.ids[0]
	return Sealed{KeyID: id, Bytes: v.aeads[id].Seal(nil, nil, secret, about)} //nolint:gosec // It draws its nonce itself.
}

// Open decrypts what was sealed for the same purpose. It returns [ErrUnknownVaultKey], or an error when it was changed.
func (v *Vault) Open(s Sealed, about []byte) ([]byte, error) {
	aead, ok := v.aeads[s.KeyID]
	if !ok {
		return nil, ErrUnknownVaultKey
	}
	secret, err := aead.Open(nil, nil, s.Bytes, about)
	if err != nil {
		return nil, fmt.Errorf("publish: open a secret: %w", err)
	}
	return secret, nil
}

// Reseal seals a secret under the vault's first key. It returns [ErrUnknownVaultKey] when the vault cannot open it.
func (v *Vault) Reseal(s Sealed, about []byte) (Sealed, error) {
	secret, err := v.Open(s, about)
	if err != nil {
		return Sealed{}, err
	}
	return v.Seal(secret, about), nil
}

// TokenPurpose is what a target's token is sealed for; its secrets are sealed for the bytes of its id.
func TokenPurpose(target uuid.UUID) []byte { return append([]byte("token of "), target[:]...) }
