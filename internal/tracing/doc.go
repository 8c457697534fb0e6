// Package tracing sends OpenTelemetry traces to a collector, by OTLP over HTTP, where the operator has named one. The server
// and the services know small hooks of their own and nothing of OpenTelemetry; this is where the two meet.
//
// There are four kinds of spans:
//
//   - a request to the server, named by method and route, a child of the caller's span where a W3C traceparent came with it;
//   - a batch of a lane, from its taking to its commit, with its size. It serves many requests at once and is a child of none:
//     what a request has waited for is found by time and service;
//   - a delivery, one attempt to bring a publication to its target;
//   - a step of a saga, done or undone, or a branch of a two-phase transaction, prepared or committed. Those of one run have no
//     common parent, since a saga outlives requests and processes: its id is on each.
//
// Nothing waits for the collector. Spans queue in memory, a full queue drops new ones, and a collector that is away is
// reported once in the log until it is back. [Tracing.Close] gives it a bounded time to take what is queued. Traces are for
// looking, not for books: any of them may be lost.
//
// A nil *Tracing is one that is off. Its methods return what makes the hot path run as if this package were not there: no
// hook, and observers as they were.
package tracing
