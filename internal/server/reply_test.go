package server

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// reply is an answer, read to its end.
type reply struct {
	t       testing.TB
	what    string // the request, for messages
	status  int
	header  http.Header
	body    []byte
	decoded map[string]any // nil unless the body is a JSON object; numbers are jsontext.Value
}

// send is one request; zero fields are left out.
type send struct {
	method, path string
	body         string
	key          string // one Idempotency-Key header, as it is
	header       http.Header
}

// post sends with a key of its own.
func (e *env) post(path, body string) *reply {
	e.t.Helper()
	return e.send(send{method: http.MethodPost, path: path, body: body, key: newUUID()})
}

// keyed sends under the given key.
func (e *env) keyed(key, path, body string) *reply {
	e.t.Helper()
	return e.send(send{method: http.MethodPost, path: path, body: body, key: key})
}

func (e *env) get(path string) *reply {
	e.t.Helper()
	return e.send(send{method: http.MethodGet, path: path})
}

func (e *env) send(s send) *reply {
	e.t.Helper()
	var got *reply
	if !e.patient {
		for until := time.Now().Add(patience); ; {
			asked := time.Now()
			r, err := e.trySend(s)
			must(e.t, err)
			got = e.received(s.method, s.path, s.body, r)
			if code, _ := got.decoded["code"].(string); !e.stalled(got.status, code, time.Since(asked)) || time.Now().After(until) {
				return got
			}
		}
	}
	eventually(e.t, patience, "the database is back", func() bool {
		r, err := e.trySend(s)
		must(e.t, err)
		got = e.received(s.method, s.path, s.body, r)
		return got.status != http.StatusServiceUnavailable
	})
	return got
}

// stalled reports whether an answer may have no other reason than a machine that stalls: a request waits for its database, which no test has taken
// away here, for less than half a minute, and one with a credential for less than that. A command is sent again under its key, which settles it.
func (e *env) stalled(status int, code string, took time.Duration) bool {
	return e.proxy == nil && took > time.Second && status == http.StatusServiceUnavailable && (code == "unavailable" || code == "outcome_unknown")
}

// trySend leaves the answer unread. It may be called from any goroutine.
func (e *env) trySend(s send) (*http.Response, error) {
	request, err := e.request(e.t.Context(), s)
	if err != nil {
		return nil, err
	}
	return e.http.Do(request)
}

func (e *env) request(ctx context.Context, s send) (*http.Request, error) {
	var body io.Reader = http.NoBody
	if s.body != "" {
		body = strings.NewReader(s.body)
	}
	request, err := http.NewRequestWithContext(ctx, s.method, e.url+s.path, body)
	if err != nil {
		return nil, err
	}
	maps.Copy(request.Header, s.header)
	if e.as != "" {
		request.Header.Set("Authorization", "Bearer "+e.as)
	}
	if s.key != "" {
		request.Header.Set("Idempotency-Key", s.key)
	}
	return request, nil
}

// received reads an answer and checks what holds for every answer.
func (e *env) received(method, path, body string, response *http.Response) *reply {
	e.t.Helper()
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	must(e.t, err)
	r := &reply{t: e.t, what: method + " " + clip(path) + " " + clip(body), status: response.StatusCode, header: response.Header, body: content}
	if strings.Contains(r.header.Get("Content-Type"), "json") && method != http.MethodHead {
		if err := json.Unmarshal(content, &r.decoded, json.WithUnmarshalers(exactNumbers())); err != nil {
			e.t.Fatalf("%s: the answer is no JSON object: %v\n%s", r.what, err, content)
		}
	}
	stored := strings.HasPrefix(path, "/log/") && r.status == http.StatusOK // Anybody may keep the public log.
	if r.header.Get("X-Content-Type-Options") != "nosniff" || (r.header.Get("Cache-Control") != "no-store") != stored {
		e.t.Errorf("%s: headers nosniff or no-store are missing: %v", r.what, r.header)
	}
	if r.status >= http.StatusBadRequest && method != http.MethodHead {
		r.checkProblem()
	}
	if e.observe != nil {
		e.observe(method, path, r)
	}
	return r
}

// exactNumbers keeps numbers in `any` as they were spelt.
func exactNumbers() *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
		if d.PeekKind() != '0' {
			return errors.ErrUnsupported
		}
		raw, err := d.ReadValue()
		*v = raw.Clone()
		return err
	})
}

