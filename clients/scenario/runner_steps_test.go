package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/fairdraw"
)

// operation calls the method of an operation. id is the parameter of its path.
type operation func(ctx context.Context, c *client.Client, id string, body []byte, opts []client.CallOption) error

// operations are those that the scenario calls.
func operations() map[string]operation {
	return map[string]operation{
		"post-accounts":                posted((*client.Client).CreateAccount),
		"post-deposits":                posted((*client.Client).Deposit),
		"post-withdrawals":             posted((*client.Client).Withdraw),
		"post-transfers":               posted((*client.Client).Transfer),
		"post-auctions":                posted((*client.Client).CreateAuction),
		"post-campaigns":               posted((*client.Client).CreateCampaign),
		"get-accounts-id":              named((*client.Client).GetAccount),
		"get-transfers-id":             named((*client.Client).GetTransfer),
		"get-campaigns-id-draw":        named((*client.Client).GetDraw),
		"post-campaigns-id-publish":    named((*client.Client).PublishCampaign),
		"post-auctions-id-start":       named((*client.Client).StartAuction),
		"post-auctions-id-cancel":      named((*client.Client).CancelAuction),
		"post-targets":                 posted((*client.Client).CreateTarget),
		"post-targets-id-pause":        named((*client.Client).PauseTarget),
		"post-subscriptions":           posted((*client.Client).CreateSubscription),
		"get-subscriptions-id":         named((*client.Client).GetSubscription),
		"post-subscriptions-id-pause":  named((*client.Client).PauseSubscription),
		"post-subscriptions-id-resume": named((*client.Client).ResumeSubscription),
		"post-subscriptions-id-replay": postedTo((*client.Client).ReplayTopic),
		"delete-subscriptions-id":      named((*client.Client).DeleteSubscription),
		"post-auctions-id-bids":        postedTo((*client.Client).Bid),
		"post-campaigns-id-purchases":  postedTo((*client.Client).Buy),
		"get-integrity": func(ctx context.Context, c *client.Client, _ string, _ []byte, opts []client.CallOption) error {
			_, err := c.Integrity(ctx, opts...)
			return err
		},
	}
}

func posted[In, Out any](do func(*client.Client, context.Context, In, ...client.CallOption) (*Out, error)) operation {
	return func(ctx context.Context, c *client.Client, _ string, body []byte, opts []client.CallOption) error {
		var in In
		if err := strictly(body, &in); err != nil {
			return err
		}
		_, err := do(c, ctx, in, opts...)
		return err
	}
}

func named[Out any](do func(*client.Client, context.Context, string, ...client.CallOption) (*Out, error)) operation {
	return func(ctx context.Context, c *client.Client, id string, _ []byte, opts []client.CallOption) error {
		_, err := do(c, ctx, id, opts...)
		return err
	}
}

func postedTo[In, Out any](do func(*client.Client, context.Context, string, In, ...client.CallOption) (*Out, error)) operation {
	return func(ctx context.Context, c *client.Client, id string, body []byte, opts []client.CallOption) error {
		var in In
		if err := strictly(body, &in); err != nil {
			return err
		}
		_, err := do(c, ctx, id, in, opts...)
		return err
	}
}

func (r *runner) pages(ctx context.Context, st step) error {
	c, err := r.client(st)
	if err != nil {
		return err
	}
	var path struct {
		ID string `json:"id"`
	}
	if err := strictly(st.Path, &path); err != nil {
		return err
	}
	var items []any
	switch st.Operation {
	case "get-campaigns-id-positions":
		items, err = collect(c.Positions(ctx, path.ID))
	case "get-subscriptions-id-topics":
		items, err = collect(c.SubscriptionTopics(ctx, path.ID))
	case "get-campaigns-id-purchases":
		items, err = collect(c.Purchases(ctx, path.ID))
	default:
		return fmt.Errorf("the runner does not know the list %s", st.Operation)
	}
	if st.Expect.Problem != nil {
		return checkProblem(st.Expect.Problem, err)
	}
	if err != nil {
		return err
	}
	if err := checkList(st.Expect, items); err != nil {
		return err
	}
	return checkPlaces(st.Expect.Body, mustJSON(items))
}

func checkList(want expectation, items []any) error {
	met, last := map[string]bool{}, int64(-1)
	for i, item := range items {
		if want.Unique != "" {
			value, err := at(mustJSON(item), want.Unique)
			text := fmt.Sprint(value)
			if err != nil || met[text] {
				return fmt.Errorf("item %d: %s is %s again, %w", i, want.Unique, text, err)
			}
			met[text] = true
		}
		if want.Ascending != "" {
			value, err := at(mustJSON(item), want.Ascending)
			n, wrong := strconv.ParseInt(fmt.Sprint(value), 10, 64)
			if err = errors.Join(err, wrong); err != nil || n <= last {
				return fmt.Errorf("item %d: %s is %d after %d, %w", i, want.Ascending, n, last, err)
			}
			last = n
		}
	}
	return equal("count", want.Count, len(items))
}

