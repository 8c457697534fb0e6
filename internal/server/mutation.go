package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// mutation is a route that changes something: a typed body, a check, and a way to the service that decides it.
type mutation[Req, Op any] struct {
	status int // of success
	// op checks the request and makes the operation of it. Its errors are refusals; it touches no state.
	op func(r *http.Request, req *Req) (Op, error)
	// account names the account that a user must own, where the route is open to users.
	account func(req *Req) string
	// execute brings the command to its service. Where the path names a thing, executeOn does, and what names the thing's kind.
	execute   func(ctx context.Context, c command.Command[Op]) (command.Answer, error)
	executeOn func(ctx context.Context, id uuid.UUID, c command.Command[Op]) (command.Answer, error)
	what      string
	// view makes the answer's document of the service's result.
	view func(result any) any
}

// mutate serves a mutation. The order of its checks is the contract's: key, body, whose account, then state.
func mutate[Req, Op any](m mutation[Req, Op]) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, err := readCommand(w, r, &m)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(r.Context(), edge.CommandTimeout)
		defer cancel()
		var a command.Answer
		if m.executeOn == nil {
			a, err = m.execute(ctx, c)
		} else {
			var id uuid.UUID
			if id, err = pathID(r, m.what); err == nil {
				a, err = m.executeOn(ctx, id, c)
			}
		}
		if err != nil {
			return err
		}
		writeAnswer(w, r, a)
		return nil
	}
}

// commandRoute is the POST route of a mutation, whose answer view shows.
func commandRoute[Req, Op, R, V any](path string, a access, status int, summary string, view func(R) V, m mutation[Req, Op]) route {
	m.status, m.view = status, of(view)
	return post(path, a, status, doc[Req, V](summary), mutate(m))
}

// deleted makes a route one of the method DELETE, which has no body.
func deleted(r route) route {
	r.method, r.doc.request = http.MethodDelete, nil
	return r
}

// of adapts a view of a result type to the untyped result of a service.
func of[R, V any](view func(R) V) func(any) any {
	return func(result any) any {
		r, ok := result.(R)
		if !ok {
			panic(fmt.Sprintf("server: a service answered with %T", result)) // Its operation fixes the type.
		}
		return view(r)
	}
}

// plain is the operation of a request that says everything in its body.
func plain[Req, Op any](op func(*Req) (Op, error)) func(*http.Request, *Req) (Op, error) {
	return func(_ *http.Request, req *Req) (Op, error) { return op(req) }
}

// fixed is the operation of a route without fields.
func fixed[Op any](op Op) func(*http.Request, *noFields) (Op, error) {
	return func(*http.Request, *noFields) (Op, error) { return op, nil }
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
	if err := edge.Decode(body, &req); err != nil {
		return c, err
	}
	op, err := m.op(r, &req)
	if err != nil {
		return c, err
	}
	i := infoOf(r)
	if i.principal.Role == auth.RoleUser {
		if m.account == nil {
			return c, &refusal{Kind: edge.Forbidden, Detail: "this route is not open to users"}
		}
		if err := actFor(i.principal, m.account(&req)); err != nil {
			return c, err
		}
	}
	return newCommand(op, &req, i.principal, idempotency.NewID(i.principal.ID, r.Method, r.URL.Path, key), i.requestID, m.status, m.view), nil
}

// newCommand makes the command of a request, which is canonical as req is encoded again: white space, member order and a null
// for an absent member make no other request.
func newCommand[Op any](op Op, req any, p auth.Principal, key idempotency.ID, requestID string, status int, view func(any) any) command.Command[Op] {
	return command.Command[Op]{
		Op:        op,
		Key:       &idempotency.Request{ID: key, Fingerprint: idempotency.NewFingerprint(mustMarshal(req)), Execution: uuid.Must(uuid.NewV7())},
		Render:    renderer(status, view, requestID),
		Principal: p.ID,
		RequestID: requestID,
		Operator:  p.Role == auth.RoleAdmin,
	}
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
