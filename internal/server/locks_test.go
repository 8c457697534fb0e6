package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/lock/lockprom"
)

// atOnce is for what happens at once, or at a time that has come. What takes longer was overlooked, or the machine has stalled.
const atOnce = 15 * time.Second

// beside starts another server process' worth of the lock service and of the ledger on the same database.
func (e *env) beside() *env {
	e.t.Helper()
	registry := prometheus.NewRegistry()
	db, err := postgres.Open(e.t.Context(), postgres.Options{URL: e.dbURL, MaxConns: 8, Patience: patience, UnavailableAfter: patience, Logger: slog.New(slog.NewTextHandler(e.logs, nil))})
	must(e.t, err)
	other := *e
	other.keys = postgres.NewAPIKeys(db)
	other.locks = postgres.NewLocks(db, lockprom.New(registry))
	authenticator, err := auth.New(auth.Options{Store: other.keys, JWT: auth.JWTOptions{Secret: []byte(jwtSecret)}})
	must(e.t, err)
	other.ledger = newLedger(db)
	other.server, err = New(Options{Ledger: other.ledger, Auction: e.auction, Publish: e.publish, Cross: e.cross, Operator: e.server.Operator, Locks: other.locks, Keys: other.keys, Auth: authenticator, Ready: db.Ready, Registry: registry, Version: "test"})
	must(e.t, err)
	listener := httptest.NewServer(other.server.Handler())
	other.url = listener.URL
	e.t.Cleanup(func() {
		e.http.CloseIdleConnections()
		listener.Close()
		if err := errors.Join(other.locks.Close(context.Background()), other.ledger.Close(context.Background())); err != nil {
			e.t.Error(err)
		}
		authenticator.Close()
		db.Close()
	})
	return &other
}

// lockBody asks for keys; wait may be empty.
func lockBody(owner, ttl, wait string, keys ...string) string {
	body := fmt.Sprintf(`{"keys":%s,"owner":%q,"ttl":%q`, mustMarshal(keys), owner, ttl)
	if wait != "" {
		body += fmt.Sprintf(`,"wait":%q`, wait)
	}
	return body + `}`
}

func (e *env) lock(owner, ttl, wait string, keys ...string) *reply {
	e.t.Helper()
	return e.post("/v1/locks", lockBody(owner, ttl, wait, keys...))
}

func (e *env) unlock(id string) *reply {
	e.t.Helper()
	return e.send(send{method: http.MethodDelete, path: "/v1/locks/" + id, key: newUUID()})
}

// lockReply is an answer to a request that was made in the background.
type lockReply struct {
	who    int
	status int
	body   struct {
		ID     string           `json:"id"`
		Tokens map[string]int64 `json:"tokens"`
		Code   string           `json:"code"`
		Cycle  []string         `json:"cycle"`
	}
	raw string
	at  time.Time
	err error
}

// lockAsync posts in the background, again what a machine that stalls has left unanswered; it may be called from any goroutine.
func (e *env) lockAsync(ctx context.Context, who int, key, body string) <-chan lockReply {
	c := make(chan lockReply, 1)
	go func() {
		var r lockReply
		for until := time.Now().Add(patience); ; {
			asked := time.Now()
			r = e.lockOnce(ctx, who, key, body)
			if !e.stalled(r.status, r.body.Code, r.at.Sub(asked)) || r.at.After(until) {
				break
			}
		}
		c <- r
	}()
	return c
}

func (e *env) lockOnce(ctx context.Context, who int, key, body string) (r lockReply) {
	r.who = who
	response, err := e.trySendIn(ctx, send{method: http.MethodPost, path: "/v1/locks", body: body, key: key})
	if err != nil {
		r.err = err
		return r
	}
	defer func() { _ = response.Body.Close() }()
	r.status, r.at = response.StatusCode, time.Now()
	raw, err := io.ReadAll(response.Body)
	r.raw = string(raw)
	r.err = errors.Join(err, json.Unmarshal(raw, &r.body))
	return r
}

func (e *env) trySendIn(ctx context.Context, s send) (*http.Response, error) {
	request, err := e.request(ctx, s)
	if err != nil {
		return nil, err
	}
	return e.http.Do(request)
}

