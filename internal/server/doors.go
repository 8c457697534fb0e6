package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/leanhttp"
)

// The problems of requests that are refused before anything else is looked at.
//
//nolint:gochecknoglobals // As the table of problems.
var (
	foreignHost  = kind{Status: http.StatusMisdirectedRequest, Code: "foreign_host", Title: "The server does not answer to this host's name"}
	tooManyConns = kind{Status: http.StatusServiceUnavailable, Code: "overloaded", Title: "The server has as many connections as it may have", Retryable: true}
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
	body := mustMarshal(problemOf(&refusal{Kind: tooManyConns, Detail: "no more connections are taken for now"}, ""))
	return fmt.Appendf(nil, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: %s\r\nContent-Length: %d\r\nRetry-After: %s\r\nConnection: close\r\n\r\n%s",
		contentTypeProblem, len(body), strconv.Itoa(retryAfterSeconds), body)
}

// refusedConnections tells of connections that were not taken, at most once a second.
func (s *Server) refusedConnections(connections int, why error) {
	s.metrics.refusedConnections.Add(float64(connections))
	s.Logger.WarnContext(context.Background(), "connections refused", "connections", connections, "error", why)
}
