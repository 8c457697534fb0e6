package server

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/leanhttp"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// info is what the layers of one request tell each other.
type info struct {
	requestID string
	principal auth.Principal
	route     string // the pattern that matched, for metrics
	code      string // of the problem that was answered
	replayed  bool
	// untimed says that the client decides how long the request takes: its time says nothing about the server.
	untimed bool
	// acknowledge is [Options].Acknowledge.
	acknowledge func(key idempotency.ID, execution uuid.UUID)
	metrics     *httpMetrics
	// notePosition is [Server.notePosition]; nil in tests of a handler alone.
	notePosition func(http.ResponseWriter, *http.Request)
}

type infoKey struct{}

func infoOf(r *http.Request) *info {
	if i, ok := r.Context().Value(infoKey{}).(*info); ok {
		return i
	}
	return &info{} // A handler under test without the outer layers.
}

// maxRequestID is the longest X-Request-Id that is taken over from a client or proxy.
const maxRequestID = 128

// requestIDOf takes the caller's request id when it is harmless in a log, and makes one otherwise.
func requestIDOf(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	// Other characters do not belong in an identifier, whatever they could do in a log or a page.
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:/+=@"
	if id == "" || len(id) > maxRequestID || strings.Trim(id, allowed) != "" {
		return uuid.Must(uuid.NewV7()).String()
	}
	return id
}

// recorder notes the status and size of an answer.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += n
	return n, err //nolint:wrapcheck // The writer's own error is the contract of io.Writer.
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// outermost gives each request an id, survives panics, and logs and measures every answer.
func (s *Server) outermost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		i := &info{requestID: requestIDOf(r), route: unmatched, acknowledge: s.Acknowledge, metrics: s.metrics, notePosition: s.notePosition}
		r = r.WithContext(context.WithValue(r.Context(), infoKey{}, i))
		rec := &recorder{ResponseWriter: w}
		if s.Trace != nil {
			ctx, end := s.Trace(r)
			r = r.WithContext(ctx) //nolint:contextcheck // It is made from the request's own.
			// The last thing, so that a panic has been answered.
			defer func() {
				route := i.route
				if route == unmatched {
					route = ""
				}
				end(route, rec.status, i.code, i.requestID, i.replayed)
			}()
		}
		h := rec.Header()
		// Their names are in canonical form, which Set would find out for each answer.
		h["X-Request-Id"] = []string{i.requestID}
		h["X-Content-Type-Options"] = noSniff
		h["Cache-Control"] = noStore
		//nolint:contextcheck // The request, and with it its context, is what the deferred function works on.
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler { //nolint:errorlint // The sentinel is panicked with as it is.
					panic(p)
				}
				s.Logger.ErrorContext(r.Context(), "handler panicked", "request_id", i.requestID, "panic", p, "stack", string(debug.Stack()))
				if rec.status == 0 {
					s.writeProblem(rec, r, &refusal{Kind: internalError, Detail: "The error was logged under the request id."})
				}
			}
			s.finish(r, rec, i, time.Since(start))
		}()
		if err := checkDoor(rec, r); err != nil {
			s.writeProblem(rec, r, err)
			return
		}
		// The standard mux would redirect a path that is not clean. A program needs an error.
		if p := r.URL.Path; p != "/" && path.Clean(p) != strings.TrimSuffix(p, "/") || strings.HasSuffix(p, "//") {
			s.notFoundPath(rec, r)
			return
		}
		// A connection that has been idle is closed when the server drains, maybe at the moment at which its next request is read: nobody
		// would hear what that has changed.
		if r.Method != http.MethodGet && r.Method != http.MethodHead && s.draining.Err() != nil {
			s.writeProblem(rec, r, &refusal{Kind: edge.ShuttingDown, Detail: "the server is shutting down"})
			return
		}
		next.ServeHTTP(rec, r)
	})
}

func (s *Server) finish(r *http.Request, rec *recorder, i *info, took time.Duration) {
	s.metrics.request(r.Method, i.route, rec.status)
	if !i.untimed {
		s.metrics.duration.WithLabelValues(i.route).Observe(took.Seconds())
	}
	level := slog.LevelDebug
	if rec.status >= http.StatusInternalServerError {
		level = slog.LevelWarn
	}
	if !s.Logger.Enabled(r.Context(), level) {
		return
	}
	s.Logger.Log(r.Context(), level, "request", "request_id", i.requestID, "method", r.Method, "path", r.URL.Path,
		"status", rec.status, "code", i.code, "bytes", rec.bytes, "took", took, "principal", i.principal.ID, "replayed", i.replayed)
}

// access says who may use a route.
type access int

const (
	accessPublic access = iota // anybody, without a credential
	accessUser                 // users too; the handler narrows them to what is their own
	accessStaff                // admin and service keys, and to read, readers' keys
	accessAdmin                // admin keys, and to read, readers' keys
)

