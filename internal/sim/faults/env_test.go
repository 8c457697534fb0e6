//go:build unix

package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// stage is a test's servers, with a Prometheus that watches them and an operator who reads the runbook.
type stage struct {
	*testing.T
	prometheus *prometheus
	operator   operator

	fired map[string]time.Duration
	began time.Time
}

// scene is the stage of a fault that one server meets on a database of its own.
func scene(t *testing.T) (database string, s *server, staged *stage) {
	t.Helper()
	torture(t)
	database = newDatabase(t)
	s = newServer(t, database)
	return database, s, newStage(t, database, s)
}

// newStage watches servers that are ready, and waits until they are well, too: then nothing fires. The operator works on the first one and its database.
func newStage(t *testing.T, database string, servers ...*server) *stage {
	t.Helper()
	s := &stage{T: t, operator: operator{server: servers[0].URL(), database: database}, fired: map[string]time.Duration{}, began: time.Now()}
	var targets []string
	for _, server := range servers {
		targets = append(targets, server.address)
	}
	s.prometheus = startPrometheus(t, targets...)
	s.prometheus.await(t, "that nothing fires", func(ctx context.Context) bool {
		names, ok := s.prometheus.firing(ctx)
		return ok && len(names) == 0
	})
	return s
}

// breaks marks the moment from which the time to an alert counts.
func (s *stage) breaks() { s.began = time.Now() }

// fires waits until an alert fires.
func (s *stage) fires(alert string) {
	s.Helper()
	s.prometheus.await(s.T, alert+" fires", func(ctx context.Context) bool {
		names, _ := s.prometheus.firing(ctx)
		return slices.Contains(names, alert)
	})
	s.fired[alert] = time.Since(s.began)
}

// ends waits until an alert no longer fires, and reports what that was owed to.
func (s *stage) ends(alert, by string) {
	s.Helper()
	took := s.prometheus.await(s.T, alert+" ends", func(ctx context.Context) bool {
		names, ok := s.prometheus.firing(ctx)
		return ok && !slices.Contains(names, alert)
	})
	report(fmt.Sprintf("%s fired after %.1f s, ended after %.1f s: %s", alert, s.fired[alert].Seconds(), took.Seconds(), by))
}

// server is a server process at an address that stays.
type server struct {
	*sim.Server
	address string
}

// newServer starts a server; database is empty for a private PostgreSQL.
func newServer(t *testing.T, database string, args ...string) *server {
	t.Helper()
	s := preparedServer(t, database, args...)
	s.start(t)
	return s
}

// preparedServer is a server that has its data directory, and is not started. Faults may leave it in any state, so that it is killed in
// the end.
func preparedServer(t *testing.T, database string, args ...string) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "faults") //nolint:usetesting // Its paths are too long for a socket.
	testwait.Must(t, err)
	testwait.Must(t, os.Chmod(dir, 0o711))
	address := fmt.Sprintf("127.0.0.1:%d", pgtest.Port(t))
	s := &server{address: address, Server: sim.NewServer(sim.ServerOptions{
		Binary: binary(t), DataDir: dir, DatabaseURL: database, Args: append([]string{"--listen", address, "--database-connections", "6"}, args...),
	})}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if t.Failed() {
			log := s.Log()
			t.Logf("end of the server's log:\n%s", log[max(0, len(log)-4000):])
		}
		testwait.Check(t, s.Kill(ctx))
		if err := sim.KillPostgres(dir, true); err != nil && !errors.Is(err, sim.ErrNoPostgres) {
			t.Error(err)
		}
		testwait.Check(t, os.RemoveAll(dir))
	})
	return s
}

func (s *server) start(t *testing.T, env ...string) {
	t.Helper()
	_, err := s.Start(testwait.Context(t, patience), env...)
	if err != nil && strings.Contains(s.Log(), localpg.ErrNoBinaries.Error()) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	testwait.Must(t, err)
}

func (s *server) kill(t *testing.T) {
	t.Helper()
	testwait.Must(t, s.Kill(testwait.Context(t, patience)))
}

// tries sends one command under a key of its own and returns what came back, status 0 when nothing did.
func (s *server) tries(ctx context.Context, method, path, body string) (status int, answer []byte) {
	return s.triesUnder(ctx, uuid.NewString(), method, path, body)
}

// triesUnder is tries with a given key.
func (s *server) triesUnder(ctx context.Context, key, method, path, body string) (status int, answer []byte) {
	request, err := http.NewRequestWithContext(ctx, method, s.URL()+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil
	}
	request.Header.Set("Authorization", "Bearer "+sim.AdminKey)
	if method != http.MethodGet {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := calls.Do(request)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	return response.StatusCode, answer
}

// does sends a command that must succeed, and reads its answer where into is not nil.
func (s *server) does(t *testing.T, method, path, body string, into any) {
	t.Helper()
	status, answer := s.tries(testwait.Context(t, patience), method, path, body)
	if status/100 != 2 {
		t.Fatalf("%s %s %s: %d %s", method, path, body, status, answer)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(answer, into); err != nil {
		t.Fatalf("%s: %v: %s", path, err, answer)
	}
}

func (s *server) posts(t *testing.T, path, body string, into any) {
	t.Helper()
	s.does(t, http.MethodPost, path, body, into)
}

// accounts opens accounts with money.
func (s *server) accounts(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		s.posts(t, "/v1/accounts", fmt.Sprintf(`{"id":%q,"currency":"SIM"}`, name), nil)
		s.posts(t, "/v1/deposits", fmt.Sprintf(`{"account":%q,"amount":1000000}`, name), nil)
	}
}

// load keeps doing something in so many goroutines until the test ends or it is stopped.
func load(t *testing.T, workers int, each func(ctx context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for ctx.Err() == nil {
				each(ctx)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// newDatabase makes a database on the shared PostgreSQL and returns its URL.
func newDatabase(t *testing.T) string {
	t.Helper()
	return pgtest.NewDatabase(t, nil)
}

// execute runs statements, one after the other, by somebody who is not Fairlead.
func execute(t *testing.T, database string, statements ...string) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	testwait.Check(t, conn.Close(t.Context()))
}

// queried reads one value.
func queried[T any](t *testing.T, database, sql string, args ...any) (v T) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	testwait.Check(t, conn.Close(t.Context()))
	return v
}
