package logkeeper

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/translog"
)

// Kind is a kind of topics.
type Kind int16

// The kinds. Their numbers are stored.
const (
	KindCampaign  Kind = 1
	KindAuction   Kind = 2
	KindMultidraw Kind = 3
	KindBooks     Kind = 4 // has one topic, whose id is zero
)

// Topic is what facts are about.
type Topic struct {
	Kind Kind
	ID   uuid.UUID
}

// prefixes of the kinds' topics. The books have one topic, which is the whole name.
var prefixes = map[Kind]string{KindCampaign: "campaign:", KindAuction: "auction:", KindMultidraw: "multidraw:"} //nolint:gochecknoglobals // A table.

// Books is the topic of the closings of the books.
const Books = "books"

// String is the topic's name in leaves.
func (t Topic) String() string {
	if t.Kind == KindBooks {
		return Books
	}
	return prefixes[t.Kind] + t.ID.String()
}

// News is a topic with facts that are not in the log.
type News struct {
	Topic

	Next int64 // the number of the first that is not
	End  int64 // the number after the last
}

// State is how far the log has come.
type State struct {
	Edge     *translog.Edge
	Began    time.Time // what was made before is not in the log
	Verifier string    // of the key that signs; empty before the first signature
	// Checkpoint is the newest published one, a signed note; empty before the first.
	Checkpoint string
}

// Run is consecutive leaves of one topic.
type Run struct {
	Topic

	Seq   int64 // of the first
	Index int64 // of its first entry in the log
	Count int   // of facts
	Parts int   // entries of each; a fact of several has a run of its own
	Ended bool  // the topic has no further facts
}

// Seal is the leaf of a campaign's seal that names a round.
type Seal struct {
	Campaign uuid.UUID
	Index    int64
	DueAt    time.Time
}

// Batch is what is appended at once.
type Batch struct {
	Before, After tlog.Tree
	Tiles         []translog.Tile
	// Entries are the leaves; the first is number Before.N.
	Entries [][]byte
	// Bundled are the entries in one piece, each behind its length in two bytes, as bundles have them.
	Bundled []byte
	Runs    []Run
	Seals   []Seal
	// Closing is there where the batch has a closing of the books, as its only leaf.
	Closing *Closing
}

// Errors of a [Store].
var (
	// ErrSuperseded is returned to a leader after a later one has begun.
	ErrSuperseded = errors.New("another process keeps the log")
	// ErrMoved is returned where the log is not what the leader has read. It reads it again.
	ErrMoved = errors.New("the log has changed meanwhile")
)

// Store is what the keeper needs of a database. Calls of one keeper don't overlap.
type Store interface {
	// Begin takes the log over for a term, and reads it. It returns [ErrSuperseded] where a later term has begun.
	Begin(ctx context.Context, term int64) (*State, error)
	// Look finds the topics with facts that are not in the log, from one snapshot. It finds new topics some at a time.
	Look(ctx context.Context) ([]News, error)
	// Settle notes which new topics need not be looked for again.
	Settle(ctx context.Context) error
	// Facts reads facts of topics: those in [Next, End), or the first of them, in their order; of an auction at most so many and its
	// creation. Where a topic can't be read, it has none, and the error says why.
	Facts(ctx context.Context, news []News, most int) ([][]Fact, error)
	// Append appends a batch, where the log is what it was before, and the term is not over. It returns [ErrSuperseded] and [ErrMoved]
	// otherwise.
	Append(ctx context.Context, term int64, b *Batch) error
	// Publish publishes a checkpoint that is newer than the last, or has the same size, signed with the key of the verifier.
	Publish(ctx context.Context, term int64, verifier, checkpoint string, size int64) error
	// Seen notes of seals under a checkpoint how many witnesses have cosigned it before their rounds are due: at has the times of the
	// cosignatures, in whole seconds that may have been almost over. The checkpoint that most have seen in time is kept, with the verifier of the
	// key that it is signed with.
	Seen(ctx context.Context, verifier, checkpoint string, size int64, at []time.Time) error
	// Refuse notes why nothing is signed, so that every server can tell; empty where something is.
	Refuse(ctx context.Context, term int64, why string) error
	// CloseBooks reads the books from one snapshot.
	CloseBooks(ctx context.Context, name Names) (*Closing, error)
	// Kept lists the closings whose accounts are kept, the newest first, and Drop drops those of some.
	Kept(ctx context.Context) ([]Kept, error)
	Drop(ctx context.Context, closings []int64) error
	// Secret is that from which aliases follow.
	Secret(ctx context.Context) ([]byte, error)
}
