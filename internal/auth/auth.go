package auth

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// The errors of this package. Callers test for them with [errors.Is]; what wraps them is for the server's log and never for
// the client, because it tells a guesser how close the guess was.
var (
	// ErrNoCredential is returned when the request presents no credential at all: 401.
	ErrNoCredential = errors.New("there is no credential: send the header Authorization: Bearer KEY")
	// ErrBadCredential is returned when a credential is malformed, unknown, revoked, expired or wrongly signed: 401.
	ErrBadCredential = errors.New("the key or token is unknown, expired or revoked, or the header is not Authorization: Bearer KEY")
	// ErrUnavailable is returned when the key store or the token issuer can't be reached and nothing usable is cached: 503.
	ErrUnavailable = errors.New("auth: credentials can't be checked now")
	// ErrUnknownKey is returned by a [KeyStore] when no key has the given hash or id.
	ErrUnknownKey = errors.New("auth: unknown key")
	// ErrKeyExists is returned when a key with the same id or the same hash is already there, revoked or not.
	ErrKeyExists = errors.New("auth: key exists already")
	// ErrKeyRevoked is returned by [EnsureAdminKey] alone: to a client, a revoked key is a bad credential like any other.
	ErrKeyRevoked = errors.New("auth: key is revoked")
	// ErrInvalidAdminKey is returned by [ValidAdminKey] and [EnsureAdminKey] when a string can't serve as an admin key.
	ErrInvalidAdminKey = errors.New("auth: an admin key must be 32 to 4,096 visible ASCII characters")
	// ErrLastAdmin is returned when the only admin key left would be revoked, since nobody could then make another.
	ErrLastAdmin = errors.New("the last admin key cannot be revoked")
	// ErrInvalidOptions is returned by [New] and [NewLimiter] when an option is missing, contradictory or out of its range.
	ErrInvalidOptions = errors.New("auth: invalid options")
)

// Role is what a principal may do at all. [Principal.MayRead] and [Principal.MayActFor] say for which accounts.
type Role string

// The roles. Their text is what the command line takes and what the key store keeps.
const (
	// RoleAdmin is an operator's key: everything, for every account.
	RoleAdmin Role = "admin"
	// RoleService is another program's key: all that is done on behalf of accounts, for every account, but no
	// administration.
	RoleService Role = "service"
	// RoleReader is a key that reads everything and changes nothing, for monitoring and exports.
	RoleReader Role = "reader"
	// RoleUser is a person with a JWT: one account, its own.
	RoleUser Role = "user"
)

// KeyRole reports whether r can be given to an API key. Users have no keys, they have tokens.
func (r Role) KeyRole() bool { return r == RoleAdmin || r == RoleService || r == RoleReader }

// Principal is who a request comes from. The zero Principal may do nothing. A Principal is a value, to be copied freely.
type Principal struct {
	Role Role // what the principal may do at all
	// ID is "key:" and the key's id, or "user:" and the token's subject. It is the scope of idempotency keys, so it is the
	// same for every request of one principal and different for any two, whatever their names.
	ID      string
	Account string // a user's own account, the token's subject; empty for keys, which are not bound to an account
	Name    string // for people to read in audit records: the key's name, or the token's subject
}

// MayRead reports whether p may read what belongs to account. It is decided from the principal alone, before any state is
// looked at, so that the answer tells nothing of whether the account exists.
func (p Principal) MayRead(account string) bool {
	if p.Role == RoleUser {
		return p.Account != "" && p.Account == account
	}
	return p.Role.KeyRole()
}

// MayActFor reports whether p may move what belongs to account. It is decided as MayRead is.
func (p Principal) MayActFor(account string) bool { return p.Role != RoleReader && p.MayRead(account) }

// IsAdmin reports whether p may administer the server.
func (p Principal) IsAdmin() bool { return p.Role == RoleAdmin }

// accountMaxBytes is the length of the longest account id.
const accountMaxBytes = 64

