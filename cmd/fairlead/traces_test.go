package main

import (
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// collector is a receiver of OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu        sync.Mutex
	spans     []*tracepb.Span
	resources []map[string]string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tenant/v1/traces", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req collectorpb.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &req)
		}
		if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("X-Tenant") != "harbour" {
			t.Errorf("an export of %s for %q: %v", r.Header.Get("Content-Type"), r.Header.Get("X-Tenant"), err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, rs := range req.GetResourceSpans() {
			c.resources = append(c.resources, attributes(rs.GetResource().GetAttributes()))
			for _, ss := range rs.GetScopeSpans() {
				c.spans = append(c.spans, ss.GetSpans()...)
			}
		}
	})
	c.Server = httptest.NewServer(mux)
	t.Cleanup(c.Close)
	return c
}

// attributes are those of a span or resource as text.
func attributes(list []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			m[kv.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			m[kv.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		case *commonpb.AnyValue_BoolValue:
			m[kv.GetKey()] = strconv.FormatBool(v.BoolValue)
		}
	}
	return m
}

// find returns the spans of a name that have all these attributes.
func (c *collector) find(name string, want ...string) []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*tracepb.Span
	for _, s := range c.spans {
		has, ok := attributes(s.GetAttributes()), s.GetName() == name
		for i := 0; i+1 < len(want); i += 2 {
			ok = ok && has[want[i]] == want[i+1]
		}
		if ok {
			found = append(found, s)
		}
	}
	return found
}

// TestTraces runs a server that is told of a collector, and reads there what it did. The SDK is told to wait for very long, so
// that everything comes with the flush at the server's end.
func TestTraces(t *testing.T) {
	pgtest.Needs(t, pgkit.Prepare, pgkit.AdvisoryLocks)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Tenant=harbour")
	c := newCollector(t)
	other := startScene(t)
	other.account("shop", 0)
	s := startSceneWith(t, func(o *fairlead.Options) {
		o.OTLPEndpoint = c.URL + "/tenant"
		o.Ledgers = map[string]string{"eu": other.node.DatabaseURL()}
	})

	const parent, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/accounts", strings.NewReader(`{"id":"shop","currency":"EUR"}`))
	testwait.Must(t, err)
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Idempotency-Key", uuid.NewString())
	req.Header.Set("Traceparent", "00-"+parent+"-"+caller+"-01")
	resp, err := http.DefaultClient.Do(req)
	testwait.Must(t, err)
	_ = resp.Body.Close()
	requestID := resp.Header.Get("X-Request-Id")

	s.account("buyer-1", 1000)
	s.try("GET", "/v1/campaigns/"+uuid.NewString(), nil)
	s.try("GET", "/nothing/here", nil)
	campaign := s.newCampaign("Traced", 2)
	s.call("POST", "/v1/campaigns/"+campaign+"/publish", nil)
	move := obj{"from": obj{"ledger": "local", "account": "buyer-1"}, "to": obj{"ledger": "eu", "account": "shop"}, "amount": 100, "mode": "saga"}
	moved := s.id("POST", "/v1/cross-transfers", move)
	move["mode"] = "twophase"
	prepared := s.id("POST", "/v1/cross-transfers", move)
	failed := s.newFailure()
	s.stop()

	made := c.find("POST /v1/accounts", "http.response.status_code", "201", "http.route", "/v1/accounts", "http.request.method", "POST", "url.path", "/v1/accounts", "fairlead.request_id", requestID)
	if len(made) != 1 || made[0].GetKind() != tracepb.Span_SPAN_KIND_SERVER {
		t.Fatalf("the first request: %v", made)
	}
	if trace, span := hex.EncodeToString(made[0].GetTraceId()), hex.EncodeToString(made[0].GetParentSpanId()); trace != parent || span != caller {
		t.Errorf("the caller's traceparent is not honoured: %s, %s", trace, span)
	}
	if found := c.find("GET /v1/campaigns/{id}", "http.response.status_code", "404", "fairlead.problem", "not_found"); len(found) != 1 || len(found[0].GetParentSpanId()) > 0 {
		t.Errorf("a request for what is not there: %v", found)
	}
	if found := c.find("GET", "url.path", "/nothing/here", "http.response.status_code", "404"); len(found) != 1 {
		t.Errorf("a request without a route: %v", found)
	}
	for _, service := range []string{"ledger", "lottery", "publish"} {
		found := c.find("commit "+service, "fairlead.service", service, "fairlead.batch.size", "1")
		if len(found) == 0 {
			t.Errorf("no batch of the %s", service)
			continue
		}
		if took := time.Duration(found[0].GetEndTimeUnixNano() - found[0].GetStartTimeUnixNano()); took <= 0 || took > patience {
			t.Errorf("a batch of the %s took %s", service, took)
		}
	}
	// once leaves out what has failed, and was tried again: a machine that stalls may be the reason.
	once := func(found []*tracepb.Span) bool {
		return len(slices.DeleteFunc(slices.Clone(found), func(s *tracepb.Span) bool { return s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR })) == 1
	}
	for _, leg := range []string{cross.LegDebit, cross.LegCredit} {
		if found := c.find("do "+leg, "fairlead.saga.id", moved, "fairlead.saga.step", leg, "fairlead.saga.phase", "do"); !once(found) {
			t.Errorf("step %s of the saga: %v", leg, found)
		}
		for _, phase := range []string{"prepare", "commit"} {
			if found := c.find(phase+" "+leg, "fairlead.saga.id", prepared, "fairlead.saga.step", leg, "fairlead.saga.phase", phase); !once(found) {
				t.Errorf("%s of branch %s: %v", phase, leg, found)
			}
		}
	}
	found := c.find("deliver webhook", "fairlead.publication.id", failed, "fairlead.publication.version", "1", "http.response.status_code", "404")
	if len(found) != 1 || found[0].GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the delivery: %v", found)
	}
	for _, r := range c.resources {
		if r["service.name"] != "fairlead" || r["service.version"] != fairlead.Version() || r["service.instance.id"] == "" {
			t.Errorf("who sends: %v", r)
		}
	}
}

// TestTracesWithoutCollector holds that a server whose collector takes connections and never answers serves and ends as any
// other.
func TestTracesWithoutCollector(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
	silence, err := net.Listen("tcp", "127.0.0.1:0")
	testwait.Must(t, err)
	defer silence.Close()
	s := startSceneWith(t, func(o *fairlead.Options) { o.OTLPEndpoint = "http://" + silence.Addr().String() })
	s.account("shop", 0)
	for range 50 {
		s.account("buyer-"+uuid.NewString(), 100)
	}
	s.stop() // It reports any error.
}
