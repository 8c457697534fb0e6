//go:build unix

package sim_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// inbox is a receiver that notes what comes, and checks each signature.
type inbox struct {
	*httptest.Server

	mu     sync.Mutex
	secret string
	got    map[string][]int64 // versions by id, in the order of their arrival
	bad    []string
	answer func(id string, n int) // called before the answer
	wanted int                    // how many publications full is about
	full   chan struct{}          // closed when so many have come
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	in := &inbox{got: map[string][]int64{}}
	in.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		id := r.Header.Get("webhook-id")
		version, versionErr := strconv.ParseInt(r.Header.Get("fairlead-execution-version"), 10, 64)
		in.mu.Lock()
		verifier, keyErr := standardwebhooks.NewWebhook(in.secret)
		if err != nil || versionErr != nil || keyErr != nil || verifier.Verify(body, r.Header) != nil {
			in.bad = append(in.bad, fmt.Sprintf("%v %v %v: %v", err, versionErr, keyErr, r.Header))
		}
		in.got[id] = append(in.got[id], version)
		n, answer := len(in.got[id]), in.answer
		in.tell()
		in.mu.Unlock()
		if answer != nil {
			answer(id, n)
		}
	}))
	t.Cleanup(in.Close)
	return in
}

// all is closed when n publications have come.
func (in *inbox) all(n int) <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.wanted, in.full = n, make(chan struct{})
	full := in.full
	in.tell()
	return full
}

// tell closes full when it is time. It wants the lock.
func (in *inbox) tell() {
	if in.full != nil && len(in.got) >= in.wanted {
		close(in.full)
		in.full = nil
	}
}

func (in *inbox) versions(id string) []int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]int64(nil), in.got[id]...)
}

// ask settles a command and reads the document in its answer.
func ask(t *testing.T, server *sim.Server, path, body string, into any) {
	t.Helper()
	answer := settle(t, clientOf(t, server), path, uuid.NewString(), body)
	if answer.Status >= 300 {
		t.Fatalf("%s: %v", path, answer)
	}
	testwait.Must(t, answer.JSON(into))
}

type publication struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Version int64  `json:"execution_version"`
	Secret  string `json:"secret"`
	Items   []struct {
		Version int64   `json:"version"`
		Result  *string `json:"result"`
	} `json:"items"`
}

func read(t *testing.T, server *sim.Server, path string) (p publication) {
	t.Helper()
	testwait.Must(t, clientOf(t, server).GetJSON(testwait.Context(t, patience), path, &p))
	return p
}

// published waits until a publication is, and returns it.
func published(t *testing.T, server *sim.Server, id string) (p publication) {
	t.Helper()
	testwait.Eventually(t, patience, "publication "+id, func() bool {
		p = read(t, server, "/v1/publications/"+id)
		return p.Status == "published"
	})
	return p
}

func publishingArgs() []string {
	return []string{"--allow-private-targets", "--claim-stale-after", "1s", "--claim-sweep-every", "1s", "--retry-backoff", "50ms"}
}

func (in *inbox) register(t *testing.T, server *sim.Server) {
	t.Helper()
	var target publication
	ask(t, server, "/v1/targets", fmt.Sprintf(`{"name":"inbox","kind":"webhook","url":%q,"timeout":"15m"}`, in.URL), &target)
	in.mu.Lock()
	in.secret = target.Secret
	in.mu.Unlock()
}

// check wants each version once, and signatures that are right. A delivery that its server has given up may come after the next one, where
// the machine lets it wait in a connection.
func (in *inbox) check(t *testing.T) (repeats int) {
	t.Helper()
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, bad := range in.bad {
		t.Errorf("a delivery is not as it should be: %s", bad)
	}
	for id, versions := range in.got {
		repeats += len(versions) - 1
		if once := slices.Compact(slices.Sorted(slices.Values(versions))); len(once) < len(versions) {
			t.Errorf("publication %s came with versions %v", id, versions)
		}
	}
	return repeats
}

// TestPublisherDiesAtEveryCrashPoint lets the server kill itself after a claim, after a delivery, and before the commit of its
// result. Every publication is published once in the end. To a webhook, what came twice came under one id, with a higher
// version; to an account that can be asked, nothing comes twice.
func TestPublisherDiesAtEveryCrashPoint(t *testing.T) {
	beside(t)
	database := newDatabase(t)
	server := newServer(t, database, publishingArgs()...)
	in, art := newInbox(t), newArt(t)
	in.register(t, server)
	art.register(t, server)
	rounds, deaths, made := testwait.Count(1, 100), 0, 0
	for round := range rounds {
		for _, point := range []string{"publish.claimed", "publish.sent", "publish.marked"} {
			// They are made drafts by a server that lives, and published under one that will die.
			drafts := make([]publication, 4)
			for i := range drafts {
				body := `{"target":"inbox","payload":{"n":1}}`
				if i%2 == 1 {
					body = art.publication(made)
					made++
				}
				ask(t, server, "/v1/publications", body, &drafts[i])
			}
			nth := 1
			if point == "publish.sent" {
				nth += (round + 3) % len(drafts) // To the account it is sent last: that takes several requests.
			}
			willDie(t, server, fmt.Sprintf("%s:%d", point, nth))
			ops := make([]*sim.Op, len(drafts))
			for i, d := range drafts {
				ops[i] = &sim.Op{Method: http.MethodPost, Path: "/v1/publications/" + d.ID + "/publish", Key: "publish-" + d.ID}
				_ = clientOf(t, server).Once(testwait.Context(t, patience), ops[i]) // The answer may be lost with the server; its retry tells.
			}
			dies(t, server, point)
			deaths++
			start(t, server)
			for i, d := range drafts {
				testwait.Must(t, testwait.Err(clientOf(t, server).Settle(testwait.Context(t, patience), ops[i])))
				p := published(t, server, d.ID)
				if i%2 == 1 {
					continue
				}
				versions := in.versions(d.ID)
				if len(versions) == 0 || slices.Max(versions) != p.Version {
					t.Errorf("%s: came with versions %v, published as %d", point, versions, p.Version)
				}
				// Whoever stands still for a second loses its claim as if it had died.
				if testwait.Torture() && point == "publish.claimed" && len(versions) > 1 {
					t.Errorf("%s: came with versions %v", point, versions)
				}
			}
			art.check(t, made)
			auditNow(t, database)
			if t.Failed() {
				t.Fatalf("after round %d, %s", round, point)
			}
		}
	}
	t.Logf("%d deaths, %d repeats of webhooks, %d to the account, of which %d uploaded again", deaths, in.check(t), made, art.Calls("stash/submit")-made)
}

