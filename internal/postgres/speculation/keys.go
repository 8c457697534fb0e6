package speculation

import (
	"encoding/binary"
	"sync"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// maxKeys is how many keys are remembered at least, some seconds' worth at the fastest: most repeats come soon. All
// of them take about 5 MB at most.
const maxKeys = 1 << 16

// Keys remembers the keys that this process has lately stored records of. A command that comes again under one of
// them is best answered from its record at once: sent speculatively, it would only be undone, with all that rests on it. Nothing
// depends on what is remembered, so a few bytes of a key do. It is safe for concurrent use.
type Keys struct {
	mu        sync.Mutex
	new, prev map[uint64]struct{}
}

// NewKeys returns what remembers nothing yet.
func NewKeys() *Keys { return &Keys{new: map[uint64]struct{}{}} }

// Any reports whether one of the keys may have been stored lately.
func (r *Keys) Any(ids []idempotency.ID) bool {
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

// Note remembers the keys of records that are being stored.
func (r *Keys) Note(fresh []idempotency.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range fresh {
		if len(r.new) >= maxKeys {
			r.prev, r.new = r.new, make(map[uint64]struct{}, maxKeys)
		}
		r.new[binary.LittleEndian.Uint64(fresh[i].ID[:])] = struct{}{}
	}
}

func (r *Keys) forgetAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.new, r.prev = map[uint64]struct{}{}, nil
}
