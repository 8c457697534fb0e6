package idempotency

import (
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
	records []Record // the loaded ones, then the fresh ones
	loaded  int
	at      map[ID]int // where a record is, or missed
	misses  int
}

// missed stands for a record that was looked up, not known, and not stored since.
const missed = -1

// NewBatch returns a view that knows the given records.
func NewBatch(known []Record) *Batch {
	b := &Batch{records: slices.Clip(known), loaded: len(known), at: make(map[ID]int, len(known))}
	for i := range known {
		b.at[known[i].ID] = i
	}
	return b
}

// Grow makes room for n further records.
func (b *Batch) Grow(n int) {
	b.records = slices.Grow(b.records, n)
	if len(b.at) == 0 {
		b.at = make(map[ID]int, n)
	}
}

// Lookup reports whether the request was decided before, and the answer to it. It returns [ErrKeyReused] when the key
// stands for another request.
func (b *Batch) Lookup(r Request) (Answer, bool, error) {
	i, ok := b.at[r.ID]
	if !ok {
		b.at[r.ID] = missed
		b.misses++
	}
	if !ok || i == missed {
		return Answer{}, false, nil
	}
	rec := &b.records[i]
	if rec.Fingerprint != r.Fingerprint {
		return Answer{}, false, ErrKeyReused
	}
	return Answer{Status: rec.Status, Body: rec.Body, Replayed: rec.Execution != r.Execution}, true, nil
}

// Store records the decision on a request that [Batch.Lookup] did not know. It panics when the key is known, because
// a second decision under one key is the very thing this package prevents.
func (b *Batch) Store(r Request, status int, body []byte) {
	i, ok := b.at[r.ID]
	switch {
	case !ok:
	case i == missed:
		b.misses--
	default:
		panic("idempotency: a second decision under one key")
	}
	b.at[r.ID] = len(b.records)
	b.records = append(b.records, Record{Request: r, Status: status, Body: body})
}

// Misses returns the keys of requests that were looked up, not known, and not stored, in no order: their answers leave no record.
func (b *Batch) Misses() []ID {
	misses := make([]ID, 0, b.misses)
	for id, i := range b.at {
		if i == missed {
			misses = append(misses, id)
		}
	}
	return misses
}

// Fresh returns the records that the store has yet to write, in the order they were decided.
func (b *Batch) Fresh() []Record { return b.records[b.loaded:] }
