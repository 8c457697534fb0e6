package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The headers of the protocol.
const (
	KeyHeader      = "Idempotency-Key"
	ReplayedHeader = "Idempotent-Replayed" // "true" on every answer that is not the executing request's own
)

// Defaults and limits of [Options], and the default of [KeepSwept].
const (
	DefaultLease        = 30 * time.Second
	DefaultRetention    = 24 * time.Hour
	DefaultStoreTimeout = 5 * time.Second
	DefaultSweepEvery   = time.Hour
	DefaultMaxBody      = 1 << 20
	DefaultMaxResponse  = 1 << 20
	DefaultMaxHeader    = 16 << 10
	// MinLease leaves room for its extensions.
	MinLease = 50 * time.Millisecond
)

// ErrBadOptions is returned by [New] when the options are not usable, by a [Store] that is asked to begin under such terms, and given
// by [KeepSwept] for a time that is not.
var ErrBadOptions = errors.New("idempotency: bad options")

// Scope says which requests share their keys.
type Scope uint8

// The scopes of keys.
const (
	// PerRoute binds a key to principal, method, host and path: the same key elsewhere is another key.
	PerRoute Scope = iota
	// PerPrincipal binds a key to principal and host: the same key with another method or path is a reused key, as Stripe has
	// it.
	PerPrincipal
)

// Options configure [New]. Store and Principal are required.
type Options struct {
	Store Store
	// Principal names whom a request is from, after authentication; keys of different principals never meet. [Everybody] is
	// for services whose callers all trust each other: a caller that sends another's key and body gets the answer.
	Principal func(*http.Request) string
	Scope     Scope
	// Methods are those whose requests have keys; others pass. Default: POST and PATCH, those that HTTP doesn't define to be
	// idempotent.
	Methods []string
	// Optional lets requests without a key pass, unprotected. Otherwise they are refused with 400.
	Optional bool
	// Wait is how long a request waits for the answer of another that is being executed under its key; 0: it is refused with
	// 409 at once.
	Wait time.Duration
	// OnCrash says what becomes of a key whose process died or was cut off for a lease. (A panic is a 500.)
	OnCrash CrashPolicy
	// Lease is how long an execution outlives its last sign of life, [DefaultLease] by default. It is extended while the
	// handler runs. All processes that share a store and a route have the same.
	Lease time.Duration
	// Retention is how long an answer is kept from when it was decided, [DefaultRetention] by default.
	Retention time.Duration
	// Decided says which answers are kept. The others let the key be used again, also for another request. Default:
	// [DefaultDecided].
	Decided func(r *http.Request, status int) bool
	// Fingerprint returns what distinguishes a request, after method and path; by default its query and body as they were
	// sent. A canonical form lets a retry be spelt differently. Its errors are answered with 400.
	Fingerprint func(r *http.Request, body []byte) ([]byte, error)
	// Resolve is asked what became of the execution under a parked key: it returns the answer where there was an effect, nil
	// where there was none, which frees the key, and an error while it can't tell. Nil: parked keys stay until somebody
	// resolves them with [Store.Complete] or [Store.Release].
	Resolve func(ctx context.Context, r *http.Request, g Grant) (*Response, error)
	// MaxBody bounds a request's body, MaxResponse an answer's body, MaxHeader an answer's header, in bytes.
	MaxBody, MaxResponse, MaxHeader int
	// StoreTimeout bounds each call of the store, and for how long a failing one is tried again before a request is refused
	// with 503. To keep an answer the store is tried for a lease. Default: [DefaultStoreTimeout].
	StoreTimeout time.Duration
	// Refuse writes the middleware's own answers; nil: as application/problem+json.
	Refuse func(w http.ResponseWriter, r *http.Request, p Problem)
	// DocsURL, where your policy is published, becomes the type of problems, with the code as its fragment.
	DocsURL string
}

// Everybody is a [Options.Principal] that makes no difference.
func Everybody(*http.Request) string { return "" }

// DefaultDecided tells answers that decide a request from those that say it never came to that: the request was not
// understood (400, 405, 406, 411, 413, 414, 415, 417, 431), not allowed (401, 403, 407), about something that is not there
// (404), or is to be sent again (408, 421, 425, 429, 503). A 500 is kept, because nobody can say that it had no effect.
func DefaultDecided(_ *http.Request, status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusNotAcceptable, http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusLengthRequired,
		http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusUnsupportedMediaType, http.StatusExpectationFailed,
		http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge,
		http.StatusServiceUnavailable:
		return false
	}
	return true
}

func defaultFingerprint(r *http.Request, body []byte) ([]byte, error) {
	return append([]byte(r.URL.RawQuery+"\n"), body...), nil
}

// withDefaults fills in what is not said, and finds what can't be.
func (o Options) withDefaults() (Options, error) {
	o.Lease = cmp.Or(o.Lease, DefaultLease)
	o.Retention = cmp.Or(o.Retention, DefaultRetention)
	o.StoreTimeout = cmp.Or(o.StoreTimeout, DefaultStoreTimeout)
	o.MaxBody, o.MaxResponse = cmp.Or(o.MaxBody, DefaultMaxBody), cmp.Or(o.MaxResponse, DefaultMaxResponse)
	o.MaxHeader = cmp.Or(o.MaxHeader, DefaultMaxHeader)
	if o.Methods == nil {
		o.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if o.Decided == nil {
		o.Decided = DefaultDecided
	}
	if o.Fingerprint == nil {
		o.Fingerprint = defaultFingerprint
	}
	if o.Refuse == nil {
		o.Refuse = func(w http.ResponseWriter, _ *http.Request, p Problem) { send(w, p.response(), false) }
	}
	switch {
	case o.Store == nil:
		return o, fmt.Errorf("%w: there is no store", ErrBadOptions)
	case o.Principal == nil:
		return o, fmt.Errorf("%w: nothing tells principals apart; Everybody is for services that need not", ErrBadOptions)
	case o.Lease < MinLease:
		return o, fmt.Errorf("%w: a lease is %s or more", ErrBadOptions, MinLease)
	case o.Retention < o.Lease:
		return o, fmt.Errorf("%w: answers must be kept for longer than a lease", ErrBadOptions)
	case o.Scope > PerPrincipal, o.OnCrash > ParkAsUnknown:
		return o, fmt.Errorf("%w: there is no such scope or policy", ErrBadOptions)
	case min(o.MaxBody, o.MaxResponse, o.MaxHeader) < 0, o.Wait < 0, o.StoreTimeout < 0:
		return o, fmt.Errorf("%w: limits are not negative", ErrBadOptions)
	case slices.ContainsFunc(o.Methods, func(m string) bool { return m != strings.ToUpper(m) }):
		return o, fmt.Errorf("%w: methods have capital letters", ErrBadOptions)
	}
	return o, nil
}
