package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/memstore"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// unextended is a store that extends no lease.
type unextended struct{ idempotency.Store }

// Extend implements [idempotency.Store].
func (unextended) Extend(context.Context, idempotency.Grant, time.Duration) error {
	return errors.New("the store is away")
}

// TestStoppedHandlerIsTold: a handler that was stopped past its lease is never told that it has its key.
func TestStoppedHandlerIsTold(t *testing.T) {
	const lease = 300 * time.Millisecond
	testwait.Stopped(t, lease, func(t *testing.T) (context.Context, time.Time) {
		t.Helper()
		m, err := idempotency.New(idempotency.Options{Store: unextended{memstore.New()}, Principal: idempotency.Everybody, Lease: lease})
		testwait.Must(t, err)
		begun, done := make(chan context.Context), make(chan struct{})
		h := m.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			begun <- r.Context()
			<-done
		}))
		t.Cleanup(func() { close(done) })
		go func() {
			r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", strings.NewReader("x"))
			r.Header.Set(idempotency.KeyHeader, "k")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		return <-begun, time.Now().Add(lease)
	})
}
