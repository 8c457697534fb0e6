package publish

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func noDraw(int64) int64 { return 0 }

func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// TestTransitions holds the whole table: every operation in every status.
func TestTransitions(t *testing.T) {
	t.Parallel()
	now := epoch()
	ops := map[string]Op{"schedule": Schedule{PublishAt: now.Add(time.Hour)}, "publish": MakeDue{}, "cancel": Cancel{}, "retry": Retry{}}
	allowed := map[Status]map[string]Status{
		StatusDraft:     {"schedule": StatusScheduled, "publish": StatusScheduled, "cancel": StatusCancelled},
		StatusScheduled: {"schedule": StatusScheduled, "publish": StatusScheduled, "cancel": StatusCancelled},
		StatusFailed:    {"retry": StatusScheduled},
	}
	for _, status := range Statuses() {
		for name, op := range ops {
			p := &Publication{Status: status, Attempts: 7, ActualPublishAt: &now}
			before := *p
			err := Decide(p, op, now, noDraw)
			want, ok := allowed[status][name]
			switch {
			case ok && (err != nil || p.Status != want):
				t.Errorf("%s %s: %s, %v", name, status, p.Status, err)
			case !ok && (!errors.Is(err, ErrBadTransition) || !reflect.DeepEqual(*p, before)):
				t.Errorf("%s %s: %+v, %v", name, status, p, err)
			}
		}
	}
	p := &Publication{Status: StatusFailed, Attempts: 7, ActualPublishAt: &now}
	if err := Decide(p, Retry{}, now, noDraw); err != nil || p.Spent != 7 || !p.DueAt.Equal(now) {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestJitterOnlyDelays draws times and jitters: what is due is never due before its time, nor later than its jitter allows.
func TestJitterOnlyDelays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := epoch()
		at := now.Add(time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "at")).Truncate(time.Microsecond))
		jitter := time.Duration(rapid.Int64Range(0, MaxJitter.Microseconds()).Draw(t, "jitter")) * time.Microsecond
		p := DecideCreate(Create{PublishAt: &at, Jitter: jitter}, &Target{}, uuid.New(), now, func(n int64) int64 {
			return rapid.Int64Range(0, n-1).Draw(t, "draw")
		})
		earliest := at
		if at.Before(now) {
			earliest, jitter = now, 0
		}
		if d := p.DueAt.Sub(earliest); p.Status != StatusScheduled || d < 0 || d > jitter || !p.PublishAt.Equal(at) {
			t.Fatalf("due %v after it may be: %+v", d, p)
		}
	})
}

func TestConclude(t *testing.T) {
	t.Parallel()
	policy := Policy{Backoff: 2 * time.Second}
	middle := func(n int64) int64 { return n / 2 }
	for try, seconds := range []int{2, 4, 8, 16, 32, 64} {
		want := time.Duration(seconds) * time.Second
		v := Conclude(Result{Class: Transient}, try+1, policy, middle)
		if v.Status != StatusScheduled || v.Result != ResultFailed || v.Delay != want {
			t.Errorf("try %d: %+v", try+1, v)
		}
		low, high := Conclude(Result{Class: Transient}, try+1, policy, noDraw), Conclude(Result{Class: Transient}, try+1, policy, func(n int64) int64 { return n - 1 })
		if low.Delay != v.Delay*4/5 || high.Delay != v.Delay*6/5 {
			t.Errorf("try %d: from %v to %v", try+1, low.Delay, high.Delay)
		}
	}
	for _, c := range []struct {
		r    Result
		try  int
		want Verdict
	}{
		{Result{Class: Delivered}, 7, Verdict{Status: StatusPublished, Result: ResultPublished}},
		{Result{Class: Permanent}, 1, Verdict{Status: StatusFailed, Result: ResultFailed}},
		{Result{Class: Transient}, 7, Verdict{Status: StatusFailed, Result: ResultFailed}},
		{Result{Class: Transient, RetryAfter: time.Minute}, 1, Verdict{Status: StatusScheduled, Result: ResultFailed, Delay: time.Minute}},
		{Result{Class: Transient, RetryAfter: 1000 * time.Hour}, 1, Verdict{Status: StatusScheduled, Result: ResultFailed, Delay: 24 * time.Hour}},
	} {
		if got := Conclude(c.r, c.try, policy, noDraw); got != c.want {
			t.Errorf("%+v at try %d: %+v", c.r, c.try, got)
		}
	}
}

