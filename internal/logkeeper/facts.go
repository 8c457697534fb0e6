package logkeeper

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/multidraw"
	"github.com/fairlead-dev/fairlead/translog"
)

// Names returns an account's alias in the fact's topic.
type Names func(account string) string

// Fact is something that anybody may know, with accounts by their names.
type Fact struct {
	Type string
	Seq  int64 // in its topic, from 0
	At   time.Time
	// Due is there for a seal: when the round is due that it names.
	Due time.Time
	// Data appends the leaf's data, in which accounts have their aliases. It is nil for a bid.
	Data func(to []byte, name Names) ([]byte, error)
	Bid  BidPlaced // of bid.placed
}

// AppendData appends the leaf's data.
func (f *Fact) AppendData(to []byte, name Names) ([]byte, error) {
	if f.Data == nil {
		return f.Bid.append(to, name), nil
	}
	return f.Data(to, name)
}

// TypeBidPlaced is the type of bids.
const TypeBidPlaced = string(auction.EventBidPlaced)

// The types of facts that are not events of auctions.
const (
	TypeCampaignCreated    = "campaign.created"
	TypeCampaignPublished  = "campaign.published"
	TypeCampaignSealed     = "campaign.sealed"
	TypeCampaignDrawn      = "campaign.drawn"
	TypeCampaignCancelled  = "campaign.cancelled"
	TypeAuctionCreated     = "auction.created"
	TypeMultidrawCommitted = "multidraw.committed"
	TypeMultidrawEnded     = "multidraw.ended"
	TypeBooksClosed        = "books.closed"
)

// object is data that holds no account.
func object(v any) func([]byte, Names) ([]byte, error) {
	return func(to []byte, _ Names) ([]byte, error) { return appendJSON(to, v) }
}

// appendJSON appends a compact document; only what must be is escaped in its strings.
func appendJSON(to []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(to, text...), err
}

type layerData struct {
	Positions int   `json:"positions"`
	Price     int64 `json:"price"`
}

type prizeData struct {
	Name     string `json:"name"`
	Layer    int    `json:"layer"`
	Quantity int    `json:"quantity"`
}

type chainData struct {
	Scheme      string `json:"scheme"`
	ChainHash   string `json:"chain_hash"`
	PublicKey   string `json:"public_key"`
	Period      int    `json:"period"`
	GenesisTime int64  `json:"genesis_time"`
	GenesisSeed string `json:"genesis_seed"`
	BeaconID    string `json:"beacon_id"`
}

type campaignData struct {
	Name          string      `json:"name"`
	Draw          string      `json:"draw"`
	Commitment    string      `json:"commitment"`
	Currency      string      `json:"currency"`
	Beneficiary   string      `json:"beneficiary"`
	Layers        []layerData `json:"layers"`
	Prizes        []prizeData `json:"prizes"`
	PurchaseLimit *int        `json:"purchase_limit,omitzero"`
	Beacon        *chainData  `json:"beacon,omitzero"`
	Witnesses     int         `json:"witnesses"`
}

type sealData struct {
	Positions int    `json:"positions"`
	Root      string `json:"root"`
	Round     uint64 `json:"round,omitzero"`
	DueAt     string `json:"due_at,omitzero"`
}

type roundData struct {
	Round     uint64 `json:"round"`
	Signature string `json:"signature"`
	Previous  string `json:"previous_signature,omitzero"`
}

type drawData struct {
	ServerSeed string     `json:"server_seed"`
	DrawSeed   string     `json:"draw_seed"`
	Winners    [][]int    `json:"winners"`
	Beacon     *roundData `json:"beacon,omitzero"`
}

// Campaign tells the facts of a campaign from a number on. The draw and its seed are there where it was drawn.
func Campaign(c *lottery.Campaign, draw *lottery.Draw, seed *fairdraw.Seed, from int64) ([]Fact, error) {
	facts := campaignFacts(c, draw, seed)
	for i := range facts {
		facts[i].Seq = int64(i)
		// A clock that was set back between two of them leaves them at one time.
		if i > 0 && facts[i].At.Before(facts[i-1].At) {
			facts[i].At = facts[i-1].At
		}
	}
	if from > int64(len(facts)) {
		return nil, fmt.Errorf("logkeeper: campaign %s has %d facts, and %d were known", c.ID, len(facts), from)
	}
	return facts[from:], nil
}

