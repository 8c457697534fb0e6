package server

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/console"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// Sessions keeps who is signed in to the console.
type Sessions interface {
	// Begin and UseLink write down what is to be audited in the session's own transaction.
	Begin(ctx context.Context, hash operator.Hash, key string, life time.Duration, audit ...command.Audit) (operator.Session, error)
	UseLink(ctx context.Context, link, hash operator.Hash, life time.Duration, audit ...command.Audit) (operator.Session, error)
	// SignInRefused writes down that somebody was not signed in.
	SignInRefused(ctx context.Context, a command.Audit) error
	Session(ctx context.Context, hash operator.Hash) (operator.Session, error)
	// MakeLinkOf makes a link of the admin key with that id, and writes down what is to be audited in the same transaction.
	MakeLinkOf(ctx context.Context, hash operator.Hash, key string, life time.Duration, audit ...command.Audit) error
	End(ctx context.Context, hash operator.Hash) error
}

// The problems of the console.
//
//nolint:gochecknoglobals // As the table of problems.
var (
	linkUsed    = kind{Status: http.StatusGone, Code: "link_used", Title: "The link is used up or has expired"}
	crossOrigin = kind{Status: http.StatusForbidden, Code: "cross_origin", Title: "A session acts for the console's own pages alone"}
	notAnAdmin  = kind{Status: http.StatusForbidden, Code: "admin_key_needed", Title: "The console takes admin and reader keys alone"}
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
	linksPath   = consoleRoot + "links"
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
	mux.HandleFunc("POST "+linksPath, s.serve(linksPath, 1, accessAdmin, s.postLink))
}

func writeConsolePage(w http.ResponseWriter, r *http.Request, name, policy string, status int) error {
	asset, ok := console.Assets()[name]
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
	asset, ok := console.Assets()[r.PathValue("asset")]
	if !ok || asset.IsPage() {
		return noSuchPath(w, r)
	}
	// The worker that verifies proofs is held to what its page is held to.
	w.Header().Set("Content-Security-Policy", consolePolicy)
	asset.Serve(w, r, http.StatusOK)
	return nil
}

const (
	sessionCookie = "fairlead_session"
	// sessionScheme begins what stands for a session where a credential is kept, as Bearer begins a key. No client can send it in
	// an Authorization header: it has a character that no header may have.
	sessionScheme = "\x00session "
	// Limits of the body of a sign-in: a key has at most 512 characters.
	maxSignIn, signInTimeout = 4 << 10, 5 * time.Second
	// Limits of the sign-ins from one address, of those refused and the others.
	signInQuota, signInWindow = 30, time.Minute
)

// signInRequest carries either an admin or reader key or what a link carries.
type signInRequest struct {
	Key  *string `json:"key,omitempty"`
	Link *string `json:"link,omitempty"`
}

type sessionView struct {
	Name      string    `json:"name"`
	Role      auth.Role `json:"role"`
	Principal string    `json:"principal"`
	ExpiresAt timestamp `json:"expires_at"`
	Version   string    `json:"version"`
}

func (s *Server) viewSession(x operator.Session) sessionView {
	return sessionView{Name: x.Key.Name, Role: x.Key.Role, Principal: "key:" + x.Key.ID, ExpiresAt: timestamp(x.ExpiresAt), Version: s.Version}
}

// sessionOf finds the session cookie of a request, as a credential; empty where there is none.
func sessionOf(r *http.Request) string {
	c, err := r.Cookie(sessionCookie)
	if err != nil || c.Value == "" {
		return ""
	}
	return sessionScheme + c.Value
}

// identify finds out who a credential is of, a session's or any other.
func (s *Server) identify(ctx context.Context, credential string) (auth.Principal, error) {
	secret, ok := strings.CutPrefix(credential, sessionScheme)
	if !ok {
		return s.Auth.Authenticate(ctx, credential)
	}
	if s.Sessions == nil {
		return auth.Principal{}, auth.ErrBadCredential
	}
	x, err := s.Sessions.Session(ctx, operator.HashOf(secret))
	switch {
	case errors.Is(err, operator.ErrNoSession):
		return auth.Principal{}, auth.ErrBadCredential
	case err != nil:
		return auth.Principal{}, err
	}
	return auth.Principal{Role: x.Key.Role, ID: "key:" + x.Key.ID, Name: x.Key.Name}, nil
}

