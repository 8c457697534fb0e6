package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Check asks each server for the settings that the promises rest on, and says in whole sentences which of them do not hold.
// It returns an error where a server doesn't tell, as many hosted ones don't.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	nodes := s.client.Nodes()
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		c := nodes[addr]
		settings, err := c.Do(ctx, c.B().ConfigGet().Parameter("append*", "maxmemory*").Build()).AsStrMap()
		if err != nil {
			return nil, fmt.Errorf("redisstore: ask %s for its settings: %w", addr, err)
		}
		for _, need := range []struct{ name, value, or string }{
			{"appendonly", "yes", "a restart loses keys, and what they stand for is executed again"},
			{"appendfsync", "always", "a crash of the machine loses the last second's keys"},
			{"maxmemory-policy", "noeviction", "keys are evicted when memory is short"},
		} {
			if got := settings[need.name]; got != need.value {
				warnings = append(warnings, fmt.Sprintf("%s: %s is %s, not %s: %s.", addr, need.name, got, need.value, need.or))
			}
		}
	}
	return warnings, nil
}
