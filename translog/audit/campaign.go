package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
)

// Limits of campaigns, of fairdraw §2.
const (
	maxPositions = 1_000_000
	maxPrizes    = 10_000
	maxWinners   = 1_000_000
)

// chain is what a campaign names as its beacon. Package beacon verifies a round's signature with it: BLS is a primitive, of which
// there is one implementation. All else of §10 is here.
type chain struct {
	fairdraw.Chain

	hash string
}

// campaign plays the leaves of one campaign.
type campaign struct {
	id         string
	step       string // the type of the last leaf; empty before the first
	commitment []byte
	sizes      []int
	prizes     []prize
	total      int
	beacon     *chain
	root       []byte
	round      int64
	witnesses  int
	trusted    map[string]bool
	counts     *Counts
}

func (c *campaign) apply(l *leaf) (over bool, p *problem) {
	o := newObject(l.data)
	next := map[string][]string{
		"":                {campaignCreated},
		campaignCreated:   {campaignPublished, campaignCancelled},
		campaignPublished: {campaignSealed, campaignCancelled},
		campaignSealed:    {campaignDrawn},
	}[c.step]
	if c.step == campaignSealed && c.witnesses > 0 {
		next = append(next, campaignCancelled) // Too few have seen the seal in time.
	}
	if !slices.Contains(next, l.kind) {
		return false, &problem{"order", l.kind, strings.Join(next, " or ")}
	}
	c.step = l.kind
	switch l.kind {
	case campaignCreated:
		c.created(o)
		c.counts.Campaigns++
	case campaignSealed:
		c.sealed(o, l.at)
	case campaignDrawn:
		c.drawn(o)
		c.counts.Draws++
	}
	return l.kind == campaignDrawn || l.kind == campaignCancelled, o.problem()
}

func (c *campaign) created(o object) {
	o.str("name")
	o.str("currency")
	o.alias("beneficiary")
	c.commitment = o.hex("commitment", sha256.Size, 0)
	for i, layer := range o.objects("layers") {
		size := layer.number("positions", 1)
		layer.amount("price", 0)
		if c.total += size; c.total > maxPositions {
			layer.wrong("positions", fmt.Sprint(c.total)+" in all", fmt.Sprintf("at most %d", maxPositions))
		}
		if o.problem() != nil || i >= maxPositions {
			return
		}
		c.sizes = append(c.sizes, size)
	}
	if len(c.sizes) == 0 {
		o.wrong("layers", "none", "at least one")
	}
	c.readPrizes(o)
	if o.has("purchase_limit") {
		o.number("purchase_limit", 1)
	}
	c.witnesses = o.number("witnesses", 0)
	switch mode := o.str("draw"); mode {
	case "instant":
		o.absent("beacon", "the draw is instant")
	case "beacon":
		c.readChain(o.object("beacon"))
	default:
		o.wrong("draw", quote(mode), "instant or beacon")
	}
}

func (c *campaign) readPrizes(o object) {
	names := map[string]bool{}
	winners := 0
	for i, item := range o.objects("prizes") {
		p := prize{item.str("name"), item.number("layer", 0), item.number("quantity", 1)}
		eligible := c.total
		switch {
		case o.problem() != nil:
			return
		case i >= maxPrizes:
			item.wrong("", "one more", fmt.Sprintf("at most %d", maxPrizes))
		case !isText(p.name):
			item.wrong("name", quote(p.name), "1 to 200 characters, none of them a control character")
		case names[p.name]:
			item.wrong("name", quote(p.name), "another one than before")
		case p.layer > len(c.sizes):
			item.wrong("layer", fmt.Sprint(p.layer), fmt.Sprintf("at most %d", len(c.sizes)))
		case p.layer > 0:
			eligible = c.sizes[p.layer-1]
		}
		winners += p.quantity
		if p.quantity > eligible || winners > maxWinners {
			item.wrong("quantity", fmt.Sprint(p.quantity), "no more than can win")
		}
		names[p.name] = true
		c.prizes = append(c.prizes, p)
	}
}

// isText is the rule for texts of fairdraw §1.
func isText(s string) bool {
	n := 0
	for _, r := range s {
		if n++; r < 0x20 || 0x7f <= r && r <= 0x9f {
			return false
		}
	}
	return utf8.ValidString(s) && 1 <= n && n <= 200
}

// readChain reads the beacon's chain, whose hash must be that of its description, and which must be one that the auditor trusts: the
// owner of another chain's key may know its rounds in advance.
func (c *campaign) readChain(o object) {
	b := &chain{hash: hex.EncodeToString(o.hex("chain_hash", sha256.Size, 0))}
	b.Scheme, b.BeaconID = o.str("scheme"), o.str("beacon_id")
	b.PublicKey = hex.EncodeToString(o.hex("public_key", 0, 256))
	b.GenesisSeed = hex.EncodeToString(o.hex("genesis_seed", 0, 256))
	b.PeriodSeconds = int(o.integer("period", 1, 86_400))
	b.GenesisTime = o.integer("genesis_time", 1, 253402300799)
	if o.problem() != nil {
		return
	}
	if err := beacon.Check(b.Chain); err != nil {
		o.wrong("", err.Error(), "a chain whose signatures can be verified")
		return
	}
	if hash := chainHash(b.Chain); hash != b.hash {
		o.wrong("chain_hash", b.hash, hash)
		return
	}
	known, ok := beacon.Known(b.hash)
	switch {
	case ok && known.Scheme != b.Scheme: // The hash leaves it out.
		o.wrong("scheme", quote(b.Scheme), quote(known.Scheme))
	case !ok && !c.trusted[b.hash]:
		o.wrong("chain_hash", b.hash, "a public chain of drand, or one that you trust")
	}
	c.beacon = b
}

