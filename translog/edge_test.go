package translog

import (
	"encoding/binary"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// stored is a tree as x/mod/sumdb/tlog stores it.
type stored []tlog.Hash

func (s stored) ReadHashes(indexes []int64) (out []tlog.Hash, err error) {
	for _, i := range indexes {
		out = append(out, s[i])
	}
	return out, nil
}

// TestEdge grows a tree in random steps, and compares roots and tiles with those of x/mod/sumdb/tlog.
func TestEdge(t *testing.T) {
	t.Parallel()
	// The leaf at a place is always the same one, so all trees are beginnings of the same one.
	var (
		all    stored
		leaves []tlog.Hash
	)
	rapid.Check(t, func(t *rapid.T) {
		var (
			e     = new(Edge)
			tiles = map[[2]int64][]tlog.Hash{}
		)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			n := rapid.SampledFrom([]int{0, 1, 2, 3, 255, 256, 257, 1000, 70_000}).Draw(t, "leaves")
			from := e.Size()
			for int64(len(leaves)) < from+int64(n) {
				at := int64(len(leaves))
				leaf := tlog.RecordHash(binary.BigEndian.AppendUint64(nil, uint64(at)))
				hashes, err := tlog.StoredHashesForRecordHash(at, leaf, all)
				testwait.Must(t, err)
				leaves, all = append(leaves, leaf), append(all, hashes...)
			}
			for _, tile := range e.Append(leaves[from : from+int64(n)]) {
				key := [2]int64{int64(tile.Level), tile.Number}
				if len(tile.Hashes) <= len(tiles[key]) {
					t.Fatalf("tile %v has %d hashes and had %d", key, len(tile.Hashes), len(tiles[key]))
				}
				tiles[key] = append([]tlog.Hash(nil), tile.Hashes...)
			}
			want, err := tlog.TreeHash(e.Size(), all)
			testwait.Must(t, err)
			if got := e.Tree(); got != (tlog.Tree{N: e.Size(), Hash: want}) {
				t.Fatalf("the tree of %d leaves is %v, not %v", e.Size(), got, want)
			}
			again, err := NewEdge(e.Size(), func(level int, number int64, width int) ([]tlog.Hash, error) {
				return tiles[[2]int64{int64(level), number}][:width], nil
			})
			if err != nil || again.Tree() != e.Tree() || e.Clone().Tree() != e.Tree() {
				t.Fatalf("read again, it is %v, %v", again, err)
			}
			e = again
		}
		for key, hashes := range tiles {
			tile := tlog.Tile{H: TileHeight, L: int(key[0]), N: key[1], W: len(hashes)}
			want, err := tlog.ReadTileData(tile, all)
			testwait.Must(t, err)
			for i, h := range hashes {
				if string(want[i*tlog.HashSize:(i+1)*tlog.HashSize]) != string(h[:]) {
					t.Fatalf("tile %v differs at %d", key, i)
				}
			}
		}
	})
}

func BenchmarkEdge(b *testing.B) {
	e, leaves := new(Edge), make([]tlog.Hash, 1000)
	for b.Loop() {
		e.Append(leaves)
		e.Tree()
	}
}
