package redislock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/redislock"
	"github.com/fairlead-dev/fairlead/redisclient/rueidisclient"
)

func Example() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	backend, err := redislock.New(rueidisclient.New(client), redislock.Options{Namespace: "shop:locks"})
	if err != nil {
		panic(err)
	}
	defer backend.Close()

	ctx := context.Background()
	held, err := lock.New(backend, lock.LockerOptions{}).Acquire(ctx, []string{"stock:7", "stock:9"}, lock.Options{Wait: 5 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	// What is written under the lock brings the token along.
	fmt.Println(held.Token("stock:7"))
	if err := held.Release(ctx); err != nil {
		fmt.Println(err)
	}
}
