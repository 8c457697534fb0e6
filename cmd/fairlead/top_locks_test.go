package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/client"
)

// The key that most wait for comes first, then what has been held longest. Clocks may differ; nothing is younger than nothing.
func Example_busiest() {
	var l client.Locks
	err := json.Unmarshal([]byte(`{
		"holders": [
			{"owner": "pilot", "tokens": {"crane": 4, "dock-a": 7}, "granted_at": "2026-01-01T00:00:00Z"},
			{"owner": "tug",   "tokens": {"dock-b": 2},             "granted_at": "2026-01-01T00:00:50Z"},
			{"owner": "ahead", "tokens": {"dock-c": 1},             "granted_at": "2026-01-01T00:05:00Z"}],
		"waiters": [
			{"owner": "ferry", "keys": ["dock-b"], "since": "2026-01-01T00:00:58Z"},
			{"owner": "barge", "keys": ["dock-b"], "since": "2026-01-01T00:00:55Z"}]}`), &l)
	if err != nil {
		panic(err)
	}
	for _, v := range busiest(&l, 4, time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)) {
		fmt.Printf("%s by %s with token %d for %.0f s: %d wait, for %.0f s at most\n", v.Key, v.Owner, v.Token, v.HeldSeconds, v.Waiters, v.WaitSeconds)
	}
	// Output:
	// dock-b by tug with token 2 for 10 s: 2 wait, for 5 s at most
	// crane by pilot with token 4 for 60 s: 0 wait, for 0 s at most
	// dock-a by pilot with token 7 for 60 s: 0 wait, for 0 s at most
	// dock-c by ahead with token 1 for 0 s: 0 wait, for 0 s at most
}
