//go:build unix

package sim

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/client"
)

// balance is what an account has by the clients' own books.
type balance struct {
	currency        string
	available, held int64
}

// sale is a campaign by the clients' own books.
type sale struct {
	beneficiary          string
	total                int
	published, cancelled bool
	bought               map[string]client.Purchase // by purchase id
}

func (s *sale) status() string {
	switch {
	case s.cancelled:
		return "cancelled"
	case !s.published:
		return "pending"
	case len(s.bought) == s.total:
		return "completed"
	default:
		return "active"
	}
}

// movement is one transfer in a client's answer.
type movement struct {
	kind, from, to, status string
	amount                 int64
}

// books are what the final answers of a history add up to. The order of the commands does not matter: each answer says
// what its command did, and what was done only adds.
type books struct {
	accounts  map[string]*balance
	movements map[string]movement    // by transfer id: deposits, withdrawals and transfers, whose answers have ids
	holds     map[string]client.Hold // by id, as in the last answer
	campaigns map[string]*sale
	keys      map[storedAnswer]int // stored answers, and how many commands got each
	wrong     []error
}

// storedAnswer is a stored answer in little room.
type storedAnswer struct {
	status int
	body   [sha256.Size]byte
}

func (b *books) complain(format string, args ...any) {
	b.wrong = append(b.wrong, fmt.Errorf("%w: "+format, append([]any{ErrModel}, args...)...))
}

// keep builds the books from the final answers. Commands without one are complained of.
func keep(ops []*Op) *books {
	b := &books{
		accounts: map[string]*balance{}, movements: map[string]movement{}, holds: map[string]client.Hold{},
		campaigns: map[string]*sale{}, keys: map[storedAnswer]int{},
	}
	finals := make([]Answer, len(ops))
	for i, op := range ops {
		final, ok := op.Final()
		if !ok {
			b.complain("%s has no final answer", op)
			continue
		}
		finals[i] = final
		if final.Stored() {
			b.keys[storedAnswer{final.Status, sha256.Sum256(final.Body)}]++
		}
	}
	// What commands name must exist before them: accounts and campaigns first, holds before what closes them.
	for _, phase := range []func(*Op) bool{
		func(op *Op) bool { return op.Kind == KindAccount },
		func(op *Op) bool { return op.Kind == KindCampaign },
		func(op *Op) bool { return op.Kind == KindHold },
		func(op *Op) bool { return op.Kind != KindAccount && op.Kind != KindCampaign && op.Kind != KindHold },
	} {
		for i, op := range ops {
			if phase(op) {
				b.apply(op, finals[i])
			}
		}
	}
	b.closeSales()
	return b
}

func (b *books) apply(op *Op, final Answer) {
	if final.Status >= 300 || final.Status == 0 {
		if id := final.Problem().Transfer; id != "" && op.Kind == KindTransfer {
			var t client.TransferRequest
			b.decode(op, op.Body, &t)
			b.move(op, id, movement{"transfer", t.From, t.To, "failed", t.Amount})
		}
		return
	}
	var told struct {
		ID string `json:"id"`
	}
	b.decode(op, final.Body, &told)
	switch op.Kind {
	case KindAccount:
		var a client.CreateAccountRequest
		b.decode(op, op.Body, &a)
		b.accounts[a.ID] = &balance{currency: a.Currency}
	case KindDeposit, KindWithdrawal:
		var m client.MovementRequest
		b.decode(op, op.Body, &m)
		outside := "outside/" + b.account(op, m.Account).currency
		if op.Kind == KindDeposit {
			b.account(op, m.Account).available += m.Amount
			b.move(op, told.ID, movement{"deposit", outside, m.Account, "completed", m.Amount})
		} else {
			b.account(op, m.Account).available -= m.Amount
			b.move(op, told.ID, movement{"withdrawal", m.Account, outside, "completed", m.Amount})
		}
	case KindTransfer:
		var t client.TransferRequest
		b.decode(op, op.Body, &t)
		b.account(op, t.From).available -= t.Amount
		b.account(op, t.To).available += t.Amount
		b.move(op, told.ID, movement{"transfer", t.From, t.To, "completed", t.Amount})
	case KindHold, KindCapture, KindRelease:
		b.applyHold(op, final)
	case KindCampaign, KindPublish, KindCancel, KindPurchase:
		b.applySale(op, final)
	case KindDraw: // It moves nothing.
	case KindCross: // Its books are two databases: the audit of cross-ledger runs reads both.
	}
}

