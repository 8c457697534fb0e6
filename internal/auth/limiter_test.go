package auth

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func newTestLimiter(tb testing.TB, opts LimiterOptions) *Limiter {
	tb.Helper()
	l, err := NewLimiter(opts)
	testwait.Must(tb, err)
	return l
}

// TestLimiterWeighs counts a request as several, and one that costs more than there is as the whole quota.
func TestLimiterWeighs(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := newTestLimiter(t, LimiterOptions{Quota: 10, Window: 20 * time.Second, Now: c.Now})
	if d := l.AllowN(ann(), 7); !d.Allowed || d.Remaining != 3 || d.RetryAfter != 0 {
		t.Fatalf("7 of 10: %+v", d)
	}
	if d := l.AllowN(ann(), 5); d.Allowed || d.Remaining != 3 || d.RetryAfter != 4*time.Second {
		t.Fatalf("5 of 3: %+v", d)
	}
	c.advance(4 * time.Second)
	if d := l.AllowN(ann(), 5); !d.Allowed || d.Remaining != 0 || d.RetryAfter != 2*time.Second {
		t.Fatalf("5 of 5: %+v", d)
	}
	c.advance(20 * time.Second)
	if d := l.AllowN(ann(), 1000); !d.Allowed || d.Remaining != 0 {
		t.Fatalf("1000 of 10: %+v", d)
	}
}

// TestLimiterChargesRefusals: what refusing has cost is waited for, also where nothing was left, and it is half of the quota at most.
func TestLimiterChargesRefusals(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := newTestLimiter(t, LimiterOptions{Quota: 10, Window: 20 * time.Second, Now: c.Now})
	l.AllowN(ann(), 10)
	if d := l.Refused(ann(), 2); d.Allowed || d.Remaining != 0 || d.RetryAfter != 6*time.Second || d.Reset != 24*time.Second {
		t.Fatalf("2 more than all: %+v", d)
	}
	c.advance(5 * time.Second)
	if d := l.Allow(ann()); d.Allowed || d.RetryAfter != time.Second {
		t.Fatalf("a second too early: %+v", d)
	}
	c.advance(time.Second)
	if d := l.Allow(ann()); !d.Allowed || d.Remaining != 0 {
		t.Fatalf("in time: %+v", d)
	}
	if d := l.Refused(ann(), 1000); d.RetryAfter != 12*time.Second {
		t.Fatalf("1000 more: %+v", d)
	}
	if d := l.Refused(ann(), 0); d.Allowed || d.RetryAfter != 12*time.Second {
		t.Fatalf("none more: %+v", d)
	}
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := newTestLimiter(t, LimiterOptions{Quota: 10, Window: 20 * time.Second, Now: c.Now})
	for i := range 10 {
		d := l.Allow(ann())
		if !d.Limited || !d.Allowed || d.Remaining != 9-i || d.Reset.Round(time.Millisecond) != time.Duration(i+1)*2*time.Second {
			t.Fatalf("request %d: %+v", i, d)
		}
	}
	d := l.Allow(ann())
	if d.Allowed || d.Remaining != 0 || d.RetryAfter != 2*time.Second || d.Reset != 20*time.Second {
		t.Fatalf("one too many: %+v", d)
	}
	h := http.Header{}
	l.SetHeaders(h, d)
	if h.Get("RateLimit-Policy") != `"user";q=10;w=20` || h.Get("RateLimit") != `"user";r=0;t=20` || h.Get("Retry-After") != "2" {
		t.Errorf("headers %v", h)
	}
	// Another user is not affected.
	if d := l.Allow(Principal{Role: RoleUser, ID: "user:bob"}); !d.Allowed || d.Remaining != 9 {
		t.Errorf("another: %+v", d)
	}
	// Who waits for as long as told is let in; a moment before, not.
	c.advance(2*time.Second - time.Millisecond)
	if d := l.Allow(ann()); d.Allowed {
		t.Errorf("too early: %+v", d)
	}
	c.advance(time.Millisecond)
	if d := l.Allow(ann()); !d.Allowed || d.Remaining != 0 {
		t.Errorf("in time: %+v", d)
	}
	// After Reset, all of the quota is back, and no more.
	c.advance(time.Hour)
	d = l.Allow(ann())
	h = http.Header{}
	l.SetHeaders(h, d)
	if d.Remaining != 9 || h.Get("RateLimit") != `"user";r=9;t=2` || h.Get("Retry-After") != "" {
		t.Errorf("after an hour: %+v %v", d, h)
	}
}

// Retry-After is at least a second: 0 would invite a client to spin.
func TestRetryAfterIsNeverZero(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := newTestLimiter(t, LimiterOptions{Quota: 1000, Window: time.Second, Now: c.Now})
	for range 1000 {
		l.Allow(ann())
	}
	h := http.Header{}
	d := l.Allow(ann())
	l.SetHeaders(h, d)
	if d.Allowed || h.Get("Retry-After") != "1" {
		t.Errorf("%+v %v", d, h)
	}
}

// A client that waits for the seconds it was told must have waited long enough.
func TestSecondsAreRoundedUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, 1500 * time.Millisecond: 2} {
		if got := seconds(d); got != want {
			t.Errorf("seconds(%s) = %d", d, got)
		}
	}
}

func TestLimiterAndKeys(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{RoleAdmin, RoleService} {
		p := Principal{Role: role, ID: "key:1"}
		l := newTestLimiter(t, LimiterOptions{Quota: 1, Window: time.Second})
		h := http.Header{}
		for range 100 {
			d := l.Allow(p)
			l.SetHeaders(h, d)
			if !d.Allowed || d.Limited || len(h) != 0 {
				t.Fatalf("%s: %+v %v", role, d, h)
			}
		}
	}
	// What has no role is limited, not waved through.
	l := newTestLimiter(t, LimiterOptions{Quota: 1, Window: time.Hour})
	if first, second := l.Allow(Principal{}), l.Allow(Principal{}); !first.Allowed || second.Allowed {
		t.Errorf("zero principal: %+v %+v", first, second)
	}
}

func TestLimiterIsBounded(t *testing.T) {
	t.Parallel()
	l := newTestLimiter(t, LimiterOptions{Quota: 1, Window: time.Hour})
	quiet := Principal{Role: RoleUser, ID: "user:quiet"}
	l.Allow(quiet)
	l.Allow(ann())
	for i := range limiterPrincipals {
		l.Allow(Principal{Role: RoleUser, ID: fmt.Sprintf("user:%d", i)})
		if d := l.Allow(ann()); d.Allowed {
			t.Fatalf("the one in use was forgotten: %+v", d)
		}
	}
	if len(l.buckets) != limiterPrincipals || l.byUse.Len() != len(l.buckets) {
		t.Errorf("%d buckets", len(l.buckets))
	}
	if d := l.Allow(quiet); !d.Allowed {
		t.Errorf("the quiet one was not forgotten: %+v", d)
	}
}

func TestLimiterIsExactUnderConcurrency(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := newTestLimiter(t, LimiterOptions{Quota: 500, Window: time.Hour, Now: c.Now})
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				if l.Allow(ann()).Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := allowed.Load(); n != 500 {
		t.Errorf("%d of 500 allowed", n)
	}
}

func TestLimiterOptions(t *testing.T) {
	t.Parallel()
	for _, quota := range []int{0, limiterQuotaMax + 1} {
		if _, err := NewLimiter(LimiterOptions{Quota: quota, Window: time.Second}); !errors.Is(err, ErrInvalidOptions) {
			t.Errorf("quota %d: %v", quota, err)
		}
	}
}
