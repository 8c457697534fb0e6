package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestLate tells checks that only waited for too long from those in which something was wrong.
func TestLate(t *testing.T) {
	t.Parallel()
	never := func() bool { return false }
	checks := map[string]func(t *conformance.T){
		"waited":   func(t *conformance.T) { testwait.Eventually(t, 0, "an end", never) },
		"deadline": func(t *conformance.T) { t.Errorf("%d rows, %v", 0, fmt.Errorf("read: %w", context.DeadlineExceeded)) },
		"wrong": func(t *conformance.T) {
			t.Error("two hold it")
			testwait.Eventually(t, 0, "an end", never)
		},
		"error": func(t *conformance.T) { testwait.Must(t, errors.New("no such table")) },
		"fine":  func(*conformance.T) {},
	}
	for slow, want := range map[string]conformance.Verdict{"": conformance.Broken, "the server is too slow": conformance.NotTried} {
		verdicts := map[string]conformance.Verdict{"waited": want, "deadline": want, "wrong": conformance.Broken, "error": conformance.Broken, "fine": conformance.Held}
		r := conformance.Runner{Slow: func(context.Context) string { return slow }}
		for name := range checks {
			r.Checks = append(r.Checks, conformance.Check{Name: name})
		}
		results := r.Run(t.Context(), func(t *conformance.T) {
			for name, check := range checks {
				t.Run(name, check)
			}
		})
		if len(results) != len(checks) {
			t.Errorf("%q: %+v", slow, results)
		}
		for _, result := range results {
			if result.Verdict != verdicts[result.Name] {
				t.Errorf("%q: %s: %s, %q", slow, result.Name, result.Verdict, result.Why)
			}
			if result.Verdict == conformance.NotTried && (len(result.Why) != 2 || result.Why[0] != slow) {
				t.Errorf("%s: why %q", result.Name, result.Why)
			}
		}
	}
}

// TestOutOfTime calls off checks whose time is over. What they say then changes nothing, and what was wrong before is wrong.
func TestOutOfTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before error
		want   conformance.Verdict
	}{
		"hung":         {nil, conformance.NotTried},
		"wrong before": {errors.New("two hold it"), conformance.Broken},
		"late before":  {context.DeadlineExceeded, conformance.Broken},
	} {
		r := conformance.Runner{Checks: []conformance.Check{{Name: name}}, Patience: 100 * time.Millisecond, Seed: 77}
		results := r.Run(t.Context(), func(t *conformance.T) {
			t.Run(name, func(t *conformance.T) {
				if c.before != nil {
					t.Error(c.before)
				}
				<-t.Context().Done()
				t.Error(t.Context().Err())
			})
		})
		if len(results) != 1 || results[0].Verdict != c.want || results[0].OutOfTime != (c.want == conformance.NotTried) ||
			!strings.Contains(strings.Join(results[0].Why, "; "), "it did not end within 100ms, with the seed 77") {
			t.Errorf("%s: %+v", name, results)
		}
	}
}

// TestTook judges a promise by three measurements, on a machine that may have been the reason for them.
func TestTook(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	for name, c := range map[string]struct {
		took    []time.Duration
		delayed []bool
		want    conformance.Verdict
	}{
		"the second is within it":      {[]time.Duration{2 * limit, limit}, []bool{false, false}, conformance.Held},
		"none, on a machine at rest":   {[]time.Duration{2 * limit, 2 * limit, 2 * limit}, []bool{false, false, false}, conformance.Broken},
		"none, and the machine is now": {[]time.Duration{2 * limit, 2 * limit, 2 * limit}, []bool{false, true, true}, conformance.Broken},
		"none, on a busy machine":      {[]time.Duration{2 * limit, 2 * limit, 2 * limit}, []bool{true, true, true}, conformance.NotTried},
	} {
		r := conformance.Runner{Checks: []conformance.Check{{Name: "it"}}, Limits: map[string]time.Duration{"grant": limit}}
		results := r.Run(t.Context(), func(t *conformance.T) {
			t.Run("it", func(t *conformance.T) {
				for i, took := range c.took {
					if enough := t.Took("grant", took, func(time.Duration) bool { return c.delayed[i] }); enough != (i == len(c.took)-1) {
						t.Errorf("measurement %d is good enough: %v", i, enough)
					}
				}
			})
		})
		if len(results) != 1 || results[0].Verdict != c.want || len(results[0].Times) != len(c.took) {
			t.Errorf("%s: %+v", name, results)
		}
	}
}
