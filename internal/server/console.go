package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/console"
	"github.com/fairlead-dev/fairlead/internal/operator"
)

// Sessions keeps who is signed in to the console.
type Sessions interface {
	// Begin and UseLink write down what is to be audited in the session's own transaction.
	Begin(ctx context.Context, hash operator.Hash, key string, life time.Duration, audit ...command.Audit) (operator.Session, error)
	UseLink(ctx context.Context, link, hash operator.Hash, life time.Duration, audit ...command.Audit) (operator.Session, error)
	// SignInRefused writes down that somebody was not signed in.
	SignInRefused(ctx context.Context, a command.Audit) error
	Session(ctx context.Context, hash operator.Hash) (operator.Session, error)
	End(ctx context.Context, hash operator.Hash) error
}

// The problems of the console.
//
//nolint:gochecknoglobals // As the table of problems.
var (
	linkUsed    = kind{Status: http.StatusGone, Code: "link_used", Title: "The link is used up or has expired"}
	crossOrigin = kind{Status: http.StatusForbidden, Code: "cross_origin", Title: "A session acts for the console's own pages alone"}
	notAnAdmin  = kind{Status: http.StatusForbidden, Code: "admin_key_needed", Title: "The console takes admin keys alone"}
)

// What pages may do. Scripts, styles and connections are the server's own: no inline script or style, nothing from elsewhere.
// Public pages may be framed by anybody, and carry no session that a frame could misuse; the console by nobody.
const (
	contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; " +
		"manifest-src 'self'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types fairlead"
	consolePolicy = contentPolicy + "; frame-ancestors 'none'"
	publicPolicy  = contentPolicy + "; frame-ancestors *"
)

const (
	consoleRoot = "/console/"
	assetRoot   = consoleRoot + "assets/"
	sessionPath = consoleRoot + "session"
)

// consoleRoutes adds the console to the router. It is no part of the contract: its pages and its sign-in serve browsers.
func (s *Server) consoleRoutes(mux *http.ServeMux) {
	handle := func(pattern string, h handler) {
		_, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(pattern, s.serve(path, 0, accessPublic, h))
	}
	redirect := func(w http.ResponseWriter, r *http.Request) error {
		http.Redirect(w, r, consoleRoot, http.StatusSeeOther)
		return nil
	}
	handle("GET /{$}", redirect)
	handle("GET /console", redirect)
	// The page comes whatever is behind the path: its own script looks.
	handle("GET "+consoleRoot+"{page...}", func(w http.ResponseWriter, r *http.Request) error {
		return writeConsolePage(w, r, console.Page, consolePolicy, http.StatusOK)
	})
	handle("GET "+assetRoot+"{asset...}", getConsoleAsset)
	handle("GET "+sessionPath, s.getSession)
	handle("POST "+sessionPath, s.postSession)
	handle("DELETE "+sessionPath, s.deleteSession)
}

func writeConsolePage(w http.ResponseWriter, r *http.Request, name, policy string, status int) error {
	asset, ok := console.Find(name)
	if !ok {
		return errors.New("the page is not in the binary")
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=()")
	asset.Serve(w, r, status)
	return nil
}

func getConsoleAsset(w http.ResponseWriter, r *http.Request) error {
	asset, ok := console.Find(r.PathValue("asset"))
	if !ok || asset.IsPage() {
		return noSuchPath(w, r)
	}
	// The worker that verifies proofs is held to what its page is held to.
	w.Header().Set("Content-Security-Policy", consolePolicy)
	asset.Serve(w, r, http.StatusOK)
	return nil
}