func TestPaces(t *testing.T) {
	t.Parallel()
	policy, now := Policy{Backoff: 2 * time.Second}, epoch()
	a, b := uuid.New(), uuid.New()
	middle := func(n int64) int64 { return n / 2 }
	p := Pace{}.Refused(a, 0, now, policy, middle)
	if p.Interval != 3*time.Second || p.Refusals != 1 || !p.NextAt.Equal(now.Add(3*time.Second)) || p.OpenUntil != nil {
		t.Errorf("%+v", p)
	}
	if again := p.Refused(a, 0, now, policy, middle); again.Refusals != 1 || again.Interval != p.Interval {
		t.Errorf("the same one counts again: %+v", again)
	}
	p = p.Refused(b, time.Minute, now, policy, middle)
	if p.Interval != 6*time.Second || p.Refusals != 2 || !p.NextAt.Equal(now.Add(time.Minute)) {
		t.Errorf("%+v", p)
	}
	p = p.Refused(a, 0, now, policy, middle)
	if p.OpenUntil == nil || !p.OpenUntil.Equal(now.Add(5*time.Minute)) || !p.NextAt.Equal(*p.OpenUntil) {
		t.Errorf("the breaker did not open: %+v", p)
	}
	for i := range 20 {
		p = p.Refused(uuid.New(), 0, now, policy, middle)
		if p.Interval > 5*time.Minute {
			t.Fatalf("refusal %d: %v", i, p.Interval)
		}
	}
	if p.Interval != 5*time.Minute {
		t.Error(p.Interval)
	}
	n := 0
	for ; p.Slowed(); n++ {
		was := p.Interval
		if p = p.Eased(policy); p.Interval != was*9/10 && p != (Pace{}) || p.Refusals != 0 || p.OpenUntil != nil {
			t.Fatalf("%+v after %v", p, was)
		}
	}
	if n < 40 || n > 50 {
		t.Errorf("free again after %d successes", n)
	}
}

func TestVault(t *testing.T) {
	t.Parallel()
	key := func(b byte) []byte { k := make([]byte, VaultKeySize); k[0] = b; return k }
	vault := func(keys ...[]byte) *Vault {
		v, err := NewVault(keys...)
		testwait.Must(t, err)
		return v
	}
	old, both, other := vault(key(1)), vault(key(2), key(1), key(2)), vault(key(3))
	sealed, again := old.Seal([]byte("secret"), []byte("a")), old.Seal([]byte("secret"), []byte("a"))
	if string(sealed.Bytes) == string(again.Bytes) || len(both.KeyIDs()) != 2 {
		t.Error("a nonce was used twice, or a key")
	}
	for _, v := range []*Vault{old, both} {
		if got, err := v.Open(sealed, []byte("a")); err != nil || string(got) != "secret" {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := v.Open(sealed, []byte("b")); err == nil {
			t.Error("opened for another purpose")
		}
	}
	if _, err := other.Open(sealed, []byte("a")); !errors.Is(err, ErrUnknownVaultKey) {
		t.Error(err)
	}
	if _, err := old.Open(both.Seal(nil, nil), nil); !errors.Is(err, ErrUnknownVaultKey) {
		t.Errorf("the first key does not seal: %v", err)
	}
	sealed.Bytes[20] ^= 1
	if _, err := old.Open(sealed, []byte("a")); err == nil {
		t.Error("opened although changed")
	}
	for _, bad := range [][][]byte{nil, {key(1)[:31]}, {key(1), nil}} {
		if _, err := NewVault(bad...); err == nil {
			t.Errorf("%d keys of wrong size are taken", len(bad))
		}
	}
}
