package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

const (
	batchPath = "/v1/commands"
	// maxCommands is as many as a lane holds at least.
	maxCommands = 4096
	maxBatch    = 4 << 20 // of a batch's body, in bytes
	// batchesAtOnce is how many batches a user may have under way: each has up to some 15 MB of memory until its answer is read.
	batchesAtOnce = 4
	// refusedPerRequest commands that were refused for their sender's rate count as one more request: they were read, and are answered.
	refusedPerRequest = 8
)

// batchRequest is the body of POST /v1/commands as it is documented.
type batchRequest struct {
	Commands []batchedRequest `json:"commands" minItems:"1" maxItems:"4096"`
}

type batchedRequest struct {
	Key  string  `json:"key" doc:"its Idempotency-Key"`
	Path string  `json:"path" doc:"of a POST route: transfers, deposits, withdrawals, holds with capture and release, purchases, bids" example:"/v1/transfers"`
	Body anyJSON `json:"body,omitempty" doc:"what the route takes; absent where it takes no fields"`
}

type batchView struct {
	Results []resultView `json:"results" doc:"in the order of the commands"`
}

type resultView struct {
	Status   int     `json:"status"`
	Body     anyJSON `json:"body" doc:"what the route answers, a document or a problem"`
	Replayed bool    `json:"replayed" doc:"whether it is an earlier request's answer"`
}

// batchedCommand is a command as it is read. What is wrong within it is its own refusal.
type batchedCommand struct {
	Key  jsontext.Value `json:"key"`
	Path jsontext.Value `json:"path"`
	Body jsontext.Value `json:"body"`

	malformed error
}

// readBatch reads the body of a batch, which is refused as a whole if its envelope is malformed.
func readBatch(body []byte) ([]batchedCommand, error) {
	var all struct {
		Commands []batchedCommand `json:"commands"`
	}
	err := edge.Decode(body, &all)
	if err != nil {
		// Perhaps it is one of the commands that is no object, or has another member.
		var each struct {
			Commands []jsontext.Value `json:"commands"`
		}
		if err = edge.Decode(body, &each); err != nil {
			return nil, err
		}
		all.Commands = make([]batchedCommand, len(each.Commands))
		for i, text := range each.Commands {
			all.Commands[i].malformed = edge.Decode(text, &all.Commands[i])
		}
	}
	if n := len(all.Commands); n < 1 || n > maxCommands {
		return nil, refuse("commands must have 1 to %d members", maxCommands)
	}
	return all.Commands, nil
}

// enlister checks a request and puts its command into a batch.
type enlister func(b *batchRun, place int, from sender, body []byte) error

// batchRun is the commands of one batch on their way. Those on one thing are decided in their order, and those on different things beside
// each other.
type batchRun struct {
	lanes   map[laneID]laneOfBatch
	order   []laneOfBatch
	results []result
	rate    auth.Decision // what counting the last command said
}

type result struct {
	answer command.Answer
	err    error
}

// laneID tells lanes apart: the kind of thing, "" for the ledger, and the thing.
type laneID struct {
	what string
	id   uuid.UUID
}

// laneOfBatch queues a batch's commands of one lane, and returns the function that waits for them and notes their results.
type laneOfBatch interface {
	begin(ctx context.Context) (finish func(results []result))
}

// commandsOn is a laneOfBatch of one service.
type commandsOn[Op any] struct {
	id       uuid.UUID
	execute  func(context.Context, uuid.UUID, []command.Command[Op]) func() []command.Listed
	from     []sender
	places   []int
	commands []command.Command[Op]
}

func (on *commandsOn[Op]) begin(ctx context.Context) func([]result) {
	wait := on.execute(ctx, on.id, on.commands)
	return func(results []result) {
		for i, o := range wait() {
			if results[on.places[i]] = (result{o.Result, o.Err}); o.Err == nil {
				on.from[i].answered(on.commands[i].Key, o.Result)
			}
		}
	}
}

