package server

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/auth"
)

// hangTimeout is how long these tests wait for what must not hang, also on a machine that stalls.
const hangTimeout = time.Minute

// hang makes every read of a table wait until the returned function is called.
func (e *env) hang(table string) (release func()) {
	e.t.Helper()
	conn := e.connect()
	tx, err := conn.Begin(e.t.Context())
	must(e.t, err)
	_, err = tx.Exec(e.t.Context(), `LOCK TABLE `+pgx.Identifier{table}.Sanitize()+` IN ACCESS EXCLUSIVE MODE`)
	must(e.t, err)
	release = sync.OnceFunc(func() { _ = conn.Close(context.Background()) })
	e.t.Cleanup(release)
	return release
}

// blocked is how many sessions wait for a lock.
func (e *env) blocked() int {
	e.t.Helper()
	return e.count("pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
}

// crowd sends a request n times at once; the returned function waits for the answers.
func (e *env) crowd(n int, s send) (answers func() []*reply) {
	e.t.Helper()
	responses, errs := make([]*http.Response, n), make([]error, n)
	var asking sync.WaitGroup
	for i := range n {
		asking.Go(func() { responses[i], errs[i] = e.trySend(s) })
	}
	return func() []*reply {
		e.t.Helper()
		asking.Wait()
		replies := make([]*reply, n)
		for i := range n {
			must(e.t, errs[i])
			replies[i] = e.received(s.method, s.path, s.body, responses[i])
		}
		return replies
	}
}

// readers is a crowd that reads.
func (e *env) readers(n int, path string) (answers func() []*reply) {
	e.t.Helper()
	return e.crowd(n, send{method: http.MethodGet, path: path})
}

// once sends a request n times at once under one key. All get the same bytes, and one answer is the executed request's own.
func (e *env) once(n int, path, body string, status int) {
	e.t.Helper()
	own := 0
	replies := e.crowd(n, send{method: http.MethodPost, path: path, body: body, key: newUUID()})()
	for _, r := range replies {
		if r.want(status); !bytes.Equal(r.body, replies[0].body) {
			e.t.Errorf("%s: two answers: %s and %s", path, r.body, replies[0].body)
		}
		if r.header.Get("Idempotent-Replayed") == "" {
			own++
		}
	}
	if own != 1 {
		e.t.Errorf("%s: %d of %d answers claim to be the executed one", path, own, n)
	}
}

// within sends a command that must be answered though others hang.
func (e *env) within(path, body string) *reply {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), hangTimeout)
	defer cancel()
	response, err := e.trySendIn(ctx, send{method: http.MethodPost, path: path, body: body, key: newUUID()})
	if err != nil {
		e.t.Fatalf("POST %s hangs: %v", path, err)
	}
	return e.received(http.MethodPost, path, body, response)
}

// TestCommandsGoOnWhileAllReadsHang locks a table that only reads look at, and keeps more reads of it under way than there
// are connections. Money moves, bids and purchases are taken, and rounds are found and closed all the same.
func TestCommandsGoOnWhileAllReadsHang(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1000)
	e.account("bob", "EUR", 1000)
	sale := e.onSale(`"base_length":4`, "")
	drawn := e.onSale(`"base_length":1`, "")
	e.buy(drawn, "alice").want(http.StatusCreated)
	auction := e.started(`[{"winners":1,"duration":"1h"}]`, "")
	release := e.hang("draws")

	stop := make(chan struct{})
	var reading sync.WaitGroup
	const readers = 48
	for range readers {
		reading.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if response, err := e.trySend(send{method: http.MethodGet, path: "/v1/campaigns/" + drawn + "/draw"}); err == nil {
					_ = response.Body.Close()
				}
			}
		})
	}
	defer reading.Wait()
	defer close(stop)
	defer release()
	eventually(t, patience, "reads hang", func() bool { return e.blocked() > 0 })
	for range 10 {
		e.within("/v1/deposits", `{"account":"alice","amount":5}`).want(http.StatusCreated)
	}
	e.within("/v1/transfers", `{"from":"alice","to":"bob","amount":5}`).want(http.StatusCreated)
	e.within("/v1/campaigns/"+sale+"/purchases", `{"account":"alice"}`).want(http.StatusCreated)
	e.within("/v1/auctions/"+auction+"/bids", `{"account":"bob","amount":100}`).want(http.StatusCreated)
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	if open, _, err := e.auction.Running(ctx); err != nil || len(open) != 1 {
		t.Fatalf("the leader sees %d rounds, %v", len(open), err)
	}
	e.closeRound(auction, 1)
	e.by("").get("/readyz").want(http.StatusOK)
}