// ValidAccount reports whether s can name an account: 1 to 64 of the characters A-Z a-z 0-9 . _ : @ - and neither "." nor
// "..", which paths would swallow.
func ValidAccount(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@-"
	return s != "" && len(s) <= accountMaxBytes && s != "." && s != ".." && strings.Trim(s, allowed) == ""
}

// credentialMaxBytes bounds what is presented as a credential, before anything is computed from it. Tokens of real issuers
// stay under 4 KiB.
const credentialMaxBytes = 8 << 10

// The parts of the WebSocket subprotocol header that carry a credential, because browsers can't set Authorization on a
// WebSocket.
const (
	// Subprotocol is the application protocol that a WebSocket client offers beside its credential, and that the server
	// accepts.
	Subprotocol             = "fairlead"
	subprotocolBearerPrefix = "bearer."
)

// Authorization returns the one Authorization value of h, to be given to [Authenticator.Authenticate]. It returns
// [ErrNoCredential] when there is none, and [ErrBadCredential] when there is more than one: two proxies may each believe
// another of them.
func Authorization(h http.Header) (string, error) {
	switch values := h["Authorization"]; len(values) {
	case 0:
		return "", ErrNoCredential
	case 1:
		return values[0], nil
	default:
		return "", fmt.Errorf("%w: %d authorization headers", ErrBadCredential, len(values))
	}
}

// SubprotocolAuthorization returns the credential that a WebSocket handshake carries in Sec-WebSocket-Protocol as "fairlead,
// bearer.KEY", in the form that [Authenticator.Authenticate] takes. It returns [ErrNoCredential] when there is none, and
// [ErrBadCredential] when there is more than one or when [Subprotocol] is not offered with it. The server must answer with
// [Subprotocol], never with the bearer entry.
func SubprotocolAuthorization(h http.Header) (string, error) {
	var credential string
	var found, offered bool
	for _, value := range h["Sec-Websocket-Protocol"] {
		for entry := range strings.SplitSeq(value, ",") {
			entry = strings.Trim(entry, " \t")
			if entry == Subprotocol {
				offered = true
			}
			rest, ok := strings.CutPrefix(entry, subprotocolBearerPrefix)
			if !ok {
				continue
			}
			if found {
				return "", fmt.Errorf("%w: more than one bearer subprotocol", ErrBadCredential)
			}
			credential, found = rest, true
		}
	}
	switch {
	case !found:
		return "", ErrNoCredential
	case !offered:
		return "", fmt.Errorf("%w: subprotocol %q isn't offered beside it", ErrBadCredential, Subprotocol)
	}
	return "Bearer " + credential, nil
}

// Challenge returns the WWW-Authenticate value for a 401 that answers err, as RFC 6750 section 3 asks: with an error code
// only when a credential was presented.
func Challenge(err error) string {
	if errors.Is(err, ErrNoCredential) {
		return `Bearer realm="fairlead"`
	}
	return `Bearer realm="fairlead", error="invalid_token"`
}

// bearer returns the credential of an Authorization value: the scheme Bearer in any case, one or more spaces, and 1 to 8192
// visible ASCII characters, for which RFC 6750 would allow fewer than an operator's own admin key may use. The result is
// part of authorization, not a copy.
func bearer(authorization string) (string, error) {
	const scheme = "bearer"
	if authorization == "" {
		return "", ErrNoCredential
	}
	if len(authorization) < len(scheme) || !strings.EqualFold(authorization[:len(scheme)], scheme) {
		return "", fmt.Errorf("%w: the scheme isn't bearer", ErrBadCredential)
	}
	rest := authorization[len(scheme):]
	credential := strings.TrimLeft(rest, " ")
	switch {
	case credential == "":
		return "", fmt.Errorf("%w: it is empty", ErrBadCredential)
	case len(credential) == len(rest):
		return "", fmt.Errorf("%w: the scheme isn't bearer", ErrBadCredential)
	case len(credential) > credentialMaxBytes:
		return "", fmt.Errorf("%w: over %d bytes", ErrBadCredential, credentialMaxBytes)
	case firstInvisible(credential) >= 0:
		return "", fmt.Errorf("%w: it isn't visible ASCII", ErrBadCredential)
	}
	return credential, nil
}
