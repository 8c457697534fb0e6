package logkeeper

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"
)

// ChunkAccounts is how many accounts of a closing are kept together.
const ChunkAccounts = 256

// Account is an account as a closing of the books has it.
type Account struct {
	ID, Currency             string
	Available, Held, Version int64
}

// leaf is an account's hash in the tree of a closing.
func (a *Account) leaf(alias string, buffer []byte) (tlog.Hash, []byte) {
	buffer = append(buffer[:0], 0)
	for _, text := range [...]string{"fairlead books/v1", alias, a.Currency} {
		buffer = binary.BigEndian.AppendUint32(buffer, uint32(len(text))) //nolint:gosec // Names are short.
		buffer = append(buffer, text...)
	}
	for _, n := range [...]int64{a.Available, a.Held, a.Version} {
		buffer = binary.BigEndian.AppendUint64(buffer, uint64(n)) //nolint:gosec // It is not negative.
	}
	return sha256.Sum256(buffer), buffer
}

// Chunk is up to [ChunkAccounts] accounts that follow each other, packed.
type Chunk struct {
	First string // the first one's id
	Data  []byte
}

// Sum is what a closing has of a currency. Money from outside and in transit is computed from the entries. Sums don't overflow.
type Sum struct {
	Currency                          string
	Available, Held, Outside, Transit *big.Int
}

// Balanced reports whether the accounts have what came in.
func (s *Sum) Balanced() bool {
	return new(big.Int).Add(s.Available, s.Held).Cmp(new(big.Int).Add(s.Outside, s.Transit)) == 0
}

// Closing is the books at one moment.
type Closing struct {
	Seq      int64
	Index    int64 // of its leaf
	At       time.Time
	Accounts int64
	Root     tlog.Hash
	Roots    []tlog.Hash // of the chunks' trees
	Chunks   []Chunk
	Sums     []Sum // by currency
	// Settled is the newest entry of which Stored has been told for good, from which the next closing goes on.
	Settled uuid.UUID
	Stored  []byte
}

// Fact is the leaf's.
func (c *Closing) Fact() Fact {
	return Fact{Type: TypeBooksClosed, Seq: c.Seq, At: c.At, Data: func(to []byte, _ Names) ([]byte, error) {
		return appendBooks(to, c), nil
	}}
}

// appendBooks appends a closing's data: sums are integers of any length, which the JSON library would write as texts.
func appendBooks(to []byte, c *Closing) []byte {
	to = append(strconv.AppendInt(append(to, `{"accounts":`...), c.Accounts, 10), `,"root":"`...)
	to = append(hex.AppendEncode(to, c.Root[:]), `","currencies":[`...)
	for i, s := range c.Sums {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(append(append(to, `{"currency":"`...), s.Currency...), `","available":`...)
		to = append(s.Available.Append(to, 10), `,"held":`...)
		to = append(s.Held.Append(to, 10), `,"outside":`...)
		to = append(s.Outside.Append(to, 10), `,"transit":`...)
		to = append(s.Transit.Append(to, 10), '}')
	}
	return append(to, "]}"...)
}

// Closer puts a closing together from all accounts, in the order of their ids.
type Closer struct {
	closing Closing
	name    Names
	leaves  []tlog.Hash // of the chunk under way
	buffer  []byte
	last    string
	sums    map[string]*Sum
}

// NewCloser begins a closing.
func NewCloser(name Names) *Closer { return &Closer{name: name, sums: map[string]*Sum{}} }

// errOrder is returned where accounts do not come in the order of their ids.
var errOrder = errors.New("logkeeper: accounts are not in order")

// Add adds the next account.
func (c *Closer) Add(a Account) error {
	if c.closing.Accounts > 0 && a.ID <= c.last {
		return errOrder
	}
	c.last = a.ID
	if len(c.leaves) == 0 {
		c.closing.Chunks = append(c.closing.Chunks, Chunk{First: a.ID})
	}
	chunk := &c.closing.Chunks[len(c.closing.Chunks)-1]
	for _, text := range [...]string{a.ID, a.Currency} {
		chunk.Data = append(binary.AppendUvarint(chunk.Data, uint64(len(text))), text...)
	}
	for _, n := range [...]int64{a.Available, a.Held, a.Version} {
		chunk.Data = binary.AppendUvarint(chunk.Data, uint64(n)) //nolint:gosec // It is not negative.
	}
	var leaf tlog.Hash
	leaf, c.buffer = a.leaf(c.name(a.ID), c.buffer)
	if c.leaves = append(c.leaves, leaf); len(c.leaves) == ChunkAccounts {
		c.endChunk()
	}
	c.closing.Accounts++
	s := c.sum(a.Currency)
	s.Available.Add(s.Available, big.NewInt(a.Available))
	s.Held.Add(s.Held, big.NewInt(a.Held))
	return nil
}

