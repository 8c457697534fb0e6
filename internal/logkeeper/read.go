package logkeeper

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/fairdraw"
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

// Prove makes the seal that a proof of the draw carries. tiles are those of the log.
func (s *SeenSeal) Prove(ctx context.Context, tiles TileSource) (fairdraw.Seal, error) {
	prove, err := Prover(ctx, s.Checkpoint, s.Verifier, tiles)
	if err != nil {
		return fairdraw.Seal{}, err
	}
	inclusion, err := prove(s.Leaf)
	return fairdraw.Seal{Leaf: base64.StdEncoding.EncodeToString(s.Leaf.Data), Index: s.Leaf.Index, Inclusion: inclusion, Checkpoint: s.Checkpoint}, err
}

// SealSource is where [CarriedSeal] reads.
type SealSource interface {
	Seal(ctx context.Context, campaign uuid.UUID) (*SeenSeal, error)
	Tile(ctx context.Context, level int, number int64) ([]tlog.Hash, error)
}

// CarriedSeal returns the seal that the proof of a campaign's draw carries; nil where no witness has seen it before its round was due.
func CarriedSeal(ctx context.Context, log SealSource, campaign uuid.UUID) (*fairdraw.Seal, error) {
	seen, err := log.Seal(ctx, campaign)
	if err != nil || seen == nil {
		return nil, err
	}
	proved, err := seen.Prove(ctx, log.Tile)
	if err != nil {
		return nil, err
	}
	return &proved, nil
}

// Prover returns what proves entries under a checkpoint that a key has signed, by hashes in hexadecimal. It is for one use.
func Prover(ctx context.Context, checkpoint, verifier string, tiles TileSource) (func(Entry) ([]string, error), error) {
	tree, err := TreeOf(checkpoint, verifier)
	if err != nil {
		return nil, err
	}
	hashes := Hashes(ctx, tree, tiles)
	return func(e Entry) ([]string, error) {
		proof, err := tlog.ProveRecord(tree.N, e.Index, hashes)
		if err == nil {
			// The database must have what the log has signed, or else nobody could verify this.
			err = tlog.CheckRecord(proof, tree.N, tree.Hash, e.Index, tlog.RecordHash(e.Data))
		}
		return Hexadecimal(proof), err
	}, nil
}

// Hexadecimal writes hashes as proofs have them.
func Hexadecimal(hashes []tlog.Hash) []string {
	out := make([]string, len(hashes))
	for i, h := range hashes {
		out[i] = hex.EncodeToString(h[:])
	}
	return out
}

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