// checkSameOrigin refuses what a page of somebody else would do with the visitor's session. A socket counts as an action,
// since it takes bids.
func (s *Server) checkSameOrigin(r *http.Request) error {
	if r.Method == http.MethodGet && r.Header.Get("Upgrade") != "" {
		action := *r
		action.Method = http.MethodPost
		r = &action
	}
	if err := s.sameOrigin.Check(r); err != nil {
		return &refusal{Kind: crossOrigin, Detail: "the request comes from a page of another origin"}
	}
	return nil
}

func (s *Server) getSession(w http.ResponseWriter, r *http.Request) error {
	secret := strings.TrimPrefix(sessionOf(r), sessionScheme)
	x, err := s.Sessions.Session(r.Context(), operator.HashOf(secret))
	if errors.Is(err, operator.ErrNoSession) {
		// Nothing went wrong: a page asks whether it has to show the sign-in.
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	return writeView(w, s.viewSession(x))
}

func (s *Server) postSession(w http.ResponseWriter, r *http.Request) error {
	x, secret, err := s.signIn(w, r)
	if err != nil {
		s.auditRefusal(r, err)
		return err
	}
	http.SetCookie(w, s.cookie(r, secret, x.ExpiresAt))
	return writeView(w, s.viewSession(x))
}

func (s *Server) signIn(w http.ResponseWriter, r *http.Request) (x operator.Session, secret string, err error) {
	if err := s.checkSameOrigin(r); err != nil {
		return x, "", err
	}
	audit := command.Audit{RequestID: infoOf(r).requestID, Action: "session.begin", Object: addressOf(r)}
	body, err := readSignIn(w, r)
	if err != nil {
		return x, "", err
	}
	var req signInRequest
	if err := edge.Decode(body, &req); err != nil {
		return x, "", err
	}
	secret, hash := operator.NewSecret()
	switch {
	case (req.Key == nil) == (req.Link == nil):
		return x, "", refuse("exactly one of key and link is needed")
	case req.Link != nil:
		if err := s.countSignIn(w, r); err != nil {
			return x, "", err
		}
		x, err = s.Sessions.UseLink(r.Context(), operator.HashOf(*req.Link), hash, operator.SessionLife, audit)
		if errors.Is(err, operator.ErrLinkUsed) || errors.Is(err, operator.ErrNoSession) {
			err = &refusal{Kind: linkUsed, Detail: "the link is used up or has expired; sign in with an admin key, or make another link with fairlead console"}
		}
		return x, secret, err
	}
	// A token would not do even if it were an administrator's: a session belongs to a key that can be revoked.
	p, err := s.Auth.Authenticate(r.Context(), "Bearer "+strings.TrimSpace(*req.Key))
	id, isKey := strings.CutPrefix(p.ID, "key:")
	if err == nil && (!isKey || !p.IsAdmin() && p.Role != auth.RoleReader) {
		err = &refusal{Kind: notAnAdmin, Detail: "sign in with an admin key, or with a reader key to look only"}
	}
	if err != nil {
		// Behind a proxy all visitors have one address: wrong keys must not keep the right one out.
		return x, "", cmp.Or(s.countSignIn(w, r), err)
	}
	x, err = s.Sessions.Begin(r.Context(), hash, id, operator.SessionLife, audit)
	if errors.Is(err, operator.ErrNoSession) {
		err = auth.ErrBadCredential // It was revoked a moment ago.
	}
	return x, secret, err
}

// countSignIn counts a sign-in by a link, or with a wrong key, against the rate of the address that it comes from.
func (s *Server) countSignIn(w http.ResponseWriter, r *http.Request) error {
	d := s.signIns.Allow(auth.Principal{Role: auth.RoleUser, ID: addressOf(r)})
	if s.signIns.SetHeaders(w.Header(), d); !d.Allowed {
		return &refusal{Kind: edge.RateLimited, Detail: "too many sign-ins came from this address"}
	}
	return nil
}

// linkRequest has the hash of a link's secret, as that of a key: the secret does not leave who has made it.
type linkRequest struct {
	Hash string `json:"hash"`
}

type linkView struct {
	ExpiresIn string `json:"expires_in"`
}

// postLink makes a link that signs in once with the rights of the admin key that asks: fairlead console --url has no database.
func (s *Server) postLink(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, maxSignIn)
	if err != nil {
		return err
	}
	var req linkRequest
	if err := edge.Decode(body, &req); err != nil {
		return err
	}
	var hash operator.Hash
	if digest, err := hex.DecodeString(req.Hash); err != nil || copy(hash[:], digest) != len(hash) || len(digest) != len(hash) {
		return refuse("hash must be the SHA-256 of a secret that you made, as %d hexadecimal digits", hex.EncodedLen(len(hash)))
	}
	id, isKey := strings.CutPrefix(infoOf(r).principal.ID, "key:")
	if !isKey {
		return &refusal{Kind: notAnAdmin, Detail: "a link is made with an admin key"}
	}
	audit := command.Audit{RequestID: infoOf(r).requestID, Action: "link.create", Object: addressOf(r)}
	if err := s.Sessions.MakeLinkOf(r.Context(), hash, id, operator.LinkLife, audit); errors.Is(err, operator.ErrNoSession) {
		return auth.ErrBadCredential // It was revoked a moment ago.
	} else if err != nil {
		return err
	}
	writeBody(w, http.StatusCreated, mustMarshal(linkView{ExpiresIn: operator.LinkLife.String()}))
	return nil
}

