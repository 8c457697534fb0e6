package lottery

// Inventory is what is free and what is sold of one campaign, as of a sale number. It lets a free position be picked
// at random in constant time. It is not safe for concurrent use.
type Inventory struct {
	layers []stock
	free   int
	owners []string // by ordinal; empty while free
	counts map[string]int
}

// stock is the free positions of a layer: numbers[:free], in no order, and for each number its place there.
type stock struct {
	first   int
	free    int
	numbers []int32
	places  []int32
}

// NewInventory returns the inventory of a campaign of which nothing is sold.
func NewInventory(layers []Layer) *Inventory {
	inv := &Inventory{layers: make([]stock, len(layers)), counts: map[string]int{}}
	for i, l := range layers {
		s := stock{first: l.First, free: l.Positions, numbers: make([]int32, l.Positions), places: make([]int32, l.Positions)}
		for n := range s.numbers {
			s.numbers[n], s.places[n] = int32(n), int32(n)
		}
		inv.layers[i] = s
		inv.free += l.Positions
	}
	inv.owners = make([]string, inv.free)
	return inv
}

// Sold is the number of the last sale that the inventory has seen.
func (inv *Inventory) Sold() int { return len(inv.owners) - inv.free }

// Free is how many positions are left: of one layer, or of all when layer is 0.
func (inv *Inventory) Free(layer int) int {
	if layer == 0 {
		return inv.free
	}
	return inv.layers[layer-1].free
}

// Bought is how many positions an account has.
func (inv *Inventory) Bought(account string) int { return inv.counts[account] }

// Owners returns the owner of each position by ordinal, empty where it is free. The caller must not change it.
func (inv *Inventory) Owners() []string { return inv.owners }

// Pick chooses a free position uniformly: of one layer, or of all when layer is 0. There must be one. random returns a
// uniform integer in [0, n).
func (inv *Inventory) Pick(layer int, random func(n int) int) (ordinal int) {
	k := random(inv.Free(layer))
	if layer == 0 {
		for layer = 1; k >= inv.layers[layer-1].free; layer++ {
			k -= inv.layers[layer-1].free
		}
	}
	s := &inv.layers[layer-1]
	return s.first + int(s.numbers[k])
}

// Sell marks a free position of the given layer as sold to an account.
func (inv *Inventory) Sell(layer, ordinal int, account string) {
	if account == "" || inv.owners[ordinal] != "" {
		panic("lottery: a position is sold twice, or to nobody")
	}
	s := &inv.layers[layer-1]
	number := ordinal - s.first
	s.free--
	hole, last := s.places[number], s.numbers[s.free]
	s.numbers[hole], s.places[last] = last, hole
	inv.free--
	inv.owners[ordinal] = account
	inv.counts[account]++
}
