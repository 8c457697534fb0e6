package fairdraw

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
)

// tileHeight is how many levels of a tree lie within a tile.
const tileHeight = 6

// TileSize is how many neighbouring positions a [Tree] asks for to prove one of them.
const TileSize = 1 << tileHeight

// Tree proves the inclusion of any position of a sealed list. It keeps a hash for every [TileSize] positions, and what is
// above: about a byte a position. It is immutable and safe for concurrent use. A [TreeBuilder] makes one.
type Tree struct {
	campaign string
	size     int
	root     [32]byte
	levels   [][][32]byte // from that of the whole tiles upward
}

// TreeBuilder makes a [Tree] of positions that it is given one by one, in canonical order, and does not keep. It belongs to
// one goroutine.
type TreeBuilder struct {
	campaign string
	size     int
	last     Position
	tile     [][32]byte // the leaves of the tile under way
	tiles    [][32]byte
	buf      []byte
}

// NewTreeBuilder begins the tree of a campaign. It returns an [*InputError] when the campaign's id breaks the rules for
// text.
func NewTreeBuilder(campaign string) (*TreeBuilder, error) {
	if reason := textProblem(campaign); reason != "" {
		return nil, badInput("campaign", "%s", reason)
	}
	return &TreeBuilder{campaign: campaign}, nil
}

// Add adds the next position. It returns an [*InputError] when the position breaks a rule of [Input]; but that ids are
// unique is left to the caller.
func (b *TreeBuilder) Add(p Position) error {
	if b.size == MaxPositions {
		return badInput("positions", "over %d entries", MaxPositions)
	}
	if field, reason := positionProblem(&p); reason != "" {
		return badInput("positions["+strconv.Itoa(b.size)+"]."+field, "%s", reason)
	}
	if b.size > 0 && !before(&b.last, &p) {
		return badInput("positions["+strconv.Itoa(b.size)+"]", "layer %d number %d does not come after layer %d number %d",
			p.Layer, p.Number, b.last.Layer, b.last.Number)
	}
	if len(b.tile) == TileSize {
		b.endTile()
	}
	b.buf = appendLeaf(b.buf[:0], &p)
	b.tile = append(b.tile, sha256.Sum256(b.buf))
	b.last = p
	b.size++
	return nil
}

func (b *TreeBuilder) endTile() {
	b.tiles = append(b.tiles, top(b.tile))
	b.tile = b.tile[:0]
}

// top folds all levels, in the same memory.
func top(level [][32]byte) [32]byte {
	for len(level) > 1 {
		level = foldLevel(level)
	}
	return level[0]
}

// Tree ends the building. It returns an [*InputError] when nothing was added.
func (b *TreeBuilder) Tree() (*Tree, error) {
	if b.size == 0 {
		return nil, badInput("positions", "0 entries, not 1 to %d", MaxPositions)
	}
	b.endTile()
	t := &Tree{campaign: b.campaign, size: b.size, levels: [][][32]byte{slices.Clip(b.tiles)}}
	for level := b.tiles; len(level) > 1; {
		level = slices.Clip(foldLevel(slices.Clone(level)))
		t.levels = append(t.levels, level)
	}
	t.root = sealTree(t.campaign, t.size, t.levels[len(t.levels)-1][0])
	return t, nil
}

// Root is the sealed root, as [Root] gives it.
func (t *Tree) Root() [32]byte { return t.root }

// Size is the number of positions.
func (t *Tree) Size() int { return t.size }

// Tile tells which positions prove that of an index within the list: those from from on, before to. There are at most
// [TileSize] of them.
func (t *Tree) Tile(index int) (from, to int) {
	from = index &^ (TileSize - 1)
	return from, min(from+TileSize, t.size)
}

// Include makes the inclusion proof of a position from those of its [Tree.Tile]. It returns an [*InputError] when the index
// is outside the list, or when these are not the positions that the tree was made of.
func (t *Tree) Include(index int, tile []Position) (*InclusionProof, error) {
	if index < 0 || index >= t.size {
		return nil, badInput("index", "%d is not 0 to %d", index, t.size-1)
	}
	from, to := t.Tile(index)
	if len(tile) != to-from {
		return nil, badInput("tile", "%d positions, not %d", len(tile), to-from)
	}
	siblings := []string{}
	partner := func(level [][32]byte, i int) {
		if i ^= 1; i < len(level) {
			siblings = append(siblings, hex.EncodeToString(level[i][:]))
		}
	}
	level := leafHashes(tile)
	for i := index - from; len(level) > 1; i /= 2 {
		partner(level, i)
		level = foldLevel(level)
	}
	number := from / TileSize
	if level[0] != t.levels[0][number] {
		return nil, badInput("tile", "not the positions that were sealed")
	}
	for _, level := range t.levels {
		partner(level, number)
		number /= 2
	}
	return &InclusionProof{
		Versions: currentVersions(),
		Campaign: t.campaign,
		Root:     hex.EncodeToString(t.root[:]),
		Position: tile[index-from],
		Index:    index,
		Size:     t.size,
		Siblings: siblings,
	}, nil
}
