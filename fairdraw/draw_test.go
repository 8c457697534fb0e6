package fairdraw

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestSeedIsNotDisclosed(t *testing.T) {
	seed := testSeed("secret")
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("made", "seed", seed, "input", Input{Seed: seed})
	slog.New(slog.NewJSONHandler(&log, nil)).Info("made", "seed", seed, "pointer", &seed, "input", Input{Seed: seed})
	encoded, err := json.Marshal(struct {
		Seed  Seed
		Ptr   *Seed
		Key   map[Seed]int
		Input Input
	}{Seed: seed, Ptr: &seed, Key: map[Seed]int{seed: 1}, Input: Input{Seed: seed}})
	testwait.Must(t, err)
	shown := log.String() + string(encoded) + seed.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%o", "%b", "%c", "%U", "%T"} {
		shown += fmt.Sprintf(verb, seed) + fmt.Sprintf(verb, &seed) + fmt.Sprintf(verb, Input{Seed: seed}) + fmt.Sprintf(verb, []Seed{seed})
	}
	_, err = ParseSeed(strings.ToUpper(seed.Hex()))
	shown += err.Error()
	for _, leak := range []string{
		seed.Hex()[:8], strings.ToUpper(seed.Hex()[:8]), fmt.Sprintf("%x", seed[:4]), fmt.Sprintf("% x", seed[:4]),
		fmt.Sprint(seed[0], seed[1], seed[2]), fmt.Sprintf("%d,%d,%d", seed[0], seed[1], seed[2]),
		fmt.Sprintf("0x%x, 0x%x", seed[0], seed[1]), string(seed[:4]),
	} {
		if strings.Contains(shown, leak) {
			t.Errorf("the seed shows: %q", leak)
		}
	}
	if !strings.Contains(shown, redacted) {
		t.Error("no placeholder")
	}
	var back Seed
	if err := json.Unmarshal([]byte(`"`+redacted+`"`), &back); err == nil {
		t.Error("a placeholder was read as a seed")
	}
	if err := back.UnmarshalText([]byte(seed.Hex())); err == nil {
		t.Error("text was read as a seed")
	}
}

func TestNewSeedAndParseSeed(t *testing.T) {
	seed, err := NewSeed(strings.NewReader(strings.Repeat("a", 40)))
	if err != nil || seed.Hex() != strings.Repeat("61", 32) {
		t.Errorf("NewSeed: %s, %v", seed.Hex(), err)
	}
	if _, err := NewSeed(strings.NewReader("too short")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("NewSeed of a short reader: %v", err)
	}
	if back, err := ParseSeed(seed.Hex()); err != nil || back != seed {
		t.Errorf("ParseSeed: %s, %v", back.Hex(), err)
	}
	hexSeed := testSeed("x").Hex()
	for _, text := range []string{"", hexSeed[1:], hexSeed + "0", strings.ToUpper(hexSeed), "g" + hexSeed[1:], hexSeed[:62] + "é", " " + hexSeed[1:], "0x" + hexSeed[2:]} {
		if _, err := ParseSeed(text); !errors.Is(err, ErrBadInput) {
			t.Errorf("ParseSeed(%q): %v", text, err)
		}
	}
}

