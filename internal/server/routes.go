package server

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// route is a row of the table that both serves and documents the contract.
type route struct {
	method  string
	path    string // a pattern of the standard mux, without the method
	access  access
	status  int // of success
	doc     operation
	handler handler
	hot     bool // whether its requests are served lean (internal/leanhttp)
	weight  int  // how many requests one counts as in the rate limit; 0 means 1
}

// operation documents a route. The types are those that the handler really decodes and encodes.
type operation struct {
	summary  string
	request  reflect.Type // nil where there is no body
	response reflect.Type // nil where there is none
	query    []parameter
	tag      string
	// accepted says that 202 answers with the same document, where the effect goes on after the answer.
	accepted bool
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

// hotPaths reports the paths of hot routes, whatever they have for an id.
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
		{"public pages", s.publicRoutes()},
		{"operation", s.systemRoutes()},
	} {
		for _, r := range group.routes {
			r.doc.tag = group.tag
			all = append(all, r)
		}
	}
	return all
}

// mux builds the router: the routes, an answer for every other method of a known path, and one for every other path.
func (s *Server) mux(routes []route) *http.ServeMux {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	accesses := map[string]access{}
	for _, rt := range routes {
		mux.HandleFunc(rt.method+" "+rt.path, s.serve(rt.path, rt.weight, rt.access, rt.handler))
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
