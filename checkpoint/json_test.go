package checkpoint_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// loose are parameters that JSON does not keep as they are.
type loose struct {
	Limit  any
	Text   string
	More   map[string]any
	Hidden int `json:"-"`
}

// described gives results that show the parameters, and a number of type any.
type described struct {
	loose

	hook func(step int) error
}

func (d described) Count() int { return 4 }

func (d described) Do(_ context.Context, step int) (any, error) {
	return map[string]any{"parameters": fmt.Sprintf("%#v", d.loose), "step": step}, d.hook(step)
}

func describing(t *testing.T, store checkpoint.Store, hook func(int) error) *checkpoint.Runner[loose, any] {
	t.Helper()
	r, err := checkpoint.New(checkpoint.Definition[loose, any]{
		Name: "describing", Open: func(p loose, _ checkpoint.Seed) (checkpoint.Steps[any], error) { return described{p, hook}, nil },
	}, store, nil, checkpoint.Options{})
	testwait.Must(t, err)
	return r
}

// TestLooseTypes: parameters and results that JSON changes are the same in an unbroken run, a resumed one, and one that is asked for again.
func TestLooseTypes(t *testing.T) {
	t.Parallel()
	p := loose{
		Limit: int64(9007199254740993), Text: "a � and \\ufffd", More: map[string]any{"n": 1, "list": []int{1}}, Hidden: 7,
	}
	unbroken, err := describing(t, &checkpoint.Memory{}, failAt(-1)).Run(t.Context(), op, p, checkpoint.Call{})
	testwait.Must(t, err)
	store := &checkpoint.Memory{}
	_, err = describing(t, store, failAt(2)).Run(t.Context(), op, p, checkpoint.Call{})
	wantError(t, "a step's error", err, errPower)
	r := describing(t, store, failAt(-1))
	for _, what := range []string{"resumed", "asked for again"} {
		if res, err := r.Run(t.Context(), op, p, checkpoint.Call{}); err != nil || !reflect.DeepEqual(res.Results, unbroken.Results) {
			t.Errorf("%s: %v and %+v, without a break %+v", what, err, res.Results, unbroken.Results)
		}
	}
}

// TestTextThatIsNotUTF8: what JSON would replace is refused, among the parameters before anything is done.
func TestTextThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	store := &checkpoint.Memory{}
	r := describing(t, store, func(int) error { t.Error("a step was done"); return nil })
	for _, p := range []loose{{Text: "a\xff"}, {Limit: "\xfe"}, {More: map[string]any{"\xff": 1}}, {Text: "�", Limit: []string{"\xed\xa0\x80"}}} {
		res, err := r.Run(t.Context(), op, p, checkpoint.Call{})
		wantError(t, fmt.Sprintf("%+v", p), err, checkpoint.ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), "UTF-8") || res != nil || body(t, store) != nil {
			t.Errorf("%+v: %+v, %v", p, res, err)
		}
	}
	results, err := checkpoint.New(checkpoint.Definition[string, string]{
		Name: "texts", Open: func(string, checkpoint.Seed) (checkpoint.Steps[string], error) { return texts{"a", "\xff"}, nil },
	}, store, nil, checkpoint.Options{})
	testwait.Must(t, err)
	res, err := results.Run(t.Context(), op, "", checkpoint.Call{})
	if e, ok := errors.AsType[*checkpoint.StepError](err); !ok || e.Step != 1 || !strings.Contains(err.Error(), "UTF-8") || res.Completed != 1 {
		t.Errorf("a result: %+v, %v", res, err)
	}
}

type texts []string

func (x texts) Count() int { return len(x) }

func (x texts) Do(_ context.Context, step int) (string, error) { return x[step], nil }

// oneWay can be written as JSON, and not read.
type oneWay struct{ fmt.Stringer }

// TestOneWayTypes: parameters that a resumed run could not read are refused before anything is done.
func TestOneWayTypes(t *testing.T) {
	t.Parallel()
	store := &checkpoint.Memory{}
	r, err := checkpoint.New(checkpoint.Definition[oneWay, string]{
		Name: "one way", Open: func(oneWay, checkpoint.Seed) (checkpoint.Steps[string], error) { return texts{"a"}, nil },
	}, store, nil, checkpoint.Options{})
	testwait.Must(t, err)
	_, err = r.Run(t.Context(), op, oneWay{checkpoint.NewSeed()}, checkpoint.Call{})
	wantError(t, "parameters", err, checkpoint.ErrInvalid)
	if body(t, store) != nil {
		t.Error("something was saved")
	}
	s, err := checkpoint.New(checkpoint.Definition[string, oneWay]{
		Name: "one way", Open: func(string, checkpoint.Seed) (checkpoint.Steps[oneWay], error) { return oneWays{}, nil },
	}, store, nil, checkpoint.Options{})
	testwait.Must(t, err)
	res, err := s.Run(t.Context(), op, "", checkpoint.Call{})
	if e, ok := errors.AsType[*checkpoint.StepError](err); !ok || e.Step != 0 || res.Completed != 0 {
		t.Errorf("a result: %+v, %v", res, err)
	}
}

type oneWays struct{}

func (oneWays) Count() int { return 1 }

func (oneWays) Do(context.Context, int) (oneWay, error) { return oneWay{checkpoint.NewSeed()}, nil }

// TestNesting: parameters and results with as many levels as a state can have come back. With one more they are refused, before
// they are saved.
func TestNesting(t *testing.T) {
	t.Parallel()
	nested := func(levels int) json.RawMessage {
		return json.RawMessage(strings.Repeat(`[{"a":`, levels/2) + []string{"1", "[]"}[levels%2] + strings.Repeat("}]", levels/2))
	}
	for _, c := range []struct {
		parameters, result int // levels
		want               error
		done               int
	}{
		{parameters: 9_999, result: 9_998, done: 2},
		{parameters: 10_000, want: checkpoint.ErrInvalid},
		{parameters: 1, result: 9_999, want: errDeep, done: 1},
	} {
		store := &checkpoint.Memory{}
		r, err := checkpoint.New(checkpoint.Definition[json.RawMessage, json.RawMessage]{
			Name: "nesting", Open: func(json.RawMessage, checkpoint.Seed) (checkpoint.Steps[json.RawMessage], error) {
				return echo{"1", string(nested(c.result))}, nil
			},
		}, store, nil, checkpoint.Options{})
		testwait.Must(t, err)
		res, err := r.Run(t.Context(), op, nested(c.parameters), checkpoint.Call{})
		if step, ok := errors.AsType[*checkpoint.StepError](err); ok && step.Step == 1 {
			err = errDeep
		}
		if !errors.Is(err, c.want) || res != nil && res.Completed != c.done {
			t.Errorf("%+v: %v", c, err)
		}
		if s, err := r.Load(t.Context(), op); err != nil || (s == nil) != (c.done == 0) || s != nil && s.CompletedCount != c.done {
			t.Errorf("%+v: loaded %v", c, err)
		}
	}
}

var errDeep = errors.New("the result of step 1 was refused")
