package audittest

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// CampaignShape is what a campaign is like.
type CampaignShape struct {
	Layers []int // positions of each
	Prizes []fairdraw.Prize
	Cancel bool // after it was published
	Open   bool // it is not sold out
	// Chain and Round make it one in beacon mode, Round being signed by the chain; the seal is Lead before the round is due.
	Chain *fairdraw.Chain
	Round fairdraw.Round
	Lead  time.Duration
}

// Quicknet is drand's chain with the round that it published as number 42, due a quarter of an hour behind [Zero].
func Quicknet() (*fairdraw.Chain, fairdraw.Round) {
	chain := beacon.Quicknet()
	signature, err := hex.DecodeString("95a9f9f5b231b7714de1553105d8ffdf3dcda24cfdb1e689319bccf79a9c8ce430a91b811fbfaf763900bc998b5d686a")
	if err != nil {
		panic(err)
	}
	return &chain, fairdraw.Round{Number: 42, Signature: signature}
}

// Campaign plays a campaign, and draws with package fairdraw.
func (p *Player) Campaign(start time.Time, shape CampaignShape) []Leaf {
	id := p.id().String()
	t := &topicLog{topic: "campaign:" + id}
	in := fairdraw.Input{Campaign: id, Seed: p.seed(), Prizes: shape.Prizes}
	data := map[string]any{
		"name": "a <campaign> & more", "draw": "instant", "commitment": in.Seed.Commitment(), "currency": "SIM", "beneficiary": p.bytes(16),
		"purchase_limit": 7, "witnesses": 0,
	}
	var layers, prizes []map[string]any
	for i, size := range shape.Layers {
		layers = append(layers, map[string]any{"positions": size, "price": 100 * (i + 1)})
		for n := range size {
			in.Positions = append(in.Positions, fairdraw.Position{
				ID: fmt.Sprintf("p-%d-%d", i+1, n+1), Layer: i + 1, Number: n + 1, Account: fmt.Sprintf("a%d", p.Rand.IntN(9)),
			})
		}
	}
	for _, prize := range shape.Prizes {
		prizes = append(prizes, map[string]any{"name": prize.Name, "layer": prize.Layer, "quantity": prize.Quantity})
	}
	data["layers"], data["prizes"] = layers, prizes
	sealedAt := start.Add(2 * time.Minute)
	if c := shape.Chain; c != nil {
		data["draw"] = "beacon"
		data["beacon"] = map[string]any{
			"scheme": c.Scheme, "chain_hash": c.Hash(), "public_key": c.PublicKey, "period": c.PeriodSeconds, "genesis_time": c.GenesisTime,
			"genesis_seed": c.GenesisSeed, "beacon_id": c.BeaconID,
		}
		sealedAt = c.TimeOf(shape.Round.Number).Add(-shape.Lead)
		in.Beacon = shape.Round.Signature
	}
	t.add("campaign.created", start, encode(data))
	t.add("campaign.published", start.Add(time.Second), `{}`)
	if shape.Open {
		return t.leaves
	}
	if shape.Cancel {
		t.add("campaign.cancelled", start.Add(time.Minute), `{}`)
		return t.leaves
	}
	result, err := fairdraw.Draw(in)
	if err != nil {
		panic(err)
	}
	seal := map[string]any{"positions": len(in.Positions), "root": hex.EncodeToString(result.Root[:])}
	drawn := map[string]any{"server_seed": hex.EncodeToString(in.Seed[:]), "draw_seed": fairdraw.NewProof(in, result).DrawSeed}
	drawnAt := sealedAt
	if c := shape.Chain; c != nil {
		due := c.TimeOf(shape.Round.Number)
		seal["round"], seal["due_at"] = shape.Round.Number, due.Format("2006-01-02T15:04:05.000000Z")
		round := map[string]any{"round": shape.Round.Number, "signature": hex.EncodeToString(shape.Round.Signature)}
		if len(shape.Round.Previous) > 0 {
			round["previous_signature"] = hex.EncodeToString(shape.Round.Previous)
		}
		drawn["beacon"], drawnAt = round, due.Add(time.Second)
	}
	winners := make([][]int, len(shape.Prizes))
	for _, w := range result.Winners {
		for i, prize := range shape.Prizes {
			if prize.Name == w.Prize {
				winners[i] = append(winners[i], ordinal(shape.Layers, w.Position))
			}
		}
	}
	drawn["winners"] = winners
	t.add("campaign.sealed", sealedAt, encode(seal))
	t.add("campaign.drawn", drawnAt, encode(drawn))
	return t.leaves
}

func ordinal(layers []int, p fairdraw.Position) int {
	n := p.Number - 1
	for _, size := range layers[:p.Layer-1] {
		n += size
	}
	return n
}

func (p *Player) seed() fairdraw.Seed {
	seed, err := fairdraw.ParseSeed(p.bytes(32))
	if err != nil {
		panic(err)
	}
	return seed
}

// MultidrawShape is what a multi-draw is like: of a range, or of prizes.
type MultidrawShape struct {
	Count int64
	Every int
	Spec  multidraw.Spec
	// Open: it has not ended. RolledBack: it ended after so many draws, if that is not all of them; -1 stands for none.
	Open       bool
	RolledBack int64
}