func campaignFacts(c *lottery.Campaign, draw *lottery.Draw, seed *fairdraw.Seed) []Fact {
	facts := []Fact{{Type: TypeCampaignCreated, At: c.CreatedAt, Data: func(to []byte, name Names) ([]byte, error) {
		return appendJSON(to, createdCampaign(c, name))
	}}}
	if c.PublishedAt != nil {
		facts = append(facts, Fact{Type: TypeCampaignPublished, At: *c.PublishedAt, Data: object(struct{}{})})
	}
	if sealed, ok := c.Sealed(); ok {
		var due time.Time
		if c.Beacon != nil {
			due = c.Beacon.Seal.DueAt
		}
		facts = append(facts, Fact{Type: TypeCampaignSealed, At: sealed, Due: due, Data: func(to []byte, _ Names) ([]byte, error) {
			seal := sealData{Positions: c.TotalPositions}
			if c.Beacon != nil {
				s := c.Beacon.Seal
				seal.Root, seal.Round, seal.DueAt = hex.EncodeToString(s.Root[:]), s.Round, s.DueAt.UTC().Format(translog.TimeLayout)
			} else {
				seal.Root = hex.EncodeToString(draw.Root[:])
			}
			return appendJSON(to, seal)
		}})
	}
	switch {
	case c.Status == lottery.StatusCompleted:
		facts = append(facts, Fact{Type: TypeCampaignDrawn, At: *c.CompletedAt, Data: func(to []byte, _ Names) ([]byte, error) {
			d, err := drawnCampaign(c, draw, *seed)
			if err != nil {
				return to, err
			}
			return appendJSON(to, d)
		}})
	case c.Status == lottery.StatusCancelled && c.CancelledAt != nil:
		facts = append(facts, Fact{Type: TypeCampaignCancelled, At: *c.CancelledAt, Data: object(struct{}{})})
	}
	return facts
}

func createdCampaign(c *lottery.Campaign, name Names) campaignData {
	d := campaignData{
		Name: c.Name, Draw: c.DrawMode, Commitment: hex.EncodeToString(c.Commitment[:]), Currency: c.Currency, Beneficiary: name(c.Beneficiary),
		PurchaseLimit: c.PurchaseLimit, Witnesses: c.Witnesses,
	}
	for _, l := range c.Layers {
		d.Layers = append(d.Layers, layerData{l.Positions, l.Price})
	}
	for _, p := range c.Prizes {
		d.Prizes = append(d.Prizes, prizeData(p))
	}
	if c.Beacon != nil {
		ch := c.Beacon.Chain
		d.Beacon = &chainData{
			Scheme: ch.Scheme, ChainHash: ch.Hash(), PublicKey: ch.PublicKey, Period: ch.PeriodSeconds,
			GenesisTime: ch.GenesisTime, GenesisSeed: ch.GenesisSeed, BeaconID: ch.BeaconID,
		}
	}
	return d
}

func drawnCampaign(c *lottery.Campaign, draw *lottery.Draw, seed fairdraw.Seed) (d drawData, err error) {
	in := lottery.NewDrawInput(c, seed, nil)
	if draw.Round != nil {
		in.Beacon = draw.Round.Signature
		d.Beacon = &roundData{draw.Round.Number, hex.EncodeToString(draw.Round.Signature), hex.EncodeToString(draw.Round.Previous)}
	}
	d.ServerSeed = hex.EncodeToString(seed[:])
	d.DrawSeed = fairdraw.NewProof(in, &fairdraw.Result{Root: draw.Root, Winners: draw.Winners}).DrawSeed
	d.Winners = make([][]int, len(c.Prizes))
	place := map[string]int{}
	for i, p := range c.Prizes {
		place[p.Name] = i
	}
	for _, w := range draw.Winners {
		i, ok := place[w.Prize]
		if !ok || w.Position.Layer < 1 || w.Position.Layer > len(c.Layers) {
			return d, fmt.Errorf("logkeeper: campaign %s has a winner of %q in layer %d", c.ID, w.Prize, w.Position.Layer)
		}
		d.Winners[i] = append(d.Winners[i], c.Layers[w.Position.Layer-1].First+w.Position.Number-1)
	}
	return d, nil
}

type auctionRoundData struct {
	Winners  int   `json:"winners"`
	Duration int64 `json:"duration"`
}

type auctionData struct {
	Title         string             `json:"title"`
	Currency      string             `json:"currency"`
	Seller        string             `json:"seller"`
	Rounds        []auctionRoundData `json:"rounds"`
	MinBid        int64              `json:"min_bid"`
	MinIncrement  int64              `json:"min_increment"`
	Window        int64              `json:"window"`
	Extension     int64              `json:"extension"`
	MaxExtensions int                `json:"max_extensions"`
	Cooldown      int64              `json:"cooldown"`
	UniqueAmounts bool               `json:"unique_amounts"`
}

