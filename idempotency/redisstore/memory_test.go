package redisstore

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestFullMemory: on a server whose memory is full nothing begins, and what has begun goes on and comes to its end.
func TestFullMemory(t *testing.T) {
	t.Parallel()
	server := start(t, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
	c, s := server.Client(t), New(testredis.Rueidis.Open(t, server.Addr()), Options{})
	begin := func(key string) (idempotency.Grant, error) {
		r := idempotency.Request{ID: idempotency.NewID("", "POST", "/", key), Execution: uuid.New()}
		e, err := s.Begin(t.Context(), r, idempotency.Terms{Lease: time.Hour, Retention: time.Hour})
		return e.Grant, err
	}
	fill := func() {
		for _, size := range []int{100_000, 1000, 1} {
			for refused := 0; refused < 10; {
				err := c.Do(t.Context(), c.B().Set().Key("fill:"+uuid.NewString()).Value(strings.Repeat("x", size)).Build()).Error()
				if err != nil && !strings.HasPrefix(err.Error(), "OOM") {
					t.Fatal(err)
				}
				if err != nil {
					refused++
				}
			}
		}
	}
	for n, end := range []func(idempotency.Grant) error{
		func(g idempotency.Grant) error { return s.Extend(t.Context(), g, time.Hour) },
		func(g idempotency.Grant) error {
			_, err := s.Complete(t.Context(), g, idempotency.Response{Status: 201, Body: []byte(strings.Repeat("b", 1000))})
			return err
		},
		func(g idempotency.Grant) error { return s.Release(t.Context(), g) },
	} {
		g, err := begin(strconv.Itoa(n))
		testwait.Must(t, err)
		fill()
		if err := end(g); err != nil {
			t.Errorf("step %d: %v", n, err)
		}
		for deadline := time.Now().Add(patience); ; {
			fill()
			g, err := begin("new")
			if err != nil && strings.Contains(err.Error(), "OOM") {
				break
			}
			if err == nil {
				err = s.Release(t.Context(), g)
			}
			if err != nil && !errors.Is(err, idempotency.ErrLost) || time.Now().After(deadline) {
				t.Fatalf("begun in a full memory: %v", err)
			}
		}
		testwait.Must(t, c.Do(t.Context(), c.B().Flushall().Build()).Error())
	}
}