// permits reports whether a role may use a route at all, with that method.
func (a access) permits(role auth.Role, method string) bool {
	switch role {
	case auth.RoleAdmin:
		return true
	case auth.RoleService:
		return a != accessAdmin
	case auth.RoleReader:
		return method == http.MethodGet || method == http.MethodHead
	case auth.RoleUser:
		return a == accessPublic || a == accessUser
	}
	return false
}

// says is permits for people, in the contract's document.
func (a access) says(method string) string {
	readers := ""
	if method == http.MethodGet {
		readers = " and reader"
	}
	switch a {
	case accessPublic:
	case accessUser:
		return "For users, within what is theirs or published, and for admin, service" + readers + " keys."
	case accessStaff:
		return "For admin, service" + readers + " keys."
	case accessAdmin:
		return "For admin" + readers + " keys."
	}
	return ""
}

// serve adapts a handler: it notes the pattern, so that metrics have one label value a route and not one an id, lets those
// pass who may use the route, and answers with the problem that an error is. weight is how many requests one counts as.
func (s *Server) serve(pattern string, weight int, a access, next handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		infoOf(r).route = pattern
		var err error
		if a != accessPublic {
			err = s.admit(w, r, max(weight, 1), a)
		}
		if err == nil {
			err = checkURL(r.URL)
		}
		if err == nil {
			err = next(w, r)
		}
		if err != nil {
			s.writeProblem(w, r, err)
		}
	}
}

// admit finds out who asks, counts the request against their rate, and refuses those who may not use the route. It comes before
// everything that depends on state or on the request's content, so that its refusals tell nothing about either.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, weight int, a access) error {
	credential, err := credentialOf(r)
	if err == nil && strings.HasPrefix(credential, sessionScheme) {
		err = s.checkSameOrigin(r)
	}
	if err != nil {
		return err
	}
	i := infoOf(r)
	if i.principal, err = s.identify(r.Context(), credential); err != nil {
		return err
	}
	if s.Limiter != nil {
		d := s.Limiter.AllowN(i.principal, weight)
		if s.Limiter.SetHeaders(w.Header(), d); !d.Allowed {
			return errRate(d)
		}
	}
	if !a.permits(i.principal.Role, r.Method) {
		return &refusal{Kind: edge.Forbidden, Detail: "this route is not open to this credential"}
	}
	return nil
}

// errRate refuses what is too much for its sender's rate.
func errRate(d auth.Decision) error {
	return &refusal{Kind: edge.RateLimited, Detail: "the rate limit of this credential is used up", RetryAfter: d.RetryAfter}
}

// seesDrafts reports whether campaigns and auctions that were never opened exist for somebody: for staff alone.
func seesDrafts(p auth.Principal) bool { return p.Role.KeyRole() }

// actFor refuses to let a principal move what belongs to an account that it may not act for.
func actFor(p auth.Principal, account string) error { return ownOnly(p.MayActFor(account)) }

// ownOnly refuses what a principal may not do with an account.
func ownOnly(may bool) error {
	if !may {
		return &refusal{Kind: edge.Forbidden, Detail: "this credential may act for its own account only"}
	}
	return nil
}

// httpMetrics are the edge's own; each service brings its own too.
type httpMetrics struct {
	requests, documents, heavyRefused, unready *prometheus.CounterVec
	problems                                   *prometheus.CounterVec
	duration                                   *prometheus.HistogramVec
	heavyRunning, heavyWaiting                 *prometheus.GaugeVec
	refusedConnections, replays                prometheus.Counter
}

func newHTTPMetrics(r prometheus.Registerer) *httpMetrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauges := func(name, help string) *prometheus.GaugeVec {
		return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"kind"})
	}
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(r).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &httpMetrics{
		problems: counters("fairlead_problems_total", "Problems answered, over HTTP and sockets, by code; a stored answer that is given again is not counted.", "code"),
		requests: counters("fairlead_http_requests_total", "Answered requests by method, route and status.", "method", "route", "status"),
		duration: promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_http_request_duration_seconds", Help: "Time from the request's header to the end of its answer. Streams of events are left out, and requests for locks with a wait: their clients decide how long they take.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"}),
		documents:          counters("fairlead_documents_built_total", "Documents of drawn campaigns, and trees for inclusion proofs, that were made.", "document"),
		heavyRunning:       gauges("fairlead_heavy_reads_running", "Heavy reads under way: build, proof, public, scan, or check."),
		heavyWaiting:       gauges("fairlead_heavy_reads_waiting", "Heavy reads that wait for their turn."),
		heavyRefused:       counters("fairlead_heavy_reads_refused_total", "Heavy reads refused because too many waited, or for too long.", "kind"),
		unready:            counters("fairlead_unready_total", "Answers of /readyz that commands are not served, by reason.", "reason"),
		refusedConnections: counter("fairlead_http_refused_connections_total", "Connections that were not taken: too many were open, or no descriptor was left."),
		replays:            counter("fairlead_idempotency_replays_total", "Commands answered with the stored answer of an earlier request with their key."),
	}
	for _, row := range problems {
		m.problems.WithLabelValues(row.kind.Code)
	}
	return m
}

