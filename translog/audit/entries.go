package audit

import (
	"context"
	"errors"
	"fmt"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"
)

// bundlesAtOnce is how many bundles are read and verified together. Two such batches are in memory: one is read while the other is
// judged. With leaves of 300 bytes a batch takes 600 KB; the largest that a server can send has 134 MB.
const bundlesAtOnce = atOnce

// parsed is one entry, verified and read.
type parsed struct {
	leaf    leaf
	problem *problem
}

// batch is the next entries. With a finding or an error, it has those before it.
type batch struct {
	entries []parsed
	finding *Finding
	err     error
}

// reader reads the entries of a tree in order.
type reader struct {
	tiles *fetcher
	tree  tlog.Tree
}

// from sends all entries from start on, until the tree's end, a finding, or an error. It closes the channel.
func (r *reader) from(ctx context.Context, start int64, to chan<- batch) {
	defer close(to)
	for start < r.tree.N {
		b := r.next(ctx, start)
		select {
		case to <- b:
		case <-ctx.Done():
			return
		}
		if b.finding != nil || b.err != nil {
			return
		}
		start += int64(len(b.entries))
	}
}

// next reads the entries of the next bundles. Where the hashes of all of them can't be verified, it takes one bundle alone, so that
// the leaves before the first bad tile are judged.
func (r *reader) next(ctx context.Context, start int64) batch {
	b := r.bundles(ctx, start, bundlesAtOnce)
	if b.finding != nil && len(b.entries) == 0 {
		b = r.bundles(ctx, start, 1)
	}
	return b
}

func (r *reader) bundles(ctx context.Context, start int64, most int) batch {
	base := start - start%torchwood.TileWidth
	var bundles []tlog.Tile
	for at := base; at < r.tree.N && len(bundles) < most; at += torchwood.TileWidth {
		bundles = append(bundles, tlog.Tile{
			H: torchwood.TileHeight, L: -1, N: at / torchwood.TileWidth, W: int(min(torchwood.TileWidth, r.tree.N-at)),
		})
	}
	data, err := r.tiles.ReadTiles(ctx, bundles)
	if err != nil {
		return batch{err: err}
	}
	end := min(base+int64(len(bundles))*torchwood.TileWidth, r.tree.N)
	hashes, err := r.hashes(ctx, base, end)
	if unread(ctx, err) {
		return batch{err: err}
	}
	if err != nil {
		return batch{finding: &Finding{
			Index: start, Seq: -1, What: "tiles of hashes", Said: err.Error(), Expected: "tiles of the tree that the log has signed",
		}}
	}
	b := batch{entries: make([]parsed, 0, end-start)}
	at := base
	for i, bundle := range bundles {
		for range bundle.W {
			entry, rest, err := torchwood.ReadTileEntry(data[i])
			if hash := hashes[at-base]; err != nil || tlog.RecordHash(entry) != hash {
				b.finding = unproved(at, entry, hash, err)
				return b
			}
			data[i] = rest
			if at >= start {
				var p parsed
				p.leaf, p.problem = parseLeaf(entry)
				b.entries = append(b.entries, p)
			}
			at++
		}
		if len(data[i]) > 0 {
			b.finding = &Finding{
				Index: at - 1, Seq: -1, What: "bundle of entries", Said: fmt.Sprintf("%d more bytes behind the entry", len(data[i])), Expected: "its end",
			}
			return b
		}
	}
	return b
}

// hashes reads the hashes of the leaves from base to end, verified against the tree's root.
func (r *reader) hashes(ctx context.Context, base, end int64) ([]tlog.Hash, error) {
	indexes := make([]int64, 0, end-base)
	for i := base; i < end; i++ {
		indexes = append(indexes, tlog.StoredHashIndex(0, i))
	}
	return torchwood.TileHashReaderWithContext(ctx, r.tree, r.tiles).ReadHashes(indexes)
}

// unread reports whether an error is that of a server that gave no answer, and not that of an answer that is wrong.
func unread(ctx context.Context, err error) bool {
	var read *ReadError
	return ctx.Err() != nil || errors.As(err, &read)
}

// unproved is a leaf that is not the one in the tree.
func unproved(index int64, entry []byte, hash tlog.Hash, err error) *Finding {
	f := &Finding{Index: index, Seq: -1, What: "hash of the leaf", Expected: hash.String() + ", as in the signed tree"}
	if err != nil {
		f.Said = err.Error()
		return f
	}
	f.Said = tlog.RecordHash(entry).String()
	if l, _ := parseLeaf(entry); l.topic.kind != 0 {
		f.Topic, f.Type, f.Seq = l.topic.String(), l.kind, l.seq
	}
	return f
}
