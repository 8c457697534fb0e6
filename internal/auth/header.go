package auth

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

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