// Multidraw plays a multi-draw by package multidraw.
func (p *Player) Multidraw(start time.Time, shape MultidrawShape) []Leaf {
	seed := p.seed()
	o, d, err := multidraw.DecideCreate(&multidraw.Create{Count: shape.Count, Every: shape.Every, Spec: shape.Spec}, p.id(), seed, nil, multidraw.Grant{}, start)
	if err != nil {
		panic(err)
	}
	t := &topicLog{topic: multidraw.Topic(o.ID)}
	data := map[string]any{"count": o.Total, "every": o.Every, "commitment": seed.Commitment()}
	if shape.Spec.Range != nil {
		data["range"] = shape.Spec.Range
	} else {
		data["prizes"] = shape.Spec.Prizes
	}
	t.add("multidraw.committed", start, encode(data))
	if shape.Open {
		return t.leaves
	}
	end := map[string]any{"status": "completed"}
	if shape.RolledBack != 0 {
		// The digest of a part is that of the first checkpoints, which only the seed proves; the leaf does not have it.
		completed := max(shape.RolledBack, 0)
		end["status"], end["completed"] = "rolled_back", completed
		digest := hex.EncodeToString(o.Digest[:])
		if completed > 0 {
			digest = p.bytes(32)
		}
		end["digest"] = digest
	} else {
		multidraw.DecideAtOnce(o, d, start)
		end["completed"], end["digest"], end["seed"] = o.Completed, hex.EncodeToString(o.Digest[:]), hex.EncodeToString(seed[:])
	}
	t.add("multidraw.ended", start.Add(time.Second), encode(end))
	return t.leaves
}

// Books makes so many closings, a minute apart.
func (p *Player) Books(start time.Time, closings int) []Leaf {
	t := &topicLog{topic: "books"}
	for i := range closings {
		at := start.Add(time.Duration(i) * time.Minute)
		if i == 0 {
			t.add("books.closed", at, `{"accounts":0,"root":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","currencies":[]}`)
			continue
		}
		available, held, transit := p.Rand.Int64N(1<<50), p.Rand.Int64N(1<<50), p.Rand.Int64N(1<<51)-1<<50
		data := fmt.Sprintf(`{"accounts":%d,"root":"%s","currencies":[{"currency":"EUR","available":%d,"held":%d,"outside":%d,"transit":%d},`+
			`{"currency":"SIM","available":0,"held":0,"outside":0,"transit":0}]}`, i, p.bytes(32), available, held, available+held-transit, transit)
		t.add("books.closed", at, data)
	}
	return t.leaves
}

// Everything is a history of all kinds of topics, in order.
func (p *Player) Everything() []Leaf {
	zero := Zero()
	chain, round := Quicknet()
	prizes := []fairdraw.Prize{{Name: "first", Layer: 1, Quantity: 1}, {Name: "\u2028 \"others\"", Layer: 0, Quantity: 4}, {Name: "third", Layer: 3, Quantity: 2}}
	var all []Leaf
	for i := range 3 {
		later := zero.Add(time.Duration(i) * time.Minute)
		bidders := p.Aliases(20)
		all = append(all, p.Auction(later, AuctionShape{Bidders: bidders, Bids: 300, Batch: 4, Rounds: 3, Winners: 2, Unique: i == 0})...)
		all = append(all, p.Auction(later, AuctionShape{Bidders: bidders, Bids: 40, Batch: 4, Rounds: 2, Winners: 3, Cancel: i == 1, Open: i == 2})...)
		all = append(all, p.Campaign(later, CampaignShape{Layers: []int{1, 2, 3, 4}, Prizes: prizes})...)
		all = append(all, p.Campaign(later, CampaignShape{Layers: []int{3}, Cancel: i == 0, Open: i == 1})...)
		all = append(all, p.Campaign(later, CampaignShape{Layers: []int{2, 5, 9}, Prizes: prizes, Chain: chain, Round: round, Lead: time.Duration(3+i) * time.Second})...)
	}
	wide := multidraw.Spec{Range: &multidraw.Range{Min: -1 << 63, Max: 3074457345618258602}}
	weighted := multidraw.Spec{Prizes: []multidraw.Prize{{ID: "a", Name: "A", Weight: 1}, {ID: "b", Name: "B\n", Weight: 0, Value: -3}, {ID: "c", Name: "C", Weight: 9}}}
	all = append(all, p.Multidraw(zero, MultidrawShape{Count: 5000, Every: 1000, Spec: wide})...)
	all = append(all, p.Multidraw(zero, MultidrawShape{Count: 2345, Every: 100, Spec: weighted})...)
	all = append(all, p.Multidraw(zero, MultidrawShape{Count: 100, Every: 10, Spec: weighted, RolledBack: 40})...)
	all = append(all, p.Multidraw(zero, MultidrawShape{Count: 100, Every: 10, Spec: weighted, RolledBack: -1})...)
	all = append(all, p.Multidraw(zero, MultidrawShape{Count: 100, Every: 10, Spec: weighted, Open: true})...)
	all = append(all, p.Books(zero, 10)...)
	return Sort(all)
}
