package auth

import "errors"

// The errors of this package. Callers test for them with [errors.Is]; what wraps them is for the server's log and never for
// the client, because it tells a guesser how close the guess was.
var (
	// ErrNoCredential is returned when the request presents no credential at all. HTTP servers answer it with 401.
	ErrNoCredential = errors.New("auth: no credential")

	// ErrBadCredential is returned when a credential is malformed, unknown, revoked, expired or wrongly signed. HTTP servers
	// answer it with 401.
	ErrBadCredential = errors.New("auth: bad credential")

	// ErrUnavailable is returned when the credential could be neither accepted nor refused, because the key store or the key
	// set of the token issuer can't be reached and nothing usable is cached. HTTP servers answer it with 503.
	ErrUnavailable = errors.New("auth: credentials can't be checked now")

	// ErrUnknownKey is returned by a [KeyStore] when no key has the given hash or id.
	ErrUnknownKey = errors.New("auth: unknown key")

	// ErrKeyExists is returned by [KeyStore].InsertKey when a key with the same id or the same hash is already there,
	// revoked or not.
	ErrKeyExists = errors.New("auth: key exists already")

	// ErrKeyRevoked is returned by [EnsureAdminKey] when the given secret belongs to a key that has been revoked, and by it
	// alone: to a client, a revoked key is a bad credential like any other.
	ErrKeyRevoked = errors.New("auth: key is revoked")

	// ErrInvalidAdminKey is returned by [ValidAdminKey] and [EnsureAdminKey] when a string can't serve as an admin key.
	ErrInvalidAdminKey = errors.New("auth: an admin key must be 32 to 512 visible ASCII characters")

	// ErrInvalidOptions is returned by [New] and [NewLimiter] when an option is missing, contradictory or out of its range.
	ErrInvalidOptions = errors.New("auth: invalid options")
)

// Role is what a principal may do at all. On whose behalf it may do it is answered by [Principal.MayActFor].
type Role string

// The roles. Their text is what the command line takes and what the key store keeps.
const (
	// RoleAdmin is an operator's key: everything, for every account.
	RoleAdmin Role = "admin"
	// RoleService is another program's key: all that is done on behalf of accounts, for every account, but no
	// administration.
	RoleService Role = "service"
	// RoleUser is a person with a JWT: one account, its own.
	RoleUser Role = "user"
)

// KeyRole reports whether r can be given to an API key. Users have no keys, they have tokens.
func (r Role) KeyRole() bool { return r == RoleAdmin || r == RoleService }

// Principal is who a request comes from. The zero Principal may do nothing. A Principal is a value, to be copied freely.
type Principal struct {
	// Role is what the principal may do at all.
	Role Role
	// ID is "key:" and the key's id, or "user:" and the token's subject. It is the scope of idempotency keys, so it is the
	// same for every request of one principal and different for any two, whatever their names.
	ID string
	// Account is the only account a user may act for: the token's subject. It is empty for keys, which may act for any.
	Account string
	// Name is for people to read in audit records: the key's name, or the token's subject.
	Name string
}

// MayActFor reports whether p may read and move what belongs to account. It is decided from the principal alone, before any
// state is looked at, so that the answer tells nothing of whether the account exists.
func (p Principal) MayActFor(account string) bool {
	switch p.Role {
	case RoleAdmin, RoleService:
		return true
	case RoleUser:
		return p.Account != "" && p.Account == account
	default:
		return false
	}
}

// IsAdmin reports whether p may administer the server.
func (p Principal) IsAdmin() bool { return p.Role == RoleAdmin }

// accountMaxBytes is the length of the longest account id.
const accountMaxBytes = 64

// ValidAccount reports whether s can name an account: 1 to 64 of the characters A-Z a-z 0-9 . _ : @ - and neither "." nor
// "..", which paths would swallow.
func ValidAccount(s string) bool {
	if s == "" || len(s) > accountMaxBytes || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == ':', c == '@', c == '-':
		default:
			return false
		}
	}
	return true
}
