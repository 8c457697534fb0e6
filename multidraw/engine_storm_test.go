package multidraw_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// storms is how many operations a storm goes over.
func storms() int {
	if on, err := strconv.ParseBool(os.Getenv("FAIRLEAD_TORTURE")); err == nil && on {
		return 200
	}
	return 6
}

// TestEngineInAStorm kills, restarts and flushes Redis at random moments of one operation after the other. Whatever a call returns,
// with an error or without, is right as far as it goes; an error says which of the two it was; and in the end the operation
// has the draws of its seed, or is reported as lost.
func TestEngineInAStorm(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	server := testredis.Start(t, "--appendonly", "yes", "--appendfsync", "no")
	client := server.Client(t)
	e := newEngine(t, client, multidraw.EngineOptions{Lock: lock.Options{TTL: time.Second, Wait: 20 * time.Second}})
	const draws = 30_000
	lost, interrupted := 0, 0
	for round := range storms() {
		var weather sync.WaitGroup
		id := fmt.Sprint(round)
		at, flush := int64(rng.IntN(draws/1000))*1000, rng.IntN(3) == 0
		away := time.Duration(0) // Some servers come back at once, others later than a save is tried for.
		if rng.IntN(2) == 0 {
			away = time.Duration(rng.IntN(1500)) * time.Millisecond
		}
		var once sync.Once
		order := multidraw.Order{ID: id, Progress: func(completed, _ int64) {
			if completed < at {
				return
			}
			once.Do(func() {
				if flush {
					_ = client.Do(t.Context(), client.B().Flushall().Build()).Error()
					return
				}
				server.Kill()
				weather.Go(func() {
					timer := time.NewTimer(away)
					<-timer.C
					server.Start()
				})
			})
		}}
		right := func(got *multidraw.Drawn) {
			t.Helper()
			d, err := multidraw.New(got.Seed, "engine", ranged(-9, 9))
			if err != nil || got.Total != draws || !slices.Equal(got.Ints, d.Ints(0, int(got.Completed))) {
				t.Fatalf("seed %d, round %d: the %d draws are wrong, %v", seed, round, got.Completed, err)
			}
		}
		got, err := e.DrawMultipleInRange(t.Context(), "storm", -9, 9, draws, order)
		weather.Wait()
		if got != nil {
			right(got)
		}
		first := got
		for tries := 0; err != nil; tries++ {
			gone := errors.Is(err, checkpoint.ErrLost)
			passing := errors.Is(err, checkpoint.ErrConnection) || errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrHeld) || errors.Is(err, checkpoint.ErrNotFound) ||
				errors.Is(err, checkpoint.ErrFenced)
			if (!gone && !passing && checkpoint.SeverityOf(err) != checkpoint.SeverityStep) || tries > 20 {
				t.Fatalf("seed %d, round %d: %v", seed, round, err)
			}
			interrupted++
			state, loadErr := e.State(t.Context(), "storm", id)
			if loadErr == nil && state == nil && first == nil {
				// It was never begun: on a slow machine the lock may be lost before the first save.
				got, err = e.DrawMultipleInRange(t.Context(), "storm", -9, 9, draws, order)
				weather.Wait()
				if first = got; got != nil {
					right(got)
				}
				continue
			}
			if loadErr == nil && state == nil {
				// It is gone, which only a flush can do: what is kept in the file is not lost by a kill.
				if !flush {
					t.Fatalf("seed %d, round %d: the state is gone after %v", seed, round, err)
				}
				lost++
				break
			}
			if got, err = e.Resume(t.Context(), "storm", id, multidraw.Order{}); got == nil {
				continue
			}
			right(got)
			if first != nil && first.Seed != got.Seed {
				t.Fatalf("seed %d, round %d: it goes on with another seed", seed, round)
			}
		}
		if err == nil && got.Completed != draws {
			t.Fatalf("seed %d, round %d: %d draws without an error", seed, round, got.Completed)
		}
	}
	t.Logf("interrupted %d times, %d lost of %d", interrupted, lost, storms())
}