func (c *Closer) endChunk() {
	if len(c.leaves) > 0 {
		c.closing.Roots = append(c.closing.Roots, rootOf(c.leaves))
		c.leaves = c.leaves[:0]
	}
}

func (c *Closer) sum(currency string) *Sum {
	s := c.sums[currency]
	if s == nil {
		s = &Sum{currency, new(big.Int), new(big.Int), new(big.Int), new(big.Int)}
		c.sums[currency] = s
	}
	return s
}

// Outside sets what has come from outside, and from other ledgers, in a currency.
func (c *Closer) Outside(currency string, outside, transit *big.Int) {
	s := c.sum(currency)
	s.Outside, s.Transit = outside, transit
}

// Balanced reports whether all that was added is what came in.
func (c *Closer) Balanced() bool {
	for _, s := range c.sums {
		if !s.Balanced() {
			return false
		}
	}
	return true
}

// Close ends the closing.
func (c *Closer) Close() *Closing {
	c.endChunk()
	c.closing.Root = rootOf(c.closing.Roots)
	for _, currency := range slices.Sorted(maps.Keys(c.sums)) {
		c.closing.Sums = append(c.closing.Sums, *c.sums[currency])
	}
	return &c.closing
}

// rootOf is the root of the tree over hashes (RFC 6962 §2.1), of which chunks are subtrees.
func rootOf(hashes []tlog.Hash) tlog.Hash {
	switch len(hashes) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return hashes[0]
	}
	k := half(len(hashes))
	return tlog.NodeHash(rootOf(hashes[:k]), rootOf(hashes[k:]))
}

// half is the largest power of two under n.
func half(n int) int {
	k := 1
	for 2*k < n {
		k *= 2
	}
	return k
}

// path is what proves hashes[i], from the bottom up.
func path(hashes []tlog.Hash, i int) []tlog.Hash {
	if len(hashes) < 2 {
		return nil
	}
	k := half(len(hashes))
	if i < k {
		return append(path(hashes[:k], i), rootOf(hashes[k:]))
	}
	return append(path(hashes[k:], i-k), rootOf(hashes[:k]))
}

// Place is an account in a closing.
type Place struct {
	Account

	Index int64
	Hash  tlog.Hash
	Path  []tlog.Hash // from Hash to the closing's root
}

// errChunk is returned for a chunk that can't be read.
var errChunk = errors.New("logkeeper: the accounts of a closing can't be read")

// Find finds an account in a chunk, of which number is the chunk's and roots are those of all chunks. It returns nil where it isn't
// there.
func Find(account string, data []byte, number int, roots []tlog.Hash, name Names) (*Place, error) {
	accounts, err := unpack(data)
	if err != nil || number >= len(roots) {
		return nil, errors.Join(errChunk, err)
	}
	at := slices.IndexFunc(accounts, func(a Account) bool { return a.ID == account })
	if at < 0 {
		return nil, nil
	}
	leaves, buffer := make([]tlog.Hash, len(accounts)), []byte(nil)
	for i := range accounts {
		leaves[i], buffer = accounts[i].leaf(name(accounts[i].ID), buffer)
	}
	if rootOf(leaves) != roots[number] {
		return nil, errChunk
	}
	return &Place{accounts[at], int64(number)*ChunkAccounts + int64(at), leaves[at], append(path(leaves, at), path(roots, number)...)}, nil
}

func unpack(data []byte) (accounts []Account, err error) {
	uvarint := func() uint64 {
		n, size := binary.Uvarint(data)
		if size <= 0 {
			err = errChunk
			data = nil
			return 0
		}
		data = data[size:]
		return n
	}
	text := func() (s string) {
		if n := uvarint(); n <= uint64(len(data)) {
			s, data = string(data[:n]), data[n:]
		} else {
			err, data = errChunk, nil
		}
		return s
	}
	for len(data) > 0 && err == nil {
		a := Account{ID: text(), Currency: text()}
		a.Available, a.Held, a.Version = int64(uvarint()), int64(uvarint()), int64(uvarint()) //nolint:gosec // They were.
		accounts = append(accounts, a)
	}
	return accounts, err
}

// Kept is a closing whose accounts are kept.
type Kept struct {
	Seq int64
	At  time.Time
}

// thin finds those closings whose accounts need not be kept any longer: the last ten are, the last of each hour for a day, and the last
// of each day for a month. They are given the newest first.
func thin(kept []Kept, now time.Time) (drop []int64) {
	const always, hours, days = 10, 24 * time.Hour, 31 * 24 * time.Hour
	seen := map[time.Time]bool{}
	for i, k := range kept {
		age := now.Sub(k.At)
		hour, day := k.At.UTC().Truncate(time.Hour), k.At.UTC().Truncate(24*time.Hour).Add(time.Nanosecond)
		keep := i < always || age < hours && !seen[hour] || age < days && !seen[day]
		seen[hour], seen[day] = true, true
		if !keep {
			drop = append(drop, k.Seq)
		}
	}
	return drop
}
