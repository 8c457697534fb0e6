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

// TestTargetsThatTwoShare works on a target by turns with another process, and on another one alone.
func TestTargetsThatTwoShare(t *testing.T) { //nolint:tparallel // Side by side they would take too many connections.
	t.Parallel()
	const turns = sharedFrom + 5
	// However long the turns took: all that was counted.
	counted := func(db *DB) map[string]int {
		db.shared.mu.Lock()
		defer db.shared.mu.Unlock()
		all := map[string]int{}
		for _, window := range []map[string]int{db.shared.last, db.shared.current} {
			for target, n := range window {
				all[target] += n
			}
		}
		return all
	}
	want := func(t *testing.T, target string, dbs ...*DB) {
		t.Helper()
		for i, db := range dbs {
			if all := counted(db); len(all) != 1 || all[target] == 0 {
				t.Errorf("process %d counted %v, want %s alone", i, all, target)
			}
		}
	}
	t.Run("campaign", func(t *testing.T) {
		v, url := newVenue(t, lottery.Options{})
		other := enter(t, url, lottery.Options{})
		shared, alone := v.create(t, 12), v.create(t, 12)
		for range turns {
			v.must(t, shared, lottery.Buy{Account: "ann"})
			other.must(t, shared, lottery.Buy{Account: "ben"})
			v.must(t, alone, lottery.Buy{Account: "ann"})
		}
		want(t, lottery.Topic(shared), v.db, other.db)
	})
	t.Run("auction", func(t *testing.T) {
		url := database(t)
		here, there := newHouse(t, url), newHouse(t, url)
		fund(t, newLedgerService(t, here.db), 100_000, "seller", "ann", "ben")
		shared, alone := here.open(nil), here.open(nil)
		for n := range int64(turns) {
			here.do(shared, auction.PlaceBid{Account: "ann", Amount: 100 + 2*n})
			there.do(shared, auction.PlaceBid{Account: "ben", Amount: 101 + 2*n})
			here.do(alone, auction.PlaceBid{Account: "ann", Amount: 100 + n})
		}
		want(t, auction.Topic(shared), here.db, there.db)
	})
}
