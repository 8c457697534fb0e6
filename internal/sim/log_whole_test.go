//go:build unix

package sim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// logLeaf is what these tests read of a leaf.
type logLeaf struct {
	Type  string          `json:"type"`
	Topic string          `json:"topic"`
	Seq   int64           `json:"seq"`
	At    time.Time       `json:"at"`
	Part  int             `json:"part"`
	Parts int             `json:"parts"`
	Text  string          `json:"text"`
	Data  json.RawMessage `json:"data"`
	Index int64           `json:"-"` // of its first entry
}

// wholeLog is the log as anybody can read it: its facts, and the hashes of its tree.
type wholeLog struct {
	head   head
	topics map[string][]logLeaf
	hashes []tlog.Hash // as tlog stores them
}

// readLog reads the whole log from a server, as a stranger would: the bundles under its checkpoint. It computes the tree anew, and
// checks the root, and that each topic's facts have the numbers 0, 1, 2, ….
func readLog(t *testing.T, s *logSite, server *sim.Server) *wholeLog {
	t.Helper()
	ctx := testwait.Context(t, 3*patience)
	status, body := fetch(ctx, server.URL()+"/log/checkpoint", "")
	if status != http.StatusOK {
		t.Fatalf("checkpoint: %d %s", status, body)
	}
	h, err := openHead(string(body), s.vkey)
	testwait.Must(t, err)
	l := &wholeLog{head: h, topics: map[string][]logLeaf{}}
	reader := tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		for _, i := range indexes {
			out = append(out, l.hashes[i])
		}
		return out, nil
	})
	parts := ""
	var whole logLeaf
	for at := int64(0); at < h.size; at += 256 {
		path := fmt.Sprintf("/log/tile/entries/%s", tileNumber(at/256))
		if width := min(h.size-at, 256); width < 256 {
			path += fmt.Sprintf(".p/%d", width)
		}
		status, raw := fetch(ctx, server.URL()+path, "")
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, raw)
		}
		for n := at; n < min(at+256, h.size); n++ {
			if len(raw) < 2 || len(raw) < 2+(int(raw[0])<<8|int(raw[1])) {
				t.Fatalf("%s ends before entry %d", path, n)
			}
			length := int(raw[0])<<8 | int(raw[1])
			entry := raw[2 : 2+length]
			raw = raw[2+length:]
			added, err := tlog.StoredHashes(n, entry, reader)
			testwait.Must(t, err)
			l.hashes = append(l.hashes, added...)
			var f logLeaf
			testwait.Must(t, json.Unmarshal(entry, &f))
			f.Index = n
			if f.Parts > 0 {
				if f.Part == 1 {
					whole, parts = f, ""
				}
				if f.Part != strings.Count(parts, "\x00")+1 || f.Topic != whole.Topic || f.Seq != whole.Seq || f.Parts != whole.Parts {
					t.Fatalf("entry %d is part %d of %s %d", n, f.Part, f.Topic, f.Seq)
				}
				if parts += f.Text + "\x00"; f.Part < f.Parts {
					continue
				}
				f.Index, f.Data = whole.Index, json.RawMessage(strings.ReplaceAll(parts, "\x00", ""))
			}
			facts := l.topics[f.Topic]
			if f.Seq != int64(len(facts)) || len(facts) > 0 && f.At.Before(facts[len(facts)-1].At) {
				t.Fatalf("entry %d is fact %d of %s, at %s, behind %d others", n, f.Seq, f.Topic, f.At, len(facts))
			}
			l.topics[f.Topic] = append(facts, f)
		}
		if len(raw) > 0 {
			t.Fatalf("%s has %d bytes more", path, len(raw))
		}
	}
	if root := l.root(t, h.size); root != h.root {
		t.Fatalf("%d entries have the root %s, and %s is signed", h.size, root, h.root)
	}
	return l
}

// tileNumber writes a tile's number as tlog-tiles does.
func tileNumber(n int64) string {
	text := fmt.Sprintf("%03d", n%1000)
	for n /= 1000; n > 0; n /= 1000 {
		text = fmt.Sprintf("x%03d/", n%1000) + text
	}
	return text
}

// root is that of the first n entries.
func (l *wholeLog) root(t *testing.T, n int64) tlog.Hash {
	t.Helper()
	root, err := tlog.TreeHash(n, tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		for _, i := range indexes {
			out = append(out, l.hashes[i])
		}
		return out, nil
	}))
	testwait.Must(t, err)
	return root
}

