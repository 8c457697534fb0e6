package auction_test

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

func TestOutcomesHaveNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, o := range auction.Outcomes() {
		if name := o.String(); name == "unknown" || seen[name] {
			t.Errorf("outcome %d is named %q", o, name)
		} else {
			seen[name] = true
		}
	}
	if auction.Outcome(-1).String() != "unknown" {
		t.Error("a number that is no outcome has a name")
	}
}
