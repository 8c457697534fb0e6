package lottery

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Op is an operation on one campaign: one of the types below.
type Op interface {
	// action names the operation in the audit log; it is empty for one that is no administrative change.
	action() string
}

// Buy buys a random free position, of one layer or, with Layer 0, of any. Result: [Purchase].
type Buy struct {
	Account string
	Layer   int
	// User says that a user asks, for whom drafts do not exist.
	User bool
}

// Publish opens the sale. Result: *[Campaign].
type Publish struct{}

// Cancel ends a campaign that was not drawn and refunds every purchase. Result: *[Campaign]. One that is drawing can be cancelled only where too
// few witnesses have seen its seal in time.
type Cancel struct{}

// AskDraw returns the draw of a completed campaign, and draws a campaign that is found drawing. Result: *[Draw]. In beacon
// mode it needs the named round, which the service gets; without it, it is refused with [BeaconPendingError].
type AskDraw struct{ Round *fairdraw.Round }

// FinishDraw makes the draw of a campaign that is drawing; the sweepers send it. With a round it draws a sealed campaign in
// beacon mode, unless another process was first. The round's signature must have been verified: a core does not do that. Without
// one it is for a campaign that has been drawing for longer than StuckAfter, and in beacon mode, where only the round can make a
// draw, it does no more than seal what is not sealed yet. Result: bool, whether there was something to finish.
type FinishDraw struct {
	StuckAfter time.Duration
	Round      *fairdraw.Round
}

func (Create) action() string     { return "campaign.create" }
func (Buy) action() string        { return "" }
func (Publish) action() string    { return "campaign.publish" }
func (Cancel) action() string     { return "campaign.cancel" }
func (AskDraw) action() string    { return "campaign.draw" }
func (FinishDraw) action() string { return "" }

// State is what the transaction on one campaign works on, all of it read under the campaign's lock.
type State struct {
	Campaign  *Campaign
	Inventory *Inventory
	Book      *ledger.Book
	Seed      fairdraw.Seed // zero unless [Need] asked for it
	Draw      *Draw         // the result, where there is one and [Need] asked for it
	Random    func(n int) int
	Since     time.Time     // when the latest sale was made: no later one is earlier
	Lead      time.Duration // least time from the seal to the round that is named; a period at least

	// What the transaction has to write.
	Purchases []Purchase
	Sealed    bool  // the campaign was sealed by this transaction
	Drawn     *Draw // made by this transaction
	Changed   bool  // the campaign's row
	Refunded  bool  // the campaign was cancelled by this transaction
}

// now is the present time, but never before the latest sale: one that was decided without the campaign's lock bears the latest time that it
// could have been.
func (s *State) now() time.Time {
	if now := s.Book.Now(); now.After(s.Since) {
		return now
	}
	return s.Since
}

// Need is what a batch needs beside the campaign, its inventory and the records of its keys.
type Need struct {
	Accounts []string
	Result   bool // the seed, and the draw where there is one
	// Reread says that the inventory must be read from the sales themselves, not brought up to date: what ends a campaign
	// rests on nothing that a process remembers.
	Reread bool
}

// buyers returns the accounts of operations that only buy, and nil where there are others.
func buyers(ops []Op) []string {
	accounts := make([]string, len(ops))
	for i, op := range ops {
		buy, ok := op.(Buy)
		if !ok {
			return nil
		}
		accounts[i] = buy.Account
	}
	return accounts
}

// Plan returns what ops may need of a campaign in the given state; it may return too much.
func Plan(c *Campaign, inv *Inventory, ops []Op) Need {
	var need Need
	buys := 0
	finish := func() {
		need.Result, need.Reread = true, true
		need.Accounts = append(need.Accounts, c.Escrow, c.Beneficiary)
	}
	for _, op := range ops {
		switch op := op.(type) {
		case Buy:
			buys++
			need.Accounts = append(need.Accounts, op.Account, c.Escrow)
		case Cancel:
			need.Reread = true
			need.Accounts = append(need.Accounts, c.Escrow)
			for _, owner := range inv.Owners() {
				if owner != "" {
					need.Accounts = append(need.Accounts, owner)
				}
			}
		case AskDraw, FinishDraw:
			finish()
		}
	}
	if buys > 0 && buys >= inv.Free(0) {
		finish()
	}
	return need
}

// Decide applies one operation to a campaign. An error is a refusal and has changed nothing.
func Decide(s *State, op Op) (any, error) {
	switch op := op.(type) {
	case Buy:
		return decideBuy(s, op)
	case Publish:
		return decidePublish(s)
	case Cancel:
		return decideCancel(s)
	case AskDraw:
		return decideAskDraw(s, op)
	case FinishDraw:
		return decideFinishDraw(s, op)
	}
	panic("lottery: unknown operation")
}

