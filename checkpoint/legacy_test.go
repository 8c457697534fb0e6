package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// theirs is a state as the requirement has it.
const theirs = `{
  "lock_key": "user_123:daily", "total_count": 10, "completed_count": 7,
  "results": [42, 17, 89, 3, 56, 23, 91],
  "errors": [{"draw_index": 7, "error_msg": "the lock was held", "timestamp": 1703123700}],
  "start_time": 1703123456, "last_update_time": 1703123789
}`

var errNotTheirs = errors.New("a result is out of range")

// adopting counts as counting does, and takes results below 100 for its own.
func adopting(t *testing.T, store checkpoint.Store, pure bool, do func(int) error) *checkpoint.Runner[count, int64] {
	t.Helper()
	r, err := checkpoint.New(checkpoint.Definition[count, int64]{
		Name: "counting", Open: func(p count, seed checkpoint.Seed) (checkpoint.Steps[int64], error) {
			return &counted{p, seed, do}, nil
		}, Pure: pure,
		Adopt: func(_ count, results []int64) error {
			if slices.Max(append(results, 0)) >= 100 {
				return errNotTheirs
			}
			return nil
		},
	}, store, nil, checkpoint.Options{})
	testwait.Must(t, err)
	return r
}

// TestAdoptAndGoOn goes on from a state of another program, is interrupted, and ends with its results and the rest.
func TestAdoptAndGoOn(t *testing.T) {
	t.Parallel()
	store := &checkpoint.Memory{}
	store.Plant(op, []byte(theirs), time.Hour)
	ask, adopt := count{10, 1000}, checkpoint.Call{Adopt: true, Seed: &checkpoint.Seed{}}
	cut := adopting(t, store, true, failAt(9))
	wantError(t, "without a word about adoption", second(cut.Run(t.Context(), op, ask, checkpoint.Call{})), checkpoint.ErrLegacy)
	wantError(t, "resume, which has no parameters", second(cut.Resume(t.Context(), op, adopt)), checkpoint.ErrLegacy)
	wantError(t, "another number of steps", second(cut.Run(t.Context(), op, count{11, 1000}, adopt)), checkpoint.ErrOtherParameters)
	unwilling := counting(t, store, 1, nil)
	wantError(t, "a kind that adopts nothing", second(unwilling.Run(t.Context(), op, ask, adopt)), checkpoint.ErrLegacy)
	if got := string(body(t, store)); got != theirs {
		t.Fatalf("it was changed to %s", got)
	}

	res, err := cut.Run(t.Context(), op, ask, adopt)
	if !errors.Is(err, errPower) || res.Completed != 9 || len(res.Errors) != 2 || res.StartedAt.Unix() != 1703123456 {
		t.Fatalf("%+v, %v", res, err)
	}
	if first := res.Errors[0]; first.Step != 7 || first.Time != 1703123700 || !strings.Contains(first.Message, "the lock was held") {
		t.Errorf("their error became %+v", first)
	}
	// From now on it is an operation as any other.
	res, err = adopting(t, store, true, nil).Resume(t.Context(), op, checkpoint.Call{})
	if err != nil || res.Status != checkpoint.StatusCompleted || !slices.Equal(res.Results, []int64{42, 17, 89, 3, 56, 23, 91, 1007, 1008, 1009}) {
		t.Errorf("%+v, %v", res, err)
	}
	wantError(t, "other parameters", second(cut.Run(t.Context(), op, count{10, 5}, adopt)), checkpoint.ErrOtherParameters)
	testwait.Must(t, second(cut.Rollback(t.Context(), op, checkpoint.Call{})))
}

