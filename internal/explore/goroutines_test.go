//go:build unix

package explore

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"github.com/google/uuid"
)

// TestGoroutines knows goroutines by what they were told, and those that were told nothing by the one that began them.
func TestGoroutines(t *testing.T) {
	who := newGoroutines()
	begun := func(f func()) uint64 {
		number := make(chan uint64)
		go func() {
			if f != nil {
				f()
			}
			number <- who.here()
		}()
		return <-number
	}
	first, second := begun(nil), begun(nil)
	if first == second || first == who.here() {
		t.Fatalf("two goroutines have the number %d", first)
	}
	if who.compare(first, second) != 0 {
		t.Error("two that were told nothing differ")
	}
	who.mark(second, who.next())
	who.mark(first, who.next())
	if who.compare(first, second) <= 0 {
		t.Error("the one that was told something last comes first")
	}
	var child uint64
	parent := begun(func() {
		who.mark(who.here(), who.next())
		child = begun(nil)
	})
	if who.compare(child, parent) != 0 || who.compare(child, first) <= 0 {
		t.Error("a goroutine that was told nothing is not known by the one that began it")
	}
}

// TestChance wants what a schedule gets by chance to be that of its seed, by all ways of asking for it.
func TestChance(t *testing.T) {
	var got string
	x := NewExplorer(t, Scenario{Unbooked: true, Play: func(_ context.Context, w *World) {
		w.Go(func() error {
			if _, ours := rand.Reader.(*chance); !ours {
				return errors.New("chance comes from elsewhere")
			}
			got = rand.Text() + uuid.NewString()
			return nil
		})
	}})
	var all []string
	for _, seed := range []uint64{7, 8, 7} {
		if r := x.Seed(seed); r.Err != nil {
			t.Fatal(r.Err)
		}
		all = append(all, got)
	}
	if all[0] != all[2] || all[0] == all[1] {
		t.Errorf("seeds 7, 8 and 7 again give %q", all)
	}
}