// TestAProofIsBuiltOnce asks for one campaign's documents many times while the table that they are made from is locked. One
// read at a time makes each of them, and all who ask are given the same bytes.
func TestAProofIsBuiltOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 10000)
	id := e.onSale(`"base_length":6`, `,"prizes":[{"name":"<car> & \"more\"","quantity":3}]`)
	for range 21 {
		e.buy(id, "alice").want(http.StatusCreated)
	}
	base := "/v1/campaigns/" + id
	position := e.get(base + "/positions").want(http.StatusOK).str("items.3.id")
	release := e.hang("purchases")
	const proofs, inclusions = 48, 32
	user := e.by(e.user("alice"))
	whole, member, anybody := user.readers(proofs/2, base+"/proof"), user.readers(1, base+"/proof/positions/"+position),
		e.by("").readers(inclusions, "/p/campaigns/"+id+"/positions/"+position)
	more := e.readers(proofs/2, base+"/proof")
	eventually(t, patience, "the proof is being built", func() bool { return e.blocked() > 0 })
	// A tree and a proof, each built once.
	const most = 2
	e.account("carol", "EUR", 100)
	if n := e.blocked(); n > most {
		t.Errorf("%d reads build the documents of one campaign at once", n)
	}
	release()
	var first []byte
	for _, r := range append(whole(), more()...) {
		if body := r.want(http.StatusOK).body; first == nil {
			first = body
		} else if !bytes.Equal(first, body) {
			t.Fatalf("two proofs of one draw:\n%s\n%s", first, body)
		}
	}
	for _, r := range append(member(), anybody()...) {
		r.want(http.StatusOK)
	}
	if strings.Contains(string(first), `\u003c`) {
		t.Error("the proof's text is escaped for HTML, which it was not before")
	}
	for document, want := range map[string]float64{"proof": 1, "tree": 1} {
		if got := e.metric(`fairlead_documents_built_total{document="` + document + `"}`); got != want {
			t.Errorf("%s: built %v times", document, got)
		}
	}
}

// TestHeavyReadsAreRefusedBeyondTheirQueue fills the places and the queue of a kind of reads, and asks once more.
func TestHeavyReadsAreRefusedBeyondTheirQueue(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	release := e.hang("entries")
	answers := e.readers(checksAtOnce+checksQueued, "/v1/integrity")
	waiting := `fairlead_heavy_reads_waiting{kind="check"}`
	eventually(t, patience, "the queue is full", func() bool {
		return strings.Contains(string(e.by("").get("/metrics").body), waiting) && e.metric(waiting) == checksQueued
	})
	r := e.get("/v1/integrity").problem(http.StatusServiceUnavailable, "overloaded")
	if r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if n := e.blocked(); n > checksAtOnce {
		t.Errorf("%d checks run at once", n)
	}
	release()
	for _, r := range answers() {
		r.want(http.StatusOK)
	}
	if n := e.metric(`fairlead_heavy_reads_refused_total{kind="check"}`); n != 1 {
		t.Errorf("%v were refused", n)
	}
}

// TestVisitorsLeaveEntrantsAlone floods the public pages with requests for positions while all documents that are being built
// hang. Visitors who are not refused are answered, entrants get their proofs, and a campaign that is on sale is read once a request.
func TestVisitorsLeaveEntrantsAlone(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1000)
	id := e.onSale(`"base_length":1`, "")
	path := "/campaigns/" + id + "/proof/positions/" + e.get("/v1/campaigns/"+id+"/positions").str("items.0.id")
	public := strings.Replace("/p"+path, "/proof/", "/", 1)
	entrant, visitor := e.by(e.user("alice")), e.by("")
	const taken = `fairlead_database_connections_taken_total{pool="reads"}`
	entrant.get("/v1"+path).problem(http.StatusNotFound, "not_drawn")
	before := e.metric(taken)
	entrant.get("/v1"+path).problem(http.StatusNotFound, "not_drawn")
	if n := e.metric(taken) - before; n != 1 {
		t.Errorf("a campaign that is not sealed was read %v times", n)
	}
	e.buy(id, "alice").want(http.StatusCreated)
	entrant.get("/v1" + path).want(http.StatusOK)
	occupy := func(b *bound) (leave func()) {
		leave, err := b.enter(t.Context())
		must(t, err)
		return leave
	}
	for range buildsAtOnce {
		defer occupy(e.server.archive.builds)()
	}
	leave := occupy(e.server.archive.public)
	answers := visitor.readers(proofsQueued, public)
	const waiting = `fairlead_heavy_reads_waiting{kind="public"}`
	eventually(t, patience, "the visitors wait", func() bool { return e.metric(waiting) == proofsQueued })
	visitor.get(public).problem(http.StatusServiceUnavailable, "overloaded")
	entrant.get("/v1" + path).want(http.StatusOK)
	leave()
	for _, r := range answers() {
		r.want(http.StatusOK)
	}
}

