package checkpoint_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead-dev/fairlead/checkpoint"
)

// mailing sends letters, one a step.
type mailing struct {
	to    []string
	power *bool
}

func (m mailing) Count() int { return len(m.to) }

func (m mailing) Do(_ context.Context, step int) (string, error) {
	if step == 2 && !*m.power {
		return "", errors.New("power cut")
	}
	fmt.Println("letter to", m.to[step])
	return "posted to " + m.to[step], nil
}

func (m mailing) Undo(_ context.Context, d checkpoint.Done[string]) error {
	if d.Certain {
		fmt.Println("call back what was", d.Result)
	}
	return nil
}

// An operation that was interrupted goes on where it was, and can be undone in reverse.
func Example() {
	power := false
	letters, err := checkpoint.New(checkpoint.Definition[[]string, string]{
		Name: "letters",
		Open: func(to []string, _ checkpoint.Seed) (checkpoint.Steps[string], error) {
			return mailing{to, &power}, nil
		},
	}, &checkpoint.Memory{}, nil, checkpoint.Options{}) // In earnest: redisstore or pgstore, and a lock.Locker.
	if err != nil {
		panic(err)
	}
	ctx, key := context.Background(), checkpoint.Key{LockKey: "post", ID: "invitations"}
	res, err := letters.Run(ctx, key, []string{"Ann", "Ben", "Cy"}, checkpoint.Call{})
	fmt.Println(res.Completed, "of", res.Total, checkpoint.SeverityOf(err))

	_, err = letters.Run(ctx, key, []string{"Dan"}, checkpoint.Call{})
	fmt.Println(errors.Is(err, checkpoint.ErrOtherParameters))

	power = true
	res, err = letters.Resume(ctx, key, checkpoint.Call{})
	fmt.Println(res.Status, res.Results[2], err)

	res, err = letters.Rollback(ctx, key, checkpoint.Call{})
	fmt.Println(res.Status, err)
	// Output:
	// letter to Ann
	// letter to Ben
	// 2 of 3 step
	// true
	// letter to Cy
	// completed posted to Cy <nil>
	// call back what was posted to Cy
	// call back what was posted to Ben
	// call back what was posted to Ann
	// rolled_back <nil>
}
