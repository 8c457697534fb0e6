package server

import (
	"bytes"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

func (c *checks) reference(value *string) {
	if value != nil {
		c.name("reference", *value)
	}
}

// once is the route of a request that may have a reference. One that only repeats an earlier request is answered as that one was, but
// with 200.
func once[Req, R, V any](path string, a access, summary string, view func(R) V, m mutation[Req, ledger.Op]) route {
	first, again := answered(http.StatusCreated, view), answered(http.StatusOK, view)
	m.answer = func(result any) (int, []byte) {
		if repeated, ok := result.(ledger.Repeated); ok {
			return again(repeated.First)
		}
		return first(result)
	}
	r := commandRoute(path, a, http.StatusCreated, summary, view, m)
	r.doc.repeats = true
	return r
}

// referenced lists the transfer that has the reference. Users see it if one of its accounts is theirs.
func (s *Server) referenced(r *http.Request, before uuid.UUID, _ int) ([]ledger.Transfer, error) {
	reference, err := one(r, "reference")
	if err != nil {
		return nil, err
	}
	var c checks
	if c.name("reference", reference); c.err != nil {
		return nil, c.err
	}
	found, err := s.Ledger.Referenced(r.Context(), reference)
	var shown []ledger.Transfer
	for _, f := range found {
		p := infoOf(r).principal
		foreign := p.Role == auth.RoleUser && !slices.ContainsFunc(f.Parties(), p.MayActFor)
		if !foreign && bytes.Compare(f.ID[:], before[:]) < 0 {
			shown = append(shown, f.Transfer)
		}
	}
	return shown, err
}
