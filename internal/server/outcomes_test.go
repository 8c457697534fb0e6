package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sim/wire"
)

// kindOfRequest makes requests of one kind, each of which can be carried out once.
type kindOfRequest struct {
	name string
	// make prepares a request and returns it without its key.
	make func(e *env) send
}

func postOf(path, format string, args ...any) send {
	return send{method: http.MethodPost, path: path, body: fmt.Sprintf(format, args...)}
}

// kindsOfRequests has one of each way in which a request is carried out: by lane or alone, at once or by a run that it
// starts, ahead of what is read or under locks.
func kindsOfRequests() []kindOfRequest {
	name := func() string { return "n-" + newUUID() }
	return []kindOfRequest{
		{"account", func(*env) send { return postOf("/v1/accounts", `{"id":%q,"currency":"EUR"}`, name()) }},
		{"deposit", func(*env) send { return postOf("/v1/deposits", `{"account":"alice","amount":5}`) }},
		{"transfer", func(*env) send { return postOf("/v1/transfers", `{"from":"alice","to":"bob","amount":1}`) }},
		{"refused withdrawal", func(*env) send { return postOf("/v1/withdrawals", `{"account":"bob","amount":90000000}`) }},
		{"hold", func(*env) send { return postOf("/v1/holds", `{"account":"alice","amount":1}`) }},
		{"capture", func(e *env) send {
			hold := e.post("/v1/holds", `{"account":"alice","amount":1}`).str("id")
			return postOf("/v1/holds/"+hold+"/capture", `{"to":"bob"}`)
		}},
		{"release", func(e *env) send {
			return postOf("/v1/holds/"+e.post("/v1/holds", `{"account":"alice","amount":1}`).str("id")+"/release", ``)
		}},
		{"campaign", func(*env) send {
			return postOf("/v1/campaigns", `{"name":"n","base_length":2,"price":1,"currency":"EUR","beneficiary":"bob","prizes":[{"name":"a","quantity":1}]}`)
		}},
		{"opening of a campaign", func(e *env) send {
			return postOf("/v1/campaigns/"+e.campaign(`"base_length":2`, "")+"/publish", ``)
		}},
		{"purchase", func(e *env) send {
			return postOf("/v1/campaigns/"+e.onSale(`"base_length":2`, "")+"/purchases", `{"account":"alice"}`)
		}},
		{"last purchase", func(e *env) send {
			return postOf("/v1/campaigns/"+e.onSale(`"base_length":1`, "")+"/purchases", `{"account":"alice"}`)
		}},
		{"refunds", func(e *env) send {
			id := e.onSale(`"base_length":2`, "")
			e.buy(id, "alice").want(http.StatusCreated)
			return postOf("/v1/campaigns/"+id+"/cancel", ``)
		}},
		{"start of an auction", func(e *env) send { return postOf("/v1/auctions/"+e.auctioned(twoRounds, "")+"/start", ``) }},
		{"bid", func(e *env) send {
			return postOf("/v1/auctions/"+e.started(twoRounds, "")+"/bids", `{"account":"alice","amount":1}`)
		}},
		{"end of an auction", func(e *env) send {
			id := e.started(twoRounds, "")
			e.bid(id, "alice", 1).want(http.StatusCreated)
			return postOf("/v1/auctions/"+id+"/cancel", ``)
		}},
		{"draws at once", func(*env) send {
			return postOf("/v1/multidraws", `{"lock_key":%q,"count":3,"range":{"min":1,"max":6}}`, name())
		}},
		{"draws by a run", func(*env) send {
			return postOf("/v1/multidraws", `{"lock_key":%q,"count":50000,"range":{"min":1,"max":6}}`, name())
		}},
		{"rollback of draws", func(e *env) send {
			made := e.post("/v1/multidraws", fmt.Sprintf(`{"lock_key":%q,"count":3,"range":{"min":1,"max":6}}`, name()))
			return postOf("/v1/multidraws/"+made.str("id")+"/rollback", ``)
		}},
		{"target", func(*env) send {
			return postOf("/v1/targets", `{"name":%q,"kind":"webhook","url":"https://example.com"}`, name())
		}},
		{"publication", func(e *env) send { return postOf("/v1/publications", `{"target":"shop","payload":1}`) }},
		{"cancelled publication", func(e *env) send {
			return postOf("/v1/publications/"+e.post("/v1/publications", `{"target":"shop","payload":1}`).str("id")+"/cancel", ``)
		}},
		{"lock", func(*env) send { return postOf("/v1/locks", `{"keys":[%q],"owner":"o","ttl":"1h"}`, name()) }},
		{"renewal of a lock", func(e *env) send {
			return postOf("/v1/locks/"+e.lock("o", "1h", "", name()).str("id")+"/renew", `{"ttl":"2h"}`)
		}},
		{"release of a lock", func(e *env) send {
			return send{method: http.MethodDelete, path: "/v1/locks/" + e.lock("o", "1h", "", name()).str("id")}
		}},
		{"API key", func(*env) send {
			return postOf("/v1/keys", `{"role":"service","name":"n","hash":"%s"}`, strings.Repeat(strings.ReplaceAll(newUUID(), "-", ""), 2))
		}},
		{"transfer between ledgers", func(*env) send {
			return postOf("/v1/cross-transfers", `{"from":{"ledger":"local","account":"alice"},"to":{"ledger":"local","account":"bob"},"amount":1,"mode":"saga"}`)
		}},
		{"leg of another server's transfer", func(*env) send {
			return postOf("/v1/cross-legs", "%s", legBody(newUUID(), "debit", "alice", 1, ""))
		}},
	}
}

