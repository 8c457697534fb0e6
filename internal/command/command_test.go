package command_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
)

var (
	errRefused = errors.New("refused")
	errRetry   = errors.New("try again")
)

// request is the n-th execution of a request under a key, with a content.
func request(key, content string, n byte) *idempotency.Request {
	return &idempotency.Request{
		ID:          idempotency.NewID("me", "POST", "/things", key),
		Fingerprint: idempotency.NewFingerprint([]byte(content)), Execution: uuid.UUID{15: n},
	}
}

// render speaks an outcome: a refusal is decided, errRetry and a reused key are not.
func render(result any, err error) command.Rendered {
	switch {
	case errors.Is(err, idempotency.ErrKeyReused):
		return command.Rendered{Status: 422, Body: []byte("reused")}
	case errors.Is(err, errRetry):
		return command.Rendered{Status: 503, Body: []byte("later")}
	case err != nil:
		return command.Rendered{Status: 409, Body: []byte(err.Error()), Decided: true}
	}
	return command.Rendered{Status: 201, Body: fmt.Append(nil, result), Decided: true}
}

func keyed(op, key string, n byte) command.Command[string] {
	return command.Command[string]{Op: op, Key: request(key, op, n), Render: render}
}

// decider executes by writing down; it refuses what begins with an exclamation mark and puts off what begins with a
// question mark.
type decider struct{ executed []string }

func (d *decider) decide(c command.Command[string]) (any, error) {
	d.executed = append(d.executed, c.Op)
	switch c.Op[0] {
	case '!':
		return nil, errRefused
	case '?':
		return nil, errRetry
	}
	return "did " + c.Op, nil
}

func answer(status int, body string, replayed bool) command.Answer {
	return command.Answer{Answer: idempotency.Answer{Status: status, Body: []byte(body), Replayed: replayed}}
}

// show spells answers, errors by their text.
func show(answers any) string { return fmt.Sprintf("%+v", answers) }

func TestDecide(t *testing.T) {
	t.Parallel()
	known := []idempotency.Record{
		{Request: *request("old", "work", 99), Status: 201, Body: []byte("long ago")},
		{Request: *request("mine", "work", 7), Status: 409, Body: []byte("as I was told")},
	}
	for name, c := range map[string]struct {
		batch    []command.Command[string]
		answers  []command.Answer
		executed []string
		stored   []string // bodies of fresh records, in order
	}{
		"nothing": {answers: []command.Answer{}},
		"in order, each once": {
			batch:    []command.Command[string]{keyed("b", "1", 1), keyed("a", "2", 2), keyed("!c", "3", 3)},
			answers:  []command.Answer{answer(201, "did b", false), answer(201, "did a", false), answer(409, "refused", false)},
			executed: []string{"b", "a", "!c"}, stored: []string{"did b", "did a", "refused"},
		},
		"a repeat of what was decided before": {
			batch:   []command.Command[string]{keyed("work", "old", 1)},
			answers: []command.Answer{answer(201, "long ago", true)},
		},
		"the rerun of a transaction that had committed": {
			batch:   []command.Command[string]{keyed("work", "mine", 7)},
			answers: []command.Answer{answer(409, "as I was told", false)},
		},
		"a key of another request": {
			batch:   []command.Command[string]{keyed("other work", "old", 1)},
			answers: []command.Answer{answer(422, "reused", false)},
		},
		"two requests with one key": {
			batch:    []command.Command[string]{keyed("x", "k", 1), keyed("x", "k", 2), keyed("y", "k", 3)},
			answers:  []command.Answer{answer(201, "did x", false), answer(201, "did x", true), answer(422, "reused", false)},
			executed: []string{"x"}, stored: []string{"did x"},
		},
		"a refusal is repeated, too": {
			batch:    []command.Command[string]{keyed("!x", "k", 1), keyed("!x", "k", 2)},
			answers:  []command.Answer{answer(409, "refused", false), answer(409, "refused", true)},
			executed: []string{"!x"}, stored: []string{"refused"},
		},
		"what is not decided is not stored, and its key stays free": {
			batch:    []command.Command[string]{keyed("?x", "k", 1), keyed("z", "k", 2), keyed("?x", "k", 3)},
			answers:  []command.Answer{answer(503, "later", false), answer(201, "did z", false), answer(422, "reused", false)},
			executed: []string{"?x", "z"}, stored: []string{"did z"},
		},
		"the server's own commands": {
			batch: []command.Command[string]{{Op: "sweep"}, {Op: "!sweep"}, {Op: "spoken", Render: render}},
			answers: []command.Answer{
				{Result: "did sweep"}, {Err: errRefused}, answer(201, "did spoken", false),
			},
			executed: []string{"sweep", "!sweep", "spoken"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := idempotency.NewBatch(known)
			var d decider
			if got := command.Decide(c.batch, keys, d.decide); show(got) != show(c.answers) {
				t.Errorf("answers\n%+v, want\n%+v", got, c.answers)
			}
			if !reflect.DeepEqual(d.executed, c.executed) {
				t.Errorf("executed %q, want %q", d.executed, c.executed)
			}
			var stored []string
			for _, r := range keys.Fresh() {
				stored = append(stored, string(r.Body))
			}
			if !reflect.DeepEqual(stored, c.stored) {
				t.Errorf("stored %q, want %q", stored, c.stored)
			}
		})
	}
}

