package logkeeper

import (
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Published is what anybody may know of the log.
type Published struct {
	Verifier   string    // of the key that signs; empty before the first signature
	Checkpoint string    // the newest signed note; empty before the first
	Size       int64     // the checkpoint's
	Leaves     int64     // of the log; those that are not under the checkpoint yet included
	Began      time.Time // when the log was begun; what was made before is not in it
	Refused    string    // why nothing is signed any more; empty while something is
}

// Entry is an entry of the log.
type Entry struct {
	Index int64
	Data  []byte
}

// Balance is an account's in a closing of the books.
type Balance struct {
	Place

	Alias, Salt string
	Closing     int64 // its number
	At          time.Time
	Accounts    int64 // of the closing
	Root        tlog.Hash
	Leaf        Entry // of the closing
}

// SeenSeal is a campaign's seal in the log, with the checkpoint that most witnesses have cosigned before the seal's round was due.
type SeenSeal struct {
	Leaf       Entry
	DueAt      time.Time
	Verifier   string // of the key that the log signed it with, which may have been renewed since
	Checkpoint string // a signed note
	Witnesses  int    // how many that was
	SeenAt     time.Time
}

// SecondsBefore is how long before the round that was, in whole seconds.
func (s *SeenSeal) SecondsBefore() int64 { return int64(s.DueAt.Sub(s.SeenAt) / time.Second) }

// Spread are the entries of runs from an index on.
func Spread(runs []Run, from int64, limit int) (indexes []int64) {
	for _, r := range runs {
		for i := r.Index; i < r.Index+int64(r.Count)*int64(r.Parts) && len(indexes) < limit; i++ {
			if i >= from {
				indexes = append(indexes, i)
			}
		}
	}
	return indexes
}