// enlist makes an enlister of a mutation.
func enlist[Req, Op any](m mutation[Req, Op]) enlister {
	return func(b *batchRun, place int, from sender, body []byte) error {
		var req Req
		if err := edge.Decode(body, &req); err != nil {
			return err
		}
		c, err := m.command(from, &req)
		if err != nil {
			return err
		}
		at := laneID{what: m.what}
		if m.executeOn != nil {
			if at.id, err = pathUUID(from.id, m.what); err != nil {
				return err
			}
		}
		on, _ := b.lanes[at].(*commandsOn[Op])
		if on == nil {
			on = &commandsOn[Op]{id: at.id, execute: m.executeAll}
			b.lanes[at] = on
			b.order = append(b.order, on)
		}
		on.from, on.places, on.commands = append(on.from, from), append(on.places, place), append(on.commands, c)
		return nil
	}
}

// batchRoute is the route that takes batches of requests to those of the other routes that can be in one.
func (s *Server) batchRoute(all []route) route {
	s.batched = slices.DeleteFunc(slices.Clone(all), func(r route) bool { return r.enlist == nil })
	o := doc[batchRequest, batchView]("Execute up to 4,096 commands, each under its own key")
	o.tag = "ledger"
	return route{method: http.MethodPost, path: batchPath, access: accessUser, status: http.StatusOK, doc: o, handler: s.postCommands}
}

// batchesOf counts the batches of users that are under way. The zero value has none. It is safe for concurrent use.
type batchesOf struct {
	mu sync.Mutex
	by map[string]int // by Principal.ID
}

// enter refuses a user's batch where too many are under way. leave ends it.
func (b *batchesOf) enter(p auth.Principal) (leave func(), err error) {
	if p.Role.KeyRole() {
		return func() {}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by[p.ID] >= batchesAtOnce {
		return nil, &refusal{Kind: edge.RateLimited, Detail: "this credential has " + strconv.Itoa(batchesAtOnce) + " batches under way", RetryAfter: time.Second}
	}
	if b.by == nil {
		b.by = map[string]int{}
	}
	b.by[p.ID]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.by[p.ID]--; b.by[p.ID] == 0 {
			delete(b.by, p.ID)
		}
	}, nil
}

func (s *Server) postCommands(w http.ResponseWriter, r *http.Request) error {
	i := infoOf(r)
	leave, err := s.batches.enter(i.principal)
	if err != nil {
		return err
	}
	defer leave()
	body, err := readBody(w, r, maxBatch)
	if err != nil {
		return err
	}
	// It is carried out whether or not its client stays, as on the routes of its commands.
	answer, err := s.commands(context.WithoutCancel(r.Context()), i.principal, i.requestID, w.Header(), body)
	if err == nil {
		s.notePosition(w, r)
		writeBody(w, http.StatusOK, answer)
	}
	return err
}