// waitersAre polls until as many requests wait.
func (e *env) waitersAre(n int) {
	e.t.Helper()
	eventually(e.t, patience, fmt.Sprintf("%d requests wait", n), func() bool {
		return len(e.by(e.admin).get("/v1/locks").want(http.StatusOK).at("waiters").([]any)) == n //nolint:errcheck // Another shape fails the test.
	})
}

func TestLockLifecycle(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.by(e.service)
	key := newUUID()
	first := s.keyed(key, "/v1/locks", lockBody("me", "5m", "", "b", "a", "b")).want(http.StatusCreated)
	first.exactly(first.decoded, "id", "owner", "tokens", "expires_at").equal(`{"owner":"me","tokens":{"a":1,"b":1}}`).uuids("id").times("expires_at")
	id := first.str("id")
	s.keyed(key, "/v1/locks", lockBody("me", "5m", "0s", "b", "a", "b")).problem(http.StatusUnprocessableEntity, "idempotency_key_reused")
	s.keyed(key, "/v1/locks", lockBody("me", "5m", "", "b", "a", "b")).want(http.StatusCreated).replayed(first)
	s.keyed(key, "/v1/locks", lockBody("me", "5m", "", "c")).problem(http.StatusUnprocessableEntity, "idempotency_key_reused")

	// All or nothing; and what may change is not stored.
	again := newUUID()
	held := s.keyed(again, "/v1/locks", lockBody("you", "5m", "", "c", "a")).problem(http.StatusConflict, "lock_held")
	if string(mustMarshal(held.at("retryable"))) != "true" {
		t.Errorf("lock_held is not retryable: %s", held.body)
	}
	s.lock("them", "1s", "", "c").want(http.StatusCreated)

	all := e.get("/v1/locks").want(http.StatusOK)
	all.exactly(all.decoded, "holders", "waiters", "edges").times("holders.0.granted_at", "holders.0.expires_at")
	if all.str("holders.0.id") != id || all.num("holders.0.tokens.b") != 1 {
		t.Errorf("holders: %s", all.body)
	}
	s.get("/v1/locks").problem(http.StatusForbidden, "forbidden")
	e.by(e.user("alice")).post("/v1/locks", lockBody("me", "5m", "", "z")).problem(http.StatusForbidden, "forbidden")

	renewKey := newUUID()
	renewed := s.keyed(renewKey, "/v1/locks/"+id+"/renew", ``).want(http.StatusOK).equal(`{"owner":"me","tokens":{"a":1,"b":1}}`).times("expires_at")
	if renewed.str("expires_at") <= first.str("expires_at") {
		t.Errorf("renewed from %s to %s", first.str("expires_at"), renewed.str("expires_at"))
	}
	s.keyed(renewKey, "/v1/locks/"+id+"/renew", ``).want(http.StatusOK).replayed(renewed)
	longer := s.post("/v1/locks/"+id+"/renew", `{"ttl":"10m"}`).want(http.StatusOK)
	after := s.post("/v1/locks/"+id+"/renew", `{"ttl":null}`).want(http.StatusOK)
	if longer.str("expires_at") < renewed.str("expires_at") || after.str("expires_at") < longer.str("expires_at") {
		t.Errorf("renewed to %s, then to %s, as before", longer.str("expires_at"), after.str("expires_at"))
	}

	deleteKey := newUUID()
	gone := s.send(send{method: http.MethodDelete, path: "/v1/locks/" + id, key: deleteKey}).want(http.StatusNoContent)
	if len(gone.body) != 0 || gone.header.Get("Content-Type") != "" {
		t.Errorf("204 with a body: %q, %v", gone.body, gone.header)
	}
	if r := s.send(send{method: http.MethodDelete, path: "/v1/locks/" + id, key: deleteKey}).want(http.StatusNoContent); r.header.Get("Idempotent-Replayed") != "true" {
		t.Error("the repeated release is no replay")
	}
	lost := newUUID()
	first410 := s.keyed(lost, "/v1/locks/"+id+"/renew", ``).problem(http.StatusGone, "lock_lost")
	s.keyed(lost, "/v1/locks/"+id+"/renew", ``).problem(http.StatusGone, "lock_lost").replayed(first410)
	s.unlock(id).problem(http.StatusGone, "lock_lost")
	s.unlock("nonsense").problem(http.StatusNotFound, "not_found")
	s.unlock("00000000-0000-0000-0000-000000000000").problem(http.StatusNotFound, "not_found")

	eventually(t, patience, "the other lock expires", func() bool {
		return s.keyed(again, "/v1/locks", lockBody("you", "5m", "", "c", "a")).status == http.StatusCreated
	})
	s.keyed(again, "/v1/locks", lockBody("you", "5m", "", "c", "a")).want(http.StatusCreated).equal(`{"tokens":{"a":2,"c":2}}`)
}

