package auction

import (
	"cmp"
	"iter"
	"slices"
	"sort"
)

const (
	// maxBlock is how many places a block of the order has at most. A bid moves half of one on average, and counts the
	// blocks before its own: with ten thousand bidders both cost some tens of nanoseconds.
	maxBlock = 256
	// maxIdleJournal is how much room of a journal is kept for the next transaction. Only a close or a cancellation needs
	// more than a batch of bids.
	maxIdleJournal = 4096
)

// Standing is the set of the standing bids of an auction, in order of rank: the higher amount first, then the earlier bid.
// Reading it is safe for concurrent use, as long as no decision on its state is running.
//
// The order is a list of sorted blocks, so that a bid costs a binary search, a short move in memory and no allocation, and
// a rank is the sum of the sizes of the blocks before. What is changed is noted once a transaction and account.
type Standing struct {
	nodes  map[string]*node
	blocks [][]place // none of them empty
	count  int

	epoch   uint64 // of the transaction; a node noted in it bears its number
	journal []change
}

// node is the standing bid of an account. One that was removed stays until the next transaction begins, not live, so that
// it is noted only once.
type node struct {
	bid   Bid
	live  bool
	epoch uint64
}

// place repeats what the order goes by, so that a search stays within the block.
type place struct {
	amount, seq int64
	node        *node
}

// change is a node as it was when the transaction began.
type change struct {
	node *node
	was  Bid
	live bool
}

// newStanding takes bids in any order, one an account.
func newStanding(bids []Bid) *Standing {
	s := &Standing{nodes: make(map[string]*node, len(bids)), count: len(bids)}
	places := make([]place, len(bids))
	for i := range bids {
		n := &node{bid: bids[i], live: true}
		if _, twice := s.nodes[n.bid.Account]; twice {
			panic("auction: two standing bids of one account")
		}
		s.nodes[n.bid.Account] = n
		places[i] = n.place()
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.amount, a.amount), cmp.Compare(a.seq, b.seq))
	})
	for part := range slices.Chunk(places, maxBlock/2) {
		s.blocks = append(s.blocks, append(make([]place, 0, maxBlock), part...))
	}
	s.begin()
	return s
}

// Len is the number of standing bids.
func (s *Standing) Len() int { return s.count }

// Taken reports whether a standing bid has this amount.
func (s *Standing) Taken(amount int64) bool {
	b, i := s.search(amount, 0)
	return b < len(s.blocks) && s.blocks[b][i].amount == amount
}

// All yields the standing bids with their ranks, in order.
func (s *Standing) All() iter.Seq2[int, Bid] {
	return func(yield func(int, Bid) bool) {
		rank := 0
		for _, block := range s.blocks {
			for i := range block {
				rank++
				if !yield(rank, block[i].node.bid) {
					return
				}
			}
		}
	}
}

// find returns the live node of an account, or nil.
func (s *Standing) find(account string) *node {
	if n := s.nodes[account]; n != nil && n.live {
		return n
	}
	return nil
}

// begin forgets what was noted: from now on, undo goes back to here.
func (s *Standing) begin() {
	for i := range s.journal {
		if n := s.journal[i].node; !n.live {
			delete(s.nodes, n.bid.Account)
		}
	}
	clear(s.journal)
	s.journal = s.journal[:0]
	if cap(s.journal) > maxIdleJournal {
		s.journal = nil
	}
	s.epoch++
}

// undo restores the set as it was at begin.
func (s *Standing) undo() {
	for i := range s.journal {
		if n := s.journal[i].node; n.live {
			s.takeOut(n)
		}
	}
	// Old bids are put back after all new ones are gone, because an old bid may need a place that a new one had.
	for i := range s.journal {
		c := &s.journal[i]
		if c.live {
			c.node.bid = c.was
			s.putIn(c.node)
		}
	}
	s.begin()
}

// put places an account's bid, or replaces it, and returns its rank.
func (s *Standing) put(bid Bid) int {
	n := s.nodes[bid.Account]
	if n == nil {
		n = &node{}
		n.bid.Account = bid.Account
		s.nodes[bid.Account] = n
	}
	s.note(n)
	if n.live {
		s.takeOut(n)
	}
	n.bid = bid
	return s.putIn(n)
}

// putAmong is put where the first places win. It also returns the bid that lost its winning place, or nil, and then the least
// new bid that would win. Only one can lose its place: the bid that now stands right behind the winners, if its account was
// one of them before.
func (s *Standing) putAmong(bid Bid, places int) (rank int, out *Bid, floor int64) {
	before := place{}
	if n := s.find(bid.Account); n != nil {
		before = n.place()
	}
	rank = s.put(bid)
	if rank > places || s.count <= places {
		return rank, nil, 0
	}
	behind := s.at(places + 1)
	// A bidder that won already was in front of it, and has only moved up.
	if before.node != nil && before.before(behind.amount, behind.seq) {
		return rank, nil, 0
	}
	return rank, &behind.node.bid, s.at(places).amount + 1
}

