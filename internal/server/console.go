package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/console"
	"github.com/fairlead-dev/fairlead/internal/desk"
)

// Sessions keeps who is signed in to the console.
type Sessions interface {
	// Begin and UseLink write down what is to be audited in the session's own transaction.
	Begin(ctx context.Context, hash desk.Hash, key string, life time.Duration, audit ...command.Audit) (desk.Session, error)
	UseLink(ctx context.Context, link, hash desk.Hash, life time.Duration, audit ...command.Audit) (desk.Session, error)
	// SignInRefused writes down that somebody was not signed in.
	SignInRefused(ctx context.Context, a command.Audit) error
	Session(ctx context.Context, hash desk.Hash) (desk.Session, error)
	End(ctx context.Context, hash desk.Hash) error
}

// The problems of the console.
//
//nolint:gochecknoglobals // As the table of problems.
var (
	linkUsed    = kind{status: http.StatusGone, code: "link_used", title: "The link is used up or has expired"}
	crossOrigin = kind{status: http.StatusForbidden, code: "cross_origin", title: "A session acts for the console's own pages alone"}
	notAnAdmin  = kind{status: http.StatusForbidden, code: "admin_key_needed", title: "The console takes admin keys alone"}
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
	consoleRoot  = "/console/"
	assetRoot    = consoleRoot + "assets/"
	sessionPath  = consoleRoot + "session"
	publicPrefix = "/p/"
)

// consoleRoutes adds the console to the router. It is no part of the contract: its pages and its sign-in serve browsers.
func (s *Server) consoleRoutes(mux *http.ServeMux) {
	handle := func(pattern string, h http.HandlerFunc) {
		_, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(pattern, s.named(path, s.legible(h)))
	}
	handle("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, consoleRoot, http.StatusSeeOther) })
	handle("GET /console", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, consoleRoot, http.StatusSeeOther) })
	handle("GET "+consoleRoot+"{page...}", s.page(console.Page, consolePolicy))
	handle("GET "+assetRoot+"{asset...}", s.getConsoleAsset)
	handle("GET "+sessionPath, s.getSession)
	handle("POST "+sessionPath, s.postSession)
	handle("DELETE "+sessionPath, s.deleteSession)
}

// page serves a page, whatever is behind the path: the page's own script looks.
func (s *Server) page(name, policy string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { s.writePage(w, r, name, policy, http.StatusOK) }
}

func (s *Server) writePage(w http.ResponseWriter, r *http.Request, name, policy string, status int) {
	asset, ok := console.Find(name)
	if !ok {
		s.writeProblem(w, r, errors.New("the page is not in the binary"))
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=()")
	asset.Serve(w, r, status)
}

func (s *Server) getConsoleAsset(w http.ResponseWriter, r *http.Request) {
	asset, ok := console.Find(r.PathValue("asset"))
	if !ok || asset.IsPage() {
		s.writeProblem(w, r, &refusal{kind: notFound, detail: "there is no such path"})
		return
	}
	// The worker that verifies proofs is held to what its page is held to.
	w.Header().Set("Content-Security-Policy", consolePolicy)
	asset.Serve(w, r, http.StatusOK)
}
