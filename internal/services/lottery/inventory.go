package lottery

// Inventory is what is free and what is sold of one campaign, as of a sale number. It lets a free position be picked
// at random in constant time. It is not safe for concurrent use.
type Inventory struct {
	layers []stock
	free   int
	owners []int32 // by ordinal: the number of the buyer, 0 while free
	buyers []buyer // by number less 1
	number map[string]int32
}

type buyer struct {
	account   string
	positions int
}

// stock is the free positions of a layer: the first free ones of numbers, in no order, and for each number its place there.
// Both are kept as differences (XOR) from the order at the beginning, so that nothing needs to be filled in.
type stock struct {
	first   int
	free    int
	numbers []int32
	places  []int32
}

func (s *stock) at(place int32) int32     { return s.numbers[place] ^ place }
func (s *stock) place(number int32) int32 { return s.places[number] ^ number }

func (s *stock) put(number, place int32) {
	s.numbers[place], s.places[number] = number^place, place^number
}

// NewInventory returns the inventory of a campaign of which nothing is sold. It takes 12 bytes a position.
func NewInventory(layers []Layer) *Inventory {
	inv := &Inventory{layers: make([]stock, len(layers)), number: map[string]int32{}}
	for i, l := range layers {
		inv.layers[i] = stock{first: l.First, free: l.Positions, numbers: make([]int32, l.Positions), places: make([]int32, l.Positions)}
		inv.free += l.Positions
	}
	inv.owners = make([]int32, inv.free)
	return inv
}

// Positions is how many there are, free and sold.
func (inv *Inventory) Positions() int { return len(inv.owners) }

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
func (inv *Inventory) Bought(account string) int {
	if n := inv.number[account]; n > 0 {
		return inv.buyers[n-1].positions
	}
	return 0
}

// Owners returns the owner of each position by ordinal, empty where it is free.
func (inv *Inventory) Owners() []string {
	owners := make([]string, len(inv.owners))
	for ordinal, n := range inv.owners {
		if n > 0 {
			owners[ordinal] = inv.buyers[n-1].account
		}
	}
	return owners
}

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
	return s.first + int(s.at(int32(k))) //nolint:gosec // Positions fit.
}

// Sell marks a free position of the given layer as sold to an account.
func (inv *Inventory) Sell(layer, ordinal int, account string) {
	if account == "" || inv.owners[ordinal] != 0 {
		panic("lottery: a position is sold twice, or to nobody")
	}
	n := inv.number[account]
	if n == 0 {
		inv.buyers = append(inv.buyers, buyer{account: account})
		n = int32(len(inv.buyers)) //nolint:gosec // At most one a position.
		inv.number[account] = n
	}
	inv.buyers[n-1].positions++
	inv.owners[ordinal] = n
	inv.free--

	// The last free number takes the place of the one that is sold.
	s := &inv.layers[layer-1]
	sold := int32(ordinal - s.first) //nolint:gosec // Positions fit.
	s.free--
	end := int32(s.free) //nolint:gosec // Positions fit.
	hole, last := s.place(sold), s.at(end)
	s.put(last, hole)
	s.put(sold, end)
}

// Unsell takes the latest sale back.
func (inv *Inventory) Unsell(layer, ordinal int) {
	s := &inv.layers[layer-1]
	if n := inv.owners[ordinal]; n == 0 || s.first+int(s.at(int32(s.free))) != ordinal { //nolint:gosec // Positions fit.
		panic("lottery: a sale is taken back that is not the latest")
	}
	inv.buyers[inv.owners[ordinal]-1].positions--
	inv.owners[ordinal] = 0
	inv.free++
	s.free++ // It is in the first place behind the free ones.
}