// TestLockWaitsInLine hands a lock from one server to the other, in the order of asking. A process that is silent for a second loses its
// place in line, and a server that stalls is late: on a machine that stalls, the line is made again. A waiter that is passed over, or is
// not told, would be so in each.
func TestLockWaitsInLine(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	servers := []*env{e, e.beside()}
	var said string
	for try := range lockTries {
		if said = e.line(servers, fmt.Sprint("k", try)); said == "" {
			return
		}
		t.Logf("line %d: %s", try, said)
	}
	t.Error(said)
}

// lockTries is how often a line, or a ring, is made where the machine may have stalled.
const lockTries = 4

// line has four requests wait for a key, on both servers, and hands it over to each of them. It returns what a machine that stalls may be
// the reason of.
func (e *env) line(servers []*env, key string) (said string) {
	t := e.t
	t.Helper()
	first := e.lock("first", "1h", "", key).want(http.StatusCreated)
	began := time.Now()
	e.lock("late", "1h", "300ms", key).problem(http.StatusConflict, "lock_held")
	took := time.Since(began)
	if took < 300*time.Millisecond {
		t.Errorf("refused after %s", took)
	}
	if took > atOnce {
		said = fmt.Sprintf("refused after %s", took)
	}
	const waiters = 4
	answers := make(chan lockReply, waiters)
	for i := range waiters {
		c := servers[i%2].lockAsync(t.Context(), i, newUUID(), lockBody(fmt.Sprint("w", i), "1h", "5m", key))
		go func() { answers <- <-c }()
		e.waitersAre(i + 1)
	}
	edges := e.get("/v1/locks").want(http.StatusOK)
	if found, _ := edges.at("waiters").([]any); len(found) < waiters {
		said = fmt.Sprintf("%d wait", len(found))
	} else {
		edges.exactly(edges.at("edges.0"), "from", "to", "key").exactly(edges.at("waiters.0"), "owner", "keys", "since")
		if edges.str("edges.0.from") != "w0" || edges.str("edges.0.to") != "first" || edges.str("edges.0.key") != key {
			t.Errorf("edges: %s", edges.body)
		}
	}
	id, token := first.str("id"), first.num("tokens."+key)
	for i := range waiters {
		released := time.Now()
		servers[i%2].unlock(id).want(http.StatusNoContent)
		r := <-answers
		if r.err != nil || r.status != http.StatusCreated || r.body.Tokens[key] <= token {
			t.Fatalf("waiter %d: %d %s, %v", r.who, r.status, r.raw, r.err)
		}
		if r.who != i {
			said = fmt.Sprintf("waiter %d was before %d", r.who, i)
		}
		if took := r.at.Sub(released); took > atOnce {
			said = fmt.Sprintf("handed over after %s", took)
		}
		id, token = r.body.ID, r.body.Tokens[key]
	}
	e.waitersAre(0)
	return said
}

func TestLockRingsAcrossServers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	servers := []*env{e, e.beside()}
	rings := 0
	testpromise.CheckEach(t, []string{"deadlock"}, func(seen func(string, time.Duration)) {
		for n := 2; n <= 8; n++ {
			for try := 1; ; try++ {
				rings++
				took, victim := e.ring(servers, n, fmt.Sprintf("ring-%d", rings))
				if victim == n-1 {
					seen("deadlock", took)
					break
				}
				// Requests of a process that was silent for a second may have begun anew, and another one be the last.
				if t.Logf("ring of %d: victim %d", n, victim); try == lockTries {
					t.Fatalf("the last request was never the victim in a ring of %d", n)
				}
			}
		}
	})
	if count := strings.Count(e.logs.String(), "deadlock broken"); count != rings {
		t.Errorf("%d deadlocks of %d are in the log", count, rings)
	}
}

