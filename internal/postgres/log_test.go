package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/alias"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// TestLogHasAllFacts has one of each kind of facts in the log, with aliases for names.
func TestLogHasAllFacts(t *testing.T) {
	t.Parallel()
	v, _ := newVenue(t, lottery.Options{})
	l := newKeptLog(t, v.db)
	l.keep(t, 1, nil)
	drawn := v.create(t, 2)
	for range 3 {
		v.must(t, drawn, lottery.Buy{Account: "ann"})
	}
	cancelled := v.create(t, 2)
	v.must(t, cancelled, lottery.Cancel{})
	s := auction.NewService(NewAuctions(v.db), auction.Options{})
	t.Cleanup(func() { closing(t, s.Close) })
	a, err := s.Create(t.Context(), own[auction.Op](auction.Create{
		Title: "lot", Currency: "EUR", Seller: "house", MinBid: 1, MinIncrement: 1, Rounds: []auction.NewRound{{Winners: 1, Duration: time.Hour}},
	}))
	testwait.Check(t, errors.Join(err, a.Err))
	lotID := result[*auction.Auction](t, a.Result).ID
	decide(t, s, lotID, auction.Start{})
	decide(t, s, lotID, auction.PlaceBid{Account: "ben", Amount: 10})
	decide(t, s, lotID, auction.Cancel{})
	draws := newMultidraws(t, NewMultidraws(v.db), multidraw.Options{})
	op := made(t, draws, inRange("dice", 10, false))

	p := l.published(t, func() int64 { return 4 + 3 + 5 + 2 + 1 })
	topics := l.topics(t, p)
	for topic, want := range map[string]string{
		"campaign:" + drawn.String():     "campaign.created campaign.published campaign.sealed campaign.drawn",
		"campaign:" + cancelled.String(): "campaign.created campaign.published campaign.cancelled",
		"auction:" + lotID.String():      "auction.created auction.started round.started bid.placed auction.cancelled",
		"multidraw:" + op.ID.String():    "multidraw.committed multidraw.ended",
	} {
		if got := strings.Join(types(topics[topic]), " "); got != want {
			t.Errorf("%s has %s", topic, got)
		}
	}
	if len(topics["books"]) == 0 {
		t.Error("the books were not closed")
	}
	secret, err := (&Log{db: v.db}).Secret(t.Context())
	testwait.Check(t, err)
	bid, ben := string(topics["auction:"+lotID.String()][3].Data), alias.In("auction:"+lotID.String(), secret).Of("ben").Name
	if want := `{"account":"` + ben + `","amount":10,"previous_amount":0,"round":1,"rank":1}`; bid != want {
		t.Errorf("the bid is %s, not %s", bid, want)
	}
	for topic, facts := range topics {
		for _, f := range facts {
			for _, name := range []string{"ann", "ben", "house"} {
				if strings.Contains(string(f.Data), `"`+name+`"`) {
					t.Errorf("%s names %s: %s", topic, name, f.Data)
				}
			}
		}
	}
	// By topic, all under one checkpoint.
	r := NewLogReader(v.db)
	for _, limit := range []int{1, 2, 100} {
		var got []string
		for from := int64(0); ; {
			page, err := r.Leaves(t.Context(), logkeeper.Topic{Kind: logkeeper.KindCampaign, ID: drawn}, from, p.Size, limit)
			testwait.Check(t, err)
			for _, e := range page {
				var f leaf
				testwait.Check(t, json.Unmarshal(e.Data, &f))
				got, from = append(got, f.Type), e.Index+1
			}
			if len(page) < limit {
				break
			}
		}
		if strings.Join(got, " ") != strings.Join(types(topics["campaign:"+drawn.String()]), " ") {
			t.Errorf("by %d: %v", limit, got)
		}
	}
}

