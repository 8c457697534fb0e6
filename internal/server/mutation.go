package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// mutation is a route that changes something: a typed body, a check, and a way to the service that decides it.
type mutation[Req, Op any] struct {
	// op checks the request and makes the operation of it. Its errors are refusals; it touches no state.
	op func(from sender, req *Req) (Op, error)
	// accounts names the accounts that a user must own, where the route is open to users.
	accounts func(req *Req) []string
	// wait is how long the operation may wait in addition to what every command may take; nil: not at all.
	wait func(op Op) time.Duration
	// execute brings the command to its service. Where the path names a thing, executeOn does, and what names the thing's kind.
	execute   func(ctx context.Context, c command.Command[Op]) (command.Answer, error)
	executeOn func(ctx context.Context, id uuid.UUID, c command.Command[Op]) (command.Answer, error)
	what      string
	answer    answer
	// executeAll queues commands of one list on one thing, where POST /v1/commands takes the route's requests; else it is nil. id is
	// that of the path, if it has one.
	executeAll func(ctx context.Context, id uuid.UUID, list []command.Command[Op]) (wait func() []command.Listed)
}

// answer gives the status and the body with which a service's result is answered.
type answer func(result any) (status int, body []byte)

// answered is the answer of a route whose status is always the same.
func answered[R, V any](status int, view func(R) V) answer {
	return func(result any) (int, []byte) {
		return status, mustMarshal(view(result.(R))) //nolint:errcheck,forcetypeassert // Its operation fixes the type.
	}
}

// sender is who sent a request that changes something, and what makes it that request and no other.
type sender struct {
	principal    auth.Principal
	requestID    string
	method, path string
	id           string // that the path has
	key          string
	// acknowledge is called with the key and the execution of a command that was carried out; it may be nil.
	acknowledge func(key idempotency.ID, execution uuid.UUID)
	metrics     *httpMetrics
}

// mutate serves a mutation. The order of its checks is the contract's: key, body, whose account, then state.
func mutate[Req, Op any](m mutation[Req, Op]) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		key, err := parseKey(r.Header)
		if err != nil {
			return err
		}
		body, err := readBody(w, r, maxBody)
		if err != nil {
			return err
		}
		var req Req
		if err := edge.Decode(body, &req); err != nil {
			return err
		}
		i := infoOf(r)
		from := sender{principal: i.principal, requestID: i.requestID, method: r.Method, path: r.URL.Path, id: r.PathValue("id"), key: key, acknowledge: i.acknowledge, metrics: i.metrics}
		a, err := m.run(r.Context(), from, &req, func(limit time.Duration) {
			i.untimed = true
			// The connection's own limits are for those who are slow, not for those who wait. Where they can't be moved they stay.
			rc := http.NewResponseController(w)
			_ = rc.SetReadDeadline(time.Now().Add(limit + readTimeout))
			_ = rc.SetWriteDeadline(time.Now().Add(limit + writeTimeout))
		})
		if err != nil {
			return err
		}
		if i.replayed = a.Replayed; a.Replayed {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		if a.Status == http.StatusTooManyRequests {
			// The body is all that came through the transaction, so the header is taken from it.
			var p Problem
			if err := json.Unmarshal(a.Body, &p); err == nil && p.RetryAfter > 0 {
				w.Header().Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
			}
		}
		if i.notePosition != nil {
			i.notePosition(w, r)
		}
		writeBody(w, a.Status, a.Body)
		return nil
	}
}

// run makes a command of a request whose key and body were read, and executes it. It calls extend when the command may take longer
// than usual.
func (m *mutation[Req, Op]) run(ctx context.Context, from sender, req *Req, extend func(limit time.Duration)) (a command.Answer, err error) {
	c, err := m.command(from, req)
	if err != nil {
		return a, err
	}
	limit := edge.CommandTimeout
	if m.wait != nil && m.wait(c.Op) > 0 {
		limit += m.wait(c.Op)
		extend(limit)
	}
	ctx, cancel := within(ctx, limit)
	defer cancel()
	if m.executeOn == nil {
		a, err = m.execute(ctx, c)
	} else {
		id, failed := pathUUID(from.id, m.what)
		if failed != nil {
			return a, failed
		}
		a, err = m.executeOn(ctx, id, c)
	}
	if err == nil {
		from.answered(c.Key, a)
	}
	return a, err
}

