package multidraw_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/checkpoint/redisstore"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/redislock"
	"github.com/fairlead-dev/fairlead/multidraw"
	"github.com/fairlead-dev/fairlead/redisclient/rueidisclient"
)

// A program with a Redis draws under lock keys, and goes on where an earlier process was.
func ExampleEngine() {
	r, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}, DisableCache: true, DisableRetry: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	client := rueidisclient.New(r)
	backend, err := redislock.New(client, redislock.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer backend.Close()
	engine, err := multidraw.NewEngine(redisstore.New(client), lock.New(backend, lock.LockerOptions{}), multidraw.EngineOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	wheel := []multidraw.Prize{{ID: "gold", Name: "Gold", Weight: 1}, {ID: "none", Name: "Nothing", Weight: 9}}
	drawn, err := engine.DrawMultipleFromPrizes(context.Background(), "user_123_daily", wheel, 100_000, multidraw.Order{
		ID:       "spring-2026", // Asked for again, it goes on, or says what was drawn.
		Progress: func(completed, total int64) { fmt.Println(completed, "of", total) },
	})
	switch {
	case errors.Is(err, lock.ErrHeld):
		fmt.Println("somebody is drawing under this key")
	case err != nil && drawn != nil && drawn.Partial():
		fmt.Println("interrupted, can go on:", drawn.Completed, err)
	case err != nil:
		fmt.Println(err)
	default:
		fmt.Println(len(drawn.PrizeIDs), "draws, by the seed of", drawn.Commitment)
	}
}
