package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// eventBidOutbid is the kind of the messages on the topics of accounts.
const eventBidOutbid = "bid.outbid"

// accountSources finds the active auctions in which accounts have standing bids, by their open holds. Of an account with more than 1,000
// open holds it looks at 1,000. OFFSET 0 has each auction looked up by itself.
const accountSources = `SELECT w.account, a.id, a.seq
	FROM unnest($1::text[]) AS w (account)
		CROSS JOIN LATERAL (SELECT auction FROM hold_rows WHERE account = w.account AND status = 'open' LIMIT 1000) AS h
		CROSS JOIN LATERAL (SELECT id, seq, status FROM auctions WHERE id = h.auction ORDER BY chapter DESC LIMIT 1) AS a
	WHERE a.status = 'active'`

// Notices are the topics of accounts: who was outbid, where, and with what. Their sources are the auctions in which the account has
// standing bids.
func (e *Events) Notices() *live.Notices {
	return &live.Notices{Prefix: ledger.TopicPrefix, Sources: e.accountSources, Since: e.standingSince, Make: outbidNotices}
}

func (e *Events) accountSources(ctx context.Context, topics []string) ([]live.Source, error) {
	accounts := make([]string, len(topics))
	for i, topic := range topics {
		accounts[i] = strings.TrimPrefix(topic, ledger.TopicPrefix)
	}
	return query(ctx, e.db.reads, func(row pgx.CollectableRow) (s live.Source, err error) {
		var id uuid.UUID
		err = row.Scan(&s.For, &id, &s.Head)
		s.For, s.Topic = ledger.TopicPrefix+s.For, auction.Topic(id)
		return s, err
	}, accountSources, accounts)
}

// standingSince returns the number of an account's standing bid in an auction: what came before it is not its concern. Where the bid
// does not stand any more, that is all there was.
func (e *Events) standingSince(ctx context.Context, s live.Source) (int64, error) {
	account, id := strings.TrimPrefix(s.For, ledger.TopicPrefix), strings.TrimPrefix(s.Topic, auction.TopicPrefix)
	found, err := query(ctx, e.db.reads, pgx.RowTo[int64],
		`SELECT s.seq FROM (SELECT id, unique_amounts FROM auctions WHERE id = $2 ORDER BY chapter DESC LIMIT 1) AS a `+standingOf, account, id)
	if err != nil || len(found) == 0 {
		return s.Head, err
	}
	return found[0], nil
}

// outbidData goes with bid.outbid.
type outbidData struct {
	Auction    string `json:"auction"`
	Round      int    `json:"round"`
	Amount     int64  `json:"amount"`
	Rank       int    `json:"rank"`
	MinWinning int64  `json:"min_winning_bid"`
	Event      int64  `json:"event"` // the number of its bid.placed
}

// outbidNotices makes the notices of an auction's event.
func outbidNotices(m live.Message) []live.Notice {
	if m.Type != string(auction.EventBidPlaced) || !bytes.Contains(m.JSON, []byte(`"outbid":[{`)) {
		return nil
	}
	var e struct {
		At   time.Time             `json:"at"`
		Data auction.BidPlacedData `json:"data"`
	}
	if err := json.Unmarshal(m.JSON, &e); err != nil {
		panic("postgres: an event that is no JSON: " + err.Error()) // It was encoded here.
	}
	_, id, _ := strings.Cut(m.Topic, ":")
	notices := make([]live.Notice, len(e.Data.Outbid))
	for i, o := range e.Data.Outbid {
		data, err := json.Marshal(outbidData{
			Auction: id, Round: e.Data.Round, Amount: o.Amount, Rank: o.Rank, MinWinning: e.Data.Floor, Event: m.Seq,
		})
		if err != nil {
			panic("postgres: an event that is no JSON: " + err.Error())
		}
		notices[i] = live.Notice{Topic: ledger.TopicPrefix + o.Account, Event: live.Event{Type: eventBidOutbid, At: e.At, Data: data}}
	}
	return notices
}
