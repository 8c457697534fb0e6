package postgres

import (
	"encoding/binary"
	"sync"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// maxRecentKeys is how many keys are remembered at least, some seconds' worth at the fastest: most repeats come soon. All
// of them take about 5 MB at most.
const maxRecentKeys = 1 << 16

// recentKeys remembers the keys that this process has lately stored records of. A command that comes again under one of
// them is best answered from its record at once: sent ahead, it would only be undone, with all that rests on it. Nothing
// depends on what is remembered, so a few bytes of a key do. It is safe for concurrent use.
type recentKeys struct {
	mu        sync.Mutex
	new, prev map[uint64]struct{}
}

func newRecentKeys() *recentKeys { return &recentKeys{new: map[uint64]struct{}{}} }

// any reports whether one of the keys may have been stored lately.
func (r *recentKeys) any(ids []idempotency.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range ids {
		short := binary.LittleEndian.Uint64(ids[i][:])
		if _, ok := r.new[short]; ok {
			return true
		}
		if _, ok := r.prev[short]; ok {
			return true
		}
	}
	return false
}

// note remembers the keys of records that are being stored.
func (r *recentKeys) note(fresh []idempotency.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range fresh {
		if len(r.new) >= maxRecentKeys {
			r.prev, r.new = r.new, make(map[uint64]struct{}, maxRecentKeys)
		}
		r.new[binary.LittleEndian.Uint64(fresh[i].ID[:])] = struct{}{}
	}
}
