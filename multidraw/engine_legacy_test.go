package multidraw_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// drawState is a state as the requirement declares it.
type drawState struct {
	LockKey        string        `json:"lock_key"`
	TotalCount     int           `json:"total_count"`
	CompletedCount int           `json:"completed_count"`
	Results        []int         `json:"results,omitempty"`
	PrizeResults   []*drawnPrize `json:"prize_results,omitempty"`
	Errors         []drawFailure `json:"errors,omitempty"`
	StartTime      int64         `json:"start_time"`
	LastUpdateTime int64         `json:"last_update_time"`
}

type drawnPrize struct {
	ID          string  `json:"id"`
	Name        string  `json:"name"`
	Probability float64 `json:"probability"`
	Value       int     `json:"value"`
}

type drawFailure struct {
	DrawIndex int    `json:"draw_index"`
	ErrorMsg  string `json:"error_msg"`
}

// TestEngineTakesOverStatesOfTheRequirement saves states in Redis as a program of the requirement does, and loads, resumes and
// rolls back each.
func TestEngineTakesOverStatesOfTheRequirement(t *testing.T) {
	t.Parallel()
	client := testredis.Start(t).Client(t)
	e := newEngine(t, client, multidraw.EngineOptions{Every: 2})
	ctx := t.Context()
	const lockKey = "user_123_daily"
	plant := func(id string, s drawState) {
		t.Helper()
		s.LockKey, s.StartTime, s.LastUpdateTime = lockKey, 1703123456, 1703123789
		text, err := json.Marshal(s)
		testwait.Must(t, err)
		key := checkpoint.Key{LockKey: lockKey, ID: id}.String()
		testwait.Must(t, client.Do(ctx, client.B().Set().Key(key).Value(string(text)).Ex(time.Hour).Build()).Error())
	}
	seven := []int{42, 17, 89, 3, 56, 23, 91}
	ints := drawState{TotalCount: 10, CompletedCount: 7, Results: seven, Errors: []drawFailure{{7, "redis: connection refused"}}}
	sword, herb := &drawnPrize{"sword", "Sword", 0.25, 100}, &drawnPrize{"herb", "Herb", 0.75, 1}
	loot := drawState{TotalCount: 4, CompletedCount: 3, PrizeResults: []*drawnPrize{herb, sword, herb}}
	list := []multidraw.Prize{{ID: "sword", Name: "Sword", Weight: 1, Value: 100}, {ID: "herb", Name: "Herb", Weight: 3, Value: 1}}

	// Roll-back needs no parameters.
	for id, s := range map[string]drawState{"ints": ints, "loot": loot, "begun": {TotalCount: 5}, "done": {TotalCount: 7, CompletedCount: 7, Results: seven}} {
		plant(id, s)
		loaded, err := e.State(ctx, lockKey, id)
		if err != nil || !loaded.Legacy() || loaded.CompletedCount != s.CompletedCount || loaded.TotalCount != s.TotalCount || len(loaded.Errors) != len(s.Errors) {
			t.Fatalf("%s: %+v, %v", id, loaded, err)
		}
		if _, err := e.Resume(ctx, lockKey, id, multidraw.Order{}); !errors.Is(err, checkpoint.ErrLegacy) {
			t.Errorf("%s: resumed without parameters: %v", id, err)
		}
		back, err := e.Rollback(ctx, lockKey, id, multidraw.Order{})
		if err != nil || back.Status != checkpoint.StatusRolledBack || len(back.Ints) != len(s.Results) || len(back.PrizeIDs) != len(s.PrizeResults) || len(back.Errors) != len(s.Errors) {
			t.Fatalf("%s: %+v, %v", id, back, err)
		}
		testwait.Must(t, second(e.Rollback(ctx, lockKey, id, multidraw.Order{})))
		if again, err := e.State(ctx, lockKey, id); err != nil || again.Status != checkpoint.StatusRolledBack || again.StartTime != 1703123456 {
			t.Errorf("%s: %+v, %v", id, again, err)
		}
	}

	// To resume is to ask again with the parameters.
	plant("ints", ints)
	seed := fairdraw.Seed{9}
	for name, err := range map[string]error{
		"not adopted":   second(e.DrawMultipleInRange(ctx, lockKey, 1, 100, 10, multidraw.Order{ID: "ints"})),
		"another count": second(e.DrawMultipleInRange(ctx, lockKey, 1, 100, 11, multidraw.Order{ID: "ints", Adopt: true})),
		"another range": second(e.DrawMultipleInRange(ctx, lockKey, 1, 90, 10, multidraw.Order{ID: "ints", Adopt: true})),
		"prizes":        second(e.DrawMultipleFromPrizes(ctx, lockKey, list, 10, multidraw.Order{ID: "ints", Adopt: true})),
	} {
		if !errors.Is(err, checkpoint.ErrOtherParameters) && (name != "not adopted" || !errors.Is(err, checkpoint.ErrLegacy)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, err := e.DrawMultipleInRange(ctx, lockKey, 1, 100, 10, multidraw.Order{ID: "ints", Adopt: true, Seed: &seed})
	testwait.Must(t, err)
	d, err := multidraw.New(seed, "engine", multidraw.Spec{Range: &multidraw.Range{Min: 1, Max: 100}})
	testwait.Must(t, err)
	if want := append([]int64{42, 17, 89, 3, 56, 23, 91}, d.Ints(7, 3)...); got.Status != checkpoint.StatusCompleted || !slices.Equal(got.Ints, want) {
		t.Errorf("%+v, want %v", got, want)
	}
	if _, err := got.Proof(ctx); err == nil {
		t.Error("draws of another program have a proof")
	}

	// A program of the requirement reads what became of it, with prizes as objects.
	plant("loot", loot)
	drawn, err := e.DrawMultipleFromPrizes(ctx, lockKey, list, 4, multidraw.Order{ID: "loot", Adopt: true, PrizeObjects: true})
	if err != nil || !slices.Equal(drawn.PrizeIDs[:3], []string{"herb", "sword", "herb"}) || len(drawn.PrizeIDs) != 4 || drawn.Prizes()[1] != list[0] {
		t.Fatalf("%+v, %v", drawn, err)
	}
	fresh, err := e.DrawMultipleFromPrizes(ctx, lockKey, list, 5, multidraw.Order{ID: "fresh", PrizeObjects: true})
	testwait.Must(t, err)
	testwait.Check(t, testwait.Err(fresh.Proof(ctx)))
	for id, d := range map[string]*multidraw.Drawn{"loot": drawn, "fresh": fresh} {
		text, err := client.Do(ctx, client.B().Get().Key(checkpoint.Key{LockKey: lockKey, ID: id}.String()).Build()).AsBytes()
		testwait.Must(t, err)
		var read drawState
		testwait.Must(t, json.Unmarshal(text, &read))
		if read.CompletedCount != len(d.PrizeIDs) || len(read.PrizeResults) != len(d.PrizeIDs) {
			t.Fatalf("%s: %s", id, text)
		}
		for i, p := range d.Prizes() {
			if r := read.PrizeResults[i]; r.ID != p.ID || r.Name != p.Name || int64(r.Value) != p.Value {
				t.Errorf("%s: draw %d is %+v, read as %+v", id, i, p, r)
			}
		}
	}
	// Objects belong to the parameters of the operation.
	if _, err := e.DrawMultipleFromPrizes(ctx, lockKey, list, 5, multidraw.Order{ID: "fresh"}); !errors.Is(err, checkpoint.ErrOtherParameters) {
		t.Errorf("the same operation without objects: %v", err)
	}
	again, err := e.DrawMultipleFromPrizes(ctx, lockKey, list, 5, multidraw.Order{ID: "fresh", PrizeObjects: true})
	if err != nil || !slices.Equal(again.PrizeIDs, fresh.PrizeIDs) {
		t.Errorf("%+v, %v", again, err)
	}
}
