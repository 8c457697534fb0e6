package translog

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Tiles of the tree (C2SP tlog-tiles).
const (
	TileHeight = 8               // how many levels a tile has
	TileWidth  = 1 << TileHeight // how many hashes it has at its bottom
)

// maxLevels is more than a tree of 2^63 leaves has.
const maxLevels = 8

// Edge is the right edge of a growing tree: the hashes of the partial tile of each level. It is all that growing needs. The zero Edge
// is that of the empty tree. It is not safe for concurrent use.
type Edge struct {
	size   int64
	levels [maxLevels][]tlog.Hash // of each level's partial tile, which has less than TileWidth
}

// Tile is a tile as far as it goes: its first so many hashes.
type Tile struct {
	Level  int
	Number int64
	Hashes []tlog.Hash // 1 to TileWidth
}

// errEdge is returned where tiles don't make an edge.
var errEdge = errors.New("translog: the tiles are not those of the tree's size")

// NewEdge makes the edge of a tree from its partial tiles, which read gives: the first width hashes of a tile.
func NewEdge(size int64, read func(level int, number int64, width int) ([]tlog.Hash, error)) (*Edge, error) {
	e := &Edge{size: size}
	for level := range maxLevels {
		n := size >> (level * TileHeight)
		if width := int(n % TileWidth); width > 0 {
			hashes, err := read(level, n/TileWidth, width)
			if err != nil {
				return nil, err
			}
			if len(hashes) != width {
				return nil, fmt.Errorf("%w: level %d has %d hashes at its edge, not %d", errEdge, level, len(hashes), width)
			}
			e.levels[level] = append(make([]tlog.Hash, 0, TileWidth), hashes...)
		}
	}
	return e, nil
}

// Size is the number of leaves.
func (e *Edge) Size() int64 { return e.size }

// Clone copies the edge.
func (e *Edge) Clone() *Edge {
	c := &Edge{size: e.size}
	for level, hashes := range e.levels {
		if len(hashes) > 0 {
			c.levels[level] = append(make([]tlog.Hash, 0, TileWidth), hashes...)
		}
	}
	return c
}

// Append adds leaves by their hashes. It returns the tiles that have changed, each once: new ones, and those that were partial.
func (e *Edge) Append(leaves []tlog.Hash) (changed []Tile) {
	next := leaves
	for level := 0; level < maxLevels && len(next) > 0; level++ {
		number := e.size >> (level * TileHeight) / TileWidth
		var above []tlog.Hash
		for len(next) > 0 {
			tile := e.levels[level]
			n := min(TileWidth-len(tile), len(next))
			tile, next = append(tile, next[:n]...), next[n:]
			changed = append(changed, Tile{Level: level, Number: number, Hashes: tile})
			if e.levels[level] = tile; len(tile) == TileWidth {
				above = append(above, fold(tile))
				e.levels[level] = nil
				number++
			}
		}
		next = above
	}
	e.size += int64(len(leaves))
	return changed
}

// fold is the root of a tree of a power of two of leaves.
func fold(hashes []tlog.Hash) tlog.Hash {
	row := append([]tlog.Hash(nil), hashes...)
	for len(row) > 1 {
		for i := range len(row) / 2 {
			row[i] = tlog.NodeHash(row[2*i], row[2*i+1])
		}
		row = row[:len(row)/2]
	}
	return row[0]
}

// Tree is the tree's size and root.
func (e *Edge) Tree() tlog.Tree {
	if e.size == 0 {
		empty, err := tlog.TreeHash(0, nil)
		if err != nil {
			panic("translog: the empty tree has no root: " + err.Error()) // It reads nothing.
		}
		return tlog.Tree{Hash: empty}
	}
	// The complete subtrees from the right, which are the smaller ones.
	var root *tlog.Hash
	for _, hashes := range e.levels {
		for end := len(hashes); end > 0; {
			width := end & -end // of the last complete subtree in hashes[:end]
			h := fold(hashes[end-width : end])
			if root != nil {
				h = tlog.NodeHash(h, *root)
			}
			root, end = &h, end-width
		}
	}
	return tlog.Tree{N: e.size, Hash: *root}
}