// TestStoppedPublisherIsRefused stops a server in the middle of a delivery until another one has taken its publication over,
// and wakes it. Its result is refused and noted.
func TestStoppedPublisherIsRefused(t *testing.T) {
	beside(t)
	database := newDatabase(t)
	first := newServer(t, database, publishingArgs()...)
	in := newInbox(t)
	in.register(t, first)
	second := newServer(t, database, publishingArgs()...)
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	in.mu.Lock()
	in.answer = func(_ string, n int) {
		if n == 1 {
			arrived <- struct{}{}
			<-release
		}
	}
	in.mu.Unlock()
	for round := range testwait.Count(2, 200) {
		var p publication
		ask(t, first, "/v1/publications", `{"target":"inbox","publish_at":"2020-01-01T00:00:00Z","payload":1}`, &p)
		await(t, "the delivery", arrived)
		holder, other := first, second
		if running(t, second) > 0 {
			holder, other = second, first
		}
		testwait.Must(t, holder.Signal(syscall.SIGSTOP))
		done := published(t, other, p.ID)
		release <- struct{}{}
		testwait.Must(t, holder.Signal(syscall.SIGCONT))
		stopped := in.versions(p.ID)[0]
		testwait.Eventually(t, patience, fmt.Sprintf("round %d: attempt %d was stopped, and is refused", round, stopped), func() bool {
			results := attemptsOf(t, other, p.ID)
			return results[stopped] == "refused" && results[done.Version] == "published" && len(results) >= 2
		})
		if again := read(t, other, "/v1/publications/"+p.ID); again.Status != "published" || again.Version != done.Version {
			t.Fatalf("%+v became %+v", done, again)
		}
	}
	in.check(t)
	auditNow(t, database)
}

// attemptsOf are the results of a publication's attempts by version, empty while they run. There may be more of them than
// workers that were stopped: on a machine that is busy enough a claim of a second is lost by itself.
func attemptsOf(t *testing.T, server *sim.Server, id string) map[int64]string {
	t.Helper()
	results := map[int64]string{}
	for _, a := range read(t, server, "/v1/publications/"+id+"/attempts").Items {
		results[a.Version] = ""
		if a.Result != nil {
			results[a.Version] = *a.Result
		}
	}
	return results
}

// running asks a server's metrics how many attempts it makes.
func running(t *testing.T, server *sim.Server) int {
	t.Helper()
	_, rest, found := bytes.Cut(metricsOf(t, server), []byte("\nfairlead_publish_running "))
	if !found {
		t.Fatal("no metric of running attempts")
	}
	value, _, _ := bytes.Cut(rest, []byte("\n"))
	n, err := strconv.Atoi(string(value))
	testwait.Must(t, err)
	return n
}

// TestAllDueAtOnce has several servers publish what becomes due in one moment: each publication once, and none late.
func TestAllDueAtOnce(t *testing.T) {
	beside(t)
	database := newDatabase(t)
	servers := make([]*sim.Server, testwait.Count(3, 5))
	for i := range servers {
		servers[i] = newServer(t, database, "--allow-private-targets")
	}
	in := newInbox(t)
	in.register(t, servers[0])
	n := testwait.Count(300, 1000)
	at := time.Now().Add(time.Duration(testwait.Count(10, 40)) * time.Second)
	ids := make(chan string, n)
	var making sync.WaitGroup
	for worker := range 16 {
		making.Go(func() {
			for i := worker; i < n; i += 16 {
				var p publication
				ask(t, servers[i%len(servers)], "/v1/publications",
					fmt.Sprintf(`{"target":"inbox","publish_at":%q,"payload":{"n":%d}}`, at.UTC().Format(time.RFC3339Nano), i), &p)
				ids <- p.ID
			}
		})
	}
	making.Wait()
	close(ids)
	if time.Now().After(at) {
		t.Skip("this machine was too slow to schedule them all in time")
	}
	// Whoever asks for a thousand publications while they are sent measures the asking, too.
	await(t, "the deliveries", in.all(n))
	for id := range ids {
		published(t, servers[0], id)
		if versions := in.versions(id); len(versions) != 1 || versions[0] != 1 {
			t.Errorf("%s came with versions %v", id, versions)
		}
	}
	in.check(t)
	auditNow(t, database)
	var late time.Duration
	testwait.Must(t, pgtest.Connect(t, database).QueryRow(t.Context(), `SELECT max(published_at - publish_at) FROM publications`).Scan(&late))
	if testwait.Torture() && late > 2*time.Second {
		t.Errorf("the last one was published %v late", late)
	}
	claims := claimTimes(t, servers)
	t.Logf("%d publications, %d servers, the last one %v late, p99 of claims %v", n, len(servers), late, claims)
}