func TestDrawRefusesBadInput(t *testing.T) {
	long := strings.Repeat("é", MaxTextRunes)
	for name, c := range map[string]struct {
		change func(in *Input)
		field  string
		err    error
	}{
		"no seed":             {func(in *Input) { in.Seed = Seed{} }, "seed", ErrBadInput},
		"long beacon":         {func(in *Input) { in.Beacon = make([]byte, MaxBeaconBytes+1) }, "beacon", ErrBadInput},
		"no campaign":         {func(in *Input) { in.Campaign = "" }, "campaign", ErrBadInput},
		"long campaign":       {func(in *Input) { in.Campaign = long + "x" }, "campaign", ErrBadInput},
		"broken campaign":     {func(in *Input) { in.Campaign = "a\xff" }, "campaign", ErrBadInput},
		"control":             {func(in *Input) { in.Campaign = "a\u0085" }, "campaign", ErrBadInput},
		"no positions":        {func(in *Input) { in.Positions = nil }, "positions", ErrBadInput},
		"no id":               {func(in *Input) { in.Positions[1].ID = "" }, "positions[1].id", ErrBadInput},
		"NUL in id":           {func(in *Input) { in.Positions[1].ID = "a\x00" }, "positions[1].id", ErrBadInput},
		"id twice":            {func(in *Input) { in.Positions[2].ID = in.Positions[0].ID }, "positions[2].id", ErrBadInput},
		"layer 0":             {func(in *Input) { in.Positions[0].Layer = 0 }, "positions[0].layer", ErrBadInput},
		"layer over":          {func(in *Input) { in.Positions[9].Layer = MaxLayer + 1 }, "positions[9].layer", ErrBadInput},
		"number 0":            {func(in *Input) { in.Positions[0].Number = 0 }, "positions[0].number", ErrBadInput},
		"number over":         {func(in *Input) { in.Positions[9].Number = MaxNumber + 1 }, "positions[9].number", ErrBadInput},
		"no account":          {func(in *Input) { in.Positions[9].Account = "" }, "positions[9].account", ErrBadInput},
		"DEL in account":      {func(in *Input) { in.Positions[9].Account = "a\x7f" }, "positions[9].account", ErrBadInput},
		"not in order":        {func(in *Input) { in.Positions[1], in.Positions[2] = in.Positions[2], in.Positions[1] }, "positions[2]", ErrBadInput},
		"place twice":         {func(in *Input) { in.Positions[2].Number = 1 }, "positions[2]", ErrBadInput},
		"no prize name":       {func(in *Input) { in.Prizes[0].Name = "" }, "prizes[0].name", ErrBadInput},
		"prize twice":         {func(in *Input) { in.Prizes[2].Name = "first" }, "prizes[2].name", ErrBadInput},
		"negative layer":      {func(in *Input) { in.Prizes[2].Layer = -1 }, "prizes[2].layer", ErrBadInput},
		"prize layer over":    {func(in *Input) { in.Prizes[2].Layer = MaxLayer + 1 }, "prizes[2].layer", ErrBadInput},
		"no quantity":         {func(in *Input) { in.Prizes[2].Quantity = 0 }, "prizes[2].quantity", ErrBadInput},
		"more than positions": {func(in *Input) { in.Prizes[2].Quantity = 11 }, "prizes[2].quantity", ErrTooManyPrizes},
		"more than the layer": {func(in *Input) { in.Prizes[1].Quantity = 5 }, "prizes[1].quantity", ErrTooManyPrizes},
		"absent layer":        {func(in *Input) { in.Prizes[1].Layer = 5 }, "prizes[1].quantity", ErrTooManyPrizes},
		"huge quantity":       {func(in *Input) { in.Prizes[1].Quantity = 1 << 62 }, "prizes[1].quantity", ErrTooManyPrizes},
		"many prizes":         {func(in *Input) { in.Prizes = make([]Prize, MaxPrizes+1) }, "prizes", ErrBadInput},
	} {
		in := testInput()
		in.Positions, in.Prizes = slices.Clone(in.Positions), slices.Clone(in.Prizes)
		c.change(&in)
		res, err := Draw(in)
		var detail *InputError
		if res != nil || !errors.Is(err, c.err) || !errors.As(err, &detail) || detail.Field != c.field {
			t.Errorf("%s: %v, want %v at %s", name, err, c.err, c.field)
		}
	}
	in := testInput()
	in.Campaign, in.Prizes[0].Name, in.Positions[0].Account = long, long, long
	if _, err := Draw(in); err != nil {
		t.Errorf("texts at the limit: %v", err)
	}
	if err := CheckPrizes([]Prize{{Name: "a", Quantity: MaxWinners}, {Name: "b", Quantity: 1}}, map[int]int{1: MaxWinners}); !errors.Is(err, ErrBadInput) {
		t.Errorf("too many winners: %v", err)
	}
	if err := CheckPrizes([]Prize{{Name: "a", Quantity: MaxWinners}}, map[int]int{1: MaxWinners}); err != nil {
		t.Errorf("winners at the limit: %v", err)
	}
}

func TestDrawDependsOnEveryInput(t *testing.T) {
	base := testInput()
	seen := map[[32]byte]string{}
	for name, change := range map[string]func(in *Input){
		"nothing":  func(*Input) {},
		"seed":     func(in *Input) { in.Seed[31] ^= 1 },
		"beacon":   func(in *Input) { in.Beacon = []byte{0} },
		"beacon 2": func(in *Input) { in.Beacon = []byte{0, 0} },
		"campaign": func(in *Input) { in.Campaign = "C-1" },
		"account":  func(in *Input) { in.Positions[3].Account = "Acct-3" },
		"id":       func(in *Input) { in.Positions[3].ID = "P-3-1" },
		"number":   func(in *Input) { in.Positions[9].Number = 5 },
		"fewer":    func(in *Input) { in.Positions = in.Positions[:9] },
		"name":     func(in *Input) { in.Prizes[0].Name = "First" },
		"layer":    func(in *Input) { in.Prizes[1].Layer = 3 },
		"quantity": func(in *Input) { in.Prizes[1].Quantity = 1 },
		"order":    func(in *Input) { in.Prizes[0], in.Prizes[2] = in.Prizes[2], in.Prizes[0] },
		"moved":    func(in *Input) { in.Prizes[0].Name, in.Prizes[1].Name = "firsts", "econd" },
	} {
		in := base
		in.Positions, in.Prizes = slices.Clone(base.Positions), slices.Clone(base.Prizes)
		change(&in)
		root, err := Root(in.Campaign, in.Positions)
		testwait.Must(t, err)
		seed := drawSeed(&in, root)
		if other, ok := seen[seed]; ok {
			t.Errorf("%s and %s give one draw seed", name, other)
		}
		seen[seed] = name
	}
}

