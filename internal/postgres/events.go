package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// Events is the log of all topics' events. Most have no table of their own: an accepted bid is its row in the history of
// bids, a sale is its purchase, and a draw is its result. It is safe for concurrent use.
type Events struct {
	db     *DB
	views  EventViews
	topics []topic
}

// EventViews speak the facts whose documents are the edge's to make.
type EventViews struct {
	// Purchase is the data of purchase.made. The position's id, layer and number are set.
	Purchase func(lottery.Purchase) json.RawMessage
	// Draw is the data of draw.completed.
	Draw func(*lottery.Draw) json.RawMessage
}

// topic is a kind of topics. To add one is to add its row in NewEvents.
type topic struct {
	prefix string
	heads  string // the statement that reads the last number of each that exists
	// events returns up to limit events above after, or live.ErrNoTopic or live.ExpiredError.
	events func(ctx context.Context, id uuid.UUID, after int64, limit int) ([]live.Event, error)
}

var _ live.Log = (*Events)(nil)

// NewEvents returns the log of db's events.
func NewEvents(db *DB, views EventViews) *Events {
	e := &Events{db: db, views: views}
	e.topics = []topic{
		{auction.TopicPrefix, `SELECT n.id, a.seq FROM unnest($1::uuid[]) AS n (id)
			CROSS JOIN LATERAL (SELECT seq FROM auctions WHERE id = n.id ORDER BY chapter DESC LIMIT 1) AS a`, e.auctionEvents},
		// The draw counts as the event after the last sale. Sales are never taken back: a cancelled campaign's purchases keep their numbers.
		{"campaign:", `SELECT n.id, c.sold_positions + (SELECT count(*) FROM draws WHERE campaign = n.id) FROM unnest($1::uuid[]) AS n (id)
			CROSS JOIN LATERAL (SELECT sold_positions FROM campaigns WHERE id = n.id ORDER BY chapter DESC LIMIT 1) AS c`, e.campaignEvents},
		{"multidraw:", `SELECT id, checkpoints FROM multidraws WHERE id = ANY ($1)`, e.multidrawEvents},
	}
	return e
}

// parse finds a topic's kind and the id of its entity. Other spellings of an id would be other topics of one entity, so
// there is only one.
func (e *Events) parse(name string) (*topic, uuid.UUID, bool) {
	for i := range e.topics {
		if rest, ok := strings.CutPrefix(name, e.topics[i].prefix); ok {
			id, err := uuid.Parse(rest)
			return &e.topics[i], id, err == nil && id.String() == rest
		}
	}
	return nil, uuid.UUID{}, false
}

// Events implements [live.Log], each call from one snapshot.
func (e *Events) Events(ctx context.Context, name string, after int64, limit int) ([]live.Event, error) {
	t, id, ok := e.parse(name)
	if !ok {
		return nil, live.ErrNoTopic
	}
	events, err := t.events(ctx, id, after, limit)
	if err != nil {
		return nil, fmt.Errorf("postgres: events of %s after %d: %w", name, after, err)
	}
	return events, nil
}

// Heads implements [live.Log].
func (e *Events) Heads(ctx context.Context, names []string) (map[string]int64, error) {
	ids := make(map[*topic][]uuid.UUID, len(e.topics))
	for _, name := range names {
		if t, id, ok := e.parse(name); ok {
			ids[t] = append(ids[t], id)
		}
	}
	out := make(map[string]int64, len(names))
	for t, some := range ids {
		heads, err := query(ctx, e.db.reads, pgx.RowToStructByPos[head], t.heads, some)
		if err != nil {
			return nil, fmt.Errorf("postgres: last events: %w", err)
		}
		for _, h := range heads {
			out[t.prefix+h.ID.String()] = h.Seq
		}
	}
	return out, nil
}

// head is a topic's last number.
type head struct {
	ID  uuid.UUID
	Seq int64
}

// selectEvents reads a page of an auction's events, merged from the two tables that have them. A bid that lost its place is looked up
// by itself: OFFSET 0 keeps the planner from going through all bids. The auction's own row comes
// with each of them, and alone where there are none, so that all of it is from one snapshot.
const selectEvents = `SELECT a.first_seq, e.seq, e.type, e.at, e.data, e.account, e.amount, e.previous_amount, e.round, e.rank,
		e.outbid, e.floor, o.account, o.amount,
		CASE WHEN e.outbid > 0 THEN (SELECT winners FROM auction_rounds WHERE auction = $1 AND round = e.round) END
	FROM (SELECT seq, first_seq FROM auctions WHERE id = $1 ORDER BY chapter DESC LIMIT 1) AS a LEFT JOIN LATERAL (
		(SELECT seq, type, at, data, NULL::text AS account, NULL::bigint AS amount, NULL::bigint AS previous_amount,
				NULL::integer AS round, NULL::integer AS rank, NULL::bigint AS outbid, NULL::bigint AS floor
			FROM auction_events WHERE auction = $1 AND seq > $2 ORDER BY seq LIMIT $3)
		UNION ALL
		(SELECT seq, NULL, at, NULL, account, amount, previous_amount, round, rank, outbid, floor
			FROM auction_bids WHERE auction = $1 AND seq > $2 ORDER BY seq LIMIT $3)
		ORDER BY seq LIMIT $3
	) AS e ON true
	LEFT JOIN LATERAL (SELECT account, amount FROM auction_bids WHERE auction = $1 AND seq = e.outbid OFFSET 0) AS o ON true
	ORDER BY e.seq`