// TestRollBackWhatAnotherSaved rolls back at each number of draws, with the store failing in between.
func TestRollBackWhatAnotherSaved(t *testing.T) {
	t.Parallel()
	for done := range 4 {
		planted := fmt.Sprintf(`{"lock_key":"user_123:daily","total_count":3,"completed_count":%d,"results":[%s],"start_time":5,"last_update_time":6}`,
			done, strings.Join([]string{"7", "8", "9"}[:done], ","))
		if done == 0 {
			planted = strings.Replace(planted, `"results":[],`, "", 1)
		}
		store := &failing{Memory: &checkpoint.Memory{}}
		store.Plant(op, []byte(planted), time.Hour)
		r := adopting(t, store, true, nil)
		effects := adopting(t, store, false, nil)
		wantError(t, "with effects, and no parameters", second(effects.Rollback(t.Context(), op, checkpoint.Call{})), checkpoint.ErrLegacy)
		for after := range 2 {
			store.after = after
			wantError(t, "the store is away", second(r.Rollback(t.Context(), op, checkpoint.Call{})), errPower)
		}
		store.after = 100
		res, err := r.Rollback(t.Context(), op, checkpoint.Call{})
		if err != nil || res.Status != checkpoint.StatusRolledBack || !slices.Equal(res.Results, []int64{7, 8, 9}[:done]) || res.Undone != done {
			t.Fatalf("%d draws: %+v, %v", done, res, err)
		}
		testwait.Must(t, second(r.Rollback(t.Context(), op, checkpoint.Call{}))) // It is no error.
		s, err := r.Load(t.Context(), op)
		if err != nil || s.Legacy() || s.Status != checkpoint.StatusRolledBack || s.StartTime != 5 || s.TotalCount != 3 {
			t.Errorf("%+v, %v", s, err)
		}
		wantError(t, "go on", second(r.Resume(t.Context(), op, checkpoint.Call{})), checkpoint.ErrBadTransition)
	}
}

// failing is a store that fails after some saves.
type failing struct {
	*checkpoint.Memory

	after int
}

func (f *failing) Save(ctx context.Context, key checkpoint.Key, s *checkpoint.Save) error {
	if f.after--; f.after < 0 {
		return errPower
	}
	return f.Memory.Save(ctx, key, s)
}

// TestWhatIsNotAdopted plants states whose results contradict their counts, their kind or the parameters.
func TestWhatIsNotAdopted(t *testing.T) {
	t.Parallel()
	with := func(old, replaced string) string { return strings.Replace(theirs, old, replaced, 1) }
	for planted, want := range map[string]error{
		with("[42, ", "["):                                                      checkpoint.ErrCorrupt,
		with("[42, ", "[42, 42, "):                                              checkpoint.ErrCorrupt,
		with("[42, ", `["42", `):                                                checkpoint.ErrCorrupt,
		with("[42, 17, 89, 3, 56, 23, 91]", `{"42":17}`):                        checkpoint.ErrCorrupt,
		with("[42, 17, 89, 3, 56, 23, 91]", `null`):                             checkpoint.ErrCorrupt,
		with(`"completed_count": 7`, `"completed_count": 11`):                   checkpoint.ErrCorrupt,
		with(`"total_count": 10`, `"total_count": 20000001`):                    checkpoint.ErrCorrupt,
		with(`"results"`, `"prize_results"`):                                    checkpoint.ErrOtherParameters,
		with("[42, ", "[420, "):                                                 errNotTheirs,
		with(`"user_123:daily"`, `"user_124:daily"`):                            checkpoint.ErrCorrupt,
		strings.Replace(theirs, `"start_time"`, `"status":"x","start_time"`, 1): checkpoint.ErrCorrupt,
	} {
		store := &checkpoint.Memory{}
		store.Plant(op, []byte(planted), time.Hour)
		r := adopting(t, store, true, nil)
		wantError(t, planted, second(r.Run(t.Context(), op, count{10, 1000}, checkpoint.Call{Adopt: true})), want)
		if !errors.Is(want, errNotTheirs) {
			if err := second(r.Rollback(t.Context(), op, checkpoint.Call{})); err == nil {
				t.Errorf("rolled back: %s", planted)
			}
		}
		if got := string(body(t, store)); got != planted && !strings.Contains(got, `"rolled_back"`) {
			t.Errorf("it was changed to %s", got)
		}
	}
}