// TestLargeFactsAreParts: a fact that no entry can hold is several, and comes together again.
func TestLargeFactsAreParts(t *testing.T) {
	t.Parallel()
	v, _ := newVenue(t, lottery.Options{})
	l := newKeptLog(t, v.db)
	l.keep(t, 1, nil)
	var prizes []lottery.Prize
	for i := range 1000 {
		prizes = append(prizes, lottery.Prize{Name: fmt.Sprintf("%d \"quoted\\\" <é> %s", i, strings.Repeat("ß", 100)), Quantity: 1})
	}
	a, err := v.Create(t.Context(), own[lottery.Op](lottery.Create{
		Name: "large", Layers: []lottery.NewLayer{{Positions: 1000}}, Price: new(int64(1)), Currency: "EUR", Beneficiary: "house", Prizes: prizes,
	}))
	testwait.Check(t, errors.Join(err, a.Err))
	id := result[*lottery.Campaign](t, a.Result).ID
	v.must(t, id, lottery.Publish{})
	topics := l.topics(t, l.published(t, func() int64 { return l.leavesOf(t, id, 2, 18) }))
	facts := topics["campaign:"+id.String()]
	if strings.Join(types(facts), " ") != "campaign.created campaign.published" || facts[0].Parts < 10 {
		t.Fatalf("%v, the first in %d parts", types(facts), facts[0].Parts)
	}
	var data struct {
		Prizes []struct{ Name string }
	}
	testwait.Check(t, json.Unmarshal(facts[0].Data, &data))
	for i, p := range prizes {
		if data.Prizes[i].Name != p.Name {
			t.Fatalf("prize %d is %q", i, data.Prizes[i].Name)
		}
	}
}

// lossy is a store some of whose answers are lost: what was asked for is done, and an error comes back.
type lossy struct {
	logkeeper.Store

	calls atomic.Int64
	lost  atomic.Int64
}

func (s *lossy) Append(ctx context.Context, term int64, b *logkeeper.Batch) error {
	err := s.Store.Append(ctx, term, b)
	if err == nil && s.calls.Add(1)%3 == 0 {
		s.lost.Add(1)
		return errDied
	}
	return err
}

// TestLogHasEachFactOnce has several processes keep the log one after the other, each of which doesn't notice that it doesn't lead any more, and
// whose answers are lost, while bids are placed.
func TestLogHasEachFactOnce(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	l := newKeptLog(t, db)
	s, id := lot(t, db, nil)
	var (
		bidding sync.WaitGroup
		enough  atomic.Bool
		bids    int64
	)
	bidding.Go(func() {
		for i := 0; !enough.Load(); i++ {
			account := []string{"ann", "bob"}[i%2]
			if a, err := s.Execute(t.Context(), id, own[auction.Op](auction.PlaceBid{Account: account, Amount: int64(10 + i)})); err != nil || a.Err != nil {
				t.Errorf("bid %d: %v", i, errors.Join(err, a.Err))
				return
			}
			bids++
		}
	})
	var stores []*lossy
	for term := range int64(4) {
		l.keep(t, term+1, func(store logkeeper.Store) logkeeper.Store {
			stores = append(stores, &lossy{Store: store})
			return stores[term]
		})
		testwait.Eventually(t, patience, "an answer that is lost", func() bool { return stores[term].lost.Load() > 0 })
	}
	enough.Store(true)
	bidding.Wait()
	topics := l.topics(t, l.published(t, func() int64 {
		return l.leavesOf(t, id, bids+3, bids+3)
	}))
	if facts := topics["auction:"+id.String()]; int64(len(facts)) != bids+3 {
		t.Errorf("%d facts of %d are in the log", len(facts), bids+3)
	}
}

// TestLogRefusesAnOlderCopy has the database be as it was before: the log, which was signed further, is not signed any more, and says so.
func TestLogRefusesAnOlderCopy(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	l := newKeptLog(t, db)
	_, end := l.keep(t, 1, nil)
	l.published(t, func() int64 { return 1 })
	end()
	// What a restore would bring back.
	type table struct{ name, rows string }
	var kept []table
	for _, name := range []string{"log_state", "log_tiles", "log_bundles", "log_topics", "log_runs", "log_closings"} {
		var rows string
		testwait.Check(t, db.pool.QueryRow(t.Context(), `SELECT coalesce(json_agg(r), '[]')::text FROM `+name+` AS r`).Scan(&rows))
		kept = append(kept, table{name, rows})
	}
	_, end = l.keep(t, 2, nil)
	s, id := lot(t, db, nil)
	decide(t, s, id, auction.PlaceBid{Account: "ann", Amount: 10})
	later := l.published(t, func() int64 { return 5 })
	end()
	for _, k := range kept {
		_, err := db.pool.Exec(t.Context(), `DELETE FROM `+k.name)
		testwait.Check(t, err)
		_, err = db.pool.Exec(t.Context(), `INSERT INTO `+k.name+` SELECT * FROM json_populate_recordset(NULL::`+k.name+`, $1::json)`, k.rows)
		testwait.Check(t, err)
	}
	_, end = l.keep(t, 3, nil)
	now := l.refused(t)
	end()
	if !strings.Contains(now.Refused, "older copy") || now.Size >= later.Size {
		t.Errorf("%q, with %d leaves published of %d before", now.Refused, now.Size, later.Size)
	}
	// Another history up to the same size is one, too.
	_, err := db.pool.Exec(t.Context(), `UPDATE log_state SET checkpoint = '', published = 0, refused = '', size = 0, root = sha256('')`)
	testwait.Check(t, err)
	for _, table := range []string{"log_tiles", "log_bundles", "log_topics", "log_runs", "log_closings"} {
		_, err := db.pool.Exec(t.Context(), `DELETE FROM `+table)
		testwait.Check(t, err)
	}
	_, end = l.keep(t, 4, nil)
	l.refused(t)
	end()
	var size int64
	testwait.Check(t, db.pool.QueryRow(t.Context(), `SELECT size FROM log_state`).Scan(&size))
	t.Logf("%d leaves were appended, and none signed", size)
}