// newEnvForKinds has what requests of all kinds need, behind a proxy that can take the database away.
func newEnvForKinds(t *testing.T, unavailableAfter time.Duration) *env {
	t.Helper()
	e := newEnvWith(t, setup{proxied: true, unavailableAfter: unavailableAfter})
	e.patient = true
	e.account("alice", "EUR", 1_000_000)
	e.account("bob", "EUR", 0)
	e.account("house", "EUR", 0)
	e.target("shop", "https://example.com")
	e.patient = false
	tending, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var tended sync.WaitGroup
	tended.Go(func() { e.multidraw.Reconcile(tending) })
	t.Cleanup(func() { stop(); tended.Wait() })
	return e
}

// TestOutcomesTellTheTruth takes the database away at the steps of each kind of request, compares what the server then says
// with what has happened, and lets the same key settle it. It does so for requests that are new, and for ones that were
// carried out before. With FAIRLEAD_TORTURE set it meets every step in every manner, else a part of them.
func TestOutcomesTellTheTruth(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	manners := []wire.Manner{wire.Unsent, wire.Carried, wire.Silent}
	const servers = 4 // nearly all of the time is spent on waiting
	work := make(chan takenAway, 1000)
	for _, kind := range kindsOfRequests() {
		if os.Getenv("FAIRLEAD_TORTURE") == "" {
			const stride = 6
			work <- takenAway{kind: kind, manner: manners[rng.IntN(len(manners))], first: rng.IntN(stride), stride: stride}
			continue
		}
		for _, manner := range manners {
			work <- takenAway{kind: kind, manner: manner, stride: 1}
		}
	}
	close(work)
	var group sync.WaitGroup
	defer group.Wait()
	for n := range servers {
		serve := func(t *testing.T) { //nolint:thelper // It is the test.
			e := newEnvForKinds(t, outage)
			for w := range work {
				e.takeAway(w)
			}
		}
		group.Go(func() { t.Run(fmt.Sprintf("server %d", n+1), serve) })
	}
}

// takenAway is a kind of request that meets an outage at every stride-th step, from the first one on.
type takenAway struct {
	kind          kindOfRequest
	manner        wire.Manner
	first, stride int
}

// outage is how long servers of these tests wait for their database: as long as others. Within less, a machine that is slow and busy makes no
// connection, and each that is given up costs the database another process.
const outage = 5 * time.Second

// mostSteps is more than most requests have. Those that wait for a run take steps for as long as they wait.
const mostSteps = 20

func (e *env) takeAway(w takenAway) {
	e.t.Helper()
	began, start := 0, time.Now()
	for _, repeated := range []bool{false, true} {
		for step, ended := w.first, false; !ended && step < mostSteps; step += w.stride {
			s := e.patiently(w.kind)
			s.key = newUUID()
			var first *reply
			if repeated {
				first = e.answered(s, "before an outage: "+w.kind.name)
			}
			eventually(e.t, patience, "nothing runs in the background", func() bool {
				return e.count("multidraws WHERE status = 'running'")+e.count("sagas WHERE status = 'pending'") == 0
			})
			before := e.snapshot()
			e.proxy.TakeAway(step, w.manner)
			said := e.send(s)
			what := fmt.Sprintf("%s, step %d, manner %d, repeated %v: %d %s", w.kind.name, step, w.manner, repeated, said.status, said.body)
			if said.status >= http.StatusInternalServerError {
				said.equal(`{"retryable":true}`)
				switch outcome := said.str("outcome"); {
				case outcome == "not_applied" && repeated:
					e.t.Errorf("it was applied before: %s", what)
				case outcome == "not_applied":
					e.unchanged(before)
				case outcome != "unknown":
					e.t.Errorf("outcome %s: %s", outcome, what)
				}
			}
			if e.proxy.GiveBack() {
				began++
			} else {
				ended = said.status < http.StatusInternalServerError
			}
			e.settles(s, said, first, what)
		}
	}
	e.t.Logf("%s, manner %d: %d outages in %s", w.kind.name, w.manner, began, time.Since(start).Round(time.Millisecond))
}

// patiently makes what a request needs. The database may be away for a moment more where the machine is slow.
func (e *env) patiently(k kindOfRequest) send {
	e.t.Helper()
	e.patient = true
	defer func() { e.patient = false }()
	return k.make(e)
}

// answered repeats a request until it is decided.
func (e *env) answered(s send, what string) (last *reply) {
	e.t.Helper()
	eventually(e.t, patience, "an answer: "+what, func() bool {
		last = e.send(s)
		return last.status < http.StatusInternalServerError
	})
	return last
}

// settles repeats a request until it is decided, and fails unless there is one decision, which all that was said agrees with.
func (e *env) settles(s send, said, first *reply, what string) {
	e.t.Helper()
	last := e.answered(s, what)
	for _, earlier := range []*reply{said, first} {
		if earlier != nil && earlier.status < http.StatusInternalServerError && (last.status != earlier.status || string(last.body) != string(earlier.body)) {
			e.t.Errorf("another decision: %d %s, after %s", last.status, last.body, what)
		}
	}
	if last.status >= http.StatusBadRequest && last.status != http.StatusPaymentRequired {
		e.t.Errorf("settled by %d %s, after %s", last.status, last.body, what)
	}
	if again := e.answered(s, what); string(again.body) != string(last.body) || again.header.Get("Idempotent-Replayed") == "" {
		e.t.Errorf("again: %d %s, after %s", again.status, again.body, what)
	}
}
