package server

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
)

// mutation is a route that changes something: a typed body, a check, and a way to the service that decides it.
type mutation[Req, Op any] struct {
	status int // of success
	// op checks the request and makes the operation of it. Its errors are refusals; it touches no state.
	op func(r *http.Request, req *Req) (Op, error)
	// account names the account that a user must own, where the route is open to users.
	account func(req *Req) string
	// execute brings the command to its service.
	execute func(ctx context.Context, c command.Command[Op]) (command.Answer, error)
	// view makes the answer's document of the service's result.
	view func(result any) any
}

// commandTimeout is how long a caller waits for its command at most. It is longer than a transaction is tried again, so
// that a caller who is told nothing definite is the exception.
const commandTimeout = 30 * time.Second

// mutate serves a mutation. The order of its checks is the contract's: key, body, whose account, then state.
func mutate[Req, Op any](s *Server, m mutation[Req, Op]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := readCommand(w, r, &m)
		if err != nil {
			s.writeProblem(w, r, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), commandTimeout)
		defer cancel()
		a, err := m.execute(ctx, c)
		if err != nil {
			s.writeProblem(w, r, err)
			return
		}
		writeAnswer(w, r, a)
	}
}

func readCommand[Req, Op any](w http.ResponseWriter, r *http.Request, m *mutation[Req, Op]) (c command.Command[Op], err error) {
	key, err := parseKey(r.Header)
	if err != nil {
		return c, err
	}
	body, err := readBody(w, r)
	if err != nil {
		return c, err
	}
	var req Req
	if err := decode(body, &req); err != nil {
		return c, err
	}
	op, err := m.op(r, &req)
	if err != nil {
		return c, err
	}
	i := infoOf(r)
	if i.principal.Role == auth.RoleUser {
		if m.account == nil {
			return c, &refusal{kind: forbidden, detail: "this route is not open to users"}
		}
		if err := actFor(i.principal, m.account(&req)); err != nil {
			return c, err
		}
	}
	return command.Command[Op]{
		Op: op,
		Key: &idempotency.Request{
			ID: idempotency.NewID(i.principal.ID, r.Method, r.URL.Path, key),
			// The decoded request, encoded again, is the canonical form: white space, member order and a null for an
			// absent member make no other request.
			Fingerprint: idempotency.NewFingerprint(mustMarshal(&req)),
			Execution:   uuid.Must(uuid.NewV7()),
		},
		Render:    renderer(m.status, m.view, i.requestID),
		Principal: i.principal.ID,
		RequestID: i.requestID,
		Operator:  i.principal.Role == auth.RoleAdmin,
	}, nil
}

// parseKey reads the one Idempotency-Key header.
func parseKey(h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	if len(values) != 1 {
		return "", idempotency.ErrMalformedKey
	}
	return idempotency.ParseKey(values[0])
}

// renderer speaks a service's outcome. It runs inside the transaction, more than once if that is run again.
func renderer(status int, view func(any) any, requestID string) command.Render {
	return func(result any, err error) command.Rendered {
		if err != nil {
			p := problemOf(err, requestID)
			return command.Rendered{Status: p.Status, Body: mustMarshal(p), Decided: decided(p)}
		}
		return command.Rendered{Status: status, Body: mustMarshal(view(result)), Decided: true}
	}
}

// noFields is the body of a route without fields.
type noFields struct{}
