package tracing

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/saga"
)

// The names of what is peculiar to Fairlead; docs/operations/traces.md lists them.
const (
	keyRequestID   = attribute.Key("fairlead.request_id")
	keyProblem     = attribute.Key("fairlead.problem")
	keyReplayed    = attribute.Key("fairlead.replayed")
	keyService     = attribute.Key("fairlead.service")
	keyBatchSize   = attribute.Key("fairlead.batch.size")
	keyPublication = attribute.Key("fairlead.publication.id")
	keyVersion     = attribute.Key("fairlead.publication.version")
	keyLate        = attribute.Key("fairlead.publication.late_ms")
	keyTarget      = attribute.Key("fairlead.target.id")
	keyKind        = attribute.Key("fairlead.target.kind")
	keySaga        = attribute.Key("fairlead.saga.id")
	keyStep        = attribute.Key("fairlead.saga.step")
	keyPhase       = attribute.Key("fairlead.saga.phase")
	keyTerm        = attribute.Key("fairlead.saga.term")
	keyRefused     = attribute.Key("fairlead.refused")
)

// Requests traces the server's requests; nil where traces are off.
func (t *Tracing) Requests() func(r *http.Request) (ctx context.Context, end func(route string, status int, code, requestID string, replayed bool)) {
	if t == nil {
		return nil
	}
	w3c := propagation.TraceContext{}
	return func(r *http.Request) (context.Context, func(string, int, string, string, bool)) {
		method := methodOf(r)
		// The pattern is known when the router has seen the request; until then the span has the name that the conventions
		// give to one without a route.
		ctx, span := t.tracer.Start(w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header)), method, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method), semconv.URLPath(r.URL.Path)))
		return ctx, func(route string, status int, code, requestID string, replayed bool) {
			defer span.End()
			if !span.IsRecording() {
				return
			}
			span.SetAttributes(keyRequestID.String(requestID))
			if route != "" {
				span.SetName(method + " " + route)
				span.SetAttributes(semconv.HTTPRoute(route))
			}
			if code != "" {
				span.SetAttributes(keyProblem.String(code))
			}
			if replayed {
				span.SetAttributes(keyReplayed.Bool(true))
			}
			switch {
			case status == 0:
				span.SetStatus(codes.Error, "broken off without an answer")
				return
			case status >= http.StatusInternalServerError:
				span.SetStatus(codes.Error, code)
			}
			span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		}
	}
}

// methodOf keeps a client from inventing names of spans.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "_OTHER"
}

// Lanes returns an observer that makes a span of each batch of a service's lanes, and tells next all that it is told; next
// itself where traces are off.
func (t *Tracing) Lanes(service string, next groupcommit.Observer) groupcommit.Observer {
	if t == nil {
		return next
	}
	return &lanes{Observer: next, t: t, name: "commit " + service, service: keyService.String(service)}
}

type lanes struct {
	groupcommit.Observer

	t       *Tracing
	name    string
	service attribute.KeyValue
}

// Flushed implements [groupcommit.Observer]. The batch is over by now, so its span is made whole.
func (l *lanes) Flushed(size int, took time.Duration, err error) {
	l.Observer.Flushed(size, took, err)
	now := time.Now()
	_, span := l.t.tracer.Start(context.Background(), l.name, trace.WithTimestamp(now.Add(-took)), trace.WithAttributes(l.service, keyBatchSize.Int(size)))
	fail(span, err)
	span.End(trace.WithTimestamp(now))
}

// Deliveries traces the attempts to publish; nil where traces are off.
func (t *Tracing) Deliveries() func(ctx context.Context, kind string, target, publication uuid.UUID, version int64, late time.Duration) (context.Context, func(status int, err error)) {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, kind string, target, publication uuid.UUID, version int64, late time.Duration) (context.Context, func(int, error)) {
		ctx, span := t.tracer.Start(ctx, "deliver "+kind, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			keyPublication.String(publication.String()), keyVersion.Int64(version), keyLate.Int64(late.Milliseconds()),
			keyTarget.String(target.String()), keyKind.String(kind)))
		return ctx, func(status int, err error) {
			defer span.End()
			if status != 0 {
				span.SetAttributes(semconv.HTTPResponseStatusCode(status))
			}
			fail(span, err)
		}
	}
}

// Steps traces the steps of sagas and the branches of two-phase transactions; nil where traces are off.
func (t *Tracing) Steps() saga.Trace {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, p saga.Phase, c saga.Call) (context.Context, func(saga.Outcome, error)) {
		ctx, span := t.tracer.Start(ctx, string(p)+" "+c.Step, trace.WithAttributes(
			keySaga.String(c.Saga.String()), keyStep.String(c.Step), keyPhase.String(string(p)), keyTerm.Int64(c.Term)))
		return ctx, func(out saga.Outcome, err error) {
			defer span.End()
			if out.Refused {
				span.SetAttributes(keyRefused.String(out.Reason)) // It is an outcome, and no failure.
			}
			fail(span, err)
		}
	}
}

// fail marks a span as one of what failed.
func fail(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}
