package fairdraw

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
)

// The first byte of every hashed message says what it is, so that no leaf can be passed off as a node, nor one kind of list
// as another. The first two are those of RFC 9162 §2.1.1.
const (
	tagLeaf   = 0x00
	tagNode   = 0x01
	tagRoot   = 0x02
	tagPrizes = 0x03
)

// Root gives the sealed root of the sold positions: a hash over the campaign, the number of positions, and the RFC 9162
// tree of all of them in canonical order. It returns an [*InputError] when they are not in canonical order or break another
// rule of [Input].
func Root(campaign string, positions []Position) ([32]byte, error) {
	if err := checkPositions(campaign, positions); err != nil {
		return [32]byte{}, err
	}
	return rootOf(campaign, positions), nil
}

// rootOf is Root on positions that were checked.
func rootOf(campaign string, positions []Position) [32]byte {
	return sealTree(campaign, len(positions), top(leafHashes(positions)))
}

// leafHashes gives the lowest level of the tree.
func leafHashes(positions []Position) [][32]byte {
	leaves := make([][32]byte, len(positions))
	var buf []byte
	for i := range positions {
		buf = appendLeaf(buf[:0], &positions[i])
		leaves[i] = sha256.Sum256(buf)
	}
	return leaves
}

// appendLeaf writes the message whose hash is a position's leaf. Every variable part has its length in front: no two
// positions give the same bytes.
func appendLeaf(dst []byte, p *Position) []byte {
	dst = append(dst, tagLeaf)
	dst = appendText(dst, p.ID)
	dst = appendUint32(dst, p.Layer)
	dst = appendUint32(dst, p.Number)
	return appendText(dst, p.Account)
}

func appendText(dst []byte, s string) []byte {
	return append(appendUint32(dst, len(s)), s...)
}

// appendUint32 writes a number that the limits keep far below 2^32.
func appendUint32(dst []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(dst, uint32(n)) //nolint:gosec // bounded by the limits of input.go
}

// foldLevel gives the level above, in the same memory. A last hash without a partner moves up as it is; it is never hashed
// with a copy of itself, which would let two different lists share a root. The tree is that of RFC 9162.
func foldLevel(level [][32]byte) [][32]byte {
	n := 0
	for i := 0; i+1 < len(level); i += 2 {
		level[n] = hashNode(&level[i], &level[i+1])
		n++
	}
	if len(level)%2 == 1 {
		level[n] = level[len(level)-1]
		n++
	}
	return level[:n]
}

func hashNode(left, right *[32]byte) [32]byte {
	var msg [65]byte
	msg[0] = tagNode
	copy(msg[1:], left[:])
	copy(msg[33:], right[:])
	return sha256.Sum256(msg[:])
}

// sealTree binds a tree to its campaign and size. RFC 9162 leaves the size to a signed tree head; here the root carries it,
// so that an inclusion proof with another size is refused.
func sealTree(campaign string, size int, tree [32]byte) [32]byte {
	msg := []byte{tagRoot}
	msg = appendText(msg, campaign)
	msg = binary.BigEndian.AppendUint64(msg, uint64(size)) //nolint:gosec // a slice's length
	msg = append(msg, tree[:]...)
	return sha256.Sum256(msg)
}

// InclusionProof shows one entrant that their position, with their account, was among those drawn from. It carries hashes
// of other positions, not their contents.
type InclusionProof struct {
	Versions Versions `json:"versions"`
	Campaign string   `json:"campaign"`
	Root     string   `json:"root"` // the sealed root in lower-case hexadecimal
	Position Position `json:"position"`
	Index    int      `json:"index"` // the place of the position in canonical order, from 0
	Size     int      `json:"size"`  // the number of positions
	// Siblings are the partner hashes from the leaf upward, in lower-case hexadecimal; a level on which the node has no
	// partner has none.
	Siblings []string `json:"siblings"`
}

// Include makes the inclusion proof of positions[index]. It returns an [*InputError] when the positions break a rule or the
// index is outside them. It takes as long as Root; a [Tree] proves one position after another.
func Include(campaign string, positions []Position, index int) (*InclusionProof, error) {
	if err := checkPositions(campaign, positions); err != nil {
		return nil, err
	}
	if index < 0 || index >= len(positions) {
		return nil, badInput("index", "%d is not 0 to %d", index, len(positions)-1)
	}
	b := TreeBuilder{campaign: campaign}
	for i := range positions {
		if err := b.Add(positions[i]); err != nil {
			return nil, err
		}
	}
	t, err := b.Tree()
	if err != nil {
		return nil, err
	}
	from, to := t.Tile(index)
	return t.Include(index, positions[from:to])
}

// Verify recomputes the root from the position and the siblings and compares it with the given one, which the caller got
// from a place it trusts, such as the campaign's proof. It returns a [*Difference] when they differ and an [*InputError]
// when the proof breaks a rule.
func (ip *InclusionProof) Verify(root [32]byte) error {
	if err := ip.Versions.check(DocumentVersion); err != nil {
		return err
	}
	if reason := textProblem(ip.Campaign); reason != "" {
		return badInput("campaign", "%s", reason)
	}
	if want := hex.EncodeToString(root[:]); ip.Root != want {
		return &Difference{Field: "root", Want: want, Got: ip.Root}
	}
	if field, reason := positionProblem(&ip.Position); reason != "" {
		return badInput("position."+field, "%s", reason)
	}
	if ip.Size < 1 || ip.Size > MaxPositions {
		return badInput("size", "%d is not 1 to %d", ip.Size, MaxPositions)
	}
	if ip.Index < 0 || ip.Index >= ip.Size {
		return badInput("index", "%d is not 0 to %d", ip.Index, ip.Size-1)
	}
	hash := sha256.Sum256(appendLeaf(nil, &ip.Position))
	used := 0
	for i, width := ip.Index, ip.Size; width > 1; i, width = i/2, (width+1)/2 {
		if i^1 >= width {
			continue
		}
		if used == len(ip.Siblings) {
			return badInput("siblings", "%d hashes, too few for index %d of %d", used, ip.Index, ip.Size)
		}
		var sibling [32]byte
		if !decodeHex(sibling[:], ip.Siblings[used]) {
			return badInput("siblings["+strconv.Itoa(used)+"]", "not 64 lower-case hexadecimal digits")
		}
		used++
		if i%2 == 0 {
			hash = hashNode(&hash, &sibling)
		} else {
			hash = hashNode(&sibling, &hash)
		}
	}
	if used != len(ip.Siblings) {
		return badInput("siblings", "%d hashes, not %d", len(ip.Siblings), used)
	}
	if got := sealTree(ip.Campaign, ip.Size, hash); got != root {
		return &Difference{Field: "root", Want: hex.EncodeToString(got[:]), Got: ip.Root}
	}
	return nil
}