// eventRow is a row of selectEvents. All but FirstSeq are null where there is no event; Type and Data are, where it is a
// bid. Outbid is null where a bid took nobody's winning place, and 0 where that was not recorded.
type eventRow struct {
	FirstSeq               int64
	Seq                    *int64
	Type                   *string
	At                     *time.Time
	Data, Account          *string
	Amount, PreviousAmount *int64
	Round, Rank            *int
	Outbid, Floor          *int64
	OutbidAccount          *string
	OutbidAmount           *int64
	Winners                *int // places of the round
}

func (e *Events) auctionEvents(ctx context.Context, id uuid.UUID, after int64, limit int) ([]live.Event, error) {
	rows, err := query(ctx, e.db.reads, pgx.RowToStructByPos[eventRow], selectEvents, id, after, limit)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, live.ErrNoTopic
	}
	if first := rows[0].FirstSeq; after+1 < first {
		return nil, &live.ExpiredError{First: first}
	}
	if rows[0].Seq == nil {
		return nil, nil
	}
	events := make([]live.Event, len(rows))
	for i, r := range rows {
		if want := after + int64(i) + 1; *r.Seq != want {
			return nil, fmt.Errorf("event %d is missing", want)
		}
		if events[i], err = r.event(); err != nil {
			return nil, err
		}
	}
	return events, nil
}

func (r eventRow) event() (live.Event, error) {
	e := live.Event{Seq: *r.Seq, At: *r.At}
	if r.Type != nil {
		e.Type, e.Data = *r.Type, json.RawMessage(*r.Data)
		return e, nil
	}
	e.Type = string(auction.EventBidPlaced)
	data := auction.BidPlacedData{
		Account: *r.Account, Amount: *r.Amount, PreviousAmount: *r.PreviousAmount, Round: *r.Round, Rank: *r.Rank,
	}
	switch {
	case r.Outbid == nil:
		data.Outbid = []auction.Outbid{}
	case *r.Outbid > 0:
		if r.OutbidAccount == nil || r.Winners == nil || r.Floor == nil {
			return e, fmt.Errorf("bid %d, which lost its place by bid %d, is missing", *r.Outbid, e.Seq)
		}
		data.Outbid = []auction.Outbid{{Account: *r.OutbidAccount, Amount: *r.OutbidAmount, Rank: *r.Winners + 1}}
		data.Floor = *r.Floor
	}
	var err error
	e.Data, err = json.Marshal(data)
	return e, err
}

// LiveEvents converts an auction's committed events to what readers of the log will get.
func LiveEvents(events []auction.Event) []live.Event {
	out := make([]live.Event, len(events))
	for i, e := range events {
		out[i] = LiveEvent(e)
	}
	return out
}

// LiveEvent is [LiveEvents] for one.
func LiveEvent(e auction.Event) live.Event {
	data, err := json.Marshal(e.Data)
	if err != nil {
		panic("postgres: an event that is no JSON: " + err.Error()) // Its types are ours, and all of them are.
	}
	return live.Event{Seq: e.Seq, Type: string(e.Type), At: e.At, Data: data}
}

// counters are a campaign's.
type counters struct{ Sold, Total int64 }

func (e *Events) campaignEvents(ctx context.Context, id uuid.UUID, after int64, limit int) ([]live.Event, error) {
	const (
		campaignSold = `SELECT sold_positions, total_positions FROM campaigns WHERE id = $1 ORDER BY chapter DESC LIMIT 1`
		selectSales  = `SELECT seq, account, layer, number, ordinal, at FROM purchases
			WHERE campaign = $1 AND seq > $2 ORDER BY seq LIMIT $3`
	)
	var (
		counts []counters
		sales  []lottery.Purchase
		draws  []lottery.Draw
	)
	err := e.db.reads.snapshot(ctx, "events of a campaign", readTimeout, func(ctx context.Context, tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(campaignSold, id).Query(collect(&counts, pgx.RowToStructByPos[counters]))
		b.Queue(selectSales, id, after, limit).Query(collect(&sales, func(row pgx.CollectableRow) (p lottery.Purchase, err error) {
			p.Campaign = id
			err = row.Scan(&p.Seq, &p.Account, &p.Position.Layer, &p.Position.Number, &p.Position.Ordinal, &p.At)
			p.Position.ID = lottery.PositionID(id, p.Position.Ordinal)
			return p, err
		}))
		b.Queue(selectResult, id).Query(collect(&draws, scanResult))
		return pgkit.Send(ctx, tx, &b)
	})
	if err != nil {
		return nil, err
	}
	if len(counts) == 0 {
		return nil, live.ErrNoTopic
	}
	if sold := counts[0].Sold; len(sales) == 0 && limit > 0 && after < sold {
		if at, err := e.db.archived(ctx, selectArchivedSales, id); err != nil || !at.IsZero() {
			return nil, cmp.Or[error](err, &live.ExpiredError{First: sold + 1})
		}
		return nil, fmt.Errorf("sale %d is missing", after+1)
	}
	events := make([]live.Event, 0, len(sales)+1)
	for i, p := range sales {
		if want := after + int64(i) + 1; int64(p.Seq) != want {
			return nil, fmt.Errorf("sale %d is missing", want)
		}
		events = append(events, live.Event{Seq: int64(p.Seq), Type: publish.EventPurchaseMade, At: p.At, Data: e.views.Purchase(p)})
	}
	// A draw is of a campaign that is sold out, so its number is known.
	if last := counts[0].Total + 1; len(draws) > 0 && after < last && len(events) < limit && after+int64(len(events))+1 == last {
		events = append(events, live.Event{Seq: last, Type: publish.EventDrawCompleted, At: draws[0].CompletedAt, Data: e.views.Draw(&draws[0])})
	}
	return events, nil
}

