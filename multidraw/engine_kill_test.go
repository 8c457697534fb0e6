package multidraw_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/checkpoint/redisstore"
	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/redislock"
	"github.com/fairlead-dev/fairlead/multidraw"
	"github.com/fairlead-dev/fairlead/redisclient/rueidisclient"
)

// childRedis makes the test binary a process that draws, on the Redis at that address.
const childRedis = "FAIRLEAD_MULTIDRAW_CHILD"

const (
	killedDraws = 200_000
	killedLow   = -1_000_000
	killedHigh  = 1_000_000
	// childLease is how long the lock of a child outlives it.
	childLease = 500 * time.Millisecond
)

func killedSeed() fairdraw.Seed { return fairdraw.Seed{4, 2} }

// drawAsChild goes on with the one operation, prints a line after each save, and returns the exit code.
func drawAsChild() int {
	r, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{os.Getenv(childRedis)}, DisableCache: true, ForceSingleClient: true, DisableRetry: true,
	})
	if err != nil {
		return fail(err)
	}
	defer r.Close()
	client := rueidisclient.New(r)
	locks, err := redislock.New(client, redislock.Options{})
	if err != nil {
		return fail(err)
	}
	defer locks.Close()
	e, err := multidraw.NewEngine(redisstore.New(client), lock.New(locks, lock.LockerOptions{}), multidraw.EngineOptions{
		Lock: lock.Options{TTL: childLease, Wait: testwait.Patience},
	})
	if err != nil {
		return fail(err)
	}
	_, err = e.DrawMultipleInRange(context.Background(), "kills", killedLow, killedHigh, killedDraws, multidraw.Order{
		ID: "op", Seed: new(killedSeed()), Progress: func(completed, _ int64) { fmt.Println(completed) },
	})
	// On a loaded machine a lease as short as this may be lost. The next child goes on.
	if err != nil && !errors.Is(err, lock.ErrLost) {
		return fail(err)
	}
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// TestEngineSurvivesKills draws 200,000 times in processes that are killed at random moments, each of which goes on where
// the one before was. In the end the draws are those of an unbroken run with the same seed.
func TestEngineSurvivesKills(t *testing.T) {
	t.Parallel()
	kills := 5
	if on, err := strconv.ParseBool(os.Getenv("FAIRLEAD_TORTURE")); err == nil && on {
		kills = 50
	}
	server := testredis.Start(t)
	rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
	saves := killedDraws / multidraw.DefaultEvery
	killed, last := 0, int64(0)
	for {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childRedis+"="+server.Addr())
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		testwait.Must(t, err)
		testwait.Must(t, cmd.Start())
		left := 1 + rng.IntN(max(2*saves/kills-2, 1))
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			at, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil || at < last {
				t.Errorf("after %d draws the child says %q", last, lines.Text())
			}
			last = at
			if left--; left == 0 && killed < kills {
				timer := time.NewTimer(time.Duration(rng.IntN(3_000)) * time.Microsecond)
				<-timer.C
				_ = cmd.Process.Kill()
				killed++
			}
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		if last == killedDraws {
			break
		}
		if t.Failed() || (!cmd.ProcessState.Success() && cmd.ProcessState.ExitCode() != -1) {
			t.Fatalf("after %d draws the child ended with %s", last, cmd.ProcessState)
		}
	}
	e := newEngine(t, server.Client(t), multidraw.EngineOptions{Lock: lock.Options{Wait: testwait.Patience}})
	got, err := e.DrawMultipleInRange(t.Context(), "kills", killedLow, killedHigh, killedDraws, multidraw.Order{ID: "op"})
	testwait.Must(t, err)
	unbroken, err := e.DrawMultipleInRange(t.Context(), "unbroken", killedLow, killedHigh, killedDraws, multidraw.Order{ID: "op", Seed: new(killedSeed())})
	testwait.Must(t, err)
	if !slices.Equal(got.Ints, unbroken.Ints) {
		t.Error("the draws are not those of an unbroken run")
	}
	a, err := e.State(t.Context(), "kills", "op")
	testwait.Must(t, err)
	b, err := e.State(t.Context(), "unbroken", "op")
	if err != nil || string(a.Results) != string(b.Results) || a.Digest != b.Digest {
		t.Errorf("the saved bytes differ: %v", err)
	}
	if killed < kills/2 {
		t.Errorf("only %d kills", killed)
	}
	t.Logf("%d kills, revision %d", killed, a.Revision)
}