func TestVerifyNamesTheFirstDifference(t *testing.T) {
	for field, change := range map[string]func(p *Proof){
		"versions.document":          func(p *Proof) { p.Versions.Document = 2 },
		"versions.algorithm":         func(p *Proof) { p.Versions.Algorithm = 0 },
		"commitment":                 func(p *Proof) { p.Commitment = strings.Repeat("0", 64) },
		"root":                       func(p *Proof) { p.Positions[3].Account = "other" },
		"draw_seed":                  func(p *Proof) { p.Prizes[0].Name = "other" },
		"winners":                    func(p *Proof) { p.Winners = p.Winners[:5] },
		"winners[1].prize":           func(p *Proof) { p.Winners[1].Prize = "other" },
		"winners[2].account":         func(p *Proof) { p.Winners[2].Position.Account = "other" },
		"winners[3].position.id":     func(p *Proof) { p.Winners[3].Position.ID = "other" },
		"winners[4].position.number": func(p *Proof) { p.Winners[4].Position.Number = 9 },
		"winners[5].layer":           func(p *Proof) { p.Winners[5].Position.Layer = 9 },
	} {
		p, _ := mustProof(t, testInput())
		change(p)
		var diff *Difference
		if err := p.Verify(); !errors.As(err, &diff) || diff.Field != field || diff.Want == diff.Got {
			t.Errorf("%s: %v", field, err)
		}
	}
	for field, change := range map[string]func(p *Proof){
		"server_seed":         func(p *Proof) { p.ServerSeed = strings.ToUpper(p.ServerSeed) },
		"beacon.signature":    func(p *Proof) { p.Beacon = "0" },
		"prizes[0].quantity":  func(p *Proof) { p.Prizes[0].Quantity = 2 },
		"positions[1]":        func(p *Proof) { p.Positions[0], p.Positions[1] = p.Positions[1], p.Positions[0] },
		"positions[0].number": func(p *Proof) { p.Positions[0].Number = 0 },
	} {
		p, _ := mustProof(t, testInput())
		change(p)
		var bad *InputError
		if err := p.Verify(); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestVerifyCommitment(t *testing.T) {
	p, _ := mustProof(t, testInput())
	published := testInput().Seed.Commitment()
	testwait.Check(t, p.VerifyCommitment(published))
	var diff *Difference
	if err := p.VerifyCommitment(testSeed("other").Commitment()); !errors.As(err, &diff) || diff.Field != "commitment" {
		t.Errorf("another commitment: %v", err)
	}
	for _, text := range []string{"", published[1:], strings.ToUpper(published), published + "\n"} {
		if err := p.VerifyCommitment(text); !errors.Is(err, ErrBadInput) {
			t.Errorf("%q: %v", text, err)
		}
	}
	p.ServerSeed = testSeed("other").Hex()
	if err := p.VerifyCommitment(published); !errors.As(err, &diff) || diff.Field != "server_seed" {
		t.Errorf("another seed under the published commitment: %v", err)
	}
	p.ServerSeed = ""
	if err := p.VerifyCommitment(published); !errors.Is(err, ErrBadInput) {
		t.Errorf("no seed: %v", err)
	}
}

func TestSelectionRefusesBadInput(t *testing.T) {
	s := NewStream([32]byte{}, 0)
	for name, call := range map[string]func() error{
		"k over n":      func() error { _, err := Sample(s, 3, 4); return err },
		"negative k":    func() error { _, err := Sample(s, 3, -1); return err },
		"negative n":    func() error { _, err := Sample(s, -1, 0); return err },
		"k over limit":  func() error { _, err := Sample(s, MaxSelection+1, MaxSelection+1); return err },
		"empty range":   func() error { _, err := s.Between(1, 0); return err },
		"no weights":    func() error { _, err := NewWeights(nil); return err },
		"zero weights":  func() error { _, err := NewWeights([]uint64{0, 0}); return err },
		"overflow":      func() error { _, err := NewWeights([]uint64{1 << 63, 1 << 63, 5}); return err },
		"many weights":  func() error { _, err := NewWeights(make([]uint64, MaxWeights+1)); return err },
		"zero seed":     func() error { _, err := NewOperation(Seed{}, "op"); return err },
		"no operation":  func() error { _, err := NewOperation(testSeed("x"), ""); return err },
		"index -1":      func() error { _, err := Include("c", triangle(2), -1); return err },
		"index at size": func() error { _, err := Include("c", triangle(2), 3); return err },
		"no leaf":       func() error { _, err := Include("c", nil, 0); return err },
	} {
		if err := call(); !errors.Is(err, ErrBadInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewWeights([]uint64{1 << 63, 1<<63 - 1}); err != nil {
		t.Errorf("weights that sum to 2^64-1: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("Uint64n(0) did not panic")
		}
	}()
	s.Uint64n(0)
}

// TestInclusionSizeIsBound holds what the root adds to the tree of RFC 9162: leaf 0 of 3 and of 4 has the same path there.
func TestInclusionSizeIsBound(t *testing.T) {
	positions := triangle(2)
	ip, err := Include("c-1", positions, 0)
	testwait.Must(t, err)
	root := mustBytes32(t, ip.Root)
	ip.Size = 4
	var diff *Difference
	if err := ip.Verify(root); !errors.As(err, &diff) {
		t.Errorf("size 4 for 3: %v", err)
	}
}
