package fairdraw

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

const benchPositions = 500_000

// benchInput is a large campaign with ids as long as the server's.
func benchInput() Input {
	in := Input{
		Campaign: "0193b6c1-7c1a-7000-8000-000000000001",
		Seed:     testSeed("bench"),
		Prizes:   []Prize{{Name: "one", Quantity: 1}, {Name: "hundred", Layer: 7, Quantity: 100}, {Name: "many", Quantity: 50_000}},
	}
	for i := range benchPositions {
		in.Positions = append(in.Positions, Position{
			ID:      fmt.Sprintf("0193b6c1-7c1a-7000-8000-%012d", i),
			Layer:   i/1000 + 1,
			Number:  i%1000 + 1,
			Account: fmt.Sprintf("0193b6c1-7c1a-7000-9000-%012d", i),
		})
	}
	return in
}

func BenchmarkRoot(b *testing.B) {
	in := benchInput()
	for b.Loop() {
		if _, err := Root(in.Campaign, in.Positions); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDraw(b *testing.B) {
	in := benchInput()
	for b.Loop() {
		if _, err := Draw(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDraw210(b *testing.B) {
	in := testInput()
	in.Positions = triangle(20)
	for b.Loop() {
		if _, err := Draw(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseProof(b *testing.B) {
	_, doc := mustProof(b, benchInput())
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if _, err := ParseProof(doc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMarshalProof(b *testing.B) {
	p, _ := mustProof(b, benchInput())
	for b.Loop() {
		if _, err := json.Marshal(p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	p, _ := mustProof(b, benchInput())
	for b.Loop() {
		testwait.Must(b, p.Verify())
	}
}

func BenchmarkSeekAndPick(b *testing.B) {
	w, err := NewWeights([]uint64{1, 9, 90, 900})
	testwait.Must(b, err)
	s := NewStream(testSeed("bench"), 0)
	i := uint64(0)
	for b.Loop() {
		s.Seek(i)
		w.Pick(s)
		i++
	}
}
