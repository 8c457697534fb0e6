package client_test

import (
	"math"
	"testing"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMultidraw(t *testing.T) {
	ctx, c := t.Context(), newClient()
	made, err := c.CreateMultidraw(ctx, client.CreateMultidrawRequest{
		LockKey: "client", Count: 12_000, Range: &client.RangeRequest{Min: math.MaxInt64 - 1, Max: math.MaxInt64},
	})
	testwait.Must(t, err)
	if made.Status != "completed" || made.CompletedCount != 12_000 || made.Results != nil || made.Seed == "" {
		t.Errorf("%+v", made)
	}
	ints := collected(t, c.MultidrawInts(ctx, made.ID))
	if len(ints) != 12_000 {
		t.Errorf("%d draws", len(ints))
	}
	for _, n := range ints {
		if n < math.MaxInt64-1 {
			t.Fatalf("drew %d", n)
		}
	}
	if _, err := c.ResumeMultidraw(ctx, made.ID); client.CodeOf(err) != "bad_transition" {
		t.Error(err)
	}
	if back, err := c.RollbackMultidraw(ctx, made.ID); err != nil || back.Status != "rolled_back" {
		t.Errorf("%+v, %v", back, err)
	}
	small, err := c.CreateMultidraw(ctx, client.CreateMultidrawRequest{
		LockKey: "client", Count: 3, Async: true, Prizes: []client.WeightedPrize{{ID: "only", Name: "Only", Weight: 1}},
	})
	if err != nil || small.Status != "running" {
		t.Fatalf("%+v, %v", small, err)
	}
	testwait.Eventually(t, testwait.Patience, "the end of the operation", func() bool {
		small, err = c.GetMultidraw(ctx, small.ID)
		testwait.Must(t, err)
		return small.Status != "running"
	})
	if len(small.PrizeResults) != 3 || len(collected(t, c.MultidrawPrizes(ctx, small.ID))) != 3 {
		t.Errorf("%+v", small)
	}
	if all := collected(t, c.Multidraws(ctx)); len(all) != 2 {
		t.Errorf("%+v", all)
	}
}
