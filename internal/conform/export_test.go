package conform

import (
	"context"
	"testing"

	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// What the page of guarantees has, too.
const Numbers = numbers

// Titles are those of the guarantees.
func Titles() map[string]string { return titles() }

// SlowDatabase says how slow a database is, in which the schema is there.
func SlowDatabase(ctx context.Context, url, schema string) string {
	return slow(ctx, &database{url: url, schema: schema})
}

// TestNotToTheEnd: a guarantee does not hold of which a check was called off, whatever the others say, and is not broken by it.
func TestNotToTheEnd(t *testing.T) {
	t.Parallel()
	check := func(v conformance.Verdict, outOfTime bool) Finding {
		return Finding{Target: Redis, Guarantees: []string{"L1"}, Verdict: v, OutOfTime: outOfTime}
	}
	held, absent, calledOff, broken := check(conformance.Held, false), check(conformance.NotTried, false), check(conformance.NotTried, true), check(conformance.Broken, false)
	for _, c := range []struct {
		findings       []Finding
		want           conformance.Verdict
		held, complete bool
	}{
		{[]Finding{held, absent}, conformance.Held, true, true},
		{[]Finding{held, calledOff}, conformance.NotTried, true, false},
		{[]Finding{held, calledOff, broken}, conformance.Broken, false, true},
	} {
		r := Report{Findings: c.findings}
		r.conclude()
		if len(r.Guarantees) != 1 || r.Guarantees[0].Verdict != c.want || r.Held != c.held || r.Complete != c.complete {
			t.Errorf("%+v", r)
		}
	}
}

// TestLimits compares the limits with the list of promises.
func TestLimits(t *testing.T) {
	t.Parallel()
	all, err := testpromise.Read()
	testwait.Must(t, err)
	found := 0
	for _, p := range all {
		if limit, ok := limits()[p.Name]; ok {
			found++
			if limit != p.Limit {
				t.Errorf("%s: %s, and on the page %s", p.Name, limit, p.Limit)
			}
		}
	}
	if found != len(limits()) {
		t.Errorf("the page has %d of %d", found, len(limits()))
	}
}