// ring has n owners wait for each other, on both servers, and returns how long after the last request the cycle was broken, and at whose cost.
func (e *env) ring(servers []*env, n int, name string) (took time.Duration, victim int) {
	t := e.t
	t.Helper()
	ids, owners := make([]string, n), make([]string, n)
	key := func(i int) string { return fmt.Sprintf("%s/%d", name, i%n) }
	for i := range n {
		owners[i] = fmt.Sprintf("owner %d of %s", i, name)
		ids[i] = servers[i%2].lock(owners[i], "1h", "", key(i)).want(http.StatusCreated).str("id")
	}
	answers := make(chan lockReply, n)
	var closed time.Time
	for i := range n {
		if i == n-1 {
			e.waitersAre(n - 1)
		}
		closed = time.Now()
		c := servers[i%2].lockAsync(t.Context(), i, newUUID(), lockBody(owners[i], "1h", "5m", key(i+1)))
		go func() { answers <- <-c }()
	}
	r := <-answers
	if r.err != nil || r.status != http.StatusConflict || r.body.Code != "deadlock" {
		t.Fatalf("ring of %d: %d %s, %v", n, r.status, r.raw, r.err)
	}
	took = r.at.Sub(closed)
	if want := slices.Concat(owners[r.who:], owners[:r.who]); !slices.Equal(r.body.Cycle, want) {
		t.Errorf("ring of %d: victim %d, cycle %q", n, r.who, r.body.Cycle)
	}
	e.lock("nosy", "1s", "", key(r.who)).problem(http.StatusConflict, "lock_held")
	e.waitersAre(n - 1)
	select {
	case second := <-answers:
		t.Fatalf("ring of %d: a second answer: %s", n, second.raw)
	default:
	}
	e.unlock(ids[r.who]).want(http.StatusNoContent)
	for range n - 1 {
		a := <-answers
		if a.err != nil || a.status != http.StatusCreated {
			t.Fatalf("ring of %d: %d %s, %v", n, a.status, a.raw, a.err)
		}
		e.unlock(a.body.ID).want(http.StatusNoContent)
		e.unlock(ids[a.who]).want(http.StatusNoContent)
	}
	// One of the servers has said so, with the owners and what each of them waited for.
	var wanted []string
	for i := range n {
		wanted = append(wanted, key(r.who+1+i))
	}
	line := fmt.Sprintf(`level=WARN msg="deadlock broken" cycle="[%s]" keys="[%s]" victim=`,
		strings.Join(slices.Concat(owners[r.who:], owners[:r.who]), " "), strings.Join(wanted, " "))
	eventually(t, patience, "the cycle is in the log once", func() bool { return strings.Count(e.logs.String(), line) == 1 })
	return took, r.who
}

func TestLockDisconnectLeavesTheLine(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	id := e.lock("first", "1h", "", "k").want(http.StatusCreated).str("id")
	ctx, cancel := context.WithCancel(t.Context())
	gone := e.lockAsync(ctx, 0, newUUID(), lockBody("gone", "1h", "5m", "k"))
	e.waitersAre(1)
	stays := e.lockAsync(t.Context(), 1, newUUID(), lockBody("stays", "1h", "5m", "k"))
	e.waitersAre(2)
	cancel()
	<-gone
	e.waitersAre(1)
	e.unlock(id).want(http.StatusNoContent)
	if r := <-stays; r.status != http.StatusCreated || r.body.Tokens["k"] != 2 {
		t.Errorf("the one behind got %d %s, %v", r.status, r.raw, r.err)
	}
}

func TestLockDuplicatesGetOneGrant(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	servers := []*env{e, e.beside()}
	for round := range 4 {
		k := fmt.Sprint("k", round)
		id := ""
		wait := ""
		if round%2 == 0 {
			id, wait = e.lock("first", "1h", "", k).want(http.StatusCreated).str("id"), "5m"
		}
		key, body := newUUID(), lockBody("me", "1h", wait, k)
		var replies []<-chan lockReply
		for i := range 6 {
			replies = append(replies, servers[i%2].lockAsync(t.Context(), i, key, body))
		}
		if id != "" {
			e.waitersAre(1)
			e.unlock(id).want(http.StatusNoContent)
		}
		var first lockReply
		for i, c := range replies {
			r := <-c
			if r.err != nil || r.status != http.StatusCreated {
				t.Fatalf("duplicate %d: %d %s, %v", i, r.status, r.raw, r.err)
			}
			if i == 0 {
				first = r
			}
			if r.raw != first.raw {
				t.Errorf("answers %s and %s", first.raw, r.raw)
			}
		}
		if n := e.count(`lock_grants WHERE $1 = ANY (keys)`, k); n != 1 {
			t.Errorf("%d grants", n)
		}
		e.waitersAre(0)
	}
}

