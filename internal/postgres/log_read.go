package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/alias"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/translog"
)

// LogReader reads the public log, over the connections of reads. It is safe for concurrent use.
type LogReader struct{ db *DB }

// NewLogReader returns the reader of the log in db.
func NewLogReader(db *DB) *LogReader { return &LogReader{db} }

const (
	selectLogState = `SELECT verifier, checkpoint, published, size, began_at, refused FROM log_state`
	selectBundle   = `SELECT number, entries FROM log_bundles WHERE number = ANY ($1) ORDER BY number`
	// selectRuns finds a topic's leaves from an index on: the run that it is in, and those that follow.
	selectRuns = `SELECT kind, id, seq, index, count, parts, false FROM log_runs
		WHERE kind = $1 AND id = $2 AND index >= coalesce((SELECT max(index) FROM log_runs WHERE kind = $1 AND id = $2 AND index <= $3), 0)
		ORDER BY index LIMIT $4`
)

// Published reads what anybody may know of the log.
func (l *LogReader) Published(ctx context.Context) (logkeeper.Published, error) {
	return queryOne(ctx, l.db.reads, errEmpty, pgx.RowToStructByPos[logkeeper.Published], selectLogState)
}

// Tile reads the hashes of a tile, as far as it goes; none where it isn't there.
func (l *LogReader) Tile(ctx context.Context, level int, number int64) ([]tlog.Hash, error) {
	raw, err := query(ctx, l.db.reads, pgx.RowTo[[]byte], selectTile, level, number)
	if err != nil || len(raw) == 0 {
		return nil, err
	}
	return hashesOf(raw[0]), nil
}

const selectSeal = `SELECT index, due_at, verifier, checkpoint, witnesses, seen_at FROM log_seals WHERE campaign = $1 AND witnesses > 0`

// Seal reads the seal of a campaign in beacon mode; nil where no witness has seen it before its round was due.
func (l *LogReader) Seal(ctx context.Context, campaign uuid.UUID) (*logkeeper.SeenSeal, error) {
	found, err := query(ctx, l.db.reads, func(row pgx.CollectableRow) (s logkeeper.SeenSeal, err error) {
		err = row.Scan(&s.Leaf.Index, &s.DueAt, &s.Verifier, &s.Checkpoint, &s.Witnesses, &s.SeenAt)
		return s, err
	}, selectSeal, campaign)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	s := &found[0]
	leaf, err := l.entries(ctx, []int64{s.Leaf.Index})
	if err != nil {
		return nil, err
	}
	s.Leaf = leaf[0]
	return s, nil
}

type bundleRow struct {
	Number  int64
	Entries []byte
}

// Bundle reads the first so many entries of a bundle, each behind its length; nil where they are not there.
func (l *LogReader) Bundle(ctx context.Context, number int64, width int) ([]byte, error) {
	found, err := query(ctx, l.db.reads, pgx.RowToStructByPos[bundleRow], selectBundle, []int64{number})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	raw, end := found[0].Entries, 0
	for range width {
		entry, rest := cutEntry(raw[end:])
		if entry == nil {
			return nil, nil
		}
		end = len(raw) - len(rest)
	}
	return raw[:end], nil
}

// cutEntry cuts the first entry off; nil where there is none.
func cutEntry(raw []byte) (entry, rest []byte) {
	if len(raw) < 2 {
		return nil, nil
	}
	n := int(binary.BigEndian.Uint16(raw))
	if len(raw) < 2+n {
		return nil, nil
	}
	return raw[2 : 2+n : 2+n], raw[2+n:]
}