// commands executes a batch of requests that was counted as one, and returns the document of their results. It refuses a malformed batch
// as a whole. What it leaves of the sender's rate is written to header.
func (s *Server) commands(ctx context.Context, p auth.Principal, requestID string, header http.Header, body []byte) ([]byte, error) {
	commands, err := readBatch(body)
	if err != nil {
		return nil, err
	}
	b := batchRun{lanes: map[laneID]laneOfBatch{}, results: make([]result, len(commands))}
	from := sender{principal: p, requestID: requestID, method: http.MethodPost, acknowledge: s.Acknowledge, metrics: s.metrics}
	var refused []int // the places of those that are too many for the sender's rate
	for place := range commands {
		if !s.countNext(&b, place, p) {
			refused = append(refused, place)
		} else {
			b.results[place].err = s.enlist(&b, place, from, &commands[place])
		}
	}
	if len(refused) > 0 {
		b.rate = s.Limiter.Refused(p, len(refused)/refusedPerRequest)
		for _, place := range refused {
			b.results[place].err = errRate(b.rate)
		}
	}
	if s.Limiter != nil && len(commands) > 1 {
		s.Limiter.SetHeaders(header, b.rate)
		header.Del("Retry-After") // The answer is a 200; the commands that were refused tell the time.
	}
	ctx, cancel := context.WithTimeout(ctx, edge.CommandTimeout)
	defer cancel()
	finish := make([]func([]result), len(b.order))
	for i, on := range b.order {
		finish[i] = on.begin(ctx)
	}
	// Beside each other: what is blocked waits for up to [command.BlockedFor], and two of them no longer than one.
	var all sync.WaitGroup
	for _, f := range finish {
		all.Go(func() { f(b.results) })
	}
	all.Wait()
	answer := append(make([]byte, 0, 256*len(b.results)), `{"results":[`...)
	for place, r := range b.results {
		if r.err != nil {
			keyed := parseBatchedKey(commands[place].Key) != ""
			p := s.problem(ctx, r.err, requestID, keyed, "path", batchPath)
			r.answer.Status, r.answer.Body = p.Status, mustMarshal(p)
		}
		if place > 0 {
			answer = append(answer, ',')
		}
		answer = append(strconv.AppendInt(append(answer, `{"status":`...), int64(r.answer.Status), 10), `,"body":`...)
		answer = append(strconv.AppendBool(append(append(answer, r.answer.Body...), `,"replayed":`...), r.answer.Replayed), '}')
	}
	return append(answer, "]}"...), nil
}

// countNext counts a command of a batch against its sender's rate, and reports whether that has room for it; the first one was counted as the batch.
func (s *Server) countNext(b *batchRun, place int, p auth.Principal) bool {
	if place > 0 && s.Limiter != nil {
		b.rate = s.Limiter.Allow(p)
		return b.rate.Allowed
	}
	return true
}

// enlist checks one request of a batch in the order in which its route does.
func (s *Server) enlist(b *batchRun, place int, from sender, q *batchedCommand) error {
	if q.malformed != nil {
		return q.malformed
	}
	if json.Unmarshal(q.Path, &from.path) != nil || from.path == "" {
		return refuse("path must be given, as a string")
	}
	r := s.batchedRoute(from.path, &from.id)
	switch {
	case r == nil:
		return refuse("path must be that of a POST route that a batch may have: transfers, deposits, withdrawals, holds with capture and release, purchases, bids")
	case !r.access.permits(from.principal.Role, http.MethodPost):
		return &refusal{Kind: edge.Forbidden, Detail: "this route is not open to this credential"}
	}
	if from.key = parseBatchedKey(q.Key); from.key == "" {
		return idempotency.ErrMalformedKey
	}
	body := q.Body
	if len(body) > maxBody {
		return &refusal{Kind: payloadTooLarge, Detail: "a command's body has more than " + strconv.Itoa(maxBody) + " bytes"}
	}
	if body.Kind() == 'n' {
		body = nil // As if it were absent.
	}
	return r.enlist(b, place, from, body)
}

// batchedRoute finds the route of a path, and the id in the path.
func (s *Server) batchedRoute(path string, id *string) *route {
	for i := range s.batched {
		before, after, withID := strings.Cut(s.batched[i].path, "{id}")
		rest, ok := strings.CutPrefix(path, before)
		if !withID && ok && rest == "" {
			return &s.batched[i]
		}
		if *id, ok = strings.CutSuffix(rest, after); withID && ok && rest != path && *id != "" && !strings.Contains(*id, "/") {
			return &s.batched[i]
		}
	}
	return nil
}

// parseBatchedKey reads a key, "" if it is absent or malformed.
func parseBatchedKey(member jsontext.Value) string {
	var text string
	if json.Unmarshal(member, &text) != nil {
		return ""
	}
	key, err := idempotency.ParseKey(text)
	if err != nil {
		return ""
	}
	return key
}