// at returns the place of a rank that there is.
func (s *Standing) at(rank int) *place {
	index := rank - 1
	for _, block := range s.blocks {
		if index < len(block) {
			return &block[index]
		}
		index -= len(block)
	}
	panic("auction: a rank beyond the last")
}

// remove takes the bid of an account out.
func (s *Standing) remove(account string) {
	n := s.find(account)
	if n == nil {
		panic("auction: a bid that does not stand is removed")
	}
	s.note(n)
	s.takeOut(n)
}

// note writes down how a node was before this transaction first changed it.
func (s *Standing) note(n *node) {
	if n.epoch == s.epoch {
		return
	}
	n.epoch = s.epoch
	s.journal = append(s.journal, change{node: n, was: n.bid, live: n.live})
}

// changes lists what has become of the accounts noted since begin.
func (s *Standing) changes() (added []Bid, raised []Raise, removed []string) {
	for i := range s.journal {
		c := &s.journal[i]
		switch n := c.node; {
		case n.live && !c.live:
			added = append(added, n.bid)
		case n.live && n.bid.Seq != c.was.Seq:
			raised = append(raised, Raise{n.bid, c.was.Amount})
		case !n.live && c.live:
			removed = append(removed, n.bid.Account)
		}
	}
	slices.SortFunc(added, func(a, b Bid) int { return cmp.Compare(a.Account, b.Account) })
	slices.SortFunc(raised, func(a, b Raise) int { return cmp.Compare(a.Account, b.Account) })
	slices.Sort(removed)
	return added, raised, removed
}

// putIn gives a node its place in the order and returns its rank.
func (s *Standing) putIn(n *node) int {
	n.live = true
	s.count++
	b, i := s.search(n.bid.Amount, n.bid.Seq)
	if b == len(s.blocks) {
		if b == 0 {
			s.blocks = append(s.blocks, make([]place, 0, maxBlock))
		} else {
			b--
		}
		i = len(s.blocks[b])
	}
	rank := s.rank(b, i)
	if block := slices.Insert(s.blocks[b], i, n.place()); len(block) < maxBlock {
		s.blocks[b] = block
	} else {
		upper := append(make([]place, 0, maxBlock), block[maxBlock/2:]...)
		clear(block[maxBlock/2:])
		s.blocks[b] = block[:maxBlock/2]
		s.blocks = slices.Insert(s.blocks, b+1, upper)
	}
	return rank
}

// takeOut takes a node out of the order.
func (s *Standing) takeOut(n *node) {
	b, i := s.search(n.bid.Amount, n.bid.Seq)
	if b == len(s.blocks) || s.blocks[b][i].node != n {
		panic("auction: the order of the standing bids is broken")
	}
	n.live = false
	s.count--
	block := slices.Delete(s.blocks[b], i, i+1)
	s.blocks[b] = block
	switch next := b + 1; {
	case len(block) == 0:
		s.blocks = slices.Delete(s.blocks, b, next)
	case len(block) < maxBlock/8 && next < len(s.blocks) && len(block)+len(s.blocks[next]) <= maxBlock/2:
		// Blocks that bids have left must not become many: ranks are counted block by block.
		s.blocks[b] = append(block, s.blocks[next]...)
		s.blocks = slices.Delete(s.blocks, next, next+1)
	}
}

// search finds the first place that is not before (amount, seq): its block and its index there. Past the last place the
// block is len(blocks) and the index 0.
func (s *Standing) search(amount, seq int64) (block, index int) {
	block = sort.Search(len(s.blocks), func(b int) bool {
		places := s.blocks[b]
		return !places[len(places)-1].before(amount, seq)
	})
	if block == len(s.blocks) {
		return block, 0
	}
	places := s.blocks[block]
	return block, sort.Search(len(places), func(i int) bool { return !places[i].before(amount, seq) })
}

// rank turns a place into its rank.
func (s *Standing) rank(block, index int) int {
	rank := index + 1
	for _, b := range s.blocks[:block] {
		rank += len(b)
	}
	return rank
}

func (n *node) place() place { return place{amount: n.bid.Amount, seq: n.bid.Seq, node: n} }

// before reports whether the place ranks before a bid of the given amount and sequence number.
func (p *place) before(amount, seq int64) bool {
	return p.amount > amount || (p.amount == amount && p.seq < seq)
}