func (b *books) applyHold(op *Op, final Answer) {
	var h client.Hold
	b.decode(op, final.Body, &h)
	h.CreatedAt, h.ExpiresAt = time.Time{}, time.Time{}
	owner := b.account(op, h.Account)
	if op.Kind == KindHold {
		if _, twice := b.holds[h.ID]; twice {
			b.complain("%s: hold %s was told to two commands", op, h.ID)
		}
		owner.available -= h.Amount
		owner.held += h.Amount
		b.holds[h.ID] = h
		return
	}
	if before, ok := b.holds[h.ID]; !ok || before.Status != "open" {
		b.complain("%s: hold %s was %q before", op, h.ID, before.Status)
	}
	owner.held -= h.Amount
	owner.available += h.Amount - h.Captured
	if op.Kind == KindCapture {
		var c client.CaptureRequest
		b.decode(op, op.Body, &c)
		b.account(op, c.To).available += h.Captured
		if c.Amount != nil && *c.Amount != h.Captured || c.Amount == nil && h.Captured != h.Amount {
			b.complain("%s: captured %d of %d", op, h.Captured, h.Amount)
		}
	}
	b.holds[h.ID] = h
}

func (b *books) applySale(op *Op, final Answer) {
	if op.Kind == KindPurchase {
		var p client.Purchase
		b.decode(op, final.Body, &p)
		p.At, p.Position.ID = time.Time{}, ""
		s := b.sale(op, p.Campaign)
		if _, twice := s.bought[p.ID]; twice {
			b.complain("%s: purchase %s was told to two commands", op, p.ID)
		}
		s.bought[p.ID] = p
		b.account(op, p.Account).available -= p.Price
		return
	}
	var c client.Campaign
	b.decode(op, final.Body, &c)
	switch op.Kind { //nolint:exhaustive // The caller passes only these and purchases.
	case KindCampaign:
		b.campaigns[c.ID] = &sale{beneficiary: c.Beneficiary, total: int(c.TotalPositions), bought: map[string]client.Purchase{}}
	case KindPublish:
		if s := b.sale(op, c.ID); s.published {
			b.complain("%s: published twice", op)
		}
		b.sale(op, c.ID).published = true
	case KindCancel:
		if s := b.sale(op, c.ID); s.cancelled {
			b.complain("%s: cancelled twice", op)
		}
		b.sale(op, c.ID).cancelled = true
	}
}

// closeSales pays the takings of what is sold out to the beneficiary and those of what is cancelled back.
func (b *books) closeSales() {
	for id, s := range b.campaigns {
		for _, p := range s.bought {
			switch s.status() {
			case "completed":
				b.accountOf("campaign "+id, s.beneficiary).available += p.Price
			case "cancelled":
				b.accountOf("campaign "+id, p.Account).available += p.Price
			}
		}
		if s.cancelled && len(s.bought) == s.total {
			b.complain("campaign %s was sold out and cancelled", id)
		}
	}
}

func (b *books) move(op *Op, id string, m movement) {
	if _, twice := b.movements[id]; twice || id == "" {
		b.complain("%s: transfer %q was told to two commands, or to none", op, id)
	}
	b.movements[id] = m
}

func (b *books) account(op *Op, id string) *balance { return b.accountOf(op.String(), id) }

func (b *books) accountOf(who, id string) *balance {
	if a, ok := b.accounts[id]; ok {
		return a
	}
	b.complain("%s: no client opened account %q", who, id)
	return &balance{}
}

func (b *books) sale(op *Op, id string) *sale {
	if s, ok := b.campaigns[id]; ok {
		return s
	}
	b.complain("%s: no client created campaign %q", op, id)
	return &sale{bought: map[string]client.Purchase{}}
}

func (b *books) decode(op *Op, text []byte, v any) {
	if err := json.Unmarshal(text, v); err != nil {
		b.complain("%s: %.200q: %v", op, text, err)
	}
}