func decideBuy(s *State, op Buy) (any, error) {
	c, now := s.Campaign, s.now()
	if op.User && c.Draft() {
		return nil, &CampaignNotFoundError{ID: c.ID}
	}
	if _, err := s.Book.Account(op.Account); err != nil {
		return nil, err
	}
	if op.Layer > len(c.Layers) {
		return nil, &LayerNotFoundError{Layer: op.Layer}
	}
	switch {
	case c.Status == StatusPending, c.Status == StatusCancelled:
		return nil, ErrNotActive
	case c.Status != StatusActive, s.Inventory.Free(op.Layer) == 0:
		return nil, ErrSoldOut
	case c.PurchaseLimit != nil && s.Inventory.Bought(op.Account) >= *c.PurchaseLimit:
		return nil, ErrPurchaseLimit
	}
	position := c.Position(s.Inventory.Pick(op.Layer, s.Random))
	layer := &c.Layers[position.Layer-1]
	last := s.Inventory.Free(0) == 1
	if last {
		// The sale that completes a campaign also pays its beneficiary, so it must be possible as a whole.
		if err := s.canPayOut(layer.Price); err != nil {
			return nil, err
		}
	}
	t, err := s.Book.Move(ledger.KindPurchase, op.Account, c.Escrow, layer.Price, "")
	if err != nil {
		return nil, err
	}
	s.Inventory.Sell(position.Layer, position.Ordinal, op.Account)
	layer.Sold++
	c.SoldPositions++
	p := Purchase{
		ID: s.Book.NewID(), Campaign: c.ID, Seq: c.SoldPositions, Account: op.Account,
		Position: position, Price: layer.Price, Transfer: t.ID, At: now,
	}
	s.Purchases = append(s.Purchases, p)
	s.change()
	if c.SoldPositions > c.TotalPositions || c.SoldPositions != s.Inventory.Sold() {
		panic("lottery: the counters disagree")
	}
	if last {
		c.Status, c.DrawStartedAt = StatusDrawing, &now
		finish := func() error { return s.complete(nil) }
		if c.DrawMode == DrawBeacon {
			finish = s.seal
		}
		if err := finish(); err != nil {
			// Everything was checked before; to go on would sell the last position without its draw.
			panic(fmt.Sprintf("lottery: the draw failed: %v", err))
		}
	}
	return p, nil
}

func decidePublish(s *State) (any, error) {
	if s.Campaign.Status != StatusPending {
		return nil, ErrBadTransition
	}
	now := s.Book.Now()
	s.Campaign.Status, s.Campaign.PublishedAt = StatusActive, &now
	s.change()
	return s.Campaign, nil
}

func decideCancel(s *State) (any, error) {
	c := s.Campaign
	if c.Status != StatusPending && c.Status != StatusActive && (c.Status != StatusDrawing || !s.unwitnessed()) {
		return nil, ErrBadTransition
	}
	// Whether every buyer can take the money back is checked before the first refund, since a refusal must change nothing.
	if _, err := s.Book.Account(c.Escrow); err != nil {
		return nil, err
	}
	due := map[string]int64{}
	for ordinal, owner := range s.Inventory.Owners() {
		if owner != "" {
			due[owner] += c.Layers[c.Position(ordinal).Layer-1].Price
		}
	}
	for owner, amount := range due {
		if err := s.Book.CanReceive(owner, amount); err != nil {
			return nil, err
		}
	}
	for ordinal, owner := range s.Inventory.Owners() {
		if owner == "" {
			continue
		}
		price := c.Layers[c.Position(ordinal).Layer-1].Price
		if _, err := s.Book.Move(ledger.KindRefund, c.Escrow, owner, price, ""); err != nil {
			panic(fmt.Sprintf("lottery: a refund failed: %v", err))
		}
	}
	now := s.now()
	c.Status, c.CancelledAt, s.Refunded = StatusCancelled, &now, true
	s.change()
	return c, nil
}

func decideAskDraw(s *State, op AskDraw) (any, error) {
	switch s.Campaign.Status {
	case StatusCompleted:
		return s.result(), nil
	case StatusDrawing:
		if b := s.Campaign.Beacon; b != nil && b.Seal == nil {
			return nil, ErrNotDrawn // The sweeper seals it first.
		}
		if err := s.complete(op.Round); err != nil {
			return nil, err
		}
		return s.result(), nil
	case StatusPending, StatusActive, StatusCancelled:
	}
	return nil, ErrNotSoldOut
}

