package fairdraw

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits. Each bounds memory and time of a draw, or the width of a field in the byte encoding; docs/design/fairdraw.md
// lists them as part of the format.
const (
	// MaxPositions is the most sold positions of one draw. A proof of that many is some 200 MB; the root takes under a
	// second.
	MaxPositions = 1_000_000
	MaxPrizes    = 10_000    // the most entries in a prize list
	MaxWinners   = 1_000_000 // the most winners of one draw: the sum of all quantities
	// MaxLayer and MaxNumber are the largest layer of a position and the largest number within it; both start at 1.
	MaxLayer     = 1_000_000
	MaxNumber    = 1_000_000
	MaxTextRunes = 200 // the longest campaign, position id, account, prize name or operation, in Unicode code points
	// MaxBeaconBytes is the longest beacon signature. BLS signatures take 48 or 96 bytes.
	MaxBeaconBytes = 1024
)

// Position is one sold position. Layers and numbers start at 1.
type Position struct {
	ID      string `json:"id"`
	Layer   int    `json:"layer"`
	Number  int    `json:"number"`
	Account string `json:"account"`
}

// Prize is one entry of the prize list.
type Prize struct {
	Name     string `json:"name"`     // unique in the list
	Layer    int    `json:"layer"`    // the layer whose positions may win it; 0 means any
	Quantity int    `json:"quantity"` // how many distinct positions win it; at least 1
}

// Winner is one position that won one prize.
type Winner struct {
	Prize    string
	Position Position
}

// Input is all that decides a draw.
type Input struct {
	Campaign string // the campaign's id
	Seed     Seed   // the server seed, which must not be zero
	Beacon   []byte // the public beacon's signature; empty in instant mode
	// Positions are the sold positions in canonical order: strictly ascending by (layer, number). Ids are unique.
	Positions []Position
	Prizes    []Prize // the prize list, in the order in which it is drawn
}

// Validate returns the first rule that the input breaks, as an [*InputError] on [ErrBadInput] or [ErrTooManyPrizes], or
// nil.
func (in *Input) Validate() error {
	if in.Seed.IsZero() {
		return badInput("seed", "not set")
	}
	if len(in.Beacon) > MaxBeaconBytes {
		return badInput("beacon", "%d bytes long, over %d", len(in.Beacon), MaxBeaconBytes)
	}
	if err := checkPositions(in.Campaign, in.Positions); err != nil {
		return err
	}
	perLayer := make(map[int]int)
	for i := range in.Positions {
		perLayer[in.Positions[i].Layer]++
	}
	return CheckPrizes(in.Prizes, perLayer)
}

// CheckPrizes checks whether a prize list can be drawn on a campaign with that many positions a layer, so that it can be
// refused when the campaign is made and not when it is sold out. It returns an [*InputError] on [ErrBadInput], or on
// [ErrTooManyPrizes] when a quantity exceeds the eligible positions. A list without prizes is allowed and has no winners.
func CheckPrizes(prizes []Prize, positionsPerLayer map[int]int) error {
	if len(prizes) > MaxPrizes {
		return badInput("prizes", "%d entries, over %d", len(prizes), MaxPrizes)
	}
	total := 0
	for _, n := range positionsPerLayer {
		total += n
	}
	names := make(map[string]struct{}, len(prizes))
	winners := 0
	for i, p := range prizes {
		field := func(name string) string { return fmt.Sprintf("prizes[%d].%s", i, name) }
		if reason := textProblem(p.Name); reason != "" {
			return badInput(field("name"), "%s", reason)
		}
		if _, double := names[p.Name]; double {
			return badInput(field("name"), "%q appears twice", p.Name)
		}
		names[p.Name] = struct{}{}
		if p.Layer < 0 || p.Layer > MaxLayer {
			return badInput(field("layer"), "%d is not 0 to %d", p.Layer, MaxLayer)
		}
		if p.Quantity < 1 {
			return badInput(field("quantity"), "%d is under 1", p.Quantity)
		}
		eligible := total
		if p.Layer != 0 {
			eligible = positionsPerLayer[p.Layer]
		}
		if p.Quantity > eligible {
			return &InputError{
				Field:  field("quantity"),
				Reason: fmt.Sprintf("%d of prize %q on %d eligible positions", p.Quantity, p.Name, eligible),
				Err:    ErrTooManyPrizes,
			}
		}
		// No overflow: a quantity is at most the eligible positions.
		if winners += p.Quantity; winners > MaxWinners {
			return badInput("prizes", "over %d winners in all", MaxWinners)
		}
	}
	return nil
}

// checkPositions enforces what the root relies on: text rules, bounds, canonical order, and ids that name one position
// each.
func checkPositions(campaign string, positions []Position) error {
	if reason := textProblem(campaign); reason != "" {
		return badInput("campaign", "%s", reason)
	}
	if len(positions) == 0 || len(positions) > MaxPositions {
		return badInput("positions", "%d entries, not 1 to %d", len(positions), MaxPositions)
	}
	ids := make(map[string]struct{}, len(positions))
	for i := range positions {
		p := &positions[i]
		if err := checkPosition(i, &positions[max(i-1, 0)], p); err != nil {
			return err
		}
		if ids[p.ID] = struct{}{}; len(ids) != i+1 {
			return badInput(fmt.Sprintf("positions[%d].id", i), "%q appears twice", p.ID)
		}
	}
	return nil
}

// checkPosition checks position i, which comes after last in canonical order: by layer, then by number.
func checkPosition(i int, last, p *Position) error {
	if field, reason := positionProblem(p); reason != "" {
		return badInput(fmt.Sprintf("positions[%d].%s", i, field), "%s", reason)
	}
	if i > 0 && (p.Layer < last.Layer || p.Layer == last.Layer && p.Number <= last.Number) {
		return badInput(fmt.Sprintf("positions[%d]", i), "layer %d number %d does not come after layer %d number %d",
			p.Layer, p.Number, last.Layer, last.Number)
	}
	return nil
}

// positionProblem names the first field of a position that breaks a rule.
func positionProblem(p *Position) (field, reason string) {
	if reason = textProblem(p.ID); reason != "" {
		return "id", reason
	}
	if p.Layer < 1 || p.Layer > MaxLayer {
		return "layer", fmt.Sprintf("%d is not 1 to %d", p.Layer, MaxLayer)
	}
	if p.Number < 1 || p.Number > MaxNumber {
		return "number", fmt.Sprintf("%d is not 1 to %d", p.Number, MaxNumber)
	}
	return "account", textProblem(p.Account)
}

// textProblem says what is wrong with an id or a name, or "". Text is 1 to MaxTextRunes code points of valid UTF-8 without
// control characters (U+0000 to U+001F and U+007F to U+009F). It is compared byte for byte: neither case nor Unicode
// normalisation makes two texts equal.
func textProblem(s string) string {
	switch {
	case s == "":
		return "empty"
	case !utf8.ValidString(s):
		return "not valid UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "has a control character"
	case utf8.RuneCountInString(s) > MaxTextRunes:
		return fmt.Sprintf("longer than %d characters", MaxTextRunes)
	}
	return ""
}
