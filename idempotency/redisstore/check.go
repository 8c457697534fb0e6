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
	servers, err := s.client.ConfigGet(ctx, "append*", "maxmemory*")
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	for _, addr := range slices.Sorted(maps.Keys(servers)) {
		for _, need := range []struct{ name, value, or string }{
			{"appendonly", "yes", "a restart loses keys, and what they stand for is executed again"},
			{"appendfsync", "always", "a crash of the machine loses the last second's keys"},
			{"maxmemory-policy", "noeviction", "keys are evicted when memory is short"},
		} {
			if got := servers[addr][need.name]; got != need.value {
				warnings = append(warnings, fmt.Sprintf("%s: %s is %s, not %s: %s.", addr, need.name, got, need.value, need.or))
			}
		}
	}
	return warnings, nil
}