// chainHash is drand's hash of a chain's description (§10).
func chainHash(c fairdraw.Chain) string {
	key, err := hex.DecodeString(c.PublicKey)
	seed, err2 := hex.DecodeString(c.GenesisSeed)
	if err = errors.Join(err, err2); err != nil {
		panic("audit: a chain that was checked: " + err.Error())
	}
	message := append(append(int64s(u32(nil, c.PeriodSeconds), c.GenesisTime), key...), seed...)
	if c.BeaconID != "default" {
		message = append(message, c.BeaconID...)
	}
	sum := sha256.Sum256(message)
	return hex.EncodeToString(sum[:])
}

func (c *campaign) sealed(o object, at time.Time) {
	if n := o.number("positions", 1); n != c.total {
		o.wrong("positions", fmt.Sprint(n), fmt.Sprint(c.total))
	}
	c.root = o.hex("root", sha256.Size, 0)
	if c.beacon == nil {
		o.absent("round", "the draw is instant")
		o.absent("due_at", "the draw is instant")
		return
	}
	c.round = o.integer("round", 1, maxAmount)
	due := o.time("due_at")
	if o.problem() != nil {
		return
	}
	if want := c.beacon.due(c.round); !due.Equal(want) {
		o.wrong("due_at", stamp(due), stamp(want))
	}
	if earliest := at.Add(time.Duration(c.beacon.PeriodSeconds) * time.Second); due.Before(earliest) {
		o.wrong("round", fmt.Sprintf("%d, due at %s", c.round, stamp(due)), "one that is due at "+stamp(earliest)+" or later")
	}
}

// due is when a round is due (§10), or a time that no leaf can have for one that nobody will see.
func (b *chain) due(round int64) time.Time {
	const never = 1 << 40 // seconds: some 35,000 years
	if round-1 > never/int64(b.PeriodSeconds) {
		return time.Unix(never, 0).UTC()
	}
	return time.Unix(b.GenesisTime+(round-1)*int64(b.PeriodSeconds), 0).UTC()
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func (c *campaign) drawn(o object) {
	server := o.hex("server_seed", sha256.Size, 0)
	seed := o.hex("draw_seed", sha256.Size, 0)
	var signature []byte
	if c.beacon == nil {
		o.absent("beacon", "the draw is instant")
	} else {
		signature = c.verifyRound(o.object("beacon"))
	}
	if o.problem() != nil {
		return
	}
	if sum := sha256.Sum256(server); !bytes.Equal(sum[:], c.commitment) {
		o.wrong("server_seed", fmt.Sprintf("%x, whose SHA-256 is %x", server, sum), fmt.Sprintf("one whose SHA-256 is %x", c.commitment))
		return
	}
	want := drawSeed(server, signature, c.root, c.id, c.prizes)
	if !bytes.Equal(seed, want[:]) {
		o.wrong("draw_seed", hex.EncodeToString(seed), hex.EncodeToString(want[:]))
		return
	}
	c.compare(o, draw(want, c.sizes, c.prizes))
}

// verifyRound returns the signature of the round that the seal names.
func (c *campaign) verifyRound(o object) []byte {
	round := o.integer("round", 1, maxAmount)
	signature := o.hex("signature", 0, 1024)
	var previous []byte
	if c.beacon.Scheme == beacon.SchemeChained {
		previous = o.hex("previous_signature", 0, 1024)
	} else {
		o.absent("previous_signature", "the chain has none")
	}
	if o.problem() != nil {
		return nil
	}
	if round != c.round {
		o.wrong("round", fmt.Sprint(round), fmt.Sprintf("%d, as the seal names it", c.round))
		return nil
	}
	if err := beacon.Verify(c.beacon.Chain, fairdraw.Round{Number: uint64(round), Signature: signature, Previous: previous}); err != nil { //nolint:gosec // Positive.
		o.wrong("signature", hex.EncodeToString(signature), fmt.Sprintf("the chain's signature of round %d", round))
		return nil
	}
	return signature
}

// compare compares the winners, prize by prize.
func (c *campaign) compare(o object, want [][]uint32) {
	prizes := 0
	for i, list := range o.values("winners") {
		if prizes++; i >= len(want) {
			break
		}
		if list[0] != '[' {
			o.wrong(fmt.Sprintf("winners[%d]", i), quote(list), "a list")
			return
		}
		n := 0
		for k, value := range elements(list) {
			what := fmt.Sprintf("winners[%d][%d]", i, k)
			if n++; k >= len(want[i]) {
				o.wrong(what, quote(value), "nothing")
				return
			}
			if said, ok := parseInteger(value); !isNumber(value[0]) || !ok || said != int64(want[i][k]) {
				o.wrong(what, quote(value), fmt.Sprint(want[i][k]))
				return
			}
		}
		if n != len(want[i]) {
			o.wrong(fmt.Sprintf("length of winners[%d]", i), fmt.Sprint(n), fmt.Sprint(len(want[i])))
			return
		}
		c.counts.Winners += int64(n)
	}
	if prizes != len(want) {
		o.wrong("length of winners", fmt.Sprint(prizes), fmt.Sprint(len(want)))
	}
}
