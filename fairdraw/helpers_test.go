package fairdraw

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"
)

// testSeed gives a fixed seed a test can tell from others.
func testSeed(name string) Seed { return Seed(sha256.Sum256([]byte(name))) }

// triangle gives the sold positions of a campaign of n layers.
func triangle(n int) []Position {
	var out []Position
	for layer := 1; layer <= n; layer++ {
		for number := 1; number <= layer; number++ {
			out = append(out, Position{
				ID:      fmt.Sprintf("p-%d-%d", layer, number),
				Layer:   layer,
				Number:  number,
				Account: fmt.Sprintf("acct-%d", len(out)%5),
			})
		}
	}
	return out
}

// testInput is a draw with every kind of prize: of one layer and of any, of one position and of several.
func testInput() Input {
	return Input{
		Campaign:  "c-1",
		Seed:      testSeed("test input"),
		Positions: triangle(4),
		Prizes: []Prize{
			{Name: "first", Layer: 1, Quantity: 1},
			{Name: "second", Layer: 4, Quantity: 2},
			{Name: "any", Quantity: 3},
		},
	}
}

// mustProof draws and gives the proof and its document.
func mustProof(tb testing.TB, in Input) (*Proof, []byte) {
	tb.Helper()
	res, err := Draw(in)
	if err != nil {
		tb.Fatalf("draw: %v", err)
	}
	p := NewProof(in, res)
	if err := p.Verify(); err != nil {
		tb.Fatalf("verify a true proof: %v", err)
	}
	doc, err := json.Marshal(p)
	if err != nil {
		tb.Fatalf("marshal: %v", err)
	}
	return p, doc
}

// checkDocument is what fairlead verify does.
func checkDocument(doc []byte) error {
	p, err := ParseProof(doc)
	if err != nil {
		return err
	}
	return p.Verify()
}

// checkInclusionDocument parses and verifies against a root.
func checkInclusionDocument(doc []byte, root [32]byte) error {
	ip, err := ParseInclusionProof(doc)
	if err != nil {
		return err
	}
	return ip.Verify(root)
}

func mustBytes32(t *testing.T, text string) (out [32]byte) {
	t.Helper()
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(out) {
		t.Fatalf("%q is not 32 bytes in hexadecimal", text)
	}
	copy(out[:], raw)
	return out
}
