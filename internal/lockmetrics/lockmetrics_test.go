package lockmetrics_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/lockmetrics"
)

// TestTable asks for more classes than there may be, at once.
func TestTable(t *testing.T) {
	var (
		mu   sync.Mutex
		made = map[string]int{}
	)
	table := lockmetrics.New(func(class string) string {
		mu.Lock()
		defer mu.Unlock()
		made[class]++
		return class
	}, "api", "")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for n := range 3 * lockmetrics.Most {
				if got := table.Of(strconv.Itoa(n)); got != strconv.Itoa(n) && got != lockmetrics.Other {
					t.Errorf("class %d is %q", n, got)
				}
				if got := table.Of("api"); got != "api" {
					t.Errorf("a class from the start is %q", got)
				}
			}
		})
	}
	group.Wait()
	if len(made) != lockmetrics.Most+1 || made[lockmetrics.Other] != 1 || made[""] != 1 {
		t.Errorf("%d classes, %d times the one for the rest", len(made), made[lockmetrics.Other])
	}
	for class, n := range made {
		if n != 1 {
			t.Errorf("class %s was made %d times", class, n)
		}
	}
	if got := table.Of("one more"); got != lockmetrics.Other {
		t.Errorf("one more is %q", got)
	}
	if n := testing.AllocsPerRun(100, func() { table.Of("api") }); n != 0 {
		t.Errorf("a look at a known class allocates %v times", n)
	}
}