// TestLockKeyReusedWhileWaiting uses a key for other locks while the first request under it still waits.
func TestLockKeyReusedWhileWaiting(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	id := e.lock("first", "1h", "", "k").want(http.StatusCreated).str("id")
	key := newUUID()
	waiting := e.lockAsync(t.Context(), 0, key, lockBody("me", "1h", "5m", "k"))
	e.waitersAre(1)
	e.keyed(key, "/v1/locks", lockBody("me", "1h", "", "other")).want(http.StatusCreated)
	e.unlock(id).want(http.StatusNoContent)
	if r := <-waiting; r.status != http.StatusUnprocessableEntity || r.body.Code != "idempotency_key_reused" {
		t.Errorf("%d %s, %v", r.status, r.raw, r.err)
	}
	e.lock("next", "1h", "5m", "k").want(http.StatusCreated)
}

func TestLockExpires(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	dead := e.lock("dead", "400ms", "", "k").want(http.StatusCreated)
	next := e.lock("next", "1h", "5m", "k").want(http.StatusCreated)
	if next.num("tokens.k") <= dead.num("tokens.k") {
		t.Errorf("token %d after %d", next.num("tokens.k"), dead.num("tokens.k"))
	}
	e.post("/v1/locks/"+dead.str("id")+"/renew", ``).problem(http.StatusGone, "lock_lost")
	e.unlock(dead.str("id")).problem(http.StatusGone, "lock_lost")
	e.lock("nosy", "1s", "", "k").problem(http.StatusConflict, "lock_held")
}

func TestShutdownAnswersWhoWaitsForALock(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	other := e.beside()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	other.url = "http://" + l.Addr().String()
	other.server.Ledger, other.server.Lottery, other.server.Auction = e.ledger, e.lottery, e.auction
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := other.server.Serve(ctx, l, patience); err != nil {
			t.Error(err)
		}
	})
	e.lock("first", "1h", "", "k").want(http.StatusCreated)
	waiting := other.lockAsync(t.Context(), 0, newUUID(), lockBody("me", "1h", "5m", "k"))
	e.waitersAre(1)
	stop()
	if r := <-waiting; r.status != http.StatusServiceUnavailable || r.body.Code != "shutting_down" {
		t.Errorf("%d %s, %v", r.status, r.raw, r.err)
	}
	serving.Wait()
	e.waitersAre(0)
}

// TestDatabaseWaits makes one session of the database wait for another.
func TestDatabaseWaits(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.by(e.service).get("/v1/admin/database-waits").problem(http.StatusForbidden, "forbidden")
	none := e.get("/v1/admin/database-waits").want(http.StatusOK)
	none.exactly(none.decoded, "waits")
	if got := none.at("waits").([]any); len(got) != 0 { //nolint:errcheck // Another shape fails the test.
		t.Errorf("waits: %s", none.body)
	}
	held, err := pgx.Connect(t.Context(), e.dbURL)
	must(t, err)
	defer func() { must(t, held.Close(context.Background())) }()
	tx, err := held.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE`)
	must(t, err)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		conn, err := pgx.Connect(t.Context(), e.dbURL)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close(context.Background()) }()
		if _, err := conn.Exec(t.Context(), `SELECT FROM accounts`); err != nil {
			t.Error(err)
		}
	})
	var seen *reply
	eventually(t, patience, "a session waits", func() bool {
		seen = e.get("/v1/admin/database-waits").want(http.StatusOK)
		return len(seen.at("waits").([]any)) == 1 //nolint:errcheck // Another shape fails the test.
	})
	must(t, tx.Rollback(t.Context()))
	waiting.Wait()
	seen.exactly(seen.at("waits.0"), "pid", "application", "kind", "mode", "relation", "since", "statement", "blockers").times("waits.0.since")
	seen.exactly(seen.at("waits.0.blockers.0"), "pid", "application", "state", "transaction_since", "statement")
	if seen.str("waits.0.relation") != "accounts" || seen.str("waits.0.statement") != "SELECT FROM accounts" ||
		seen.num("waits.0.blockers.0.pid") != int64(held.PgConn().PID()) || seen.str("waits.0.blockers.0.state") != "idle in transaction" {
		t.Errorf("waits: %s", seen.body)
	}
}
