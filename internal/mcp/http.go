package mcp

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Path is where [Handler] answers.
const Path = "/mcp"

// maxRequestBytes is the most that one message may have: a publication's payload and what is around it.
const maxRequestBytes = 1 << 20

// Handler serves the protocol's streamable HTTP. Where token is not empty, a request needs it as its bearer token. A page in a browser
// is refused unless it is of the same origin; on a loopback address, so is a request for a host of another name, as a page that has
// rebound its own name sends it. Requests have no session, so that any of them can come after a restart.
func Handler(server *sdk.Server, token string, logger *slog.Logger) http.Handler {
	protocol := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxRequestBytes, Logger: logger,
	})
	mux := http.NewServeMux()
	mux.Handle(Path, authorized(token, protocol))
	return http.NewCrossOriginProtection().Handler(mux)
}

// authorized wants a bearer token.
func authorized(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(given))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "give the token that fairlead mcp was started with as Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
