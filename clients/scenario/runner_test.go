package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/client"
)

// script is scenario.json.
type script struct {
	Version int                   `json:"version"`
	Clients map[string]clientSpec `json:"clients"`
	Steps   []step                `json:"steps"`
}

type clientSpec struct {
	Attempts int    `json:"attempts"`
	Key      string `json:"key"`
}

// step has the members of all kinds of steps.
type step struct {
	Do   string `json:"do"`
	Name string `json:"name"`

	Client    string            `json:"client"`
	Operation string            `json:"operation"`
	Path      json.RawMessage   `json:"path"` // an object with a call, a text with requests
	Body      json.RawMessage   `json:"body"`
	Key       string            `json:"key"`
	Repeat    int               `json:"repeat"`
	Save      map[string]string `json:"save"`
	SaveKey   string            `json:"save_key"`
	Expect    expectation       `json:"expect"`

	Topic   string            `json:"topic"`
	Since   int64             `json:"since"`
	OnEvent map[string][]step `json:"on_event"`

	Fault  json.RawMessage `json:"fault"`
	Method string          `json:"method"`

	Campaign   string `json:"campaign"`
	Commitment string `json:"commitment"`
	Root       string `json:"root"`
	Position   string `json:"position"`
	Folder     string `json:"folder"`
}

type expectation struct {
	Status     any            `json:"status"`
	Body       map[string]any `json:"body"`
	Replayed   *bool          `json:"replayed"`
	Attempts   any            `json:"attempts"`
	TookMs     int64          `json:"took_at_least_ms"`
	Problem    map[string]any `json:"problem"`
	Unanswered bool           `json:"unanswered"`
	Count      any            `json:"count"`
	Unique     string         `json:"unique"`
	Ascending  string         `json:"ascending"`
	FirstSeq   any            `json:"first_seq"`
	Types      any            `json:"types"`
	Keys       any            `json:"keys"`
	After      *string        `json:"after"`
	Valid      any            `json:"valid"`
	Winners    any            `json:"winners"`
}

// runner interprets a script with package client.
type runner struct {
	url, key, control, proofs string

	clients map[string]*client.Client
	values  map[string]any
}

// runMain is the Go client's runner, as a process.
func runMain() int {
	n, err := run(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Printf("scenario: %d steps passed\n", n)
	return 0
}

func run(ctx context.Context) (int, error) {
	data, err := os.ReadFile(os.Getenv("SCENARIO_FILE"))
	if err != nil {
		return 0, err
	}
	var s script
	if err := strictly(data, &s); err != nil {
		return 0, err
	}
	if s.Version != 1 {
		return 0, fmt.Errorf("scenario: version %d is not known", s.Version)
	}
	r := &runner{
		url: os.Getenv("FAIRLEAD_URL"), key: os.Getenv("FAIRLEAD_KEY"), control: os.Getenv("SCENARIO_CONTROL"), proofs: os.Getenv("SCENARIO_PROOFS"),
		clients: map[string]*client.Client{}, values: map[string]any{"run": strings.ReplaceAll(uuid.NewString(), "-", "")},
	}
	for name, spec := range s.Clients {
		key := r.key
		if spec.Key != "" {
			key = spec.Key
		}
		if r.clients[name], err = client.New(r.url, key, client.WithRetry(client.Retry{Attempts: spec.Attempts})); err != nil {
			return 0, err
		}
	}
	for i, st := range s.Steps {
		if err := r.step(ctx, st); err != nil {
			return 0, fmt.Errorf("scenario: step %d (%s): %w", i+1, st.Name, err)
		}
	}
	return len(s.Steps), nil
}

func (r *runner) step(ctx context.Context, st step) error {
	filled, err := r.fill(st)
	if err != nil {
		return err
	}
	switch st = *filled; st.Do {
	case "call":
		for range max(st.Repeat, 1) {
			if err := r.call(ctx, st); err != nil {
				return err
			}
		}
		return nil
	case "pages":
		return r.pages(ctx, st)
	case "live":
		return r.live(ctx, st)
	case "fault":
		return r.ask(ctx, "/faults", st.Fault, nil)
	case "cut":
		return r.ask(ctx, "/cut", nil, nil)
	case "requests":
		return r.requests(ctx, st)
	case "prove":
		return r.prove(ctx, st)
	case "verify":
		return r.verifyAll(st)
	}
	return fmt.Errorf("there is no step %q", st.Do)
}

// fill puts the variables into a step, but for the steps within it, whose variables may be set only then.
func (r *runner) fill(st step) (*step, error) {
	within := st.OnEvent
	st.OnEvent = nil
	var tree any
	if err := exactly(mustJSON(st), &tree); err != nil {
		return nil, err
	}
	tree, err := r.substitute(tree)
	if err != nil {
		return nil, err
	}
	filled := &step{}
	if err := exactly(mustJSON(tree), filled); err != nil {
		return nil, err
	}
	filled.OnEvent = within
	return filled, nil
}

func (r *runner) substitute(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if v[name], err = r.substitute(value); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, value := range v {
			if v[i], err = r.substitute(value); err != nil {
				return nil, err
			}
		}
	case string:
		return r.substituteText(v)
	}
	return v, nil
}