// command checks a request and makes a command of it. The fingerprint is that of req encoded again, so that white space, the order of
// members, and a null for an absent member make no other request.
func (m *mutation[Req, Op]) command(from sender, req *Req) (c command.Command[Op], err error) {
	op, err := m.op(from, req)
	if err != nil {
		return c, err
	}
	p := from.principal
	switch p.Role {
	case auth.RoleUser:
		if m.accounts == nil {
			return c, &refusal{Kind: edge.Forbidden, Detail: "this route is not open to users"}
		}
		for _, account := range m.accounts(req) {
			if err := actFor(p, account); err != nil {
				return c, err
			}
		}
	case auth.RoleAdmin, auth.RoleService:
	case auth.RoleReader: // Over HTTP admit refuses it. A bid over a socket has only the socket's GET before it.
		return c, &refusal{Kind: edge.Forbidden, Detail: "this credential may only read"}
	}
	return command.Command[Op]{
		Op: op,
		Key: &idempotency.Request{
			ID: idempotency.NewID(p.ID, from.method, from.path, from.key), Fingerprint: idempotency.NewFingerprint(mustMarshal(req)), Execution: uuid.Must(uuid.NewV7()),
		},
		// It runs inside the transaction, more than once if that is run again.
		Render: func(result any, err error) command.Rendered {
			if err != nil {
				p := problemOf(err, from.requestID)
				return command.Rendered{Status: p.Status, Body: mustMarshal(p), Decided: decided(p)}
			}
			status, body := m.answer(result)
			return command.Rendered{Status: status, Body: body, Decided: true}
		},
		Principal: p.ID, RequestID: from.requestID, Operator: p.Role == auth.RoleAdmin,
	}, nil
}

// answered counts a command's answer, and acknowledges what was carried out.
func (from *sender) answered(key *idempotency.Request, a command.Answer) {
	if from.metrics != nil {
		switch {
		case a.Replayed:
			from.metrics.replays.Inc()
		case a.Status >= http.StatusBadRequest:
			from.metrics.refused(a.Body)
		}
	}
	if !a.Replayed && a.Status < http.StatusMultipleChoices && from.acknowledge != nil {
		from.acknowledge(key.ID, key.Execution)
	}
}

// commandRoute is the POST route of a mutation, whose answer view shows unless the mutation has its own.
func commandRoute[Req, Op, R, V any](path string, a access, status int, summary string, view func(R) V, m mutation[Req, Op]) route {
	if m.answer == nil {
		m.answer = answered(status, view)
	}
	r := route{method: http.MethodPost, path: path, access: a, status: status, doc: doc[Req, V](summary), handler: mutate(m)}
	if m.executeAll != nil {
		r.enlist = enlist(m)
	}
	return r
}

// actRoute is the POST route of an operation on one thing, whose id is in the path: collection/{id}/verb. what names the thing.
func actRoute[Req, Op, R, V any](
	collection, verb, what, summary string, view func(R) V,
	execute func(context.Context, uuid.UUID, command.Command[Op]) (command.Answer, error), op func(sender, *Req) (Op, error),
) route {
	return commandRoute("/v1/"+collection+"/{id}/"+verb, accessStaff, http.StatusOK, summary, view, mutation[Req, Op]{what: what, executeOn: execute, op: op})
}

// deleted makes a route one of the method DELETE, which has no body.
func deleted(r route) route {
	r.method, r.doc.request = http.MethodDelete, nil
	return r
}

// plain is the operation of a request that says everything in its body.
func plain[Req, Op any](op func(*Req) (Op, error)) func(sender, *Req) (Op, error) {
	return func(_ sender, req *Req) (Op, error) { return op(req) }
}

// fixed is the operation of a request without fields.
func fixed[Op any](op Op) func(sender, *noFields) (Op, error) {
	return func(sender, *noFields) (Op, error) { return op, nil }
}

// parseKey reads the one Idempotency-Key header.
func parseKey(h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	if len(values) != 1 {
		return "", idempotency.ErrMalformedKey
	}
	return idempotency.ParseKey(values[0])
}

// noFields is the body of a route without fields.
type noFields struct{}

const (
	// maxBody is the largest body that is read, in bytes.
	maxBody = 1 << 20
	// believedLength is the largest declared length for which memory is taken before the body has come, in bytes.
	believedLength = 4 << 10
)

// readBody reads a body of at most so many bytes. The buffer of a large one grows with what arrives: a declared length is only a claim.
// Of a larger one it takes as much again and forgets it: many clients read no answer before they have sent everything.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	tooLarge, err := r.ContentLength > most, error(nil)
	switch {
	case tooLarge:
		if r.ContentLength <= 2*most && r.Header.Get("Expect") == "" { // Who asks before sending is told at once.
			_, _ = io.Copy(io.Discard, r.Body)
		}
	case r.ContentLength >= 0 && r.ContentLength <= believedLength:
		body := make([]byte, r.ContentLength)
		if _, err = io.ReadFull(r.Body, body); err == nil { // It ends where its length says.
			return body, nil
		}
	default:
		var body []byte
		if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, most)); err == nil {
			return body, nil
		}
		if _, tooLarge = errors.AsType[*http.MaxBytesError](err); tooLarge {
			_, _ = io.CopyN(io.Discard, r.Body, most)
		}
	}
	if tooLarge {
		return nil, &refusal{Kind: payloadTooLarge, Detail: fmt.Sprintf("the body has more than %d bytes", most)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, refuse("the body did not come within %s", readTimeout)
	}
	return nil, refuse("the body could not be read")
}

const (
	maxName, maxMemo = 200, 500                  // limits of the contract, in characters
	maxExpiry        = 10 * 365 * 24 * time.Hour // of a hold; longer ones are better without an expiry
)

