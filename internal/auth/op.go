package auth

import "errors"

// KeyOp is one administrative change of the API keys: exactly one of its fields is set.
type KeyOp struct {
	Create *Key
	Revoke string // the id of the key to revoke
}

// ErrLastAdmin is returned when the only admin key left would be revoked, since nobody could then make another.
var ErrLastAdmin = errors.New("the last admin key cannot be revoked")
