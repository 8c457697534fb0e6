package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/saga"
)

// Names by which the traces' reader knows where they come from.
const (
	serviceName = "fairlead" // unless OTEL_SERVICE_NAME says otherwise
	scope       = "github.com/fairlead-dev/fairlead"
)

const (
	tracesPath    = "/v1/traces"     // where a collector takes traces, below its address
	flushTimeout  = 3 * time.Second  // for the collector at the end of a process, well below what supervisors allow
	exportTimeout = 10 * time.Second // for one attempt to hand a batch of spans over, its retries included
)

// errEndpoint is returned for an address that is none of a collector.
var errEndpoint = errors.New("must be the URL of an OTLP/HTTP collector, such as http://127.0.0.1:4318")

// Options make a Tracing.
type Options struct {
	// Endpoint is the collector's URL, http or https; traces go to /v1/traces below it. Empty: there are no traces.
	Endpoint string
	Version  string // of the program
	Logger   *slog.Logger
}

// Tracing makes spans and sends them. It is safe for concurrent use; nil is one that is off.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	logger   *slog.Logger
}

// ParseEndpoint returns the URL that traces are posted to, or an error that says what an endpoint must be.
func ParseEndpoint(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errEndpoint // A URL that was not understood may hold a secret, and is not repeated.
	}
	if !strings.HasSuffix(u.Path, tracesPath) {
		u = u.JoinPath(tracesPath)
	}
	return u.String(), nil
}

// Start returns what makes spans for the endpoint, or nil where there is none. It doesn't speak to the collector. What the
// options don't say is taken from the environment as the SDK of OpenTelemetry takes it: OTEL_TRACES_SAMPLER,
// OTEL_EXPORTER_OTLP_HEADERS, OTEL_BSP_*, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and their like.
func Start(ctx context.Context, o Options) (*Tracing, error) {
	if o.Endpoint == "" {
		return nil, nil //nolint:nilnil // It is off, which is no error; see the package's documentation.
	}
	target, err := ParseEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(target))
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	// The environment comes last, and wins.
	origin, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName(serviceName), semconv.ServiceVersion(o.Version), semconv.ServiceInstanceID(uuid.NewString())),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("traces: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithResource(origin),
		sdktrace.WithBatcher(&reporter{SpanExporter: exporter, logger: o.Logger}, sdktrace.WithExportTimeout(exportTimeout)),
	)
	return &Tracing{provider: provider, tracer: provider.Tracer(scope, trace.WithInstrumentationVersion(o.Version)), logger: o.Logger}, nil
}

// Close sends what is queued, for a few seconds at most, and ends. What could not be sent is lost, and logged: it is no error
// of the process that ends. Spans that begin afterwards go nowhere.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.logger.WarnContext(ctx, "the last traces may be lost", "error", err)
	}
	return nil
}

// reporter logs what becomes of exports, once for each turn of luck, instead of the SDK, whose handler of errors is global.
type reporter struct {
	sdktrace.SpanExporter
	logger *slog.Logger
	failed atomic.Bool
}

// ExportSpans implements [sdktrace.SpanExporter]. It never fails: nobody would do anything about it.
func (r *reporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !r.failed.Swap(true):
		r.logger.WarnContext(ctx, "traces are lost: the collector did not take them", "spans", len(spans), "error", err)
	case err == nil && r.failed.Swap(false):
		r.logger.InfoContext(ctx, "the collector takes traces again")
	}
	return nil
}

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
