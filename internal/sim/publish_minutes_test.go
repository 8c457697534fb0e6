//go:build unix

package sim_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// longPublication is a publication with the attempt under way.
type longPublication struct {
	Status  string       `json:"status"`
	Version int64        `json:"execution_version"`
	Current *longAttempt `json:"current_attempt"`
}

type longAttempt struct {
	Version   int64      `json:"version"`
	Result    *string    `json:"result"`
	Error     *string    `json:"error"`
	Heartbeat *time.Time `json:"heartbeat_at"`
	Stage     *string    `json:"stage"`
	Sent      *int64     `json:"sent_bytes"`
	EndedAt   *time.Time `json:"ended_at"`
}

// TestPublishOfMinutes has a target that takes minutes, many times as long as a claim lives without a heartbeat. First the server at work
// is killed in the middle, and then another one is shut down: each time, another server takes over. The third attempt is left alone for
// six minutes in a long run, and is the one that publishes. A machine that stalls for longer than a claim lives costs an attempt: then all
// is begun anew.
func TestPublishOfMinutes(t *testing.T) {
	beside(t)
	for tries := 1; !publishOfMinutes(t); tries++ {
		if tries == claimTries {
			t.Fatal("each time, an attempt was lost")
		}
	}
}

// claimTries is how often tests are begun in which a claim is to outlive the time that it has without heartbeats.
const claimTries = 5

// publishOfMinutes reports false if an attempt was lost whose server had neither died nor was shut down.
func publishOfMinutes(t *testing.T) bool {
	t.Helper()
	const staleAfter = 10 * time.Second
	database := newDatabase(t)
	args := []string{
		"--allow-private-targets", "--claim-stale-after", staleAfter.String(), "--claim-sweep-every", "1s", "--retry-backoff", "50ms", "--drain-timeout", "1s",
	}
	servers := []*sim.Server{newServer(t, database, args...), newServer(t, database, args...), newServer(t, database, args...)}
	in := newInbox(t)
	var target publication
	ask(t, servers[0], "/v1/targets", fmt.Sprintf(`{"name":"inbox","kind":"webhook","url":%q,"timeout":"15m"}`, in.URL), &target)
	arrived, finish := make(chan struct{}, 100), make(chan struct{})
	end := sync.OnceFunc(func() { close(finish) })
	t.Cleanup(end) // Before the receiver waits for its deliveries.
	in.mu.Lock()
	in.secret = target.Secret
	in.answer = func(string, int) {
		arrived <- struct{}{}
		<-finish
	}
	in.mu.Unlock()
	var made publication
	ask(t, servers[0], "/v1/publications", `{"target":"inbox","publish_at":"2020-01-01T00:00:00Z","payload":1}`, &made)

	// atWork is the server that makes the attempt which has just arrived. The others stay.
	atWork := func() (holder *sim.Server) {
		testwait.Eventually(t, patience, "a server is at work", func() bool {
			for i, server := range servers {
				if running(t, server) > 0 {
					holder, servers = server, append(append([]*sim.Server(nil), servers[:i]...), servers[i+1:]...)
					return true
				}
			}
			return false
		})
		return holder
	}
	look := func() (p longPublication) {
		testwait.Must(t, clientOf(t, servers[0]).GetJSON(testwait.Context(t, patience), "/v1/publications/"+made.ID, &p))
		return p
	}
	// alive waits until the attempt has given so many signs of life, and reports whether it is the same one all the time.
	alive := func(version int64, beats int) (same bool) {
		t.Helper()
		var last time.Time
		same = true
		for range beats {
			testwait.Eventually(t, patience, "a heartbeat", func() bool {
				p := look()
				if p.Version != version || p.Status != "publishing" || p.Current == nil {
					t.Logf("%+v, want version %d under way", p, version)
					same = false
					return true
				}
				if p.Current.Heartbeat == nil || !p.Current.Heartbeat.After(last) {
					return false
				}
				if p.Current.Stage == nil || *p.Current.Stage != "publishing" {
					t.Fatalf("it is at %v", p.Current.Stage)
				}
				last = *p.Current.Heartbeat
				return true
			})
		}
		return same
	}

	await(t, "the first attempt", arrived)
	first := atWork()
	if !alive(1, 2) {
		return false
	}
	testpromise.CheckEach(t, []string{"dead-publisher"}, func(seen func(string, time.Duration)) {
		killed := time.Now()
		testwait.Must(t, first.Kill(testwait.Context(t, patience)))
		await(t, "the second attempt", arrived)
		seen("dead-publisher", time.Since(killed)-staleAfter)
	})

	second := atWork()
	if !alive(2, 1) {
		return false
	}
	_, err := second.Terminate(testwait.Context(t, patience))
	testwait.Must(t, err)
	await(t, "the third attempt", arrived)
	servers = append(servers, first) // So that somebody could take it over wrongly.
	start(t, first)
	for began, least := time.Now(), time.Duration(testwait.Count(1, 6*60))*time.Second; time.Since(began) < least; {
		if !alive(3, 1) {
			return false
		}
	}
	end()
	if p := published(t, servers[0], made.ID); p.Version != 3 {
		t.Logf("published by attempt %d", p.Version)
		return false
	}
	var attempts struct {
		Items []longAttempt `json:"items"`
	}
	testwait.Must(t, clientOf(t, servers[0]).GetJSON(testwait.Context(t, patience), "/v1/publications/"+made.ID+"/attempts", &attempts))
	var results []string
	for _, a := range attempts.Items {
		results = append(results, *a.Result)
	}
	if got := strings.Join(results, " "); got != "lost failed published" {
		t.Fatalf("the attempts: %s", got)
	}
	if shut := attempts.Items[1].Error; shut == nil || !strings.Contains(*shut, "shut down") {
		t.Errorf("the second attempt: %v", shut)
	}
	if versions := in.versions(made.ID); len(versions) != 3 {
		t.Errorf("it came with versions %v", versions)
	}
	in.check(t)
	auditNow(t, database)
	return true
}
