// Package server is the HTTP edge: it authenticates, parses and validates, hands a command to its service, and speaks
// the outcome.
//
// # How a request goes through
//
//	recover, request id, log, metrics      middleware.go
//	  └ authenticate, rate-limit           middleware.go  401, 429, 503
//	     └ may this role use this route    middleware.go  403
//	        └ Idempotency-Key              mutation.go    400
//	           └ strict JSON, validation   mutation.go, edge  400, 413
//	              └ whose account          mutation.go    403
//	                 └ service             the answer, or a refusal through the one table in problem.go
//
// Every mutation is a [mutation]: a typed body, a check, a way to the service and a way to speak the result. The bytes
// of an answer are made inside the transaction that decides it and stored with it, so that a retry gets the same bytes.
//
// A handler that returns an error has not answered: the one adapter, serve, makes a problem of the error.
//
// The parts of the edge that stand by themselves have packages: live serves sockets and server-sent events, and edge has what
// live and the server share.
//
// # The contract's document
//
// [Server.OpenAPI] is built from the same table of routes and the same Go types that serve. A test fails when the
// document in docs/openapi.json is not the one that the code makes.
package server