// TestWeights counts a proof as many requests.
func TestWeights(t *testing.T) {
	t.Parallel()
	const quota = 2*proofWeight + 3
	e := newEnvWith(t, setup{limiter: &auth.LimiterOptions{Quota: quota, Window: time.Hour}})
	e.account("alice", "EUR", 1000)
	id := e.onSale(`"base_length":1`, "")
	e.buy(id, "alice").want(http.StatusCreated)
	user := e.by(e.user("alice"))
	for range 2 {
		user.get("/v1/campaigns/" + id + "/proof").want(http.StatusOK)
	}
	refused := user.get("/v1/campaigns/"+id+"/proof").problem(http.StatusTooManyRequests, "rate_limited")
	if after := refused.header.Get("Retry-After"); after == "" || after == "1" {
		t.Errorf("Retry-After %q", after)
	}
	user.get("/v1/campaigns/" + id).want(http.StatusOK)
}

// TestReadsTakeNoConnectionOfCommands asks for everything there is to read, and counts the connections that it took from the
// commands.
func TestReadsTakeNoConnectionOfCommands(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1000)
	hold := e.post("/v1/holds", `{"account":"alice","amount":10}`).want(http.StatusCreated).str("id")
	transfer := e.post("/v1/deposits", `{"account":"alice","amount":10}`).want(http.StatusCreated).str("id")
	drawn := e.onSale(`"base_length":1`, "")
	position := e.buy(drawn, "alice").want(http.StatusCreated).str("position.id")
	auction := e.started(`[{"winners":1,"duration":"1h"}]`, "")
	multidraw := e.post("/v1/multidraws", `{"lock_key":"one","count":1,"range":{"min":1,"max":6}}`).want(http.StatusCreated).str("id")
	ids := map[string]string{
		"/v1/accounts/{id}": "alice", "/v1/holds/{id}": hold, "/v1/transfers/{id}": transfer, "/v1/campaigns/{id}": drawn,
		"/v1/auctions/{id}": auction, "/v1/multidraws/{id}": multidraw, "/p/campaigns/{id}": drawn, "/p/auctions/{id}": auction,
		"/v1/admin/campaigns/{id}": drawn, "/v1/admin/auctions/{id}": auction, "/v1/admin/accounts/{id}": "alice",
	}
	// What the log of sagas and the locks read of themselves, a few rows for an operator, goes by the connections that they
	// write with.
	own := []string{"/v1/sagas", "/v1/admin/sagas", "/v1/cross-transfers", "/v1/in-doubt", "/v1/locks", "/readyz"}
	taken := func() float64 { return e.metric(`fairlead_database_connections_taken_total{pool="commands"}`) }
	for _, r := range e.server.routes() {
		if r.method != http.MethodGet || strings.HasPrefix(r.path, "/v1/live") || slices.ContainsFunc(own, func(p string) bool { return strings.HasPrefix(r.path, p) }) {
			continue
		}
		path := strings.Replace(r.path, "{position}", position, 1)
		for prefix, id := range ids {
			if strings.HasPrefix(path, prefix) {
				path = strings.Replace(path, "{id}", id, 1)
			}
		}
		path = strings.Replace(path, "{id}", newUUID(), 1)
		takes := func(times int) float64 {
			before := taken()
			for range times {
				response, err := e.trySend(send{method: http.MethodGet, path: path})
				must(t, err)
				must(t, response.Body.Close())
			}
			return taken() - before
		}
		// The first time the credential is looked up, and what works in the background may take a connection at any time. On a slow machine
		// it does so all the time, but as often without reads as with them.
		const tries, many = 10, 40
		try := 1
		for try <= tries && takes(1) > 0 {
			try++
		}
		if try <= tries {
			continue
		}
		with, without := 0.0, 0.0
		for try = 1; try <= tries && with-without >= many/2 || try == 1; try++ {
			began := time.Now()
			with = takes(many)
			before, lasted := taken(), time.Since(began)
			time.Sleep(lasted) // It is the measure: what the background takes in that time.
			without = taken() - before
		}
		if with-without >= many/2 {
			t.Errorf("GET %s, %d times, takes %v connections of the commands; as long without it, %v are taken", path, many, with, without)
		}
	}
}