func clip(s string) string {
	const most = 160
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// internalWords would tell a client of the server's inside.
var internalWords = regexp.MustCompile(`(?i)pgx|sqlstate|postgres|\bsql\b|goroutine|github\.com|\.go:|panic|groupcommit|server\.|ledger\.|lottery\.|auth:|relation "|\bGo (type|struct|value)`)

// checkProblem checks a problem's members, all of them always there.
func (r *reply) checkProblem() {
	r.t.Helper()
	if got := r.header.Get("Content-Type"); got != contentTypeProblem {
		r.t.Errorf("%s: %d with content type %q: %s", r.what, r.status, got, r.body)
		return
	}
	code, _ := r.decoded["code"].(string)
	if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(code) {
		r.t.Errorf("%s: code %q", r.what, code)
	}
	if r.str("type") != "/docs/problems#"+code || r.str("title") == "" || r.str("detail") == "" || r.num("status") != int64(r.status) {
		r.t.Errorf("%s: incomplete problem %s", r.what, r.body)
	}
	if _, ok := r.decoded["retryable"].(bool); !ok {
		r.t.Errorf("%s: retryable is no boolean: %s", r.what, r.body)
	}
	if !slices.Contains([]string{"not_applied", "applied", "unknown"}, r.str("outcome")) {
		r.t.Errorf("%s: outcome %q", r.what, r.str("outcome"))
	}
	if id := r.str("request_id"); id == "" || (id != r.header.Get("X-Request-Id") && r.header.Get("Idempotent-Replayed") == "") {
		r.t.Errorf("%s: request_id %q, header %q", r.what, id, r.header.Get("X-Request-Id"))
	}
	if leak := internalWords.FindString(r.str("detail") + " " + r.str("title")); leak != "" {
		r.t.Errorf("%s: the problem tells of the inside (%q): %s", r.what, leak, r.body)
	}
	if r.status >= http.StatusInternalServerError && r.status != http.StatusServiceUnavailable {
		r.t.Errorf("%s: %d %s", r.what, r.status, r.body)
	}
	if r.status == http.StatusServiceUnavailable && r.header.Get("Retry-After") == "" {
		r.t.Errorf("%s: 503 without Retry-After", r.what)
	}
	if r.status == http.StatusUnauthorized && !strings.HasPrefix(r.header.Get("WWW-Authenticate"), "Bearer") {
		r.t.Errorf("%s: 401 without WWW-Authenticate: %v", r.what, r.header)
	}
}

// want stops the test unless the status is the one expected.
func (r *reply) want(status int) *reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%s: %d, want %d: %s", r.what, r.status, status, clip(string(r.body)))
	}
	return r
}

// problem fails unless the answer is the problem expected.
func (r *reply) problem(status int, code string) *reply {
	r.t.Helper()
	if got, _ := r.decoded["code"].(string); r.status != status || got != code {
		r.t.Errorf("%s: %d %q, want %d %q: %s", r.what, r.status, got, status, code, clip(string(r.body)))
	}
	return r
}

// at follows a path of members and indexes such as "items.0.id".
func (r *reply) at(path string) any {
	r.t.Helper()
	return dig(r.t, r.decoded, path, string(r.body))
}

// shows reports whether the member at a path is this text. It fails no test, so that it can be polled.
func (r *reply) shows(path, text string) bool {
	member, ok := find(r.decoded, path)
	return ok && member == any(text)
}

func dig(tb testing.TB, from any, path, whole string) any {
	tb.Helper()
	member, ok := find(from, path)
	if !ok {
		tb.Fatalf("%q is not in %s", path, clip(whole))
	}
	return member
}

// find follows a path like that of at, as far as there is one.
func find(from any, path string) (member any, ok bool) {
	for step := range strings.SplitSeq(path, ".") {
		switch v := from.(type) {
		case map[string]any:
			if from, ok = v[step]; !ok {
				return nil, false
			}
		case []any:
			index := 0
			if err := json.Unmarshal([]byte(step), &index); err != nil || index >= len(v) {
				return nil, false
			}
			from = v[index]
		default:
			return nil, false
		}
	}
	return from, true
}

func (r *reply) str(path string) string {
	r.t.Helper()
	s, ok := r.at(path).(string)
	if !ok {
		r.t.Fatalf("%s: %s is no string in %s", r.what, path, clip(string(r.body)))
	}
	return s
}

func (r *reply) num(path string) int64 {
	r.t.Helper()
	var n int64
	raw, ok := r.at(path).(jsontext.Value)
	if !ok || json.Unmarshal(raw, &n) != nil {
		r.t.Fatalf("%s: %s is no integer in %s", r.what, path, clip(string(r.body)))
	}
	return n
}

func (r *reply) items() []any {
	r.t.Helper()
	items, ok := r.at("items").([]any)
	if !ok {
		r.t.Fatalf("%s: items is no array in %s", r.what, clip(string(r.body)))
	}
	return items
}

// equal compares members with a JSON document: {"amount":5,"status":"open"}. Other members may be there too.
func (r *reply) equal(document string) *reply {
	r.t.Helper()
	var want map[string]any
	must(r.t, json.Unmarshal([]byte(document), &want, json.WithUnmarshalers(exactNumbers())))
	for name, value := range want {
		got := mustMarshal(r.at(name))
		if string(got) != string(mustMarshal(value)) {
			r.t.Errorf("%s: %s is %s, want %s", r.what, name, got, mustMarshal(value))
		}
	}
	return r
}

// exactly fails unless the object has these members and no others.
func (r *reply) exactly(object any, members ...string) *reply {
	r.t.Helper()
	m, ok := object.(map[string]any)
	if !ok {
		r.t.Fatalf("%s: no object: %v", r.what, object)
	}
	got := make([]string, 0, len(m))
	for name := range m {
		got = append(got, name)
	}
	slices.Sort(got)
	slices.Sort(members)
	if !slices.Equal(got, members) {
		r.t.Errorf("%s: members %v, want %v", r.what, got, members)
	}
	return r
}

var (
	timePattern = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`)
	uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
)

func (r *reply) times(paths ...string) *reply { r.t.Helper(); return r.matches(timePattern, paths) }

func (r *reply) uuids(paths ...string) *reply { r.t.Helper(); return r.matches(uuidPattern, paths) }

func (r *reply) matches(pattern *regexp.Regexp, paths []string) *reply {
	r.t.Helper()
	for _, path := range paths {
		if !pattern.MatchString(r.str(path)) {
			r.t.Errorf("%s: %s is %q", r.what, path, r.str(path))
		}
	}
	return r
}
