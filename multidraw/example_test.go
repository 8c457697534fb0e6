package multidraw_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// Draws are reached by their index, one or many at a time.
func ExampleNew() {
	seed := fairdraw.Seed{1} // In earnest: fairdraw.NewSeed(rand.Reader).
	dice, err := multidraw.New(seed, "dice", multidraw.Spec{Range: &multidraw.Range{Min: 1, Max: 6}})
	if err != nil {
		panic(err)
	}
	fmt.Println(dice.Ints(0, 10), dice.Int(7))
	wheel, err := multidraw.New(seed, "wheel", multidraw.Spec{Prizes: []multidraw.Prize{
		{ID: "gold", Name: "Gold", Weight: 1}, {ID: "silver", Name: "Silver", Weight: 4}, {ID: "none", Name: "Nothing", Weight: 5},
	}})
	if err != nil {
		panic(err)
	}
	for _, p := range wheel.Prizes(0, 12) {
		fmt.Print(p.ID, " ")
	}
	// Output:
	// [1 4 2 6 3 6 5 5 6 1] 5
	// none none none none none none silver none none silver none silver
}

// A run is saved each few draws, and goes on where it was when it was interrupted.
func ExampleRun() {
	dice, err := multidraw.New(fairdraw.Seed{1}, "dice", multidraw.Spec{Range: &multidraw.Range{Min: 1, Max: 6}})
	if err != nil {
		panic(err)
	}
	state, err := multidraw.NewState(dice, 10, 4)
	if err != nil {
		panic(err)
	}
	var (
		kept  []byte // both of these in one transaction, in earnest
		draws []byte
	)
	errPower := errors.New("power cut")
	save := func(_ context.Context, c multidraw.Chunk) (err error) {
		if c.First == 4 && len(draws) == 4 && state.Completed == 0 {
			return errPower
		}
		draws = append(draws, c.Saved...)
		kept, err = json.Marshal(c.Next)
		return err
	}
	_, err = multidraw.Run(context.Background(), dice, state, save)
	fmt.Println(err, "after", len(draws), "draws")

	if state, err = multidraw.ParseState(kept); err != nil {
		panic(err)
	}
	state, err = multidraw.Run(context.Background(), dice, state, save)
	spec := dice.Spec()
	ints, _, _ := spec.Results(draws)
	fmt.Println(err, state.Done(), slices.Equal(ints, dice.Ints(0, 10)))
	// Output:
	// power cut after 4 draws
	// <nil> true true
}
