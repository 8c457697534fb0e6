package server

import (
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// access says who may use a route.
type access int

const (
	accessPublic access = iota // anybody, without a credential
	accessUser                 // users too; the handler narrows them to their own account where one is named
	accessStaff                // admin and service keys
	accessAdmin                // admin keys
)

// permits reports whether a role may use a route at all.
func (a access) permits(role auth.Role) bool {
	switch a {
	case accessPublic, accessUser:
		return true
	case accessStaff:
		return role == auth.RoleAdmin || role == auth.RoleService
	case accessAdmin:
		return role == auth.RoleAdmin
	}
	return false
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
			return errRate()
		}
	}
	if !a.permits(i.principal.Role) {
		return &refusal{Kind: edge.Forbidden, Detail: "this route is not open to this credential"}
	}
	return nil
}

func errRate() error {
	return &refusal{Kind: edge.RateLimited, Detail: "the rate limit of this credential is used up"}
}

// seesDrafts reports whether campaigns and auctions that were never opened exist for somebody: for staff alone.
func seesDrafts(p auth.Principal) bool { return p.Role.KeyRole() }

// actFor refuses a user who names another's account.
func actFor(p auth.Principal, account string) error {
	if !p.MayActFor(account) {
		return &refusal{Kind: edge.Forbidden, Detail: "this credential may act for its own account only"}
	}
	return nil
}