func TestAStoredRecordIsTheAnswerOfItsExecution(t *testing.T) {
	t.Parallel()
	keys := idempotency.NewBatch(nil)
	var d decider
	c := keyed("x", "k", 5)
	first := command.Decide([]command.Command[string]{c}, keys, d.decide)[0]
	fresh := keys.Fresh()
	if len(fresh) != 1 || fresh[0].Request != *c.Key || fresh[0].Status != first.Status || string(fresh[0].Body) != string(first.Body) {
		t.Fatalf("stored %+v, answered %+v", fresh, first)
	}
	// The record read back answers the same command, and another one of the same key, byte for byte.
	again := command.Decide([]command.Command[string]{c, keyed("x", "k", 6)}, idempotency.NewBatch(fresh), d.decide)
	if show(again[0]) != show(first) || !again[1].Replayed || string(again[1].Body) != string(first.Body) {
		t.Errorf("answered %+v", again)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	batch := []command.Command[string]{keyed("a", "2", 1), {Op: "own"}, keyed("b", "1", 1), keyed("a", "2", 2)}
	want := []idempotency.ID{batch[0].Key.ID, batch[2].Key.ID, batch[0].Key.ID}
	if got := command.Keys(batch); !reflect.DeepEqual(got, want) {
		t.Errorf("keys %v, want %v", got, want)
	}
}

func TestErrorsSayWhetherHalvingHelps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err         error
		undividable bool
	}{
		{command.ErrUnavailable, true},
		{command.Unavailable(io.EOF), true},
		{fmt.Errorf("outer: %w", command.UnknownOutcome(io.EOF)), true},
		{io.EOF, false},
		{nil, false},
	} {
		if got := command.Undividable(c.err); got != c.undividable {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	for err, want := range map[error]error{command.Unavailable(io.EOF): command.ErrUnavailable, command.UnknownOutcome(io.EOF): command.ErrUnknownOutcome, command.NotApplied(io.EOF): command.ErrNotApplied} {
		if !errors.Is(err, want) || !errors.Is(err, io.EOF) {
			t.Errorf("%v hides its kind or its reason", err)
		}
	}
}

// TestListsWaitInTheirOrder executes a list on a lane that decides two commands at a time, while one of them is blocked twice.
func TestListsWaitInTheirOrder(t *testing.T) {
	t.Parallel()
	var order []string
	blocked := map[string]int{"c": 2}
	queue := func(list []command.Command[string]) func() []command.Listed {
		list = list[:min(2, len(list))]
		return func() (outcomes []command.Listed) {
			for _, a := range command.Decide(list, idempotency.NewBatch(nil), func(c command.Command[string]) (any, error) {
				if blocked[c.Op] > 0 {
					blocked[c.Op]--
					return nil, &command.BlockedError{Row: c.Op, Wait: func(context.Context) error { return nil }}
				}
				order = append(order, c.Op)
				return c.Op, nil
			}) {
				outcomes = append(outcomes, command.Listed{Result: a})
			}
			return outcomes
		}
	}
	list := []command.Command[string]{{Op: "a"}, {Op: "b"}, {Op: "c"}, {Op: "d"}, {Op: "e"}}
	for i, o := range command.ExecuteAll(t.Context(), list, queue)() {
		if o.Err != nil || o.Result.Result != list[i].Op {
			t.Errorf("command %d: %+v", i, o)
		}
	}
	if got := strings.Join(order, ""); got != "abcde" {
		t.Errorf("decided in the order %s", got)
	}

	// A row that does not become free fails its own command, and lets those behind it be decided.
	order = nil
	stays := func(list []command.Command[string]) func() []command.Listed {
		return func() (outcomes []command.Listed) {
			for _, a := range command.Decide(list, idempotency.NewBatch(nil), func(c command.Command[string]) (any, error) {
				if c.Op == "b" {
					return nil, &command.BlockedError{Row: "b", Wait: func(context.Context) error { return errRetry }}
				}
				order = append(order, c.Op)
				return c.Op, nil
			}) {
				outcomes = append(outcomes, command.Listed{Result: a})
			}
			return outcomes
		}
	}
	outcomes := command.ExecuteAll(t.Context(), []command.Command[string]{{Op: "a"}, {Op: "b"}, {Op: "c"}}, stays)()
	if got := strings.Join(order, ""); got != "ac" || outcomes[0].Err != nil || outcomes[2].Err != nil {
		t.Errorf("decided %s: %+v", got, outcomes)
	}
	if err := outcomes[1].Err; !errors.Is(err, command.ErrNotApplied) || !errors.Is(err, command.ErrUnavailable) {
		t.Errorf("the blocked command: %v", err)
	}
}

// TestAListWaitsOnceForATable: a list whose transaction has waited in vain, as for a table, is given up without another one that would.
func TestAListWaitsOnceForATable(t *testing.T) {
	t.Parallel()
	recorded := &idempotency.Request{ID: idempotency.ID{7}}
	list := []command.Command[string]{{}, {}, {}, {Key: recorded}}
	tries := 0
	outcomes := command.ExecuteAll(t.Context(), list, func([]command.Command[string]) func() []command.Listed {
		tries++
		return func() []command.Listed {
			blocked := command.Answer{Err: &command.BlockedError{
				Row: "a table", Waited: true, Wait: func(context.Context) error { return errRetry },
				Recorded: func(context.Context, []idempotency.ID) ([]idempotency.ID, error) {
					return []idempotency.ID{recorded.ID}, nil
				},
			}}
			return []command.Listed{{Result: blocked}, {Result: blocked}} // The others are too many for one batch.
		}
	})()
	if tries != 1 || len(outcomes) != len(list) {
		t.Errorf("%d transactions waited for the table, and %d commands have outcomes", tries, len(outcomes))
	}
	for i, o := range outcomes {
		if errors.Is(o.Err, command.ErrNotApplied) != (list[i].Key == nil) || !errors.Is(o.Err, command.ErrUnavailable) {
			t.Errorf("command %d, which needs the table: %v", i, o.Err)
		}
	}
}

// TestGivenUpAmongRepeats: a command that is given up says that it was not applied unless a record of its key may be under way, or that
// can't be learned.
func TestGivenUpAmongRepeats(t *testing.T) {
	t.Parallel()
	key := &idempotency.Request{ID: idempotency.ID{1}}
	for name, test := range map[string]struct {
		key      *idempotency.Request
		recorded []idempotency.ID
		err      error
		undone   bool
	}{
		"no key":           {nil, nil, errRetry, true},
		"no record":        {key, []idempotency.ID{{2}}, nil, true},
		"a record":         {key, []idempotency.ID{{2}, {1}}, nil, false},
		"can't be learned": {key, nil, errRetry, false},
	} {
		blocked := &command.BlockedError{
			Wait:     func(context.Context) error { return errRetry },
			Recorded: func(context.Context, []idempotency.ID) ([]idempotency.ID, error) { return test.recorded, test.err },
		}
		_, single := command.Execute(t.Context(), test.key, func() (command.Answer, error) { return command.Answer{Err: blocked}, nil })
		listed := command.ExecuteAll(t.Context(), []command.Command[string]{{Key: test.key}}, func([]command.Command[string]) func() []command.Listed {
			return func() []command.Listed { return []command.Listed{{Result: command.Answer{Err: blocked}}} }
		})()
		for how, err := range map[string]error{"alone": single, "in a list": listed[0].Err} {
			if errors.Is(err, command.ErrNotApplied) != test.undone || !errors.Is(err, command.ErrUnavailable) {
				t.Errorf("%s, %s: %v", name, how, err)
			}
		}
	}
}

// TestBlockedAfterALostAnswer: a command whose row stays locked is given up as not applied, but not where the answer to an earlier
// COMMIT of it was lost, which may be what has the row: also if that shows in one run of several, and whatever fails after it.
func TestBlockedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	free := func(context.Context) error { return nil }
	stays := func(context.Context) error { return errRetry }
	away := command.NotApplied(command.Unavailable(errRetry))
	for name, test := range map[string]struct {
		runs    []error // what each run ends with, the last one as a failure unless it is nil
		unknown bool
	}{
		"blocked":                    {[]error{&command.BlockedError{Wait: stays}}, false},
		"unsure":                     {[]error{&command.BlockedError{Wait: stays, Unsure: true}}, true},
		"unsure once":                {[]error{&command.BlockedError{Wait: free, Unsure: true}, &command.BlockedError{Wait: stays}}, true},
		"unsure later":               {[]error{&command.BlockedError{Wait: free}, &command.BlockedError{Wait: stays, Unsure: true}}, true},
		"unsure, then no database":   {[]error{&command.BlockedError{Wait: free, Unsure: true}, away}, true},
		"blocked, then no database":  {[]error{&command.BlockedError{Wait: free}, away}, false},
		"unsure, then it is decided": {[]error{&command.BlockedError{Wait: free, Unsure: true}, nil}, false},
	} {
		next := func() func() (command.Answer, error) {
			n := -1
			return func() (command.Answer, error) {
				n = min(n+1, len(test.runs)-1)
				if _, blocked := errors.AsType[*command.BlockedError](test.runs[n]); blocked {
					return command.Answer{Err: test.runs[n]}, nil
				}
				return command.Answer{}, test.runs[n]
			}
		}
		one, all := next(), next()
		_, single := command.Execute(t.Context(), nil, one)
		listed := command.ExecuteAll(t.Context(), make([]command.Command[string], 1), func([]command.Command[string]) func() []command.Listed {
			return func() []command.Listed {
				a, err := all()
				return []command.Listed{{Result: a, Err: err}}
			}
		})()
		for how, err := range map[string]error{"alone": single, "in a list": listed[0].Err} {
			decided := test.runs[len(test.runs)-1] == nil
			if errors.Is(err, command.ErrUnknownOutcome) != test.unknown || errors.Is(err, command.ErrNotApplied) == (test.unknown || decided) {
				t.Errorf("%s, %s: %v", name, how, err)
			}
		}
	}
}