// oneHistory wants each tree that was signed to be the beginning of the log.
func (l *wholeLog) oneHistory(t *testing.T, heads []head) {
	t.Helper()
	for _, h := range heads {
		switch {
		case h.size > l.head.size:
			t.Errorf("%d leaves were signed, and the log has %d", h.size, l.head.size)
		case l.root(t, h.size) != h.root:
			t.Errorf("the first %d leaves were signed with another root:\n%s", h.size, h.note)
		}
	}
}

// facts is one row for each fact of the database that belongs into the log: its topic, number, type, time, and, of a bid, its amount.
const facts = `
	SELECT 'campaign:' || id, n, type, at, NULL::bigint FROM (
		SELECT id, row_number() OVER (PARTITION BY id ORDER BY place) - 1 AS n, type, at FROM (
			SELECT id, 1 AS place, 'campaign.created' AS type, created_at AS at FROM campaigns
			UNION ALL SELECT id, 2, 'campaign.published', published_at FROM campaigns WHERE published_at IS NOT NULL
			UNION ALL SELECT id, 3, 'campaign.sealed', coalesce(sealed_at, completed_at) FROM campaigns LEFT JOIN campaign_beacons ON campaign = id
				WHERE sealed_at IS NOT NULL OR status = 'completed'
			UNION ALL SELECT id, 4, 'campaign.drawn', completed_at FROM campaigns WHERE status = 'completed'
			UNION ALL SELECT id, 4, 'campaign.cancelled', cancelled_at FROM campaigns WHERE status = 'cancelled') AS f) AS g
	UNION ALL SELECT 'auction:' || id, 0, 'auction.created', created_at, NULL FROM auctions
	UNION ALL SELECT 'auction:' || auction, seq, type, at, NULL FROM auction_events
	UNION ALL SELECT 'auction:' || auction, seq, 'bid.placed', at, amount FROM auction_bids
	UNION ALL SELECT 'books', seq, 'books.closed', at, NULL FROM log_closings
	ORDER BY 1, 2`

