package idempotency

import (
	"maps"
	"slices"

	"github.com/google/uuid"
)

// Request identifies one attempt to execute a keyed command.
type Request struct {
	ID          ID
	Fingerprint Fingerprint
	// Execution is new for each request that reaches the server, and the same when a transaction of unknown outcome
	// is run again on its behalf. It tells the executing request's own answer from a replay.
	Execution uuid.UUID
}

// Record is what was decided for a key.
type Record struct {
	Request
	Status int    // HTTP status
	Body   []byte // the answer, byte for byte
}

// Answer is a record as one caller sees it.
type Answer struct {
	Status   int
	Body     []byte
	Replayed bool // true unless the caller's own request was the one executed
}

// Batch is the view of the records that one transaction works with: those loaded from the store, and those its own
// commands add. It is not safe for concurrent use.
type Batch struct {
	known  map[ID]Record
	fresh  []Record
	misses map[ID]struct{} // looked up, not known, not stored since
}

// NewBatch returns a view that knows the given records.
func NewBatch(known []Record) *Batch {
	b := &Batch{known: make(map[ID]Record, len(known)), misses: map[ID]struct{}{}}
	for _, r := range known {
		b.known[r.ID] = r
	}
	return b
}

// Lookup reports whether the request was decided before, and the answer to it. It returns [ErrKeyReused] when the key
// stands for another request.
func (b *Batch) Lookup(r Request) (Answer, bool, error) {
	rec, ok := b.known[r.ID]
	if !ok {
		b.misses[r.ID] = struct{}{}
		return Answer{}, false, nil
	}
	if rec.Fingerprint != r.Fingerprint {
		return Answer{}, false, ErrKeyReused
	}
	return Answer{Status: rec.Status, Body: rec.Body, Replayed: rec.Execution != r.Execution}, true, nil
}

// Store records the decision on a request that [Batch.Lookup] did not know. It panics when the key is known, because
// a second decision under one key is the very thing this package prevents.
func (b *Batch) Store(r Request, status int, body []byte) {
	if _, ok := b.known[r.ID]; ok {
		panic("idempotency: a second decision under one key")
	}
	rec := Record{Request: r, Status: status, Body: body}
	b.known[r.ID] = rec
	delete(b.misses, r.ID)
	b.fresh = append(b.fresh, rec)
}

// Undecided reports whether some request was looked up, not known, and not stored: what it was told leaves no record.
func (b *Batch) Undecided() bool { return len(b.misses) > 0 }

// Misses returns the keys that Undecided speaks of, in no order.
func (b *Batch) Misses() []ID { return slices.Collect(maps.Keys(b.misses)) }

// Fresh returns the records that the store has yet to write, in the order they were decided.
func (b *Batch) Fresh() []Record { return b.fresh }
