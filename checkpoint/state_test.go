package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	for _, k := range []checkpoint.Key{
		{LockKey: "user_123_daily", ID: "multi_draw_20241217_143022"},
		{LockKey: "a:b:c", ID: "x"},
		{LockKey: ":", ID: "."},
		{LockKey: "Ä é", ID: "A@b-c._"},
		{LockKey: strings.Repeat("ü", lock.MaxNameLength), ID: strings.Repeat("x", checkpoint.MaxIDLength)},
	} {
		back, err := checkpoint.ParseKey(k.String())
		if err != nil || back != k {
			t.Errorf("%q became %+v, %v", k, back, err)
		}
	}
	if got := (checkpoint.Key{LockKey: "user_123_daily", ID: "multi_draw_20241217_143022"}).String(); got != "lottery:state:user_123_daily:multi_draw_20241217_143022" {
		t.Error(got)
	}
	for _, text := range []string{
		"", "lottery:state:", "lottery:state:a", "lottery:state::", "lottery:state:a:", "lottery:state::b", "lottery:a:b", "lottery:state:a:b c", "lottery:state:a\n:b",
		"lottery:state:a:\xff", "lottery:state:\xff:a", "lottery:state:a:" + strings.Repeat("x", checkpoint.MaxIDLength+1),
	} {
		if k, err := checkpoint.ParseKey(text); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("%q is %+v, %v", text, k, err)
		}
	}
}