// awaitWhole waits until all facts are leaves under a published checkpoint, where nothing happens any more but closings of the books.
func (s *logSite) awaitWhole(t *testing.T) {
	t.Helper()
	conn := pgtest.Connect(t, s.database)
	testwait.Eventually(t, 2*patience, "all facts are under a checkpoint", func() bool {
		var missing int64
		testwait.Must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM (`+facts+`) AS f (topic, seq, type, at, amount)
			LEFT JOIN log_topics AS l ON f.topic = CASE l.kind WHEN 1 THEN 'campaign:' || l.id WHEN 2 THEN 'auction:' || l.id ELSE 'books' END
			WHERE l.next IS NULL OR l.next <= f.seq`).Scan(&missing))
		state, err := readLogState(t.Context(), conn)
		testwait.Must(t, err)
		if state.Refused != "" {
			t.Fatalf("nothing is signed: %s", state.Refused)
		}
		return missing == 0 && state.Size == state.Published
	})
	testwait.Check(t, conn.Close(t.Context()))
}

// whole reads the log once all facts are in it, and wants it to have them each once, and no others. It reads again where the books
// were closed meanwhile.
func (s *logSite) whole(t *testing.T) (l *wholeLog, count int) {
	t.Helper()
	conn := pgtest.Connect(t, s.database)
	for {
		s.awaitWhole(t)
		l = readLog(t, s, s.servers[0])
		tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		testwait.Must(t, err)
		state, err := readLogState(t.Context(), tx)
		testwait.Must(t, err)
		if state.Size == l.head.size {
			count = l.hasAllFacts(t, tx)
			l.checkTables(t, tx)
			testwait.Check(t, tx.Rollback(t.Context()))
			testwait.Check(t, conn.Close(t.Context()))
			return l, count
		}
		testwait.Must(t, tx.Rollback(t.Context()))
	}
}

// hasAllFacts wants the facts of the database to be the log's leaves.
func (l *wholeLog) hasAllFacts(t *testing.T, tx pgx.Tx) (count int) {
	t.Helper()
	rows, err := tx.Query(t.Context(), facts)
	testwait.Must(t, err)
	var (
		topic, kind string
		seq         int64
		at          time.Time
		amount      *int64
		found       = map[string]int64{}
	)
	_, err = pgx.ForEachRow(rows, []any{&topic, &seq, &kind, &at, &amount}, func() error {
		count++
		if seq != found[topic] {
			t.Errorf("the database has fact %d of %s after %d others", seq, topic, found[topic])
		}
		found[topic]++
		if seq >= int64(len(l.topics[topic])) {
			t.Errorf("%s %d, a %s, is no leaf", topic, seq, kind)
			return nil
		}
		leaf := l.topics[topic][seq]
		if leaf.Type != kind || !leaf.At.Equal(at) {
			t.Errorf("%s %d is a %s at %s, and the leaf a %s at %s", topic, seq, kind, at, leaf.Type, leaf.At)
		}
		if amount != nil && amountOf(t, leaf) != *amount {
			t.Errorf("%s %d is a bid of %d, and the leaf one of %d", topic, seq, *amount, amountOf(t, leaf))
		}
		return nil
	})
	testwait.Must(t, err)
	for topic, leaves := range l.topics {
		if found[topic] != int64(len(leaves)) {
			t.Errorf("%s has %d leaves, and %d facts in the database", topic, len(leaves), found[topic])
		}
	}
	return count
}

func amountOf(t *testing.T, leaf logLeaf) int64 {
	t.Helper()
	var bid struct{ Amount int64 }
	testwait.Must(t, json.Unmarshal(leaf.Data, &bid))
	return bid.Amount
}

// checkTables wants the log's tables to have what its leaves say, and nothing else.
func (l *wholeLog) checkTables(t *testing.T, tx pgx.Tx) {
	t.Helper()
	var size, covered, distinct, bundles, topics int64
	testwait.Must(t, tx.QueryRow(t.Context(), `SELECT (SELECT size FROM log_state), (SELECT sum(count * parts) FROM log_runs),
		(SELECT count(DISTINCT i) FROM log_runs AS r, generate_series(r.index, r.index + r.count * r.parts - 1) AS i),
		(SELECT count(*) FROM log_bundles), (SELECT count(*) FROM log_topics)`).Scan(&size, &covered, &distinct, &bundles, &topics))
	if size != l.head.size || covered != size || distinct != size || bundles != (size+255)/256 || topics != int64(len(l.topics)) {
		t.Errorf("%d leaves are published; the tables have %d, runs of %d with %d different indexes, %d bundles, and %d topics of %d",
			l.head.size, size, covered, distinct, bundles, topics, len(l.topics))
	}
	rows, err := tx.Query(t.Context(), `SELECT `+topicName+`, next, open FROM log_topics`)
	testwait.Must(t, err)
	var (
		topic string
		next  int64
		open  bool
	)
	_, err = pgx.ForEachRow(rows, []any{&topic, &next, &open}, func() error {
		leaves := l.topics[topic]
		if next != int64(len(leaves)) {
			t.Errorf("%s has %d leaves, and the next is %d", topic, len(leaves), next)
			return nil
		}
		ended := slices.Contains([]string{"campaign.drawn", "campaign.cancelled", "auction.completed", "auction.cancelled"}, leaves[next-1].Type)
		if open == ended {
			t.Errorf("%s ends with %s, and is kept as open: %t", topic, leaves[next-1].Type, open)
		}
		return nil
	})
	testwait.Must(t, err)
	rows, err = tx.Query(t.Context(), `SELECT `+topicName+`, seq, index, count, parts FROM log_runs`)
	testwait.Must(t, err)
	var seq, index, count, parts int64
	_, err = pgx.ForEachRow(rows, []any{&topic, &seq, &index, &count, &parts}, func() error {
		for i := range count {
			if leaves := l.topics[topic]; seq+i >= int64(len(leaves)) || leaves[seq+i].Index != index+i*parts {
				t.Errorf("a run has %s %d at %d, where it is not", topic, seq+i, index+i*parts)
			}
		}
		return nil
	})
	testwait.Must(t, err)
	// The hashes that are served are those of the leaves.
	rows, err = tx.Query(t.Context(), `SELECT level, number, hashes FROM log_tiles`)
	testwait.Must(t, err)
	var (
		level  int
		number int64
		hashes []byte
		tiles  int
	)
	_, err = pgx.ForEachRow(rows, []any{&level, &number, &hashes}, func() error {
		tiles++
		for i := range int64(len(hashes) / tlog.HashSize) {
			at := tlog.StoredHashIndex(8*level, number*256+i)
			if at >= int64(len(l.hashes)) || tlog.Hash(hashes[i*tlog.HashSize:(i+1)*tlog.HashSize]) != l.hashes[at] {
				t.Errorf("hash %d of tile %d of level %d is not the tree's", i, number, level)
				return nil
			}
		}
		return nil
	})
	testwait.Must(t, err)
	want := 0
	for n := size; n > 0; n /= 256 {
		want += int((n + 255) / 256)
	}
	if tiles != want {
		t.Errorf("%d tiles, not %d", tiles, want)
	}
}

// topicName is a topic's name from its columns.
const topicName = `CASE kind WHEN 1 THEN 'campaign:' || id WHEN 2 THEN 'auction:' || id ELSE 'books' END`