// Leaves reads up to limit entries of a topic, from an index on, of those that are under a checkpoint of a size.
func (l *LogReader) Leaves(ctx context.Context, topic logkeeper.Topic, from, size int64, limit int) ([]logkeeper.Entry, error) {
	runs, err := query(ctx, l.db.reads, pgx.RowToStructByPos[logkeeper.Run], selectRuns, int16(topic.Kind), topic.ID, from, limit+1)
	if err != nil {
		return nil, err
	}
	indexes := logkeeper.Spread(runs, from, limit)
	for len(indexes) > 0 && indexes[len(indexes)-1] >= size {
		indexes = indexes[:len(indexes)-1]
	}
	return l.entries(ctx, indexes)
}

// entries reads entries by their indexes, which grow.
func (l *LogReader) entries(ctx context.Context, indexes []int64) ([]logkeeper.Entry, error) {
	var numbers []int64
	for _, i := range indexes {
		if number := i / translog.TileWidth; len(numbers) == 0 || numbers[len(numbers)-1] != number {
			numbers = append(numbers, number)
		}
	}
	if len(numbers) == 0 {
		return nil, nil
	}
	bundles, err := query(ctx, l.db.reads, pgx.RowToStructByPos[bundleRow], selectBundle, numbers)
	if err != nil {
		return nil, err
	}
	raw := map[int64][]byte{}
	for _, b := range bundles {
		raw[b.Number] = b.Entries
	}
	out := make([]logkeeper.Entry, len(indexes))
	var at int64 // of what is left of the bundle
	var rest []byte
	for i, index := range indexes {
		if begin := index / translog.TileWidth * translog.TileWidth; i == 0 || at <= begin {
			at, rest = begin, raw[index/translog.TileWidth]
		}
		for ; at <= index; at++ {
			out[i].Data, rest = cutEntry(rest)
		}
		if out[i].Index = index; out[i].Data == nil {
			return nil, fmt.Errorf("%w: entry %d is missing", errLogBroken, index)
		}
	}
	return out, nil
}

// Balance reads an account's balance in the newest closing of the books that is not after a time, and under a checkpoint of a size; nil where
// none has it whose accounts are kept.
func (l *LogReader) Balance(ctx context.Context, account string, at time.Time, size int64) (*logkeeper.Balance, error) {
	type closing struct {
		Seq, Index int64
		At         time.Time
		Accounts   int64
		Root       []byte
		Chunks     []byte
	}
	type chunk struct {
		Number int
		Data   []byte
	}
	var (
		closings []closing
		chunks   []chunk
		secret   []byte
	)
	err := l.db.reads.snapshot(ctx, "balance", readTimeout, func(ctx context.Context, tx pgx.Tx) error {
		closings, chunks = nil, nil
		var b pgx.Batch
		b.Queue(selectKept, at, size).Query(collect(&closings, pgx.RowToStructByPos[closing]))
		b.Queue(`SELECT value FROM secrets WHERE name = $1`, operator.SecretOfAliases).QueryRow(func(row pgx.Row) error { return row.Scan(&secret) })
		if err := pgkit.Send(ctx, tx, &b); err != nil || len(closings) == 0 {
			return err
		}
		b = pgx.Batch{}
		b.Queue(selectChunk, closings[0].Seq, account).Query(collect(&chunks, pgx.RowToStructByPos[chunk]))
		return pgkit.Send(ctx, tx, &b)
	})
	if err != nil || len(chunks) == 0 {
		return nil, err
	}
	c, names := closings[0], alias.In(logkeeper.Books, secret)
	place, err := logkeeper.Find(account, chunks[0].Data, chunks[0].Number, hashesOf(c.Chunks), func(account string) string { return names.Of(account).Name })
	if err != nil || place == nil {
		return nil, err
	}
	leaf, err := l.entries(ctx, []int64{c.Index})
	if err != nil {
		return nil, err
	}
	own := names.Of(account)
	b := &logkeeper.Balance{Place: *place, Alias: own.Name, Salt: own.Salt, Closing: c.Seq, At: c.At, Accounts: c.Accounts, Leaf: leaf[0]}
	copy(b.Root[:], c.Root)
	return b, nil
}
