package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Names by which the traces' reader knows where they come from.
const (
	serviceName = "fairlead" // unless OTEL_SERVICE_NAME says otherwise
	scope       = "github.com/fairlead-dev/fairlead"
)

// tracesPath is where a collector takes traces, below its address.
const tracesPath = "/v1/traces"

// flushTimeout bounds what the end of a process waits for a collector. It is well below what supervisors allow.
const flushTimeout = 3 * time.Second

// exportTimeout bounds one attempt to hand a batch of spans over, its retries included.
const exportTimeout = 10 * time.Second

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