// pruneBatch is how many auctions are looked at between two looks for more.
const pruneBatch = 100

// errNoRetention is returned when everything would be deleted.
var errNoRetention = errors.New("the retention of events must be positive")

// Prune deletes the events of auctions that are older than the retention, by the database's clock, and notes from which
// one on they are kept. Accepted bids stay as history but count as expired events, too. Each auction is its own
// transaction, and one that another session has locked is left for the next call, which the error says. It returns how many events
// were deleted, up to any other error. Calls may overlap.
func (e *Events) Prune(ctx context.Context, retention time.Duration) (int64, error) {
	if retention <= 0 {
		return 0, errNoRetention
	}
	const agedAuctions = `SELECT number, id FROM auctions
		WHERE number > $1 AND first_seq <= seq AND created_at < clock_timestamp() - $2::bigint * interval '1 microsecond'
		ORDER BY number LIMIT $3`
	var (
		deleted, after int64
		blocked        error
	)
	for {
		page, err := query(ctx, e.db, pgx.RowToStructByPos[numbered], agedAuctions, after, retention.Microseconds(), pruneBatch)
		if err != nil {
			return deleted, fmt.Errorf("postgres: events to prune: %w", err)
		}
		for _, a := range page {
			n, err := e.prune(ctx, a.ID, retention)
			deleted += n
			if _, locked := errors.AsType[*command.BlockedError](err); locked {
				blocked = fmt.Errorf("auction %s: %w", a.ID, err)
			} else if err != nil {
				return deleted, err
			}
		}
		if len(page) < pruneBatch {
			return deleted, blocked
		}
		after = page[len(page)-1].Number
	}
}

type numbered struct {
	Number int64
	ID     uuid.UUID
}

// findHorizon finds an auction's oldest event that is young enough, which is the one after the last where there is none.
// The times of an auction's events never run backwards, so the old ones come first, and each is passed over once in its
// life. What commits meanwhile has greater numbers. Events that are not in the public log yet are kept,
// and so are all of an auction that the log has not seen and will.
const findHorizon = `SELECT least(a.seq + 1,
		(SELECT seq FROM auction_events WHERE auction = a.id AND seq >= a.first_seq AND at >= h.at ORDER BY seq LIMIT 1),
		(SELECT seq FROM auction_bids WHERE auction = a.id AND seq >= a.first_seq AND at >= h.at ORDER BY seq LIMIT 1),
		(SELECT next FROM log_topics WHERE kind = 2 AND id = a.id AND open),
		(SELECT a.first_seq FROM log_state WHERE a.number > seen_auctions AND NOT EXISTS (SELECT FROM log_topics WHERE kind = 2 AND id = a.id)))
	FROM auctions AS a, (SELECT clock_timestamp() - $2::bigint * interval '1 microsecond' AS at) AS h WHERE a.id = $1`

func (e *Events) prune(ctx context.Context, id uuid.UUID, retention time.Duration) (deleted int64, err error) {
	err = e.db.runOn(ctx, "prune_events", nil, func(ctx context.Context, tx pgx.Tx) error {
		deleted = 0
		var first []int64
		var b pgx.Batch
		b.Queue(findHorizon, id, retention.Microseconds()).Query(collect(&first, pgx.RowTo[int64]))
		if err := pgkit.Send(ctx, tx, &b); err != nil || len(first) == 0 {
			return err
		}
		tag, err := tx.Exec(ctx, `UPDATE auctions SET first_seq = $2 WHERE id = $1 AND first_seq < $2`, id, first[0])
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		tag, err = tx.Exec(ctx, `DELETE FROM auction_events WHERE auction = $1 AND seq < $2`, id, first[0])
		deleted = tag.RowsAffected()
		return err
	})
	return deleted, err
}
