package logkeeper

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"

	"github.com/fairlead-dev/fairlead/translog"
)

// NewKey makes a random key; an empty origin means fairlead/ and some digits of the key.
func NewKey(origin string) (*translog.Key, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	return KeyOf(origin, private)
}

// KeyOf makes the key of a private one, under an origin as for [NewKey].
func KeyOf(origin string, private ed25519.PrivateKey) (*translog.Key, error) {
	if origin == "" {
		sum := sha256.Sum256(private[ed25519.SeedSize:])
		origin = "fairlead/" + hex.EncodeToString(sum[:8])
	}
	return translog.NewKey(origin, private)
}
