package logkeeper

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestClosingsProveBalances proves every account of closings of all sizes around the bounds of chunks.
func TestClosingsProveBalances(t *testing.T) {
	t.Parallel()
	name := func(account string) string { return "alias of " + account }
	for _, n := range []int{0, 1, 2, 3, 255, 256, 257, 511, 512, 513, 1000} {
		c := NewCloser(name)
		for i := range n {
			testwait.Check(t, c.Add(Account{fmt.Sprintf("a-%04d", i), "EUR", int64(i), int64(n - i), int64(2 * i)}))
		}
		closing := c.Close()
		if closing.Accounts != int64(n) || len(closing.Chunks) != len(closing.Roots) {
			t.Fatalf("%d accounts: %d, in %d chunks with %d roots", n, closing.Accounts, len(closing.Chunks), len(closing.Roots))
		}
		for i := range n {
			id, number := fmt.Sprintf("a-%04d", i), i/ChunkAccounts
			place, err := Find(id, closing.Chunks[number].Data, number, closing.Roots, name)
			testwait.Check(t, err)
			if place == nil || place.Account != (Account{id, "EUR", int64(i), int64(n - i), int64(2 * i)}) || place.Index != int64(i) {
				t.Fatalf("account %d of %d: %+v", i, n, place)
			}
			testwait.Check(t, tlog.CheckRecord(place.Path, int64(n), closing.Root, int64(i), place.Hash))
		}
	}
	testwait.Check(t, NewCloser(name).Add(Account{ID: "b"}))
	c := NewCloser(name)
	_ = c.Add(Account{ID: "b"})
	if err := c.Add(Account{ID: "a"}); err == nil {
		t.Error("accounts in another order were taken")
	}
}

// TestThin: whatever closings there are, the last ten, the last of each hour of a day and the last of each day of a month are kept, and no others.
func TestThin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 11, 25, 12, 34, 56, 0, time.UTC)
		var kept []Kept
		at := now
		for i := range rapid.IntRange(0, 300).Draw(t, "closings") {
			kept = append(kept, Kept{int64(1000 - i), at})
			at = at.Add(-time.Duration(rapid.IntRange(1, 4000).Draw(t, "pause")) * time.Second)
		}
		drop := thin(kept, now)
		lastOf := func(k Kept, by time.Duration) bool {
			return !slices.ContainsFunc(kept, func(o Kept) bool { return o.At.After(k.At) && o.At.Truncate(by).Equal(k.At.Truncate(by)) })
		}
		for i, k := range kept {
			age := now.Sub(k.At)
			want := i < 10 || age < 24*time.Hour && lastOf(k, time.Hour) || age < 31*24*time.Hour && lastOf(k, 24*time.Hour)
			if got := !slices.Contains(drop, k.Seq); got != want {
				t.Fatalf("closing %d of %s is kept: %v", i, k.At, got)
			}
		}
	})
}

// FuzzFind reads accounts of a closing that are damaged: an error or nobody, never another balance.
func FuzzFind(f *testing.F) {
	name := func(account string) string { return account }
	c := NewCloser(name)
	_, _ = c.Add(Account{"ann", "EUR", 5, 1, 2}), c.Add(Account{"bob", "EUR", 7, 0, 1})
	closing := c.Close()
	f.Add(closing.Chunks[0].Data)
	f.Fuzz(func(t *testing.T, data []byte) {
		if place, err := Find("ann", data, 0, closing.Roots, name); err == nil && place != nil && place.Account != (Account{"ann", "EUR", 5, 1, 2}) {
			t.Errorf("%+v", place)
		}
	})
}
