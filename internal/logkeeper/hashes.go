package logkeeper

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/translog"
)

// TileSource reads the hashes of a tile as far as it goes.
type TileSource func(ctx context.Context, level int, number int64) ([]tlog.Hash, error)

// errTiles is wrapped where a tile can't be read, which says nothing about the log.
var errTiles = errors.New("the log's tiles can't be read")

// Hashes reads the hashes of a tree from tiles, each once. It checks them: they are the tree's, or it fails. It is for one use.
func Hashes(ctx context.Context, tree tlog.Tree, tiles TileSource) tlog.HashReader {
	return tlog.TileHashReader(tree, &tileReader{ctx: ctx, source: tiles, known: map[[2]int64][]byte{}})
}

type tileReader struct {
	ctx    context.Context //nolint:containedctx // The interface has none, and a reader is for one use.
	source TileSource
	known  map[[2]int64][]byte
}

// Height implements [tlog.TileReader].
func (*tileReader) Height() int { return translog.TileHeight }

// ReadTiles implements [tlog.TileReader].
func (r *tileReader) ReadTiles(tiles []tlog.Tile) (data [][]byte, err error) {
	for _, t := range tiles {
		key := [2]int64{int64(t.L), t.N}
		raw, ok := r.known[key]
		if !ok {
			hashes, err := r.source(r.ctx, t.L, t.N)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errTiles, err)
			}
			for _, h := range hashes {
				raw = append(raw, h[:]...)
			}
			r.known[key] = raw
		}
		if len(raw) < t.W*tlog.HashSize {
			return nil, fmt.Errorf("logkeeper: tile %d of level %d has %d hashes, not %d", t.N, t.L, len(raw)/tlog.HashSize, t.W)
		}
		data = append(data, raw[:t.W*tlog.HashSize])
	}
	return data, nil
}

// SaveTiles implements [tlog.TileReader].
func (*tileReader) SaveTiles([]tlog.Tile, [][]byte) {}
