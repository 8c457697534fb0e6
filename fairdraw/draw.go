package fairdraw

import (
	"crypto/hkdf"
	"crypto/sha256"
	"sort"
)

// hkdfSalt separates this package's keys from anything else that might ever be derived from the same bytes, and carries the
// version of the algorithm.
const hkdfSalt = "fairlead/fairdraw/v1"

// Labels of what a key is derived for, in the HKDF info.
const (
	labelDraw      = "draw"
	labelOperation = "operation"
)

// Result is what a draw decided.
type Result struct {
	Root    [32]byte // the sealed root of the positions
	Winners []Winner // in the order of the prize list, and within a prize in the order of selection
}

// Draw selects the winners. It is a pure function of its input: every run, on any machine, gives the same result. Prize i
// of the list is drawn from stream i of the draw seed: its quantity of distinct positions out of the eligible ones in
// canonical order. It returns an [*InputError] on [ErrBadInput] or [ErrTooManyPrizes].
func Draw(in Input) (*Result, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	root := rootOf(in.Campaign, in.Positions)
	winners, err := selectWinners(drawSeed(&in, root), in.Positions, in.Prizes)
	if err != nil {
		return nil, err
	}
	return &Result{Root: root, Winners: winners}, nil
}

// drawSeed derives the key of the draw's streams. The server seed and the root have a fixed length, so what lies between
// them is the beacon, without doubt.
func drawSeed(in *Input, root [32]byte) [32]byte {
	secret := make([]byte, 0, len(in.Seed)+len(in.Beacon)+len(root))
	secret = append(secret, in.Seed[:]...)
	secret = append(secret, in.Beacon...)
	secret = append(secret, root[:]...)
	digest := prizeDigest(in.Prizes)
	info := appendText(nil, labelDraw)
	info = appendText(info, in.Campaign)
	info = append(info, digest[:]...)
	return deriveKey(secret, info)
}

// prizeDigest binds the prize list, in its order, to the draw.
func prizeDigest(prizes []Prize) [32]byte {
	msg := []byte{tagPrizes}
	msg = appendUint32(msg, len(prizes))
	for _, p := range prizes {
		msg = appendText(msg, p.Name)
		msg = appendUint32(msg, p.Layer)
		msg = appendUint32(msg, p.Quantity)
	}
	return sha256.Sum256(msg)
}

// deriveKey is HKDF-SHA256 (RFC 5869) with the package's salt.
func deriveKey(secret, info []byte) (key [32]byte) {
	out, err := hkdf.Key(sha256.New, secret, []byte(hkdfSalt), string(info), len(key))
	if err != nil {
		// Only a longer output than 255 hashes, or an unapproved hash, fails.
		panic("fairdraw: " + err.Error())
	}
	copy(key[:], out)
	return key
}

// selectWinners draws each prize from its own stream, so that the winners of one can be recomputed without the others.
func selectWinners(seed [32]byte, positions []Position, prizes []Prize) ([]Winner, error) {
	total := 0
	for _, p := range prizes {
		total += p.Quantity
	}
	winners := make([]Winner, 0, total)
	stream := NewStream(seed, 0)
	for i, prize := range prizes {
		eligible := eligibleFor(positions, prize.Layer)
		stream.Seek(uint64(i))
		chosen, err := Sample(stream, len(eligible), prize.Quantity)
		if err != nil {
			return nil, err
		}
		for _, c := range chosen {
			winners = append(winners, Winner{Prize: prize.Name, Position: eligible[c]})
		}
	}
	return winners, nil
}

// eligibleFor gives the positions of a layer, or all for layer 0. Canonical order keeps a layer together.
func eligibleFor(positions []Position, layer int) []Position {
	if layer == 0 {
		return positions
	}
	first := sort.Search(len(positions), func(i int) bool { return positions[i].Layer >= layer })
	end := sort.Search(len(positions), func(i int) bool { return positions[i].Layer > layer })
	return positions[first:end]
}

// Operation gives the streams of an operation of many draws: draw i depends on the seed, the operation's name and i alone,
// so that a run that was resumed at any draw equals one that was never interrupted. It is immutable and may be shared.
type Operation struct{ key [32]byte }

// NewOperation derives an operation's key from its seed and name. Operations with different names are independent, also
// under one seed. It returns an [*InputError] when the seed is zero or the name breaks the rules for text.
func NewOperation(seed Seed, name string) (*Operation, error) {
	if seed.IsZero() {
		return nil, badInput("seed", "not set")
	}
	if reason := textProblem(name); reason != "" {
		return nil, badInput("operation", "%s", reason)
	}
	return &Operation{key: deriveKey(seed[:], appendText(appendText(nil, labelOperation), name))}, nil
}

// At gives the stream of draw index, at the same cost for every index. In a loop, [Stream.Seek] on one stream costs less.
func (o *Operation) At(index uint64) *Stream { return NewStream(o.key, index) }
