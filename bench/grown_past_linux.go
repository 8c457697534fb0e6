package main

import (
	"encoding/binary"
	"io"
	"sort"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/bench/load"
)

const (
	// grownFirst is the number of the first account, so that all of up to 9,000,000 have as many digits.
	grownFirst = 1_000_000
	// pastPositions are those that a campaign of the past sold. It had one more, so it is not drawn.
	pastPositions = 10_000
	pastPrice     = 1
	// Each auction of the past had so many bids, of so many bidders in turn, one a second. It was cancelled.
	pastBids    = 10_000
	pastBidders = 100
	pastAmount  = 1000 // of the first bid
	// Of ten rounds of transfers, one is of purchases.
	pastRounds = 10
)

// past is a history of which each row follows from its number, so that any number of processes can write parts of it. Its transfers begin with a
// deposit for each account. Then they go in rounds: in each, every account pays another one and is paid by one, or buys a position. So the
// versions of accounts are known without counting. Accounts have places, which scatter their names over the rounds.
type past struct {
	accounts, transfers, auctions int64
	begin, end                    time.Time
	stride                        int64    // from the name of an account to that of the next place
	escrows                       []string // of the campaigns
	finish                        []int64  // what the accounts have in the end, by place
}

func newPast(accounts, entries int64, begin, end time.Time) *past {
	p := &past{accounts: accounts, transfers: entries / 2, auctions: max(entries/10/pastBids, 1), begin: begin, end: end}
	for p.stride = max(accounts*618/1000, 1); gcd(p.stride, accounts) != 1; p.stride++ {
	}
	for k := range p.campaigns() {
		p.escrows = append(p.escrows, "escrow/"+p.campaign(k).String())
	}
	p.finish = make([]int64, accounts)
	for i := range p.transfers {
		m := p.move(i)
		if m.payer >= 0 {
			p.finish[m.payer] -= m.amount
		}
		if m.payee >= 0 {
			p.finish[m.payee] += m.amount
		}
	}
	return p
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// scatter makes a number of 64 bits look random (SplitMix64).
func scatter(n int64) uint64 {
	z := uint64(n)*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15 //nolint:gosec // Bits are what is wanted.
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// name is the number in the name of the account at a place.
func (p *past) name(place int64) int { return grownFirst + int(place*p.stride%p.accounts) }

// at is when a transfer was made.
func (p *past) at(i int64) time.Time {
	span := float64(p.end.Sub(p.begin))
	return p.begin.Add(time.Duration(span * float64(i) / float64(p.transfers))).Truncate(time.Microsecond)
}

// until is the number of the first transfer that was made at a time or later.
func (p *past) until(t time.Time) int64 {
	return int64(sort.Search(int(p.transfers), func(i int) bool { return !p.at(int64(i)).Before(t) }))
}

// move is a transfer: who had which version after it. A place is negative where it is no account's.
type move struct {
	payer, payee               int64
	payerVersion, payeeVersion int64
	amount                     int64
	campaign, seq              int64 // of a purchase: the campaign's and the sale's number; seq is 0 for others
}

const depositVersion = 2 // The account's opening made the first one.

// before is the version that all accounts have before a round.
func before(round int64) int64 { return depositVersion + 2*round - round/pastRounds }

func (p *past) move(i int64) move {
	n := p.accounts
	if i < n {
		return move{payer: -1, payee: i, payeeVersion: depositVersion, amount: openingBalance}
	}
	round, x := (i-n)/n, (i-n)%n
	version, start := before(round), int64(scatter(2*round)%uint64(n)) //nolint:gosec // Less than n.
	payer := (x + start) % n
	if round%pastRounds == pastRounds-1 {
		campaign, seq := p.sale(round, x)
		return move{payer: payer, payee: -1, payerVersion: version + 1, payeeVersion: seq + 1, amount: pastPrice, campaign: campaign, seq: seq}
	}
	// Who pays at x is paid at x − shift, and who is paid at x pays at x + shift, in the round's circle.
	shift := 1 + int64(scatter(2*round+1)%uint64(n-1)) //nolint:gosec // As above.
	m := move{payer: payer, payee: (payer + shift) % n, payerVersion: version + 1, payeeVersion: version + 1, amount: 1 + int64(scatter(i)%9)}
	if x >= shift {
		m.payerVersion++
	}
	if x+shift >= n {
		m.payeeVersion++
	}
	return m
}

// version is what the account at a place has in the end.
func (p *past) version(place int64) int64 {
	n := p.accounts
	round, rest := (p.transfers-n)/n, (p.transfers-n)%n
	version, x := before(round), (place-int64(scatter(2*round)%uint64(n))+n)%n //nolint:gosec // Less than n.
	if x < rest {
		version++
	}
	shift := 1 + int64(scatter(2*round+1)%uint64(n-1)) //nolint:gosec // As above.
	if round%pastRounds != pastRounds-1 && (x-shift+n)%n < rest {
		version++
	}
	return version
}

// campaignsEach are the campaigns of a round of purchases.
func (p *past) campaignsEach() int64 { return (p.accounts + pastPositions - 1) / pastPositions }

// sale is the campaign, and the number in it, of the purchase at a place of a round.
func (p *past) sale(round, x int64) (campaign, seq int64) {
	return round/pastRounds*p.campaignsEach() + x/pastPositions, x%pastPositions + 1
}

// purchases is how many there are, and purchase the number of the transfer that paid for one.
func (p *past) purchases() int64 {
	rounds, rest := (p.transfers-p.accounts)/p.accounts, (p.transfers-p.accounts)%p.accounts
	sold := rounds / pastRounds * p.accounts
	if rounds%pastRounds == pastRounds-1 {
		sold += rest
	}
	return sold
}

func (p *past) purchase(q int64) int64 {
	return p.accounts + (q/p.accounts*pastRounds+pastRounds-1)*p.accounts + q%p.accounts
}

// campaigns is how many have sold something.
func (p *past) campaigns() int64 {
	sold := p.purchases()
	return sold/p.accounts*p.campaignsEach() + (sold%p.accounts+pastPositions-1)/pastPositions
}

// firstSale is the number of a campaign's first purchase, and sold how many it has.
func (p *past) firstSale(campaign int64) int64 {
	return campaign/p.campaignsEach()*p.accounts + campaign%p.campaignsEach()*pastPositions
}

func (p *past) sold(campaign int64) int64 {
	first := p.firstSale(campaign)
	round := (campaign/p.campaignsEach() + 1) * p.accounts
	return min(pastPositions, round-first, p.purchases()-first)
}

// opened is when a campaign was made, a second before its first sale.
func (p *past) opened(campaign int64) time.Time {
	return p.at(p.purchase(p.firstSale(campaign))).Add(-time.Second)
}

// salesUntil is the number of the first purchase in a campaign that was made at a time or later.
func (p *past) salesUntil(t time.Time) int64 {
	k := int64(sort.Search(int(p.campaigns()), func(k int) bool { return !p.opened(int64(k)).Before(t) }))
	if k == p.campaigns() {
		return p.purchases()
	}
	return p.firstSale(k)
}

// started is when an auction was made and begun.
func (p *past) started(auction int64) time.Time {
	return p.begin.Add(p.end.Sub(p.begin) / time.Duration(p.auctions+1) * time.Duration(auction+1)).Truncate(time.Microsecond)
}

// auctionsUntil is the number of the first auction that was begun at a time or later.
func (p *past) auctionsUntil(t time.Time) int64 {
	return int64(sort.Search(int(p.auctions), func(k int) bool { return !p.started(int64(k)).Before(t) }))
}

func (p *past) bidder(auction, place int64) int64 { return (auction*pastBidders + place) % p.accounts }

// Kinds of ids. The order of those of a time is that of their kinds.
const (
	idCampaign = iota
	idAuction
	idHold
	idTransfer
	idOfPayer
	idOfPayee
	idPurchase
	idKinds
)

func pastID(at time.Time, kind, number int64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16|7<<12|uint64(kind)) //nolint:gosec // A time of today, and a small number.
	binary.BigEndian.PutUint64(id[8:], 1<<63|scatter(number*idKinds+kind)>>2)
	return id
}

func (p *past) saleID(q int64) uuid.UUID {
	return pastID(p.at(p.purchase(q)), idPurchase, p.purchase(q))
}
func (p *past) campaign(k int64) uuid.UUID { return pastID(p.opened(k), idCampaign, k) }
func (p *past) auction(k int64) uuid.UUID  { return pastID(p.started(k), idAuction, k) }
func (p *past) hold(auction, place int64) uuid.UUID {
	return pastID(p.bidAt(auction, place), idHold, auction*pastBidders+place)
}

func (p *past) bidAt(auction, bid int64) time.Time {
	return p.started(auction).Add(time.Duration(bid+1) * time.Second)
}

// tuples is rows in the binary form of COPY.
type tuples []byte

func (t tuples) row(fields uint16) tuples { return binary.BigEndian.AppendUint16(t, fields) }
func (t tuples) text(s string) tuples {
	return append(binary.BigEndian.AppendUint32(t, uint32(len(s))), s...) //nolint:gosec // Short.
}

func (t tuples) integer(n int64) tuples {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(t, 4), uint32(n)) //nolint:gosec // Of 32 bits.
}

