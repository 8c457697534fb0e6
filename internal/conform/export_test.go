package conform

import (
	"context"
	"testing"

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
