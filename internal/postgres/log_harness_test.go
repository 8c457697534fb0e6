package postgres

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
)

// keptLog is a public log that is kept by one process or several.
type keptLog struct {
	db    *DB
	key   *translog.Key
	guard string
	tiles func(logkeeper.TileSource) logkeeper.TileSource // wraps what reads tiles, where it is there
	every time.Duration                                   // between closings; 0: as usual
}

func newKeptLog(t *testing.T, db *DB) *keptLog {
	t.Helper()
	return &keptLog{db: db, key: generated(t), guard: filepath.Join(t.TempDir(), "log.signed")}
}

func generated(t *testing.T) *translog.Key {
	t.Helper()
	key, err := translog.GenerateKey("fairlead.test/log")
	testwait.Check(t, err)
	return key
}

// keep has a process keep the log, as the leader of a term, until the test ends or end is called. with wraps the store.
func (l *keptLog) keep(t *testing.T, term int64, with func(logkeeper.Store) logkeeper.Store) (p *logkeeper.Publisher, end func()) {
	t.Helper()
	store, err := NewLog(l.db)
	testwait.Check(t, err)
	var wrapped logkeeper.Store = store
	if with != nil {
		wrapped = with(store)
	}
	tiles := store.Tile
	if l.tiles != nil {
		tiles = l.tiles(tiles)
	}
	p = logkeeper.NewPublisher(logkeeper.PublisherOptions{Store: wrapped, Tiles: tiles, Key: l.key, Guard: logkeeper.NewGuard(l.guard)})
	k := logkeeper.New(logkeeper.Options{Store: wrapped, Publisher: p, CloseEvery: l.every})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.Lead(ctx, term) })
	end = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		closing(t, store.Shutdown)
	})
	t.Cleanup(end)
	return p, end
}

// published is the log's state once so many leaves are under its checkpoint.
func (l *keptLog) published(t *testing.T, leaves func() int64) logkeeper.Published {
	t.Helper()
	var p logkeeper.Published
	testwait.Eventually(t, patience, "a checkpoint of all leaves", func() bool {
		least := leaves() // Before the log is read, which then has them.
		var err error
		p, err = NewLogReader(l.db).Published(t.Context())
		testwait.Check(t, err)
		return p.Size >= least && p.Size == p.Leaves
	})
	return p
}

// leavesOf is how many leaves there are at least once so many facts of a topic are in the log, and more than there can be before.
func (l *keptLog) leavesOf(t *testing.T, id uuid.UUID, facts, leaves int64) int64 {
	t.Helper()
	var next int64
	testwait.Check(t, l.db.pool.QueryRow(t.Context(), `SELECT coalesce(max(next), 0) FROM log_topics WHERE id = $1`, id).Scan(&next))
	if next < facts {
		return 1 << 60
	}
	return leaves
}

// leaf is what the tests read of one.
type leaf struct {
	Type  string          `json:"type"`
	Topic string          `json:"topic"`
	Seq   int64           `json:"seq"`
	At    time.Time       `json:"at"`
	Part  int             `json:"part"`
	Parts int             `json:"parts"`
	Text  string          `json:"text"`
	Data  json.RawMessage `json:"data"`
}

// topics reads the log from its bundles, holds every entry against the signed root, and returns the facts of each topic in order.
func (l *keptLog) topics(t *testing.T, p logkeeper.Published) map[string][]leaf {
	t.Helper()
	c, err := translog.Open(p.Checkpoint, l.key.Verifier())
	testwait.Check(t, err)
	var (
		edge   translog.Edge
		topics = map[string][]leaf{}
		parts  strings.Builder
		r      = NewLogReader(l.db)
	)
	for at := int64(0); at < c.Tree.N; at += translog.TileWidth {
		width := int(min(translog.TileWidth, c.Tree.N-at))
		raw, err := r.Bundle(t.Context(), at/translog.TileWidth, width)
		testwait.Check(t, err)
		for range width {
			var entry []byte
			if entry, raw = cutEntry(raw); entry == nil {
				t.Fatalf("an entry behind %d is missing", at)
			}
			edge.Append([]tlog.Hash{tlog.RecordHash(entry)})
			var f leaf
			testwait.Check(t, json.Unmarshal(entry, &f))
			if f.Parts > 0 {
				if parts.WriteString(f.Text); f.Part < f.Parts {
					continue
				}
				f.Data = json.RawMessage(parts.String())
				parts.Reset()
			}
			if facts := topics[f.Topic]; f.Seq != int64(len(facts)) || len(facts) > 0 && f.At.Before(facts[len(facts)-1].At) {
				t.Fatalf("%s has fact %d at %s after %+v", f.Topic, f.Seq, f.At, facts)
			}
			topics[f.Topic] = append(topics[f.Topic], f)
		}
	}
	if edge.Tree() != c.Tree {
		t.Fatalf("the entries make %v, and %v was signed", edge.Tree(), c.Tree)
	}
	return topics
}

func types(facts []leaf) (out []string) {
	for _, f := range facts {
		out = append(out, f.Type)
	}
	return out
}

// refused is the log's state once nothing is signed any more.
func (l *keptLog) refused(t *testing.T) (p logkeeper.Published) {
	t.Helper()
	testwait.Eventually(t, patience, "a refusal to sign", func() bool {
		var err error
		p, err = NewLogReader(l.db).Published(t.Context())
		testwait.Check(t, err)
		return p.Refused != ""
	})
	return p
}