func (t tuples) bigint(n int64) tuples {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(t, 8), uint64(n)) //nolint:gosec // Its bits.
}

func (t tuples) uuid(id uuid.UUID) tuples {
	return append(binary.BigEndian.AppendUint32(t, 16), id[:]...)
}
func (t tuples) time(at time.Time) tuples { return t.bigint(at.UnixMicro() - 946_684_800_000_000) } // Since 2000.

// account is the name of the account at a place.
func (t tuples) account(p *past, place int64) tuples {
	t = t.text("acc-0000000")
	load.PutDecimal(t[len(t)-7:], p.name(place))
	return t
}

// payer and payee are the names of those of a transfer.
func (t tuples) payer(p *past, m *move) tuples {
	if m.payer < 0 {
		return t.text("outside/" + currency)
	}
	return t.account(p, m.payer)
}

func (t tuples) payee(p *past, m *move) tuples {
	if m.payee < 0 {
		return t.text(p.escrows[m.campaign])
	}
	return t.account(p, m.payee)
}

// copied is rows for COPY: those of some numbers.
type copied struct {
	next, end int64
	row       func(t tuples, number int64) tuples
	written   func(rows int64)
	begun     bool
	ended     bool
	left      tuples // that was not read
	all       tuples // whose end left is
}

const copyAtOnce = 512 // numbers

// Read implements [io.Reader].
func (c *copied) Read(b []byte) (int, error) {
	for len(c.left) == 0 {
		if c.ended {
			return 0, io.EOF
		}
		c.all = c.all[:0]
		if !c.begun {
			c.begun = true
			c.all = append(c.all, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
		}
		upto := min(c.next+copyAtOnce, c.end)
		c.written(upto - c.next)
		for ; c.next < upto; c.next++ {
			c.all = c.row(c.all, c.next)
		}
		if c.next == c.end {
			c.ended = true
			c.all = append(c.all, 0xff, 0xff)
		}
		c.left = c.all
	}
	n := copy(b, c.left)
	c.left = c.left[n:]
	return n, nil
}
