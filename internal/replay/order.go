package replay

import (
	"iter"
	"slices"
)

// maxBlock is how many bids a block of the order has at most. A bid is found by two binary searches, moves half a block, and its
// rank is the sum of the lengths of the blocks before: with a hundred thousand bidders, less than a microsecond.
const maxBlock = 512

// order is the standing bids in order of rank, as a list of sorted blocks, none of which is empty. No two of them rank alike,
// because their sequence numbers differ.
type order struct {
	blocks [][]*standing
	count  int
}

// search finds the block, the place in it and the rank of a bid: where it is, or where it belongs.
func (o *order) search(s *standing) (block, place, rank int) {
	block, _ = slices.BinarySearchFunc(o.blocks, s, func(b []*standing, s *standing) int { return b[len(b)-1].compare(s) })
	for _, b := range o.blocks[:block] {
		rank += len(b)
	}
	if block < len(o.blocks) {
		place, _ = slices.BinarySearchFunc(o.blocks[block], s, (*standing).compare)
	}
	return block, place, rank + place + 1
}

// insert adds a bid and returns its rank.
func (o *order) insert(s *standing) int {
	block, place, rank := o.search(s)
	if block == len(o.blocks) { // Behind all others.
		if block == 0 {
			o.blocks = append(o.blocks, nil)
		} else {
			block, place = block-1, len(o.blocks[block-1])
			rank = o.count + 1
		}
	}
	b := slices.Insert(o.blocks[block], place, s)
	o.blocks[block] = b
	if len(b) > maxBlock {
		half := len(b) / 2
		o.blocks[block] = slices.Clone(b[:half])
		o.blocks = slices.Insert(o.blocks, block+1, slices.Clone(b[half:]))
	}
	o.count++
	return rank
}

// remove takes a bid out, which must be there, and returns its rank.
func (o *order) remove(s *standing) int {
	block, place, rank := o.search(s)
	if b := slices.Delete(o.blocks[block], place, place+1); len(b) > 0 {
		o.blocks[block] = b
	} else {
		o.blocks = slices.Delete(o.blocks, block, block+1)
	}
	o.count--
	return rank
}

// at returns the bid of a rank that there is.
func (o *order) at(rank int) *standing {
	for _, b := range o.blocks {
		if rank <= len(b) {
			return b[rank-1]
		}
		rank -= len(b)
	}
	panic("replay: a rank beyond the last")
}

// all yields the bids with their ranks, in order.
func (o *order) all() iter.Seq2[int, *standing] {
	return func(yield func(int, *standing) bool) {
		rank := 0
		for _, b := range o.blocks {
			for _, s := range b {
				if rank++; !yield(rank, s) {
					return
				}
			}
		}
	}
}
