package server

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
	"github.com/fairlead-dev/fairlead/internal/standby"
)

// route is a row of the table that both serves and documents the contract.
type route struct {
	method  string
	path    string // a pattern of the standard mux, without the method
	access  access
	status  int // of success
	doc     operation
	handler handler
	hot     bool     // whether its requests are served lean (internal/leanhttp)
	stale   bool     // whether a standby may answer it: see package standby
	weight  int      // how many requests one counts as in the rate limit; 0 means 1
	enlist  enlister // puts a request into a list of POST /v1/commands; nil where that doesn't take it
}

// operation documents a route. The types are those that the handler really decodes and encodes.
type operation struct {
	summary  string
	request  reflect.Type // nil where there is no body
	response reflect.Type // nil where there is none
	query    []parameter
	tag      string
	// unready says that 503 answers with the same document.
	unready bool
	// accepted says that 202 answers with the same document, where the effect goes on after the answer.
	accepted bool
	// repeats says that 200 answers with the same document, where an earlier request had the effect.
	repeats bool
}

// parameter is one of a route's query parameters.
type parameter struct {
	name, doc string
	schema    reflect.Type
}

// none is the request type of routes without a body.
type none struct{}

// doc documents a route by the types of its request and its answer, [none] where there is none.
func doc[Req, Resp any](summary string) operation {
	o := operation{summary: summary, response: reflect.TypeFor[Resp]()}
	if t := reflect.TypeFor[Req](); t != reflect.TypeFor[none]() {
		o.request = t
	}
	if o.response == reflect.TypeFor[none]() {
		o.response = nil
	}
	return o
}

// paged documents a list of items.
func paged[Item any](summary string) operation {
	o := doc[none, list[Item]](summary)
	o.query = []parameter{
		{name: "limit", doc: "most items to return, 1 to 200, 50 when absent", schema: reflect.TypeFor[int]()},
		{name: "after", doc: "the next of the previous page", schema: reflect.TypeFor[string]()},
	}
	return o
}

func get(path string, a access, o operation, h handler) route {
	return route{method: http.MethodGet, path: path, access: a, status: http.StatusOK, doc: o, handler: h}
}

// hot marks a route that many ask at once, and that carries its command out whether or not the client waits for the answer.
func hot(r route) route {
	r.hot = true
	return r
}

// Weights of routes in the rate limit, by what their answers cost beside a page of a list.
const (
	scanWeight  = 5
	proofWeight = 25
)

// heavy marks a route that costs more than others.
func heavy(weight int, r route) route {
	r.weight = weight
	return r
}

// stale marks a route of reads that a standby may answer, where there is one.
func stale(r route) route {
	r.stale = true
	return r
}

// fresh marks a list by which clients find out what has become of their requests: the primary answers it.
func fresh(r route) route {
	r.stale = false
	return r
}

// headerAfter carries a place in the database's log: from the answer of each command to those reads of the client that have to see it.
const headerAfter = "Fairlead-After"

// fromStandby lets a standby answer a read, if it has what the client wants to see. Only a success is taken from it: what is absent there, or not yet
// so, is looked for on the primary.
func fromStandby(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var after standby.Position
		switch given := r.Header.Values(headerAfter); {
		case len(given) > 1:
			return refuse("the header %s is there more than once", headerAfter)
		case len(given) == 1 && given[0] != "":
			var err error
			if after, err = standby.Parse(given[0]); err != nil {
				return refuse("the header %s: %v", headerAfter, err)
			}
		}
		ctx, used := standby.Allow(r.Context(), after)
		err := h(w, r.WithContext(ctx))
		if err != nil && used() {
			return h(w, r)
		}
		return err
	}
}

// notePosition tells the client of a place in the log that is after what its request has committed.
func (s *Server) notePosition(w http.ResponseWriter, r *http.Request) {
	if s.Position == nil {
		return
	}
	if at, known := s.Position(r.Context()); known {
		w.Header().Set(headerAfter, at.String())
	}
}

// hotPaths returns a function that reports whether a path is that of a hot route, with any id.
func hotPaths(routes []route) func(path string) bool {
	var hot [][2]string // what is before the id, and behind it
	for _, r := range routes {
		if before, after, _ := strings.Cut(r.path, "{id}"); r.hot {
			hot = append(hot, [2]string{before, after})
		}
	}
	return func(path string) bool {
		return slices.ContainsFunc(hot, func(h [2]string) bool {
			rest, ok := strings.CutPrefix(path, h[0])
			return ok && strings.HasSuffix(rest, h[1]) && (rest == "") == (h[1] == "")
		})
	}
}

// routes is the whole table.
func (s *Server) routes() []route {
	var all []route
	for _, group := range []struct {
		tag    string
		routes []route
	}{
		{"ledger", s.ledgerRoutes()},
		{"ledger", s.crossRoutes()},
		{"operations of several steps", s.sagaRoutes()},
		{"lottery", s.lotteryRoutes()},
		{"multi-draws", s.multidrawRoutes()},
		{"auctions", s.auctionRoutes()},
		{"publishing", s.publicationRoutes()},
		{"locks", s.lockRoutes()},
		{"live", liveRoutes(s.live)},
		{"administration", s.keyRoutes()},
		{"administration", s.adminRoutes()},
		{"administration", s.chartRoutes()},
		{"public pages", s.publicRoutes()},
		{"public log", s.logRoutes()},
		{"operation", s.systemRoutes()},
	} {
		for _, r := range group.routes {
			r.doc.tag = group.tag
			all = append(all, r)
		}
	}
	return append(all, s.batchRoute(all))
}

