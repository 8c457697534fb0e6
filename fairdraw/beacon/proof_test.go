package beacon_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// drawInput is a small draw.
func drawInput() fairdraw.Input {
	return fairdraw.Input{
		Campaign: "c-1", Seed: fairdraw.Seed{1, 2, 3},
		Prizes:    []fairdraw.Prize{{Name: "grand", Quantity: 1}, {Name: "second", Layer: 2, Quantity: 1}},
		Positions: []fairdraw.Position{{ID: "a", Layer: 1, Number: 1, Account: "ann"}, {ID: "b", Layer: 2, Number: 1, Account: "ben"}, {ID: "c", Layer: 2, Number: 2, Account: "cleo"}},
	}
}

// proofs are the documents of a draw that a published round of each network decided.
func proofs(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for name, rounds := range published(t) {
		chain, _ := beacon.Named(name)
		in, round := drawInput(), rounds[0].round(t)
		in.Beacon = round.Signature
		drawn, err := fairdraw.Draw(in)
		testwait.Must(t, err)
		if out[name], err = json.Marshal(fairdraw.NewBeaconProof(in, drawn, chain, round)); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// judge is what fairlead verify does.
func judge(document []byte) error {
	p, err := fairdraw.ParseProof(document)
	if err != nil {
		return err
	}
	return p.VerifyBeacon(beacon.Trust())
}

func TestProofsOfPublishedRounds(t *testing.T) {
	t.Parallel()
	for name, document := range proofs(t) {
		if err := judge(document); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		p, err := fairdraw.ParseProof(document)
		testwait.Must(t, err)
		again, err := json.Marshal(p)
		if err != nil || !bytes.Equal(again, document) {
			t.Errorf("%s: written again as %s, %v", name, again, err)
		}
		// Without a verifier of signatures it is not valid, however right the rest is.
		if err := p.Verify(); !errors.Is(err, fairdraw.ErrBeaconUnverified) {
			t.Errorf("%s: %v", name, err)
		}
		inclusion, err := fairdraw.Include(p.Campaign, p.Positions, 1)
		testwait.Must(t, err)
		root, err := fairdraw.Root(p.Campaign, p.Positions)
		if err != nil || inclusion.Verify(root) != nil {
			t.Errorf("%s: the proof of inclusion: %v", name, err)
		}
	}
}

// TestABareSignatureIsNotEnough holds that a document of version 1, whose beacon is bytes of the operator's choice, passes
// for none whose beacon was verified.
func TestABareSignatureIsNotEnough(t *testing.T) {
	t.Parallel()
	in := drawInput()
	in.Beacon = []byte("anything")
	drawn, err := fairdraw.Draw(in)
	testwait.Must(t, err)
	p := fairdraw.NewProof(in, drawn)
	testwait.Check(t, p.Verify())
	if err := p.VerifyBeacon(beacon.Trust()); !errors.Is(err, fairdraw.ErrBeaconUnverified) {
		t.Error(err)
	}
	in.Beacon = nil
	if drawn, err = fairdraw.Draw(in); err != nil {
		t.Fatal(err)
	}
	if err := fairdraw.NewProof(in, drawn).VerifyBeacon(beacon.Trust()); err != nil {
		t.Errorf("an instant draw: %v", err)
	}
}

// TestEverySingleAlterationIsRefused alters each value of the beacon's part in many ways, each hexadecimal digit of it, and
// the part's shape; and one value of each other field.
func TestEverySingleAlterationIsRefused(t *testing.T) {
	t.Parallel()
	for name, document := range proofs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried := 0
			refuse := func(what string, altered []byte) {
				t.Helper()
				tried++
				if bytes.Equal(altered, document) {
					t.Fatalf("%s: nothing was altered", what)
				}
				if judge(altered) == nil {
					t.Errorf("%s: valid: %s", what, altered)
				}
			}
			var whole map[string]any
			testwait.Must(t, json.Unmarshal(document, &whole))
			beaconPart, ok := whole["beacon"].(map[string]any)
			if !ok {
				t.Fatal("no beacon")
			}
			write := func(change func(part map[string]any)) []byte {
				t.Helper()
				part, doc := maps.Clone(beaconPart), maps.Clone(whole)
				change(part)
				doc["beacon"] = part
				out, err := json.Marshal(doc)
				testwait.Must(t, err)
				return out
			}
			if err := judge(write(func(map[string]any) {})); err != nil {
				t.Fatalf("written without a change: %v", err)
			}
			wantFields := 9
			if name == "default" {
				wantFields = 10
			}
			if len(beaconPart) != wantFields {
				t.Errorf("%d fields: %v", len(beaconPart), beaconPart)
			}
			for _, field := range slices.Sorted(maps.Keys(beaconPart)) {
				refuse(field+" left out", write(func(p map[string]any) { delete(p, field) }))
				refuse(field+" null", write(func(p map[string]any) { p[field] = nil }))
				text, isText := beaconPart[field].(string)
				if !isText {
					for _, other := range []int{-1, 0, 1, 2, 4, 31, 41, 43, 72784, 1 << 30} {
						refuse(fmt.Sprintf("%s = %d", field, other), write(func(p map[string]any) { p[field] = other }))
					}
					continue
				}
				for _, other := range []string{"", "0", "00", text + "0", text + "00", strings.ToUpper(text), text[:len(text)-2], strings.Repeat("0", len(text)), " " + text} {
					if other != text {
						refuse(fmt.Sprintf("%s = %q", field, other), write(func(p map[string]any) { p[field] = other }))
					}
				}
				for i := range text {
					flipped := []byte(text)
					flipped[i] = '0'
					if text[i] == '0' {
						flipped[i] = '1'
					}
					refuse(fmt.Sprintf("%s, digit %d", field, i), write(func(p map[string]any) { p[field] = string(flipped) }))
				}
			}
			for _, scheme := range []string{beacon.SchemeChained, beacon.SchemeUnchained, "bls-unchained-on-g1"} {
				if scheme != beaconPart["scheme"] {
					refuse("scheme "+scheme, write(func(p map[string]any) { p["scheme"] = scheme }))
				}
			}
			refuse("another field", write(func(p map[string]any) { p["randomness"] = "00" }))
			if name != "default" {
				refuse("a previous signature", write(func(p map[string]any) { p["previous_signature"] = beaconPart["signature"] }))
			}
			for from, to := range map[string]string{
				`"document":2`: `"document":1`, `"algorithm":1`: `"algorithm":2`, `"campaign":"c-1"`: `"campaign":"c-2"`,
				`"account":"ann"`: `"account":"eve"`, `"name":"grand"`: `"name":"grant"`, `"draw_seed":"`: `"draw_seed":"0`,
			} {
				refuse(to, bytes.Replace(document, []byte(from), []byte(to), 1))
			}
			without := maps.Clone(whole)
			delete(without, "beacon")
			out, err := json.Marshal(without)
			testwait.Must(t, err)
			refuse("no beacon", out)
			refuse("no beacon, as an instant draw", bytes.Replace(out, []byte(`"document":2`), []byte(`"document":1`), 1))
			t.Logf("%d alterations", tried)
		})
	}
}

// TestAnotherGenuineRoundGivesAnotherDraw shows why the round must be named before it is known: proofs of other rounds are
// valid in themselves, and fairlead verify --round tells them apart.
func TestAnotherGenuineRoundGivesAnotherDraw(t *testing.T) {
	t.Parallel()
	seeds := map[string]bool{}
	for _, rec := range published(t)["quicknet"] {
		in, round := drawInput(), rec.round(t)
		in.Beacon = round.Signature
		drawn, err := fairdraw.Draw(in)
		testwait.Must(t, err)
		p := fairdraw.NewBeaconProof(in, drawn, beacon.Quicknet(), round)
		if err := p.VerifyBeacon(beacon.Trust()); err != nil || p.Source.Round != rec.Round {
			t.Error(err)
		}
		seeds[p.DrawSeed] = true
	}
	if len(seeds) != 2 {
		t.Errorf("%d draw seeds of 2 rounds", len(seeds))
	}
}
