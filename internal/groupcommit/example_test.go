package groupcommit_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
)

// A flush applies its whole batch in one transaction. Here an overdraft fails the batch as a constraint
// would; bisection leaves the failure with the command that caused it.
func Example() {
	errOverdraft := errors.New("overdraft")
	balances := map[string]int{"alice": 10}
	flush := func(_ context.Context, account string, amounts []int) ([]int, error) {
		balance := balances[account] // One account's flushes never overlap.
		results := make([]int, len(amounts))
		for i, amount := range amounts {
			balance += amount
			if balance < 0 {
				return nil, errOverdraft // Nothing is written: the transaction rolls back.
			}
			results[i] = balance
		}
		balances[account] = balance
		return results, nil
	}
	g := groupcommit.New(flush, groupcommit.Options{})
	ctx := context.Background()

	fmt.Println(g.Do(ctx, "alice", -7))
	fmt.Println(g.Do(ctx, "alice", -7))
	fmt.Println(g.Do(ctx, "alice", 5))
	fmt.Println(g.Close(ctx))
	fmt.Println(g.Do(ctx, "alice", 1))
	// Output:
	// 3 <nil>
	// 0 overdraft
	// 8 <nil>
	// <nil>
	// 0 groupcommit: group is closed
}
