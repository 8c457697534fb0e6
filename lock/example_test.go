package lock_test

import (
	"fmt"

	"github.com/fairlead-dev/fairlead/lock"
)

// A holds x, B holds y, and each wants what the other has.
func ExampleGraph_Deadlocks() {
	g := lock.NewGraph(map[string]string{"x": "A", "y": "B"}, []lock.Waiter{
		{ID: "1", Owner: "A", Keys: []string{"y"}, Ticket: 1},
		{ID: "2", Owner: "B", Keys: []string{"x"}, Ticket: 2},
	})
	for _, d := range g.Deadlocks() {
		fmt.Println("request", d.Victim, "gives way:", d.Cycle, "want", d.Keys)
	}
	// Output: request 2 gives way: [B A] want [x y]
}

func ExampleDeadlockError() {
	fmt.Println(&lock.DeadlockError{Cycle: []string{"B", "A"}})
	// Output: deadlock: B waits for A waits for B
}