// mux builds the router: the routes, an answer for every other method of a known path, and one for every other path.
func (s *Server) mux(routes []route) *http.ServeMux {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	accesses := map[string]access{}
	for _, rt := range routes {
		h := rt.handler
		if rt.stale {
			h = fromStandby(h)
		}
		mux.HandleFunc(rt.method+" "+rt.path, s.serve(rt.path, rt.weight, rt.access, h))
		methods[rt.path] = append(methods[rt.path], rt.method)
		if rt.method == http.MethodGet {
			methods[rt.path] = append(methods[rt.path], http.MethodHead)
		}
		accesses[rt.path] = min(accesses[rt.path]|rt.access, accessUser)
	}
	for path, allowed := range methods {
		allow := strings.Join(allowed, ", ")
		mux.HandleFunc(path, s.serve(path, 0, accesses[path], func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Allow", allow)
			return &refusal{Kind: methodNotAllowed, Detail: "this path takes " + allow}
		}))
	}
	if s.Sessions != nil {
		s.consoleRoutes(mux)
	}
	mux.HandleFunc("/", s.notFoundPath)
	return mux
}

// notFoundPath answers a path that no route has. Under /v1 it asks for a credential first, as every route there does.
func (s *Server) notFoundPath(w http.ResponseWriter, r *http.Request) {
	a := accessPublic
	if strings.HasPrefix(r.URL.Path, "/v1") {
		a = accessUser
	}
	s.serve(unmatched, 0, a, noSuchPath)(w, r)
}

func noSuchPath(http.ResponseWriter, *http.Request) error {
	return &refusal{Kind: edge.NotFound, Detail: "there is no such path"}
}

// handler serves a request. An error that it returns becomes the answer, a problem; the handler has written nothing then.
type handler func(w http.ResponseWriter, r *http.Request) error

// shown is a handler that answers with what find finds, as view shows it.
func shown[R, V any](find func(r *http.Request) (R, error), view func(R) V) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		found, err := find(r)
		if err != nil {
			return err
		}
		return writeView(w, view(found))
	}
}

// readRoute is the route of one document.
func readRoute[R, V any](path string, a access, summary string, find func(r *http.Request) (R, error), view func(R) V) route {
	return get(path, a, doc[none, V](summary), shown(find, view))
}

// with finds something of what another finder has found.
func with[A, R any](first func(*http.Request) (A, error), find func(ctx context.Context, a A) (R, error)) func(*http.Request) (R, error) {
	return func(r *http.Request) (found R, err error) {
		a, err := first(r)
		if err != nil {
			return found, err
		}
		return find(r.Context(), a)
	}
}

// same is the view of what is shown as it is.
func same[V any](v V) V { return v }

// viewed lets a view of a pointer show rows of a list.
func viewed[R, V any](view func(*R) V) func(R) V { return func(row R) V { return view(&row) } }

const contentTypeProblem = "application/problem+json"

// retryAfterSeconds is what a client is told to wait after a 503: long enough for a full queue to drain.
const retryAfterSeconds = 1

// writeProblem answers with the problem that err is.
func (s *Server) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	info := infoOf(r)
	p := s.problem(r.Context(), err, info.requestID, hasKey(r), "path", r.URL.Path)
	switch p.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", auth.Challenge(err))
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		if w.Header().Get("Retry-After") == "" { // The limiter says when.
			w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
		}
	}
	info.code = p.Code
	writeBody(w, p.Status, mustMarshal(p))
}

// writeView answers with one of our own documents. It returns nil, for handlers that end with it.
func writeView(w http.ResponseWriter, v any) error {
	writeBody(w, http.StatusOK, mustMarshal(v))
	return nil
}

// Values of headers that nearly all answers have, so that they need not be made for each. Their names are in canonical form.
//
//nolint:gochecknoglobals // They never change.
var (
	typeJSON    = []string{"application/json"}
	typeProblem = []string{contentTypeProblem}
	noSniff     = []string{"nosniff"}
	noStore     = []string{"no-store"}
)

// writeBody answers with bytes that are ready.
func writeBody(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	if status == http.StatusNoContent {
		w.WriteHeader(status) // Which has neither a body nor the headers of one.
		return
	}
	h["Content-Type"] = typeJSON
	if status >= http.StatusBadRequest {
		h["Content-Type"] = typeProblem
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	//nolint:gosec,nolintlint // Bodies are JSON, said to be so, and not sniffed; gosec is not always of the same opinion. An error means that the client went away.
	_, _ = w.Write(body)
}

// mustMarshal encodes one of our own answer types, which cannot fail.
func mustMarshal(v any) []byte {
	if v, ok := v.(appender); ok {
		return v.appendJSON(make([]byte, 0, 384))
	}
	return edge.Marshal(v)
}
