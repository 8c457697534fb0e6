package multidraw_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/checkpoint/redisstore"
	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/redislock"
	"github.com/fairlead-dev/fairlead/multidraw"
	"github.com/fairlead-dev/fairlead/redisclient/rueidisclient"
)

// newEngine returns an engine as another process would have it.
func newEngine(tb testing.TB, client rueidis.Client, o multidraw.EngineOptions) *multidraw.Engine {
	tb.Helper()
	redis := rueidisclient.New(client)
	locks, err := redislock.New(redis, redislock.Options{})
	testwait.Must(tb, err)
	tb.Cleanup(locks.Close)
	e, err := multidraw.NewEngine(redisstore.New(redis), lock.New(locks, lock.LockerOptions{}), o)
	testwait.Must(tb, err)
	return e
}

func TestEngineDraws(t *testing.T) {
	t.Parallel()
	client := testredis.Start(t).Client(t)
	seen := &observed{}
	e := newEngine(t, client, multidraw.EngineOptions{Observer: seen})
	ctx := t.Context()
	for range 20 {
		v, err := e.DrawInRange(ctx, "one", -2, 2)
		if err != nil || v < -2 || v > 2 {
			t.Fatalf("%d, %v", v, err)
		}
	}
	if p, err := e.DrawFromPrizes(ctx, "one", prizes(0, 1).Prizes); err != nil || p.ID != "b" {
		t.Errorf("%+v, %v", p, err)
	}
	seed := fairdraw.Seed{7}
	var told []int64
	got, err := e.DrawMultipleInRange(ctx, "many", math.MinInt64, math.MaxInt64, 2500, multidraw.Order{
		ID: "op", Seed: &seed, Progress: func(completed, total int64) {
			if total != 2500 {
				t.Errorf("%d in all", total)
			}
			told = append(told, completed)
		},
	})
	if err != nil || got.Status != checkpoint.StatusCompleted || got.Partial() || got.Commitment != seed.Commitment() || len(got.Ints) != 2500 {
		t.Fatalf("%+v, %v", got, err)
	}
	if !slices.Equal(told, []int64{0, 1000, 2000, 2500}) {
		t.Errorf("told of %v", told)
	}
	proof, err := got.Proof(ctx)
	testwait.Must(t, err)
	testwait.Check(t, errors.Join(proof.Verify(ctx), proof.VerifyCommitment(got.Commitment)))
	// The same again is the same answer; the id stands for its parameters and its seed.
	again, err := e.DrawMultipleInRange(ctx, "many", math.MinInt64, math.MaxInt64, 2500, multidraw.Order{ID: "op"})
	if err != nil || !slices.Equal(again.Ints, got.Ints) {
		t.Errorf("again: %v", err)
	}
	for name, err := range map[string]error{
		"another range": second(e.DrawMultipleInRange(ctx, "many", 1, 6, 2500, multidraw.Order{ID: "op"})),
		"another count": second(e.DrawMultipleInRange(ctx, "many", math.MinInt64, math.MaxInt64, 2501, multidraw.Order{ID: "op"})),
		"prizes":        second(e.DrawMultipleFromPrizes(ctx, "many", prizes(1, 2).Prizes, 2500, multidraw.Order{ID: "op"})),
		"another seed":  second(e.DrawMultipleInRange(ctx, "many", math.MinInt64, math.MaxInt64, 2500, multidraw.Order{ID: "op", Seed: &fairdraw.Seed{8}})),
	} {
		if !errors.Is(err, checkpoint.ErrOtherParameters) || checkpoint.SeverityOf(err) != checkpoint.SeverityCaller {
			t.Errorf("%s: %v", name, err)
		}
	}
	won, err := e.DrawMultipleFromPrizes(ctx, "many", prizes(1, 4).Prizes, 50, multidraw.Order{ID: "wheel"})
	if err != nil || len(won.PrizeIDs) != 50 || won.Ints != nil {
		t.Fatalf("%+v, %v", won, err)
	}
	testwait.Check(t, testwait.Err(won.Proof(ctx)))
	back, err := e.Rollback(ctx, "many", "wheel", multidraw.Order{})
	if err != nil || back.Status != checkpoint.StatusRolledBack || !slices.Equal(back.PrizeIDs, won.PrizeIDs) {
		t.Errorf("%+v, %v", back, err)
	}
	state, err := e.State(ctx, "many", "wheel")
	if err != nil || state.Status != checkpoint.StatusRolledBack || state.ResultsName != checkpoint.NamePrizeResults || state.CompletedCount != 50 {
		t.Errorf("%+v, %v", state, err)
	}
	if _, err := e.Resume(ctx, "many", "wheel", multidraw.Order{}); !errors.Is(err, checkpoint.ErrBadTransition) {
		t.Errorf("resume of what was rolled back: %v", err)
	}
	if _, err := e.Resume(ctx, "many", "absent", multidraw.Order{}); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("resume of nothing: %v", err)
	}
	testwait.Check(t, e.Delete(ctx, "many", "wheel"))
	if state, err = e.State(ctx, "many", "wheel"); state != nil || err != nil {
		t.Errorf("%+v, %v", state, err)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if seen.draws != 2550 || !slices.Equal(seen.ended, []multidraw.Status{multidraw.StatusCompleted, multidraw.StatusCompleted, multidraw.StatusRolledBack}) {
		t.Errorf("%d draws, ended %v", seen.draws, seen.ended)
	}
}