// auditRefusal writes a sign-in down that was refused for what it showed. What was malformed, or came too often, is not.
func (s *Server) auditRefusal(r *http.Request, err error) {
	switch p := problemOf(err, ""); p.Code {
	case unauthorized.Code, notAnAdmin.Code, linkUsed.Code:
		row := command.Audit{Principal: "unknown", RequestID: infoOf(r).requestID, Action: "session.refused", Object: addressOf(r)}
		if err := s.Sessions.SignInRefused(r.Context(), row); err != nil {
			s.Logger.WarnContext(r.Context(), "a refused sign-in could not be audited", "request_id", row.RequestID, "address", row.Object, "error", err)
		}
	}
}

// addressOf is where a request comes from: an IPv4 address, or the network of an IPv6 one, of which anybody has as many as they
// like. Behind a proxy it is the proxy's: the headers in which proxies tell of others can be made up.
func addressOf(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "address:" + r.RemoteAddr
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return "address:" + ip.String()
	}
	const network = 64
	prefix, _ := ip.Prefix(network) // Every IPv6 address has one.
	return "address:" + prefix.String()
}

// readSignIn reads the body of a sign-in, the one body that is read of somebody unknown: little of it, and not for long.
func readSignIn(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(signInTimeout)); err != nil {
		return nil, err //nolint:wrapcheck // It becomes an internal error as it is.
	}
	body, err := readBody(w, r, maxSignIn)
	if err == nil {
		err = rc.SetReadDeadline(time.Time{}) // The connection is watched on while the database is asked.
	}
	return body, err //nolint:wrapcheck // As above.
}

func (s *Server) deleteSession(w http.ResponseWriter, r *http.Request) error {
	if err := s.checkSameOrigin(r); err != nil {
		return err
	}
	if credential := sessionOf(r); credential != "" {
		if err := s.Sessions.End(r.Context(), operator.HashOf(strings.TrimPrefix(credential, sessionScheme))); err != nil {
			return err
		}
	}
	http.SetCookie(w, s.cookie(r, "", time.Unix(1, 0)))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// cookie makes the session's cookie. It is marked Secure wherever the visitor came by TLS, also by way of a proxy that says so:
// to believe a false one would only keep the cookie from being sent.
func (s *Server) cookie(r *http.Request, value string, expires time.Time) *http.Cookie {
	secure := r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
	//nolint:gosec // Secure is set wherever there is TLS; without it, on a loopback address, the cookie would never be sent.
	return &http.Cookie{
		Name: sessionCookie, Value: value, Path: "/", Expires: expires.UTC(), HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	}
}
