//go:build unix

package faults_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

func idOf(answer []byte) string {
	var t thing
	if json.Unmarshal(answer, &t) != nil {
		return ""
	}
	return t.ID
}

// inbox receives publications for as long as hold lets it answer.
func inbox(t *testing.T, s *server, hold func(*http.Request)) {
	t.Helper()
	in := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hold(r) }))
	t.Cleanup(in.Close)
	s.posts(t, "/v1/targets", fmt.Sprintf(`{"name":"inbox","kind":"webhook","url":%q}`, in.URL), nil)
}

// TestClaimsStale stops a worker in the middle of a delivery.
func TestClaimsStale(t *testing.T) {
	torture(t)
	args := []string{"--allow-private-targets", "--claim-stale-after", "2s", "--claim-sweep-every", "1s", "--retry-backoff", "50ms"}
	database := newDatabase(t)
	first := newServer(t, database, args...)
	arrived, release := make(chan struct{}, 16), make(chan struct{})
	inbox(t, first, func(r *http.Request) {
		arrived <- struct{}{}
		if r.Header.Get("fairlead-execution-version") == "1" {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	})
	second := newServer(t, database, args...)
	s := newStage(t, database, first, second)
	s.operator.server = second.URL()
	// The second one must not take it.
	testwait.Must(t, second.Signal(syscall.SIGSTOP))
	var p thing
	first.posts(t, "/v1/publications", `{"target":"inbox","publish_at":"2020-01-01T00:00:00Z","payload":1}`, &p)
	<-arrived
	s.breaks()
	testwait.Must(t, first.Signal(syscall.SIGSTOP))
	testwait.Must(t, second.Signal(syscall.SIGCONT))
	s.fires("FairleadClaimsStale")
	section := sectionOf(t, "FairleadClaimsStale")
	section.says(t, "restart a server that hangs")
	first.kill(t)
	close(release)
	first.start(t)
	s.operator.runs(t, section, "curl", "ID", p.ID)
	testwait.Eventually(t, patience, "the publication is published", func() bool {
		status, answer := second.tries(t.Context(), http.MethodGet, "/v1/publications/"+p.ID, "")
		return status == http.StatusOK && statusOf(answer) == "published"
	})
	s.ends("FairleadClaimsStale", "the server that hung was restarted; the other had published by itself")
}

func statusOf(answer []byte) string {
	var t thing
	if json.Unmarshal(answer, &t) != nil {
		return ""
	}
	return t.Status
}

// TestPublicationsLate gives a worker that sends one thing at a time to a slow target more than it can send.
func TestPublicationsLate(t *testing.T) {
	torture(t)
	database := newDatabase(t)
	args := []string{"--allow-private-targets"}
	server := newServer(t, database, append(args, "--publish-concurrency", "1", "--publish-per-target", "1")...)
	inbox(t, server, func(r *http.Request) { wait.For(r.Context(), 700*time.Millisecond) })
	s := newStage(t, database, server)
	s.breaks()
	for range 60 {
		server.posts(t, "/v1/publications", fmt.Sprintf(`{"target":"inbox","publish_at":%q,"payload":1}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)), nil)
	}
	// What takes two minutes of waiting is given here: they have been due for so long.
	execute(t, database, `UPDATE publications SET due_at = clock_timestamp() - interval '2 minutes', publish_at = clock_timestamp() - interval '2 minutes'`)
	s.fires("FairleadPublicationsLate")
	section := sectionOf(t, "FairleadPublicationsLate")
	section.says(t, "add servers")
	s.operator.runs(t, section, "curl -s -H")
	s.operator.runs(t, section, `curl -s "$FAIRLEAD_URL/metrics"`)
	newServer(t, database, args...)
	s.ends("FairleadPublicationsLate", "one more server, with more concurrency")
}