func collect[T any](list iter.Seq2[T, error]) ([]any, error) {
	items := []any{}
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func (r *runner) live(ctx context.Context, st step) error {
	c, err := r.client(st)
	if err != nil {
		return err
	}
	wanted, err := strconv.Atoi(fmt.Sprint(st.Expect.Count))
	if err != nil && st.Expect.Problem == nil {
		return err
	}
	types, n := map[string]int{}, 0
	for e, err := range c.Follow(ctx, st.Topic, st.Since) {
		if err != nil {
			if st.Expect.Problem != nil {
				return checkProblem(st.Expect.Problem, err)
			}
			return fmt.Errorf("after %d events: %w", n, err)
		}
		if e.Seq == 0 {
			continue
		}
		n++
		if e.Seq != st.Since+int64(n) {
			return fmt.Errorf("event %d has the number %d", n, e.Seq)
		}
		if n == 1 {
			if err := equal("first_seq", st.Expect.FirstSeq, e.Seq); err != nil {
				return err
			}
		}
		types[e.Type]++
		for _, within := range st.OnEvent[strconv.Itoa(n)] {
			if err := r.step(ctx, within); err != nil {
				return fmt.Errorf("at event %d: %w", n, err)
			}
		}
		if n == wanted {
			break
		}
	}
	return errors.Join(equal("count", st.Expect.Count, n), equal("types", st.Expect.Types, types))
}

func (r *runner) requests(ctx context.Context, st step) error {
	var answer struct {
		Requests []seen `json:"requests"`
	}
	if err := r.ask(ctx, "/requests", nil, &answer); err != nil {
		return err
	}
	var path string
	if st.Path != nil {
		if err := strictly(st.Path, &path); err != nil {
			return err
		}
	}
	keys, n, after := map[string]bool{}, 0, ""
	for _, req := range answer.Requests {
		if req.Method == st.Method && req.Path == path {
			n++
			keys[req.Key] = true
			after = req.After
		}
	}
	if want := st.Expect.After; want != nil && *want != after {
		return fmt.Errorf("the last request had Fairlead-After %q", after)
	}
	return errors.Join(equal("count", st.Expect.Count, n), equal("keys", st.Expect.Keys, len(keys)))
}

func (r *runner) prove(ctx context.Context, st step) error {
	c, err := r.client(st)
	if err != nil {
		return err
	}
	if st.Position != "" {
		doc, err := c.InclusionProof(ctx, st.Campaign, st.Position)
		if err != nil {
			return err
		}
		proof, err := fairdraw.ParseInclusionProof(doc)
		if err != nil {
			return err
		}
		root, err := fairdraw.ParseSeed(st.Root)
		if err != nil {
			return err
		}
		return equal("valid", st.Expect.Valid, proof.Verify([32]byte(root)) == nil)
	}
	doc, err := c.Proof(ctx, st.Campaign)
	if err != nil {
		return err
	}
	err = verify(doc, false)
	var proof fairdraw.Proof
	if err == nil {
		err = json.Unmarshal(doc, &proof)
	}
	if err == nil && st.Commitment != "" {
		err = proof.VerifyCommitment(st.Commitment)
	}
	if err == nil && st.Root != "" && proof.Root != st.Root {
		err = errors.New("another root")
	}
	return errors.Join(equal("valid", st.Expect.Valid, err == nil), equal("winners", st.Expect.Winners, len(proof.Winners)))
}

func (r *runner) verifyAll(st step) error {
	files, err := filepath.Glob(filepath.Join(r.proofs, st.Folder, "*.json"))
	if err != nil {
		return err
	}
	valid := 0
	for _, file := range files {
		doc, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if verify(doc, strings.HasPrefix(filepath.Base(file), "inclusion-")) == nil {
			valid++
		}
	}
	return errors.Join(equal("count", st.Expect.Count, len(files)), equal("valid", st.Expect.Valid, valid))
}

// exactly decodes JSON without losing digits.
func exactly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the document")
	}
	return nil
}

// strictly decodes JSON and refuses members that into does not have.
func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// equal compares a value with what is expected of it. Nothing is expected where want is nil.
func equal(what string, want, got any) error {
	if want == nil {
		return nil
	}
	var w, g any
	if err := errors.Join(exactly(mustJSON(want), &w), exactly(mustJSON(got), &g)); err != nil {
		return err
	}
	if m, ok := w.(map[string]any); ok && slices.Equal(slices.Collect(maps.Keys(m)), []string{"at_least"}) {
		least, err := strconv.ParseFloat(fmt.Sprint(m["at_least"]), 64)
		n, wrong := strconv.ParseFloat(fmt.Sprint(g), 64)
		if err = errors.Join(err, wrong); err != nil || n < least {
			return fmt.Errorf("%s is %v, want at least %v, %w", what, g, least, err)
		}
		return nil
	}
	if !reflect.DeepEqual(w, g) {
		return fmt.Errorf("%s is %v, want %v", what, g, w)
	}
	return nil
}

// checkPlaces compares values at places of a document.
func checkPlaces(want map[string]any, document []byte) error {
	var failures []error
	for place, value := range want {
		got, err := at(document, place)
		if err != nil {
			return err
		}
		if value == nil && got != nil {
			failures = append(failures, fmt.Errorf("%s is %v, want null", place, got))
		}
		failures = append(failures, equal(place, value, got))
	}
	return errors.Join(failures...)
}

// at reads the value at a place of a document.
func at(document []byte, place string) (any, error) {
	var v any
	if err := exactly(document, &v); err != nil {
		return nil, fmt.Errorf("%w: %s", err, document)
	}
	for name := range strings.SplitSeq(place, ".") {
		ok := false
		switch in := v.(type) {
		case map[string]any:
			v, ok = in[name]
		case []any:
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(in) {
				v, ok = in[i], true
			}
		}
		if !ok {
			return nil, fmt.Errorf("there is no %s in %s", place, document)
		}
	}
	return v, nil
}
