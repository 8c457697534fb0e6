package postgres

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

func TestSharedTargets(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := &sharedTargets{logger: slog.New(slog.NewTextHandler(&log, nil))}
	now := time.Now()
	met := func(target string, n int) {
		for range n {
			s.metAt(target, now)
		}
	}
	want := func(want ...SharedTarget) {
		t.Helper()
		if got := s.list(now); !slices.Equal(got, want) {
			t.Errorf("shared: %v, want %v", got, want)
		}
	}
	met("auction:b", 40)
	met("auction:a", sharedFrom)
	met("campaign:c", sharedFrom-1)
	want() // Only a whole window counts.
	now = now.Add(sharedWindow)
	b, a := SharedTarget{"auction:b", 4}, SharedTarget{"auction:a", 2}
	want(b, a)
	met("auction:a", 1)
	now = now.Add(sharedWindow - 1)
	want(b, a)
	now = now.Add(1)
	want()
	met("auction:b", 40)
	now = now.Add(2 * sharedWindow) // A window without any is in between.
	want()
	if n := strings.Count(log.String(), "several servers"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	for i := range 2 * maxCounted {
		met(fmt.Sprint("auction:", i), 1)
	}
	for i := range 2 * maxShared {
		met(fmt.Sprint("auction:", i), sharedFrom)
	}
	if len(s.current) != maxCounted {
		t.Errorf("%d are counted", len(s.current))
	}
	now = now.Add(sharedWindow)
	if n := len(s.list(now)); n != maxShared {
		t.Errorf("%d are listed", n)
	}
}

// TestTargetsThatTwoShare works on an auction and a campaign by turns with another process, and on others alone.
func TestTargetsThatTwoShare(t *testing.T) {
	t.Parallel()
	v, url := newVenue(t, lottery.Options{})
	other := enter(t, url, lottery.Options{})
	campaign, own := v.create(t, 12), v.create(t, 12)
	here, there := newHouse(t, url), newHouse(t, url)
	money := newLedgerService(t, here.db)
	fund(t, money, 0, "seller")
	shared, alone := here.open(nil), here.open(nil)
	const turns = sharedFrom + 5 // The first ones find nothing remembered.
	for n := range turns {
		v.must(t, campaign, lottery.Buy{Account: "ann"})
		other.must(t, campaign, lottery.Buy{Account: "ben"})
		v.must(t, own, lottery.Buy{Account: "ann"})
		here.do(shared, auction.PlaceBid{Account: "ann", Amount: int64(100 + 2*n)})
		there.do(shared, auction.PlaceBid{Account: "ben", Amount: int64(101 + 2*n)})
		here.do(alone, auction.PlaceBid{Account: "cleo", Amount: int64(100 + n)})
	}
	for name, test := range map[string]struct {
		db   *DB
		want string
	}{
		"sale": {v.db, lottery.Topic(campaign)}, "other sale": {other.db, lottery.Topic(campaign)},
		"house": {here.db, auction.Topic(shared)}, "other house": {there.db, auction.Topic(shared)},
	} {
		// However long the turns took: all that was counted.
		test.db.shared.mu.Lock()
		counted := map[string]int{}
		for _, window := range []map[string]int{test.db.shared.last, test.db.shared.current} {
			for target, n := range window {
				counted[target] += n
			}
		}
		test.db.shared.mu.Unlock()
		if len(counted) != 1 || counted[test.want] == 0 {
			t.Errorf("%s counted %v, want %s alone", name, counted, test.want)
		}
	}
}