var currencyForm = regexp.MustCompile(`^[A-Z][A-Z0-9]{2,11}$`)

// checkURL refuses a path or a query that is not UTF-8 without NUL, since a database takes no other text. Handlers pass on what
// they read from both.
func checkURL(u *url.URL) error {
	if !isText(u.Path) {
		return refuse("the path must be UTF-8 without NUL")
	}
	if u.RawQuery == "" {
		return nil
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return refuse("the query is malformed")
	}
	for name, values := range q {
		if !isText(name) || !isText(strings.Join(values, "")) {
			return refuse("the query must be UTF-8 without NUL")
		}
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// checks collects the first thing that is wrong with a request, so that validators read as a list.
type checks struct{ err error }

func (c *checks) fail(format string, args ...any) {
	if c.err == nil {
		c.err = refuse(format, args...)
	}
}

// or is an optional member of a request, or what it is when absent.
func or[T any](member *T, absent T) T {
	if member == nil {
		return absent
	}
	return *member
}

func (c *checks) id(field, value string) {
	if !auth.ValidAccount(value) {
		c.fail("%s must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ - (and not . or ..)", field)
	}
}

func (c *checks) currency(field, value string) {
	if !currencyForm.MatchString(value) {
		c.fail("%s must be an upper-case letter and 2 to 11 upper-case letters or digits", field)
	}
}

func (c *checks) amount(field string, value int64) {
	if value < 1 || value > ledger.MaxAmount {
		c.fail("%s must be an integer from 1 to %d", field, int64(ledger.MaxAmount))
	}
}

func (c *checks) upTo(field string, value, high int) {
	if value < 1 || value > high {
		c.fail("%s must be an integer from 1 to %d", field, high)
	}
}

func (c *checks) name(field, value string) { c.text(field, value, 1, maxName) }

func (c *checks) memo(field, value string) { c.text(field, value, 0, maxMemo) }

func (c *checks) text(field, value string, low, high int) {
	n := utf8.RuneCountInString(value)
	switch {
	case n < low || n > high:
		c.fail("%s must have %d to %d characters", field, low, high)
	case !utf8.ValidString(value):
		c.fail("%s must be UTF-8", field)
	case strings.ContainsFunc(value, unicode.IsControl):
		c.fail("%s must not contain control characters", field)
	}
}

// duration reads a Go duration string within (0, most]; an absent one is nil.
func (c *checks) duration(field string, value *string, most time.Duration) *time.Duration {
	if value == nil {
		return nil
	}
	d, err := time.ParseDuration(*value)
	if err != nil || d <= 0 || d > most {
		c.fail("%s must be a duration such as \"30m\" or \"1.5s\", above 0 and at most %s", field, most)
		return nil
	}
	return &d
}

// span reads a Go duration string from low to high, of whole microseconds, which is how finely times are kept, or of whole
// seconds. example is such a duration, in quotes.
func (c *checks) span(field, value, example string, low, high, unit time.Duration) time.Duration {
	d, err := time.ParseDuration(value)
	if err != nil || d < low || d > high || d%unit != 0 {
		units := map[time.Duration]string{time.Microsecond: "microseconds", time.Second: "seconds"}
		c.fail("%s must be a duration such as %s, from %s to %s, in whole %s", field, example, low, high, units[unit])
	}
	return d
}

// pathUUID reads an id that the server made from the path. What is not one names nothing, so it is not found.
func pathUUID(s, what string) (uuid.UUID, error) {
	// Other spellings of the same id (upper case, braces) would make other paths, and so other keys, of one object.
	id, err := uuid.Parse(s)
	if err != nil || id.String() != s {
		return uuid.UUID{}, noSuch(what)
	}
	return id, nil
}

func noSuch(what string) error {
	return &refusal{Kind: edge.NotFound, Detail: "there is no such " + what}
}

// pathID finds the id in the path. what names the kind of thing that it is of.
func pathID(what string) func(*http.Request) (uuid.UUID, error) {
	return func(r *http.Request) (uuid.UUID, error) { return pathUUID(r.PathValue("id"), what) }
}

// owned finds the thing that the path names. To a user it is absent unless one of its owners is the user's account: foreign and
// absent things cost the same statement and get the same answer.
func owned[R any](what string, find func(context.Context, uuid.UUID) (R, error), owners func(R) []string) func(*http.Request) (R, error) {
	return func(r *http.Request) (found R, err error) {
		id, err := pathUUID(r.PathValue("id"), what)
		if err != nil {
			return found, err
		}
		thing, err := find(r.Context(), id)
		who := infoOf(r).principal
		if err == nil && (who.Role.KeyRole() || slices.ContainsFunc(owners(thing), who.MayRead)) {
			return thing, nil
		}
		if err == nil || problemOf(err, "").Code == edge.NotFound.Code {
			err = noSuch(what)
		}
		return found, err
	}
}

// pathAccount reads an account's id from the path.
func pathAccount(s string) (string, error) {
	if !auth.ValidAccount(s) {
		return "", noSuch("account")
	}
	return s, nil
}