// willing is a store that must not be told of a refusal to sign.
type willing struct {
	logkeeper.Store

	t *testing.T
}

func (s willing) Refuse(ctx context.Context, term int64, why string) error {
	if why != "" {
		s.t.Errorf("refused: %s", why)
	}
	return s.Store.Refuse(ctx, term, why)
}

// TestLogOutlastsUnreadTiles has a process that begins to keep the log fail to read its tiles for a while. That is no reason to refuse
// to sign: it goes on once they can be read.
func TestLogOutlastsUnreadTiles(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	l := newKeptLog(t, db)
	_, end := l.keep(t, 1, nil)
	before := l.published(t, func() int64 { return 1 })
	end()
	var failed atomic.Int64
	l.tiles = func(read logkeeper.TileSource) logkeeper.TileSource {
		return func(ctx context.Context, level int, number int64) ([]tlog.Hash, error) {
			if failed.Add(1) <= 2 {
				return nil, errDied
			}
			return read(ctx, level, number)
		}
	}
	s, id := lot(t, db, nil)
	decide(t, s, id, auction.PlaceBid{Account: "ann", Amount: 10})
	l.keep(t, 2, func(store logkeeper.Store) logkeeper.Store { return willing{store, t} })
	l.topics(t, l.published(t, func() int64 { return before.Size + 4 }))
	if failed.Load() <= 2 {
		t.Errorf("%d tiles were read", failed.Load())
	}
}

// TestCheckLog compares a log with its tables, whole and after each kind of change by hand.
func TestCheckLog(t *testing.T) {
	t.Parallel()
	db := tampered(t)
	l := newKeptLog(t, db)
	_, end := l.keep(t, 1, nil)
	s, id := lot(t, db, nil)
	for i := range 20 {
		decide(t, s, id, auction.PlaceBid{Account: []string{"ann", "bob"}[i%2], Amount: int64(10 + i)})
	}
	draws := newMultidraws(t, NewMultidraws(db), multidraw.Options{})
	made(t, draws, inRange("dice", 10, false))
	l.published(t, func() int64 { return 1 + 3 + 20 + 2 })
	end()
	check := func() LogCheck {
		t.Helper()
		c, err := db.CheckLog(t.Context(), 0)
		testwait.Check(t, err)
		return c
	}
	if c := check(); c.Difference != "" || !c.Complete || c.Topics != 2 || c.Facts != 25 {
		t.Errorf("%+v", c)
	}
	const turned = `UPDATE multidraw_chunks SET data = set_byte(data, 0, 255 - get_byte(data, 0)) WHERE seq = 1`
	for _, change := range []struct{ do, undo, want string }{
		{`UPDATE auction_bids SET amount = 1000 WHERE seq = 22`, `UPDATE auction_bids SET amount = 29 WHERE seq = 22`, "bid.placed"},
		{`UPDATE auctions SET title = 'other'`, `UPDATE auctions SET title = 'lot'`, "auction.created"},
		{turned, turned, "its numbers have the digest"},
		{`CREATE TABLE kept AS TABLE log_tiles; DELETE FROM log_tiles`, `INSERT INTO log_tiles TABLE kept; DROP TABLE kept`, "has 0 hashes"},
		{`UPDATE log_tiles SET hashes = set_byte(hashes, 40, 255 - get_byte(hashes, 40))`, `UPDATE log_tiles SET hashes = set_byte(hashes, 40, 255 - get_byte(hashes, 40))`, "the public log: "},
		{`CREATE TABLE kept AS TABLE log_bundles; DELETE FROM log_bundles`, `INSERT INTO log_bundles TABLE kept; DROP TABLE kept`, "is missing"},
		{`CREATE TABLE kept AS SELECT * FROM auction_events WHERE seq = 1; DELETE FROM auction_events WHERE seq = 1`, `INSERT INTO auction_events TABLE kept; DROP TABLE kept`, "auction:"},
		{`UPDATE multidraw_seeds SET seed = sha256('')`, ``, "multidraw.ended"},
	} {
		_, err := db.pool.Exec(t.Context(), change.do, pgx.QueryExecModeSimpleProtocol)
		testwait.Check(t, err)
		if c := check(); !strings.Contains(c.Difference, change.want) {
			t.Errorf("%s: %+v", change.do, c)
		}
		_, err = db.pool.Exec(t.Context(), change.undo, pgx.QueryExecModeSimpleProtocol)
		testwait.Check(t, err)
	}
}

