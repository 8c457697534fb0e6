package conform

import "time"

// numbers are the guarantees in the order of docs/guarantees.md.
const numbers = "W1 U1 A1 A2 I1 I2 I3 L1 L2 L3 L4 E1 D1 C1 S1 T1 P1 P2"

// titles are the first words of each guarantee in docs/guarantees.md.
func titles() map[string]string {
	return map[string]string{
		"W1": "Sales and draws", "U1": "Auctions", "A1": "Durability", "A2": "Money", "I1": "Keys", "I2": "Answers", "I3": "Unknown outcomes",
		"L1": "Tokens", "L2": "Fences", "L3": "Leases", "L4": "Deadlocks", "E1": "Claims", "D1": "Leaders", "C1": "Operations of many steps",
		"S1": "Sagas", "T1": "Two-phase commit", "P1": "Publishing", "P2": "Times",
	}
}

// limits are those of docs/operations/promises.md, by name.
func limits() map[string]time.Duration {
	return map[string]time.Duration{
		"lock-after-death": 2 * time.Second, "lock-behind-dead-waiter": time.Second, "deadlock": time.Second, "in-doubt": 30 * time.Second,
	}
}