func second(_ *multidraw.Drawn, err error) error { return err }

type observed struct {
	mu    sync.Mutex
	draws int
	ended []multidraw.Status
}

func (o *observed) Saved(draws int, _ time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.draws += draws
}
func (o *observed) Running(int) {}
func (o *observed) Ended(s multidraw.Status) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = append(o.ended, s)
}

func TestEngineRefuses(t *testing.T) {
	t.Parallel()
	client := testredis.Start(t).Client(t)
	e := newEngine(t, client, multidraw.EngineOptions{})
	ctx := t.Context()
	for name, err := range map[string]error{
		"an empty range":      second(e.DrawMultipleInRange(ctx, "k", 2, 1, 5, multidraw.Order{})),
		"no draws":            second(e.DrawMultipleInRange(ctx, "k", 1, 2, 0, multidraw.Order{})),
		"too many draws":      second(e.DrawMultipleInRange(ctx, "k", 1, 2, multidraw.MaxCount+1, multidraw.Order{})),
		"weights past int64":  second(e.DrawMultipleFromPrizes(ctx, "k", prizes(math.MaxInt64, 1).Prizes, 5, multidraw.Order{})),
		"no weight":           second(e.DrawMultipleFromPrizes(ctx, "k", prizes(0).Prizes, 5, multidraw.Order{})),
		"no prizes":           second(e.DrawMultipleFromPrizes(ctx, "k", nil, 5, multidraw.Order{})),
		"an id with a colon":  second(e.DrawMultipleInRange(ctx, "k", 1, 2, 5, multidraw.Order{ID: "a:b"})),
		"a seed of zeros":     second(e.DrawMultipleInRange(ctx, "k", 1, 2, 5, multidraw.Order{Seed: &fairdraw.Seed{}})),
		"an empty lock key":   second(e.DrawMultipleInRange(ctx, "", 1, 2, 5, multidraw.Order{})),
		"an empty range, one": func() error { _, err := e.DrawInRange(ctx, "k", 2, 1); return err }(),
		"no prizes, one":      func() error { _, err := e.DrawFromPrizes(ctx, "k", nil); return err }(),
	} {
		if (!errors.Is(err, checkpoint.ErrInvalid) && !errors.Is(err, multidraw.ErrBadParameters)) || err.Error() == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	keys, err := client.Do(ctx, client.B().Keys().Pattern("lottery:state:*").Build()).AsStrSlice()
	if err != nil || len(keys) != 0 {
		t.Errorf("%q, %v", keys, err)
	}
	if _, err := multidraw.NewEngine(&checkpoint.Memory{}, nil, multidraw.EngineOptions{}); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("without locks: %v", err)
	}
}

// TestEngineIsExclusive draws under one lock key from two processes: one of them at a time.
func TestEngineIsExclusive(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	ours, theirs := newEngine(t, server.Client(t), multidraw.EngineOptions{}), newEngine(t, server.Client(t), multidraw.EngineOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tried := 0
	got, err := ours.DrawMultipleInRange(ctx, "k", 1, 6, 5000, multidraw.Order{ID: "op", Progress: func(completed, _ int64) {
		if _, err := theirs.DrawInRange(t.Context(), "k", 1, 6); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a draw under the same lock key: %v", err)
		}
		if _, err := theirs.Resume(t.Context(), "k", "op", multidraw.Order{}); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("resume of what runs: %v", err)
		}
		if _, err := theirs.DrawInRange(t.Context(), "other", 1, 6); err != nil {
			t.Errorf("a draw under another lock key: %v", err)
		}
		if tried++; completed == 3000 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || tried != 4 || !got.Partial() || len(got.Ints) != 3000 {
		t.Fatalf("%+v, %v", got, err)
	}
	rest, err := theirs.Resume(t.Context(), "k", "op", multidraw.Order{})
	if err != nil || len(rest.Ints) != 5000 || !slices.Equal(rest.Ints[:3000], got.Ints) {
		t.Fatal(err)
	}
	testwait.Check(t, testwait.Err(rest.Proof(t.Context())))
}

// TestNewID: names of operations that begin in the same second differ, tell the time, and are parts of keys.
func TestNewID(t *testing.T) {
	t.Parallel()
	now := time.Date(2024, 12, 17, 15, 30, 22, 0, time.FixedZone("", 3600))
	seen := map[string]bool{}
	for range 1000 {
		id := multidraw.NewID(now)
		key := checkpoint.Key{LockKey: "user_123:daily", ID: id}
		if back, err := checkpoint.ParseKey(key.String()); err != nil || back != key || !strings.HasPrefix(id, "multi_draw_20241217_143022_") {
			t.Fatalf("%q: %+v, %v", id, back, err)
		}
		seen[id] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d names of 1000 operations", len(seen))
	}
}
