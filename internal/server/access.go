package server

import (
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/auth"
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

// guard authenticates, then lets those pass who may use the route. It comes before everything that depends on state or
// on the request's content, so that its refusals tell nothing about either.
func (s *Server) guard(a access, next http.HandlerFunc) http.HandlerFunc {
	next = s.legible(next)
	if a == accessPublic {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.authenticate(w, r) {
			return
		}
		p := infoOf(r).principal
		if !a.permits(p.Role) {
			s.writeProblem(w, r, &refusal{kind: forbidden, detail: "this route is not open to this credential"})
			return
		}
		next(w, r)
	}
}

// authenticate finds out who asks and counts the request against their rate. It has answered when it returns false.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request) bool {
	credential, err := credentialOf(r)
	if err == nil && strings.HasPrefix(credential, sessionScheme) {
		err = s.checkSameOrigin(r)
	}
	if err != nil {
		s.writeProblem(w, r, err)
		return false
	}
	p, err := s.identify(r.Context(), credential)
	if err != nil {
		s.writeProblem(w, r, err)
		return false
	}
	infoOf(r).principal = p
	if s.limiter == nil {
		return true
	}
	d := s.limiter.AllowN(p, max(infoOf(r).weight, 1))
	s.limiter.SetHeaders(w.Header(), d)
	if !d.Allowed {
		s.writeProblem(w, r, &refusal{kind: rateLimited, detail: "the rate limit of this credential is used up"})
		return false
	}
	return true
}

// seesDrafts reports whether campaigns and auctions that were never opened exist for somebody: for staff alone.
func seesDrafts(p auth.Principal) bool { return p.Role.KeyRole() }

// actFor refuses a user who names another's account.
func actFor(p auth.Principal, account string) error {
	if !p.MayActFor(account) {
		return &refusal{kind: forbidden, detail: "this credential may act for its own account only"}
	}
	return nil
}