func (r *runner) substituteText(text string) (any, error) {
	var out strings.Builder
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "${")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, after, ended := strings.Cut(after, "}")
		value, known := r.values[name]
		if !ended || !known {
			return nil, fmt.Errorf("there is no variable %q", name)
		}
		if text == "${"+name+"}" {
			return value, nil
		}
		_, _ = fmt.Fprint(&out, value)
		rest = after
	}
}

// ask asks the proxy's controls.
func (r *runner) ask(ctx context.Context, path string, body []byte, into any) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.control+path, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("the proxy answered %s to %s", resp.Status, path)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// outcome is how a call ended.
type outcome struct {
	answer client.Answer
	err    error
	took   time.Duration
}

func (r *runner) call(ctx context.Context, st step) error {
	c, err := r.client(st)
	if err != nil {
		return err
	}
	do, ok := operations()[st.Operation]
	if !ok {
		return fmt.Errorf("the runner does not know the operation %s", st.Operation)
	}
	var path struct {
		ID string `json:"id"`
	}
	if st.Path != nil {
		if err := strictly(st.Path, &path); err != nil {
			return err
		}
	}
	var o outcome
	opts := []client.CallOption{client.Into(&o.answer)}
	if st.Key != "" {
		opts = append(opts, client.Key(st.Key))
	}
	began := time.Now()
	o.err = do(ctx, c, path.ID, st.Body, opts)
	o.took = time.Since(began)
	if err := o.check(st.Expect); err != nil {
		return err
	}
	return r.save(st, &o)
}

// client is the one that a step names.
func (r *runner) client(st step) (*client.Client, error) {
	name := st.Client
	if name == "" {
		name = "default"
	}
	c, ok := r.clients[name]
	if !ok {
		return nil, fmt.Errorf("there is no client %q", name)
	}
	return c, nil
}

func (o *outcome) check(want expectation) error {
	if o.took < time.Duration(want.TookMs)*time.Millisecond {
		return fmt.Errorf("took %s", o.took)
	}
	var lost *client.UnansweredError
	switch {
	case want.Unanswered:
		if !errors.As(o.err, &lost) {
			return fmt.Errorf("want no answer, got %w, %s", o.err, o.answer.Body)
		}
		return equal("attempts", want.Attempts, lost.Attempts)
	case want.Problem != nil:
		return checkProblem(want.Problem, o.err)
	case o.err != nil:
		return o.err
	}
	if want.Replayed != nil && *want.Replayed != o.answer.Replayed {
		return fmt.Errorf("replayed: %t", o.answer.Replayed)
	}
	if err := errors.Join(equal("status", want.Status, o.answer.Status), equal("attempts", want.Attempts, o.answer.Attempts)); err != nil {
		return err
	}
	return checkPlaces(want.Body, o.answer.Body)
}

func checkProblem(want map[string]any, err error) error {
	p, ok := errors.AsType[*client.Problem](err)
	if !ok {
		return fmt.Errorf("want a problem, got %w", err)
	}
	got := map[string]any{
		"status": p.Status, "code": p.Code, "retryable": p.Retryable, "outcome": p.Outcome, "retry_after": p.RetryAfter.Seconds(), "key": p.Key,
	}
	for name, value := range want {
		have, known := got[name]
		if !known {
			return fmt.Errorf("the runner does not know the member %s of a problem", name)
		}
		if err := equal(name, value, have); err != nil {
			return fmt.Errorf("%w, of %+v", err, *p)
		}
	}
	return nil
}

func (r *runner) save(st step, o *outcome) error {
	document := o.answer.Body
	key := o.answer.Key
	if p, ok := errors.AsType[*client.Problem](o.err); ok {
		document, key = mustJSON(p), p.Key
	}
	if lost, ok := errors.AsType[*client.UnansweredError](o.err); ok {
		key = lost.Key
	}
	for name, place := range st.Save {
		value, err := at(document, place)
		if err != nil {
			return err
		}
		r.values[name] = value
	}
	if st.SaveKey != "" {
		r.values[st.SaveKey] = key
	}
	return nil
}
