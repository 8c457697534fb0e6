package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
)

// beaconProof is the document of a draw that a published round of a chain decided, and its root.
func beaconProof(t *testing.T, chain fairdraw.Chain) (document []byte, root string) {
	t.Helper()
	signature, err := hex.DecodeString("95a9f9f5b231b7714de1553105d8ffdf3dcda24cfdb1e689319bccf79a9c8ce430a91b811fbfaf763900bc998b5d686a")
	if err != nil {
		t.Fatal(err)
	}
	in := fairdraw.Input{
		Campaign: "c", Seed: fairdraw.Seed{1}, Beacon: signature, Prizes: []fairdraw.Prize{{Name: "p", Quantity: 1}},
		Positions: []fairdraw.Position{{ID: "a", Layer: 1, Number: 1, Account: "ann"}, {ID: "b", Layer: 1, Number: 2, Account: "ben"}},
	}
	drawn, err := fairdraw.Draw(in)
	if err != nil {
		t.Fatal(err)
	}
	proof := fairdraw.NewBeaconProof(in, drawn, chain, fairdraw.Round{Number: 42, Signature: signature})
	if document, err = json.Marshal(proof); err != nil {
		t.Fatal(err)
	}
	return document, proof.Root
}

// TestVerifyABeaconsDraw verifies a draw that round 42 of drand's quicknet decided, offline.
func TestVerifyABeaconsDraw(t *testing.T) {
	document, root := beaconProof(t, beacon.Quicknet())
	mine := beacon.Quicknet()
	mine.BeaconID = "mine"
	others, _ := beaconProof(t, mine)
	bare := fairdraw.Input{
		Campaign: "c", Seed: fairdraw.Seed{1}, Beacon: []byte{1},
		Positions: []fairdraw.Position{{ID: "a", Layer: 1, Number: 1, Account: "ann"}},
	}
	drawn, err := fairdraw.Draw(bare)
	if err != nil {
		t.Fatal(err)
	}
	unnamed, err := json.Marshal(fairdraw.NewProof(bare, drawn))
	if err != nil {
		t.Fatal(err)
	}
	instant, _ := proofFile(t)
	file := func(name string, data []byte) string {
		name = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	valid := file("valid.json", document)
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"published", []string{valid}, 0, "beacon      round 42 of quicknet, due at 2023-08-23T15:11:30Z"},
		{"against what was sealed", []string{valid, "--round", "42", "--root", root}, 0, "valid"},
		{"as JSON", []string{valid, "--json"}, 0, `"round": 42`},
		{"another round was named", []string{valid, "--round", "43"}, 1, "beacon.round differs"},
		{"another list was sealed", []string{valid, "--root", strings.Repeat("0", 64)}, 1, "root differs"},
		{"an instant draw where a round was named", []string{instant, "--round", "42"}, 1, "no beacon"},
		{"a round of nothing", []string{valid, "--round", "0"}, 2, "--round is empty"},
		{"an altered round", []string{file("a.json", bytes.Replace(document, []byte(`"round":42`), []byte(`"round":43`), 1))}, 1, "signature is not the chain's"},
		{"an altered signature", []string{file("s.json", bytes.Replace(document, []byte(`"signature":"95`), []byte(`"signature":"94`), 1))}, 1, "NOT VALID"},
		{"a chain of the operator's", []string{file("o.json", others)}, 1, "not one of those that are trusted"},
		{"a chain that is trusted", []string{file("t.json", others), "--chain", mine.Hash()}, 0, "of mine"},
		{"a signature of no round", []string{file("u.json", unnamed)}, 1, "the signature is not verified"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := execute(t, append([]string{"verify"}, c.args...)...)
			code := 0
			if err != nil {
				code = 2
				if exit, ok := errors.AsType[exitCode](err); ok {
					code = int(exit)
				} else {
					out += err.Error()
				}
			}
			// Words may be quoted in JSON's way.
			if code != c.code || !strings.Contains(strings.ReplaceAll(out, "beacon's signature", "signature"), c.says) {
				t.Errorf("exit %d, want %d; printed %q, want %q in it", code, c.code, out, c.says)
			}
		})
	}
}