func TestSeverities(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]checkpoint.Severity{
		nil: checkpoint.SeverityNone, checkpoint.ErrLost: checkpoint.SeverityCritical, &checkpoint.CorruptError{}: checkpoint.SeverityCritical,
		checkpoint.ErrLegacy: checkpoint.SeverityCritical, &checkpoint.ConnectionError{}: checkpoint.SeverityTransient, lock.ErrHeld: checkpoint.SeverityTransient,
		lock.ErrUnrenewed: checkpoint.SeverityTransient, &checkpoint.FencedError{}: checkpoint.SeverityTransient, &checkpoint.ParameterError{}: checkpoint.SeverityCaller,
		checkpoint.ErrOtherParameters: checkpoint.SeverityCaller, &checkpoint.SizeError{}: checkpoint.SeverityCaller, checkpoint.ErrNotFound: checkpoint.SeverityCaller,
		&checkpoint.StepError{Err: errors.New("x")}: checkpoint.SeverityStep, errors.New("x"): checkpoint.SeverityStep,
	} {
		if err != nil {
			if got := checkpoint.SeverityOf(fmt.Errorf("wrapped: %w", err)); got != want {
				t.Errorf("%v: %s, want %s", err, got, want)
			}
		}
		if got := checkpoint.SeverityOf(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

type echo []string

func (e echo) Count() int { return len(e) }

func (e echo) Do(_ context.Context, step int) (json.RawMessage, error) {
	return json.RawMessage(e[step]), nil
}

func echoing(results ...string) checkpoint.Definition[string, json.RawMessage] {
	return checkpoint.Definition[string, json.RawMessage]{
		Name: "echo", Open: func(string, checkpoint.Seed) (checkpoint.Steps[json.RawMessage], error) { return echo(results), nil },
	}
}

// TestResultsOfAnyShape keeps results that look like the ends and the separators of results.
func TestResultsOfAnyShape(t *testing.T) {
	t.Parallel()
	shapes := []string{`"],\"["`, `[[],[1,[2]]]`, `{"a":{"b":[1,2]},"c":"},{"}`, `null`, `""`, `"\\"`, `-1.5e300`, `"é🎲\u0000"`, `true`}
	for n := range len(shapes) + 1 {
		store := &checkpoint.Memory{}
		r, err := checkpoint.New(echoing(shapes[:n]...), store, nil, checkpoint.Options{})
		testwait.Must(t, err)
		key := checkpoint.Key{LockKey: "k", ID: "op"}
		testwait.Must(t, testwait.Err(r.Run(t.Context(), key, "", checkpoint.Call{})))
		again, err := r.Resume(t.Context(), key, checkpoint.Call{})
		if err != nil || again.Status != checkpoint.StatusCompleted || len(again.Results) != n {
			t.Fatalf("%d results: %+v, %v", n, again, err)
		}
		for i, got := range again.Results {
			if string(got) != shapes[i] {
				t.Errorf("%s became %s", shapes[i], got)
			}
		}
	}
}

// FuzzDecode reads whatever comes: nothing may panic, and what passes for a state says the same when it is read again.
func FuzzDecode(f *testing.F) {
	store := &checkpoint.Memory{}
	r, err := checkpoint.New(echoing("1", `"two"`, `[3]`), store, nil, checkpoint.Options{})
	testwait.Must(f, err)
	key := checkpoint.Key{LockKey: "k", ID: "op"}
	testwait.Must(f, testwait.Err(r.Run(f.Context(), key, "x", checkpoint.Call{})))
	good, err := store.Load(f.Context(), key)
	testwait.Must(f, err)
	f.Add(good)
	f.Add(bytes.Replace(good, []byte(`"completed"`), []byte(`"rolled_back"`), 1))
	f.Add(bytes.Replace(good, []byte(`"results"`), []byte(`"prize_results"`), 1))
	f.Add(good[:len(good)/2])
	f.Add([]byte(`{"lock_key":"user_123_daily","total_count":10,"completed_count":7,"results":[42,17,89,3,56,23,91],"start_time":1703123456,"last_update_time":1703123789}`))
	f.Add([]byte(`{"lock_key":"user_123_daily","total_count":2,"completed_count":1,"prize_results":[{"id":"a","name":"A","probability":0.5}],"errors":[{"draw_index":1}]}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		checkpoint.ParseHead(body)
		s, err := checkpoint.Decode(body)
		if err != nil {
			if !errors.Is(err, checkpoint.ErrCorrupt) {
				t.Errorf("%v is no corrupt state", err)
			}
			return
		}
		again, err := checkpoint.Decode(bytes.Clone(body))
		if err != nil || again.Digest != s.Digest || again.Key() != s.Key() {
			t.Errorf("%+v became %+v, %v", s, again, err)
		}
		// Whatever passes can be asked for everything, without a panic.
		other := &checkpoint.Memory{}
		other.Plant(key, body, 1<<40)
		r, err := checkpoint.New(echoing("1", `"two"`, `[3]`), other, nil, checkpoint.Options{})
		testwait.Must(t, err)
		_, _ = r.Resume(t.Context(), key, checkpoint.Call{})
		_, _ = r.Run(t.Context(), key, "x", checkpoint.Call{})
		_, _ = r.Rollback(t.Context(), key, checkpoint.Call{})
	})
}

func TestBadDefinitions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]checkpoint.Options{"every": {Every: -1}, "ttl": {TTL: -1}} {
		if _, err := checkpoint.New(echoing(), &checkpoint.Memory{}, nil, o); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	unnamed, closed, misnamed := echoing(), echoing(), echoing()
	unnamed.Name, closed.Open, misnamed.ResultsName = "", nil, "errors"
	for _, d := range []checkpoint.Definition[string, json.RawMessage]{unnamed, closed, misnamed} {
		if _, err := checkpoint.New(d, &checkpoint.Memory{}, nil, checkpoint.Options{}); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("%+v: %v", d.Name, err)
		}
	}
	if _, err := checkpoint.New(echoing(), nil, nil, checkpoint.Options{}); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("no store: %v", err)
	}
	empty := echoing()
	empty.Open = func(string, checkpoint.Seed) (checkpoint.Steps[json.RawMessage], error) { return nil, nil }
	e, err := checkpoint.New(empty, &checkpoint.Memory{}, nil, checkpoint.Options{})
	testwait.Must(t, err)
	if res, err := e.Run(t.Context(), checkpoint.Key{LockKey: "k", ID: "op"}, "", checkpoint.Call{}); !errors.Is(err, checkpoint.ErrInvalid) || res != nil {
		t.Errorf("no steps: %+v, %v", res, err)
	}
	// A result that is no JSON is the step's fault, and what was before it stays.
	r, err := checkpoint.New(echoing("1", "{"), &checkpoint.Memory{}, nil, checkpoint.Options{})
	testwait.Must(t, err)
	res, err := r.Run(t.Context(), checkpoint.Key{LockKey: "k", ID: "op"}, "", checkpoint.Call{})
	if e, ok := errors.AsType[*checkpoint.StepError](err); !ok || e.Step != 1 || res.Completed != 1 || len(res.Errors) != 1 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestErrorsAreBounded keeps the last errors of an operation that fails again and again.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	r, err := checkpoint.New(echoing("{"), &checkpoint.Memory{}, nil, checkpoint.Options{})
	testwait.Must(t, err)
	key := checkpoint.Key{LockKey: "k", ID: "op"}
	for range checkpoint.MaxErrors + 20 {
		if _, err := r.Run(t.Context(), key, "", checkpoint.Call{}); err == nil {
			t.Fatal("no error")
		}
	}
	if s, err := r.Load(t.Context(), key); err != nil || len(s.Errors) != checkpoint.MaxErrors || s.Revision != 2*(checkpoint.MaxErrors+20) {
		t.Errorf("%d errors at revision %d, %v", len(s.Errors), s.Revision, err)
	}
}