// TestEventsStayUntilLogged: events that are not in the log yet are not pruned.
func TestEventsStayUntilLogged(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	l := newKeptLog(t, db)
	_, end := l.keep(t, 1, nil)
	s, id := lot(t, db, nil)
	l.published(t, func() int64 { return 4 })
	end()
	decide(t, s, id, auction.PlaceBid{Account: "ann", Amount: 10})
	unseen := oneLot(t, s)
	time.Sleep(2 * time.Millisecond) // So that all of it is older than the retention.
	_, err := NewEvents(db, testViews()).Prune(t.Context(), time.Millisecond)
	testwait.Check(t, err)
	l.keep(t, 2, nil)
	topics := l.topics(t, l.published(t, func() int64 { return 8 }))
	for topic, want := range map[uuid.UUID]string{id: "auction.created auction.started round.started bid.placed", unseen: "auction.created auction.started round.started"} {
		if got := strings.Join(types(topics["auction:"+topic.String()]), " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestClockBehindTheLogsBeginning: what is made while the database's clock is behind the log's beginning is in the log, and its events are kept for it.
func TestClockBehindTheLogsBeginning(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	_, err := db.pool.Exec(t.Context(), `UPDATE log_state SET began_at = began_at + interval '1 hour'`)
	testwait.Check(t, err)
	_, id := lot(t, db, nil)
	time.Sleep(2 * time.Millisecond) // So that all of it is older than the retention.
	_, err = NewEvents(db, testViews()).Prune(t.Context(), time.Millisecond)
	testwait.Check(t, err)
	l := newKeptLog(t, db)
	l.keep(t, 1, nil)
	topics := l.topics(t, l.published(t, func() int64 { return l.leavesOf(t, id, 3, 3) }))
	if got := strings.Join(types(topics["auction:"+id.String()]), " "); got != "auction.created auction.started round.started" {
		t.Errorf("the log has %q", got)
	}
}

// TestFactBecomesALeaf measures how long a bid that was answered is not under a published checkpoint.
func TestFactBecomesALeaf(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	l := newKeptLog(t, db)
	l.keep(t, 1, nil)
	s, id := lot(t, db, nil)
	l.published(t, func() int64 { return l.leavesOf(t, id, 3, 3) })
	bids := int64(0)
	testpromise.Check(t, "leaf", func() time.Duration {
		decide(t, s, id, auction.PlaceBid{Account: []string{"ann", "bob"}[bids%2], Amount: 10 + bids})
		committed := time.Now()
		bids++
		l.published(t, func() int64 { return l.leavesOf(t, id, 3+bids, 3+bids) })
		return time.Since(committed)
	})
}

// TestLogTerms: once a later term has begun, an earlier one neither begins nor appends.
func TestLogTerms(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	store, err := NewLog(db)
	testwait.Check(t, err)
	t.Cleanup(func() { closing(t, store.Shutdown) })
	state, err := store.Begin(t.Context(), 1)
	testwait.Check(t, err)
	_, err = store.Begin(t.Context(), 2)
	testwait.Check(t, err)
	b := &logkeeper.Batch{Before: state.Edge.Tree(), Entries: [][]byte{[]byte("{}")}, Bundled: []byte("\x00\x02{}")}
	b.Tiles = state.Edge.Append([]tlog.Hash{tlog.RecordHash(b.Entries[0])})
	b.After = state.Edge.Tree()
	if err := store.Append(t.Context(), 1, b); !errors.Is(err, logkeeper.ErrSuperseded) {
		t.Errorf("an earlier term appends: %v", err)
	}
	if _, err := store.Begin(t.Context(), 1); !errors.Is(err, logkeeper.ErrSuperseded) {
		t.Errorf("an earlier term begins: %v", err)
	}
	testwait.Check(t, store.Append(t.Context(), 2, b))
}

// TestSealsCountEarlyWitnesses: a cosignature counts whose second was over when the seal's round was due.
func TestSealsCountEarlyWitnesses(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	store, err := NewLog(db)
	testwait.Check(t, err)
	t.Cleanup(func() { closing(t, store.Shutdown) })
	id, due := uuid.Must(uuid.NewV7()), time.Now().Add(time.Minute).Truncate(time.Second)
	_, err = db.pool.Exec(t.Context(), saveSeals, [][16]byte{id}, []int64{7}, []time.Time{due})
	testwait.Check(t, err)
	for _, c := range []struct {
		size int64
		at   []time.Duration
		want int
	}{
		{7, []time.Duration{-time.Minute}, 0}, // The checkpoint does not have the seal.
		{8, []time.Duration{0, time.Second, -time.Second / 2}, 0},
		{8, []time.Duration{-time.Second, 0}, 1},
		{9, []time.Duration{-3 * time.Second, -2 * time.Second, time.Minute}, 2},
		{10, []time.Duration{-time.Second}, 2}, // Fewer than before.
	} {
		var at []time.Time
		for _, d := range c.at {
			at = append(at, due.Add(d))
		}
		testwait.Check(t, store.Seen(t.Context(), "key", "a checkpoint", c.size, at))
		var seen int
		testwait.Check(t, db.pool.QueryRow(t.Context(), `SELECT witnesses FROM log_seals WHERE campaign = $1`, id).Scan(&seen))
		if seen != c.want {
			t.Errorf("%v of size %d: %d witnesses, not %d", c.at, c.size, seen, c.want)
		}
	}
}

// TestOtherKeyResigns: a server with another key than the log's appends and signs nothing, and then makes room for one that has the key.
func TestOtherKeyResigns(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	l := newKeptLog(t, db)
	_, end := l.keep(t, 1, nil)
	before := l.published(t, func() int64 { return 1 })
	end()
	store, err := NewLog(db)
	testwait.Check(t, err)
	t.Cleanup(func() { closing(t, store.Shutdown) })
	k := logkeeper.New(logkeeper.Options{Store: store, Publisher: logkeeper.NewPublisher(logkeeper.PublisherOptions{
		Store: store, Tiles: store.Tile, Key: generated(t), Guard: logkeeper.NewGuard(""),
	})})
	lot(t, db, nil)
	ctx := testwait.Context(t, patience)
	k.Lead(ctx, 2) // It ends by itself.
	if ctx.Err() != nil || k.Leads() {
		t.Error("it has not resigned")
	}
	after := l.refused(t)
	if after.Checkpoint != before.Checkpoint || after.Leaves < before.Leaves+3 || !strings.Contains(after.Refused, "another key") {
		t.Errorf("%+v, and before %+v", after, before)
	}
	l.keep(t, 3, nil)
	if p := l.published(t, func() int64 { return after.Leaves }); p.Refused != "" {
		t.Errorf("%+v", p)
	}
}

// TestPoisonedFactDelaysItsTopicAlone has an event that no leaf can be made of: other topics' leaves come, and the topic's own once it is mended.
func TestPoisonedFactDelaysItsTopicAlone(t *testing.T) {
	t.Parallel()
	db := tampered(t)
	s, id := lot(t, db, nil)
	_, err := db.pool.Exec(t.Context(), `UPDATE auction_events SET type = 'nonsense' WHERE auction = $1 AND seq = 2`, id)
	testwait.Check(t, err)
	l := newKeptLog(t, db)
	l.keep(t, 1, nil)
	a, err := s.Create(t.Context(), own[auction.Op](auction.Create{
		Title: "other", Currency: "EUR", Seller: "seller", MinBid: 1, MinIncrement: 1, Rounds: []auction.NewRound{{Winners: 1, Duration: time.Hour}},
	}))
	testwait.Check(t, errors.Join(err, a.Err))
	other := result[*auction.Auction](t, a.Result).ID
	decide(t, s, other, auction.Start{})
	decide(t, s, other, auction.PlaceBid{Account: "ann", Amount: 10})
	topics := l.topics(t, l.published(t, func() int64 { return l.leavesOf(t, other, 4, 4) }))
	if got := strings.Join(types(topics["auction:"+id.String()]), " "); got != "auction.created auction.started" {
		t.Errorf("the poisoned topic has %s", got)
	}
	_, err = db.pool.Exec(t.Context(), `UPDATE auction_events SET type = 'round.started' WHERE auction = $1 AND seq = 2`, id)
	testwait.Check(t, err)
	topics = l.topics(t, l.published(t, func() int64 { return l.leavesOf(t, id, 3, 7) }))
	if got := strings.Join(types(topics["auction:"+id.String()]), " "); got != "auction.created auction.started round.started" {
		t.Errorf("mended, it has %s", got)
	}
}
