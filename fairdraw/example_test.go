package fairdraw_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/fairdraw"
)

// exampleInput is a campaign of three sold positions. A real seed comes from NewSeed(rand.Reader) and stays secret until
// the draw.
func exampleInput() fairdraw.Input {
	seed, err := fairdraw.ParseSeed("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")
	if err != nil {
		panic(err)
	}
	return fairdraw.Input{
		Campaign: "spring",
		Seed:     seed,
		Positions: []fairdraw.Position{
			{ID: "a", Layer: 1, Number: 1, Account: "ann"},
			{ID: "b", Layer: 2, Number: 1, Account: "bob"},
			{ID: "c", Layer: 2, Number: 2, Account: "cid"},
		},
		Prizes: []fairdraw.Prize{
			{Name: "grand", Quantity: 1},
			{Name: "second layer", Layer: 2, Quantity: 2},
		},
	}
}

// The commitment is published before the sale, the draw runs after it.
func ExampleDraw() {
	in := exampleInput()
	fmt.Println("commitment", in.Seed.Commitment())
	fmt.Println("the seed prints as", in.Seed)

	res, err := fairdraw.Draw(in)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("root %x\n", res.Root)
	for _, w := range res.Winners {
		fmt.Println(w.Prize, "goes to", w.Position.Account)
	}
	// Output:
	// commitment 630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd
	// the seed prints as [redacted seed]
	// root abb4fa184dd124d6cbd3de57498f7f7e64b48928dd9fa8ece3b2e5253d75f4c0
	// grand goes to bob
	// second layer goes to cid
	// second layer goes to bob
}

// Anyone verifies the document offline, against the commitment that was published before the sale.
func ExampleProof_Verify() {
	in := exampleInput()
	res, err := fairdraw.Draw(in)
	if err != nil {
		fmt.Println(err)
		return
	}
	document, err := json.Marshal(fairdraw.NewProof(in, res))
	if err != nil {
		fmt.Println(err)
		return
	}

	proof, err := fairdraw.ParseProof(document)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(proof.Verify(), proof.VerifyCommitment(in.Seed.Commitment()))

	forged := strings.Replace(string(document), `"account":"cid"}]`, `"account":"eve"}]`, 1)
	proof, err = fairdraw.ParseProof([]byte(forged))
	if err != nil {
		fmt.Println(err)
		return
	}
	err = proof.Verify()
	var difference *fairdraw.Difference
	fmt.Println(errors.As(err, &difference), difference.Field)
	// Output:
	// <nil> <nil>
	// true root
}

// An entrant checks that their position took part, knowing the root alone.
func ExampleInclude() {
	in := exampleInput()
	root, err := fairdraw.Root(in.Campaign, in.Positions)
	if err != nil {
		fmt.Println(err)
		return
	}
	proof, err := fairdraw.Include(in.Campaign, in.Positions, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	document, err := json.Marshal(proof)
	if err != nil {
		fmt.Println(err)
		return
	}

	received, err := fairdraw.ParseInclusionProof(document)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(received.Position.Account, "is number", received.Index+1, "of", received.Size)
	fmt.Println(received.Verify(root))
	// Output:
	// bob is number 2 of 3
	// <nil>
}

// Draw i of an operation depends on i alone, so an interrupted run resumes where it was and gives what an unbroken one
// would have given.
func ExampleOperation_At() {
	operation, err := fairdraw.NewOperation(exampleInput().Seed, "operation-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	weights, err := fairdraw.NewWeights([]uint64{3, 3, 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, i := range []uint64{0, 1, 2, 19_999_999} {
		fmt.Println(i, weights.Pick(operation.At(i)))
	}
	// Output:
	// 0 2
	// 1 0
	// 2 0
	// 19999999 1
}