func decideFinishDraw(s *State, op FinishDraw) (any, error) {
	c := s.Campaign
	inBeaconMode := c.DrawMode == DrawBeacon
	switch {
	case c.Status != StatusDrawing:
		return false, nil
	case inBeaconMode && op.Round != nil:
		return true, s.complete(op.Round)
	case c.DrawStartedAt != nil && s.Book.Now().Sub(*c.DrawStartedAt) < op.StuckAfter, inBeaconMode && c.Beacon.Seal != nil:
		return false, nil
	case inBeaconMode:
		return true, s.seal()
	}
	return true, s.complete(nil)
}

func (s *State) result() *Draw {
	if s.Drawn != nil {
		return s.Drawn
	}
	if s.Draw == nil {
		panic("lottery: a completed campaign without its draw")
	}
	return s.Draw
}

// complete draws, unless the result is there already, pays the beneficiary and ends the campaign. In beacon mode it needs
// the round.
func (s *State) complete(round *fairdraw.Round) error {
	c, now := s.Campaign, s.now()
	if c.Status != StatusDrawing || c.SoldPositions != c.TotalPositions {
		panic("lottery: a draw before everything is sold")
	}
	if err := s.canPayOut(0); err != nil {
		return err
	}
	if s.Draw == nil {
		drawn, err := s.draw(round)
		if err != nil {
			return err
		}
		drawn.CompletedAt = now
		s.Drawn = drawn
	}
	escrow, err := s.Book.Account(c.Escrow)
	if err != nil {
		return err
	}
	if escrow.Available > 0 {
		if _, err := s.Book.Move(ledger.KindPayout, c.Escrow, c.Beneficiary, escrow.Available, ""); err != nil {
			return err
		}
	}
	c.Status, c.CompletedAt = StatusCompleted, &now
	s.change()
	return nil
}

// draw selects the winners. In beacon mode it does so from what was sealed, or not at all.
func (s *State) draw(round *fairdraw.Round) (*Draw, error) {
	c, in := s.Campaign, s.DrawInput()
	if c.DrawMode == DrawBeacon {
		if err := s.beaconInput(&in, round); err != nil {
			return nil, err
		}
	} else {
		round = nil
	}
	drawn, err := fairdraw.Draw(in)
	if err != nil {
		return nil, fmt.Errorf("lottery: draw of campaign %s: %w", c.ID, err)
	}
	if c.DrawMode == DrawBeacon && drawn.Root != c.Beacon.Seal.Root {
		return nil, ErrSealBroken
	}
	return &Draw{Campaign: c.ID, Root: drawn.Root, Winners: drawn.Winners, Round: round}, nil
}

// change marks the campaign's row as changed. One transaction makes one new version of it, however many its commands.
func (s *State) change() {
	if !s.Changed {
		s.Changed = true
		s.Campaign.Version++
	}
}

// canPayOut reports whether the beneficiary can take what is in escrow and more.
func (s *State) canPayOut(more int64) error {
	escrow, err := s.Book.Account(s.Campaign.Escrow)
	if err != nil {
		return err
	}
	return s.Book.CanReceive(s.Campaign.Beneficiary, escrow.Available+more)
}

// DrawInput is what the draw of the campaign is computed from.
func (s *State) DrawInput() fairdraw.Input {
	return NewDrawInput(s.Campaign, s.Seed, s.Inventory.Owners())
}

// NewDrawInput spells a sold-out campaign as the draw reads it. owners is by ordinal.
func NewDrawInput(c *Campaign, seed fairdraw.Seed, owners []string) fairdraw.Input {
	in := fairdraw.Input{Campaign: c.ID.String(), Seed: seed, Positions: SealedPositions(c, owners)}
	for _, p := range c.Prizes {
		in.Prizes = append(in.Prizes, fairdraw.Prize(p))
	}
	return in
}

// SealedPositions lists the sold positions as the draw's Merkle tree seals them. owners is by ordinal.
func SealedPositions(c *Campaign, owners []string) []fairdraw.Position {
	positions := make([]fairdraw.Position, 0, len(owners))
	for ordinal, owner := range owners {
		if owner == "" {
			continue
		}
		positions = append(positions, c.sealedPosition(ordinal, owner))
	}
	return positions
}

func (c *Campaign) sealedPosition(ordinal int, owner string) fairdraw.Position {
	p := c.Position(ordinal)
	return fairdraw.Position{ID: p.ID.String(), Layer: p.Layer, Number: p.Number, Account: owner}
}

func commitmentOf(seed fairdraw.Seed) [32]byte { return sha256.Sum256(seed[:]) }