// refused counts a command that was refused, by the code in its answer. No text of a client looks like that member: its quotes are
// escaped.
func (m *httpMetrics) refused(answer []byte) {
	_, rest, _ := bytes.Cut(answer, []byte(`"code":"`))
	if code, _, found := bytes.Cut(rest, []byte(`"`)); found {
		m.problems.WithLabelValues(string(code)).Inc()
	}
}

func (m *httpMetrics) request(method, route string, status int) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "other" // A client may not invent label values.
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
}

// The problems of requests that are refused before anything else is looked at.
//
//nolint:gochecknoglobals // As the table of problems.
var (
	foreignHost  = kind{Status: http.StatusMisdirectedRequest, Code: "foreign_host", Title: "The server does not answer to this host's name"}
	tooManyConns = kind{Status: http.StatusServiceUnavailable, Code: "overloaded", Title: "The server has as many connections as it may have", Retryable: true}

	headersTooLarge = kind{Status: http.StatusRequestHeaderFieldsTooLarge, Code: "headers_too_large", Title: "The headers of the request are too large"}
)

// checkDoor refuses what no honest client sends.
func checkDoor(w http.ResponseWriter, r *http.Request) error {
	if leanhttp.Ambiguous(r.Context()) {
		w.Header().Set("Connection", "close") // Nobody knows where its next request begins.
		return refuse("a request must not have both Content-Length and Transfer-Encoding")
	}
	hosts, ok := r.Context().Value(hostsKey{}).(*hosts)
	if ok && !hosts.answersTo(r.Host) {
		return &refusal{Kind: foreignHost, Detail: "the Host header is not one of this server's; --allowed-hosts names more"}
	}
	return nil
}

type hostsKey struct{}

// hosts are the names that a listener answers to. A page of somebody else whose own name was made to lead to a loopback address
// (DNS rebinding) is of one origin with the server as far as the browser knows, and only its Host header tells.
type hosts struct {
	names map[string]struct{}
	own   netip.Addr // the listener's
}

// anyHost is what allows every name.
const anyHost = "*"

// hostsOf returns the names that a listener answers to, nil for all: a loopback one to those of the machine itself and to those
// allowed, any other to all unless some are named.
func hostsOf(l net.Addr, allowed []string) *hosts {
	tcp, ok := l.(*net.TCPAddr)
	if !ok || len(allowed) == 0 && !tcp.IP.IsLoopback() {
		return nil
	}
	h := &hosts{names: map[string]struct{}{"localhost": {}}, own: tcp.AddrPort().Addr().Unmap()}
	for _, name := range allowed {
		if name == anyHost {
			return nil
		}
		h.names[hostname(name)] = struct{}{}
	}
	return h
}

// answersTo reports whether a Host header is one of those. A client that sends none is no browser.
func (h *hosts) answersTo(host string) bool {
	name := hostname(host)
	if _, ok := h.names[name]; ok || host == "" {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && (ip.Unmap().IsLoopback() || ip.Unmap() == h.own)
}

// hostname is a host without its port, in the one way to spell it.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")), ".")
}

// reservedDescriptors is how many descriptors are kept from connections, for the database, files and all else.
const reservedDescriptors = 256

// connectionsFor is how many connections may be open in a process that may have this many file descriptors.
func connectionsFor(descriptors int) int {
	return max(descriptors-max(reservedDescriptors, descriptors/8), descriptors/2)
}

// fullAnswer answers a connection when there is no room for it.
func fullAnswer() []byte {
	return lastAnswer(tooManyConns, "no more connections are taken for now", "", fmt.Sprintf("Retry-After: %d\r\n", retryAfterSeconds))
}

// unreadableAnswer answers a request that net/http can't read, so that no handler sees it.
func unreadableAnswer(status int, reason string) []byte {
	id := uuid.Must(uuid.NewV7()).String()
	header := "X-Request-Id: " + id + "\r\n"
	switch status {
	case http.StatusRequestHeaderFieldsTooLarge:
		return lastAnswer(headersTooLarge, fmt.Sprintf("the request line and the headers exceed %d bytes", maxHeaderBytes), id, header)
	case http.StatusNotImplemented:
		reason = "the only transfer encoding is chunked"
	case http.StatusExpectationFailed:
		reason = "the only expectation is 100-continue"
	}
	return lastAnswer(edge.BadRequest, cmp.Or(reason, "the request line or a header can't be read"), id, header)
}

// lastAnswer is a problem as the whole answer on a connection that then ends. headers are more lines of its head.
func lastAnswer(k kind, detail, requestID, headers string) []byte {
	body := mustMarshal(problemOf(&refusal{Kind: k, Detail: detail}, requestID))
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n%sConnection: close\r\n\r\n%s",
		k.Status, http.StatusText(k.Status), contentTypeProblem, len(body), headers, body)
}

// refusedConnections tells of connections that were not taken, at most once a second.
func (s *Server) refusedConnections(connections int, why error) {
	s.metrics.refusedConnections.Add(float64(connections))
	s.Logger.WarnContext(context.Background(), "connections refused", "connections", connections, "error", why)
}
