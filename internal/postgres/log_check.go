package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/alias"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/translog"
)

// LogCheck is what comes of comparing the public log with the tables that its facts are in.
type LogCheck struct {
	Leaves   int64 // of the log
	Topics   int   // that were compared
	Facts    int64 // of these
	Complete bool  // no topic was left out
	Refused  string
	// Difference is the first that was found; empty where there is none.
	Difference string
}

const (
	selectLogged = `SELECT kind, id, next FROM log_topics WHERE kind < 4 AND (id, kind) < ($1, $2) ORDER BY id DESC, kind DESC LIMIT $3`
	// loggedPage is how many topics are compared between two looks for more, and comparedRuns how many runs are read at once.
	loggedPage   = 100
	comparedRuns = 1000
)

// CheckLog compares the public log with the tables: every fact of every topic that is there must make the very leaf that is in the log, and
// the results that are in no leaf as they stand must follow from those that are.
// It begins with the newest topics, and ends after a time where limit is not 0. Events that are not kept any more can't be compared.
func (db *DB) CheckLog(ctx context.Context, limit time.Duration) (c LogCheck, err error) {
	l := &Log{db: db, lottery: NewLottery(db), auctions: NewAuctions(db), draws: NewMultidraws(db)}
	r := NewLogReader(db)
	state, err := r.Published(ctx)
	if err != nil {
		return c, err
	}
	c.Leaves, c.Refused = state.Leaves, state.Refused
	secret, err := l.Secret(ctx)
	if err != nil {
		return c, err
	}
	began, id, kind := time.Now(), uuid.Max, logkeeper.Kind(0)
	for {
		topics, err := query(ctx, db, func(row pgx.CollectableRow) (n logkeeper.News, err error) {
			err = row.Scan(&n.Kind, &n.ID, &n.End)
			return n, err
		}, selectLogged, id, kind, loggedPage)
		if err != nil {
			return c, err
		}
		for _, n := range topics {
			if limit > 0 && time.Since(began) > limit {
				return c, nil
			}
			if c.Difference, err = l.compare(ctx, r, n, secret, &c); err == nil && c.Difference == "" {
				c.Difference, err = l.compareResults(ctx, n)
			}
			if contradicts(ctx, err) {
				c.Difference, err = n.String()+": "+err.Error(), nil
			}
			if err != nil || c.Difference != "" {
				return c, err
			}
			c.Topics++
			id, kind = n.ID, n.Kind
		}
		if len(topics) < loggedPage {
			break
		}
	}
	if state.Checkpoint != "" {
		if c.Difference, err = compareTree(ctx, r, &state, limit-time.Since(began), limit > 0); contradicts(ctx, err) {
			c.Difference, err = "the public log: "+err.Error(), nil
		}
	}
	c.Complete = err == nil && (limit == 0 || time.Since(began) < limit)
	return c, err
}

// contradicts reports whether an error tells what the tables have, or lack, and no failure to read them.
func contradicts(ctx context.Context, err error) bool {
	_, refused := errors.AsType[*pgconn.PgError](err)
	return err != nil && ctx.Err() == nil && !refused && !errors.Is(err, command.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded)
}

// treeAtOnce is how many bundles are compared with hashes that are read once.
const treeAtOnce = 64

// compareTree compares the entries with the hashes that the published checkpoint signs: the newest first, as long as there is time where that is limited.
func compareTree(ctx context.Context, r *LogReader, state *logkeeper.Published, left time.Duration, limited bool) (difference string, err error) {
	tree, err := logkeeper.TreeOf(state.Checkpoint, state.Verifier)
	if err != nil {
		return "", err
	}
	began := time.Now()
	var hashes tlog.HashReader
	for number, n := (tree.N-1)/translog.TileWidth, 0; number >= 0 && tree.N > 0; number, n = number-1, n+1 {
		if limited && time.Since(began) > left {
			return "", nil
		}
		if n%treeAtOnce == 0 {
			hashes = logkeeper.Hashes(ctx, tree, r.Tile)
		}
		first := number * translog.TileWidth
		width := min(translog.TileWidth, tree.N-first)
		raw, err := r.Bundle(ctx, number, int(width))
		if err != nil {
			return "", err
		}
		indexes := make([]int64, width)
		for i := range indexes {
			indexes[i] = tlog.StoredHashIndex(0, first+int64(i))
		}
		signed, err := hashes.ReadHashes(indexes)
		if err != nil {
			return "", err
		}
		var entry []byte
		for i, want := range signed {
			if entry, raw = cutEntry(raw); entry == nil || tlog.RecordHash(entry) != want {
				return fmt.Sprintf("entry %d of the log is not the one whose hash is signed", first+int64(i)), nil
			}
		}
	}
	return "", nil
}

// compare makes the leaves of a topic anew, and compares them with those that are there.
func (l *Log) compare(ctx context.Context, r *LogReader, n logkeeper.News, secret []byte, c *LogCheck) (difference string, err error) {
	names := alias.In(n.String(), secret)
	name := func(account string) string { return names.Of(account).Name }
	at := int64(0) // the next entry of the topic is not before this
	for n.Next < n.End {
		found, err := l.Facts(ctx, []logkeeper.News{n}, comparedRuns)
		if expired, ok := errors.AsType[*live.ExpiredError](err); ok {
			// Their leaves are passed over: one each, since no event that old has more.
			skipped, err := r.Leaves(ctx, n.Topic, at, math.MaxInt64, int(min(expired.First-n.Next, comparedRuns)))
			if err != nil || len(skipped) == 0 {
				return fmt.Sprintf("%s has fewer leaves than facts", n.Topic), err
			}
			n.Next, at = n.Next+int64(len(skipped)), skipped[len(skipped)-1].Index+1
			continue
		}
		if err != nil {
			return "", err
		}
		if len(found[0]) == 0 {
			return fmt.Sprintf("%s has %d facts in the log, and fewer in its tables", n.Topic, n.End), nil
		}
		found[0] = found[0][:min(int64(len(found[0])), n.End-n.Next)] // Others are not in the log yet.
		var want [][]byte
		for _, f := range found[0] {
			data, err := f.AppendData(nil, name)
			if err != nil {
				return "", err
			}
			leaf := translog.Leaf{Type: f.Type, Topic: n.String(), Seq: f.Seq, At: f.At, Data: data}
			if want, _, err = leaf.Entries(want, nil); err != nil {
				return "", err
			}
		}
		have, err := r.Leaves(ctx, n.Topic, at, math.MaxInt64, len(want))
		if err != nil {
			return "", err
		}
		for i := range want {
			if i >= len(have) {
				return fmt.Sprintf("%s lacks leaves in the log, from %.200s on", n.Topic, want[i]), nil
			}
			if !bytes.Equal(have[i].Data, want[i]) {
				return fmt.Sprintf("leaf %d of the log is %.400s, and the tables have %.400s", have[i].Index, have[i].Data, want[i]), nil
			}
		}
		c.Facts += int64(len(found[0]))
		n.Next, at = n.Next+int64(len(found[0])), have[len(have)-1].Index+1
	}
	return "", nil
}