// AuctionCreated is the fact that an auction was made.
func AuctionCreated(a *auction.Auction) Fact {
	return Fact{Type: TypeAuctionCreated, At: a.CreatedAt, Data: func(to []byte, name Names) ([]byte, error) {
		d := auctionData{
			Title: a.Title, Currency: a.Currency, Seller: name(a.Seller), MinBid: a.MinBid, MinIncrement: a.MinIncrement,
			Window: a.AntiSnipe.Window.Microseconds(), Extension: a.AntiSnipe.Extension.Microseconds(), MaxExtensions: a.AntiSnipe.MaxExtensions,
			Cooldown: a.Cooldown.Microseconds(), UniqueAmounts: a.UniqueAmounts,
		}
		for _, r := range a.Rounds {
			d.Rounds = append(d.Rounds, auctionRoundData{r.Winners, r.Duration.Microseconds()})
		}
		return appendJSON(to, d)
	}}
}

// BidPlaced is an accepted bid. Whose bid lost its place by it is not in the leaf: it follows from the leaves before.
type BidPlaced struct {
	Account                string
	Amount, PreviousAmount int64
	Round, Rank            int
}

// append appends the leaf's data. Bids are most of all facts, so this is written by hand.
func (b *BidPlaced) append(to []byte, name Names) []byte {
	to = append(append(append(to, `{"account":"`...), name(b.Account)...), `","amount":`...)
	to = append(strconv.AppendInt(to, b.Amount, 10), `,"previous_amount":`...)
	to = append(strconv.AppendInt(to, b.PreviousAmount, 10), `,"round":`...)
	to = append(strconv.AppendInt(to, int64(b.Round), 10), `,"rank":`...)
	return append(strconv.AppendInt(to, int64(b.Rank), 10), '}')
}

// AuctionEvent is an event of an auction that is no bid, from its data as it is stored.
func AuctionEvent(seq int64, at time.Time, kind string, stored []byte) Fact {
	return Fact{Type: kind, Seq: seq, At: at, Data: func(to []byte, name Names) ([]byte, error) {
		switch auction.EventType(kind) {
		case auction.EventRoundCompleted:
			return renamed(to, stored, func(d *auction.RoundCompletedData) {
				for i := range d.Winners {
					d.Winners[i].Account = name(d.Winners[i].Account)
				}
			})
		case auction.EventBidCarriedOver:
			return renamed(to, stored, func(d *auction.BidCarriedOverData) { d.Account = name(d.Account) })
		case auction.EventAuctionStarted, auction.EventAuctionCompleted, auction.EventAuctionCancelled, auction.EventRoundExtended, auction.EventRoundStarted:
			// No account is in it, and no text of a client.
			if bytes.ContainsAny(stored, " \t\r\n") {
				return to, fmt.Errorf("logkeeper: event %d of type %s is stored with white space", seq, kind)
			}
			return append(to, stored...), nil
		case auction.EventBidPlaced, auction.EventCountdown:
		}
		return to, fmt.Errorf("logkeeper: event %d is of type %q, which is not known", seq, kind)
	}}
}

// renamed appends stored data in which accounts got their aliases.
func renamed[D any](to, stored []byte, rename func(*D)) ([]byte, error) {
	var d D
	if err := json.Unmarshal(stored, &d, json.RejectUnknownMembers(true)); err != nil {
		return to, err
	}
	rename(&d)
	return appendJSON(to, &d)
}

type multidrawData struct {
	Count      int64             `json:"count"`
	Every      int               `json:"every"`
	Commitment string            `json:"commitment"`
	Range      *multidraw.Range  `json:"range,omitzero"`
	Prizes     []multidraw.Prize `json:"prizes,omitzero"`
}

type endedData struct {
	Status    multidraw.Status `json:"status"`
	Completed int64            `json:"completed"`
	Digest    string           `json:"digest"`
	Seed      string           `json:"seed,omitzero"`
}

// Multidraw tells the facts of a multi-draw from a number on.
func Multidraw(o *multidraw.Operation, from int64) []Fact {
	facts := []Fact{{Type: TypeMultidrawCommitted, At: o.StartedAt, Data: object(multidrawData{
		Count: o.Total, Every: o.Every, Commitment: hex.EncodeToString(o.Commitment[:]), Range: o.Spec.Range, Prizes: o.Spec.Prizes,
	})}}
	end := endedData{Status: multidraw.StatusCompleted, Completed: o.Completed, Digest: hex.EncodeToString(o.Digest[:])}
	switch {
	case o.CompletedAt != nil && o.Seed != nil:
		end.Seed = hex.EncodeToString(o.Seed[:])
		facts = append(facts, Fact{Type: TypeMultidrawEnded, Seq: 1, At: *o.CompletedAt, Data: object(end)})
	case o.RolledBackAt != nil:
		end.Status = multidraw.StatusRolledBack
		facts = append(facts, Fact{Type: TypeMultidrawEnded, Seq: 1, At: *o.RolledBackAt, Data: object(end)})
	}
	return facts[min(from, int64(len(facts))):]
}
