package auth

import (
	"cmp"
	"container/list"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// The bounds of a [Limiter].
const (
	limiterQuotaMax = 1_000_000
	// limiterPrincipals is how many principals are remembered; about 10 MB when they are all there. The one that has been quiet
	// for longest is forgotten first, which gives it its whole quota back.
	limiterPrincipals = 32_768
)

// LimiterOptions say how many requests a principal may make. API keys are not limited.
type LimiterOptions struct {
	Policy string           // names the limit in the RateLimit headers; "user" when empty
	Quota  int              // how many requests a principal may make in Window, all at once or evenly: 1 to 1,000,000
	Window time.Duration    // in which a spent quota has grown back, in whole seconds
	Now    func() time.Time // the clock; nil means [time.Now]
}

// Limiter gives every principal a token bucket. It is kept in the memory of one process: behind a balancer, a principal has
// its quota once a process. It is safe for concurrent use.
type Limiter struct {
	LimiterOptions

	limit       rate.Limit
	policyField string

	mu      sync.Mutex
	buckets map[string]*list.Element // by Principal.ID; values are *bucket
	byUse   *list.List               // latest first
}

type bucket struct {
	principal string
	tokens    *rate.Limiter
}

// Decision is a [Limiter]'s answer to one request.
type Decision struct {
	Limited   bool          // whether the limiter applies to the principal at all; if not, Allowed is true and the rest is zero
	Allowed   bool          // whether the request may go on, which has been counted then
	Remaining int           // how many more requests would be allowed now
	Reset     time.Duration // until the whole quota is there again
	// RetryAfter is the time until the next request is allowed, or this one when it was not; zero when that is now.
	RetryAfter time.Duration
}

// NewLimiter returns a Limiter in which every principal has its whole quota. It returns [ErrInvalidOptions] when the quota
// is out of its range.
func NewLimiter(opts LimiterOptions) (*Limiter, error) {
	opts.Policy = cmp.Or(opts.Policy, "user")
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Quota < 1 || opts.Quota > limiterQuotaMax {
		return nil, fmt.Errorf("%w: quota %d isn't 1 to %d", ErrInvalidOptions, opts.Quota, limiterQuotaMax)
	}
	return &Limiter{
		LimiterOptions: opts,
		limit:          rate.Limit(float64(opts.Quota) / opts.Window.Seconds()),
		policyField:    fmt.Sprintf(`"%s";q=%d;w=%d`, opts.Policy, opts.Quota, int64(opts.Window/time.Second)),
		buckets:        make(map[string]*list.Element),
		byUse:          list.New(),
	}, nil
}

// Allow counts one request of p, unless p has none left.
func (l *Limiter) Allow(p Principal) Decision { return l.AllowN(p, 1) }

// AllowN counts a request of p that costs as much as n, or as the whole quota where that is less, unless p has not so many
// left.
func (l *Limiter) AllowN(p Principal, n int) Decision {
	if p.Role.KeyRole() {
		return Decision{Allowed: true}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Now()
	tokens := l.bucketOf(p.ID)
	n = min(n, l.Quota)
	return l.decision(tokens.AllowN(now, n), n, tokens.TokensAt(now))
}

// decision says whether a request that costs n is allowed where so many tokens are left. Fewer than none are, where more was charged.
func (l *Limiter) decision(allowed bool, n int, left float64) Decision {
	// The bucket counts in floating point; the margin keeps a token that is there but for a rounding error.
	const rounding = 1e-6
	d := Decision{Limited: true, Allowed: allowed, Remaining: min(int(math.Floor(max(left, 0)+rounding)), l.Quota), Reset: l.timeFor(float64(l.Quota) - left)}
	switch {
	case !allowed:
		d.RetryAfter = l.timeFor(float64(n) - left)
	case d.Remaining == 0:
		d.RetryAfter = l.timeFor(1 - left)
	}
	return d
}

// Refused counts what it cost to refuse requests of p as n more, or as half of the quota where that is less, also where it has not so many left: p
// then waits until they have grown. The decision is that on all of those that were refused.
func (l *Limiter) Refused(p Principal, n int) Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Now()
	tokens := l.bucketOf(p.ID)
	tokens.ReserveN(now, min(n, l.Quota/2))
	return l.decision(false, 1, tokens.TokensAt(now))
}

// bucketOf returns the bucket of a principal, making it the latest used.
func (l *Limiter) bucketOf(principal string) *rate.Limiter {
	if e, ok := l.buckets[principal]; ok {
		l.byUse.MoveToFront(e)
		return e.Value.(*bucket).tokens //nolint:errcheck // The list holds nothing else.
	}
	if l.byUse.Len() >= limiterPrincipals {
		oldest := l.byUse.Back()
		delete(l.buckets, oldest.Value.(*bucket).principal) //nolint:errcheck // As above.
		l.byUse.Remove(oldest)
	}
	b := &bucket{principal: principal, tokens: rate.NewLimiter(l.limit, l.Quota)}
	l.buckets[principal] = l.byUse.PushFront(b)
	return b.tokens
}

// timeFor is how long it takes for so many tokens to grow.
func (l *Limiter) timeFor(tokens float64) time.Duration {
	return max(time.Duration(tokens/float64(l.limit)*float64(time.Second)), 0)
}

// SetHeaders writes what d says into a response's header: RateLimit-Policy and RateLimit as of
// draft-ietf-httpapi-ratelimit-headers-10, and Retry-After (RFC 9110 section 10.2.3) when the request was not allowed. Times
// are rounded up to whole seconds, so that who waits for so long has waited long enough. It writes nothing when the limiter
// doesn't apply.
func (l *Limiter) SetHeaders(h http.Header, d Decision) {
	if !d.Limited {
		return
	}
	h.Set("RateLimit-Policy", l.policyField)
	h.Set("RateLimit", `"`+l.Policy+`";r=`+strconv.Itoa(d.Remaining)+`;t=`+strconv.FormatInt(seconds(d.Reset), 10))
	if !d.Allowed {
		h.Set("Retry-After", strconv.FormatInt(max(seconds(d.RetryAfter), 1), 10))
	}
}

// seconds rounds up to whole seconds.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
