package wait_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// TestNews: of a failure that repeats each second, the first is news, and one in ten minutes.
func TestNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n wait.News
		denied, away := errors.New("denied"), errors.New("away")
		told := 0
		for range 20 * 60 {
			if n.Is(denied) {
				told++
			}
			time.Sleep(time.Second)
		}
		if told != 2 {
			t.Errorf("told %d times in 20 minutes", told)
		}
		for i, step := range []struct {
			err  error
			want bool
		}{{denied, true}, {denied, false}, {away, true}, {away, false}, {nil, false}, {away, true}} {
			if n.Is(step.err) != step.want {
				t.Errorf("step %d is news: %t", i, !step.want)
			}
		}
	})
}
