package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// world is a database, two servers that remember what they know of it, each behind a proxy, and the clients' own record
// of what they asked for and were told. One goroutine owns it; bursts of commands have goroutines of their own.
type world struct {
	*testing.T

	rng     *rand.Rand
	url     string
	around  *DB // the test's own way to the database, around the proxies
	servers [2]*modelServer

	accounts []string
	auctions map[uuid.UUID]*modelAuction
	holds    []uuid.UUID
	ops      []*modelOp
	named    int // names given to accounts

	complaints []string // of what left the fast path

	copied   bool // there is a state that a failover can go back to
	copiedAt int  // how many commands there were
}

// modelServer is one server: what it remembers outlives every failure of the database.
type modelServer struct {
	n       int
	proxy   *wire.Proxy
	money   *ledger.Service
	bidding *auction.Service
	store   *Auctions
	seen    *fallbacks
}

// modelAuction is an auction as the clients know it.
type modelAuction struct {
	id      uuid.UUID
	rules   auction.Create
	over    bool             // it takes no more bids, as far as the clients know
	offered map[string]int64 // the last amount that was accepted, by account; perhaps of a time that a failover has lost
}

// modelOp is a command of a client's, under its key.
type modelOp struct {
	key     string
	auction uuid.UUID
	bid     auction.PlaceBid // where there is an auction
	money   ledger.Op        // elsewhere

	mu     sync.Mutex
	answer *idempotency.Answer // nil before there is one, and after a failover has lost it
	span   *span               // nil when nobody looked at the clock
}

func (o *modelOp) String() string {
	if o.money == nil {
		return fmt.Sprintf("%+v on %s under key %s", o.bid, o.auction, o.key)
	}
	return fmt.Sprintf("%T%+v under key %s", o.money, o.money, o.key)
}

// outcome is what an answer's body says of the decision.
type outcome struct {
	Said      string `json:"said"`
	Undecided bool   `json:"undecided"`

	// The object, as the audit looks for it.
	ID       string `json:"id"`
	Auction  string `json:"auction"`
	Seq      int64  `json:"seq"`
	Transfer string `json:"transfer"`
}

func told(a *idempotency.Answer) (o outcome) {
	if err := json.Unmarshal(a.Body, &o); err != nil {
		panic(err)
	}
	return o
}

// stored reports whether a record was to be kept of an answer.
func stored(a *idempotency.Answer) bool { return a != nil && !told(a).Undecided }

// say spells a decision, without what is new each time.
func say(result any, err error) string {
	if err != nil {
		return "refused: " + err.Error()
	}
	switch v := result.(type) {
	case auction.Placed:
		return fmt.Sprintf("placed %d after %d in round %d, rank %d, event %d", v.Amount, v.PreviousAmount, v.Round, v.Rank, v.Seq)
	case ledger.Movement:
		return fmt.Sprintf("moved %d, then %d", v.Transfer.Amount, v.Available)
	case ledger.Transfer:
		if v.Legs != nil {
			return fmt.Sprintf("%s %+v", v.Status, v.Legs)
		}
		return fmt.Sprintf("%s %d from %s to %s", v.Status, v.Amount, v.From, v.To)
	case ledger.Repeated:
		return "repeated: " + say(v.First, nil)
	case ledger.Hold:
		return fmt.Sprintf("hold of %s over %d, %s, captured %d", v.Account, v.Amount, v.Status, v.Captured)
	}
	return fmt.Sprintf("%T", result)
}

// renderModel is render with what was decided.
func renderModel(result any, err error) command.Rendered {
	r := render(result, err)
	var body map[string]any
	if err := json.Unmarshal(r.Body, &body); err != nil {
		panic(err)
	}
	body["said"] = say(result, err)
	if !r.Decided {
		body["undecided"] = true
	}
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	r.Body = raw
	return r
}

// fallbacks is an [Observer] that counts what leaves the fast path, by reason.
type fallbacks struct {
	mu sync.Mutex
	of map[string]int
}

func (f *fallbacks) Transaction(string, int, time.Duration, string) {}

func (f *fallbacks) Retry(name, reason string) { f.count(name + " run again: " + reason) }

// Fallback counts what was not speculative.
func (f *fallbacks) Fallback(name, reason string) { f.count(name + " not speculative: " + reason) }

// Blocked says nothing of the fast path.
func (f *fallbacks) Blocked(int, int)  {}
func (f *fallbacks) BlockedTables(int) {}

func (f *fallbacks) MetOldPrimary(bool) {}

func (f *fallbacks) count(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[what]++
}

func (f *fallbacks) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.of)
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{T: t, rng: rand.New(rand.NewPCG(seed, 1)), url: witnessed(t), auctions: map[uuid.UUID]*modelAuction{}}
	w.around = open(t, Options{URL: w.url, MaxConns: 4})
	testwait.Must(t, testwait.Err(w.around.pool.Exec(t.Context(), pastTables, pgx.QueryExecModeSimpleProtocol)))
	for n := range w.servers {
		proxy, through := wire.Through(t, w.url, wire.Options{Seed: seed + uint64(n), LoseOneIn: 5, Blackout: 30 * time.Millisecond})
		s := &modelServer{n: n, proxy: proxy, seen: &fallbacks{of: map[string]int{}}}
		db := open(t, Options{URL: through, MaxConns: 6, Observer: s.seen})
		s.money = ledger.NewService(NewLedger(db), groupcommit.Options{})
		s.store = NewAuctions(db)
		s.bidding = auction.NewService(s.store, auction.Options{})
		t.Cleanup(func() { closing(t, s.money.Close) })
		t.Cleanup(func() { closing(t, s.bidding.Close) })
		w.servers[n] = s
	}
	w.settle(w.servers[0], w.op(ledger.CreateAccount{ID: "seller", Currency: "EUR"}))
	w.fund(10)
	return w
}

// op makes a command on the ledger, bid one on an auction. Either is on record from now on.
func (w *world) op(op ledger.Op) *modelOp {
	o := &modelOp{key: fmt.Sprintf("k%d", len(w.ops)), money: op}
	w.ops = append(w.ops, o)
	return o
}

func (w *world) bid(a *modelAuction, account string, amount int64) *modelOp {
	o := &modelOp{key: fmt.Sprintf("k%d", len(w.ops)), auction: a.id, bid: auction.PlaceBid{Account: account, Amount: amount}}
	w.ops = append(w.ops, o)
	return o
}

// name makes a name that no account has ever had.
func (w *world) name() string {
	w.named++
	return fmt.Sprintf("a%03d", w.named)
}

// fund opens accounts that can bid.
func (w *world) fund(n int) (ids []string) {
	for range n {
		id := w.name()
		s := w.servers[w.rng.IntN(2)]
		w.settle(s, w.op(ledger.CreateAccount{ID: id, Currency: "EUR"}))
		w.settle(s, w.op(ledger.Deposit{Account: id, Amount: 1_000_000}))
		ids = append(ids, id)
	}
	w.accounts = append(w.accounts, ids...)
	return ids
}

// launch makes and starts an auction.
func (w *world) launch(s *modelServer, rules auction.Create) *modelAuction {
	w.Helper()
	ctx := w.Context()
	rules.Title, rules.Currency, rules.Seller, rules.MinBid = "model", "EUR", "seller", 1
	rules.MinIncrement = max(rules.MinIncrement, 1)
	made, err := s.bidding.Create(ctx, own[auction.Op](rules))
	if err = errors.Join(err, made.Err); err != nil {
		w.Fatalf("create: %v", err)
	}
	a := &modelAuction{id: made.Result.(*auction.Auction).ID, rules: rules, offered: map[string]int64{}} //nolint:errcheck,forcetypeassert // That is what Create makes.
	started, err := s.bidding.Execute(ctx, a.id, own[auction.Op](auction.Start{}))
	if err = errors.Join(err, started.Err); err != nil {
		w.Fatalf("start: %v", err)
	}
	w.auctions[a.id] = a
	return a
}

// send sends a command once.
func (s *modelServer) send(ctx context.Context, o *modelOp) (command.Answer, error) {
	if o.money != nil {
		c := keyed(o.money, o.key, "")
		c.Render = renderModel
		return s.money.Execute(ctx, c)
	}
	c := keyed[auction.Op](o.bid, o.key, "")
	c.Render = renderModel
	return s.bidding.Execute(ctx, o.auction, c)
}

// settle sends a command, again under its key for as long as its outcome is unknown, and notes the answer. It may be
// called concurrently.
func (w *world) settle(s *modelServer, o *modelOp) *idempotency.Answer {
	ctx, cancel := context.WithTimeout(w.Context(), 2*patience)
	defer cancel()
	for try := 0; ; try++ {
		got, err := w.servers[(s.n+try)%2].send(ctx, o)
		if err == nil {
			w.note(o, &got.Answer)
			return &got.Answer
		}
		if !command.Undividable(err) || ctx.Err() != nil {
			w.Errorf("%v: %v", o, err)
			return &idempotency.Answer{Status: 500, Body: []byte(`{"said":"nothing"}`)}
		}
	}
}

// note compares an answer with what was answered before under the key, and keeps it.
func (w *world) note(o *modelOp, got *idempotency.Answer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !stored(got) && o.answer != nil:
		if stored(o.answer) {
			w.Errorf("%v: told %d %s, then %d %s", o, o.answer.Status, o.answer.Body, got.Status, got.Body)
		}
	case stored(o.answer):
		if o.answer.Status != got.Status || !bytes.Equal(o.answer.Body, got.Body) {
			w.Errorf("%v: told %d %s, then %d %s", o, o.answer.Status, o.answer.Body, got.Status, got.Body)
		}
	default:
		o.answer = got
	}
}

// clock is the database's.
func (w *world) clock() time.Time {
	w.Helper()
	return ask[time.Time](w.T, w.around, `SELECT clock_timestamp()`)
}

// timed is settle between two looks at the database's clock.
func (w *world) timed(s *modelServer, o *modelOp) (*idempotency.Answer, span) {
	w.Helper()
	before := w.clock()
	got := w.settle(s, o)
	of := span{before, w.clock()}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.span == nil {
		o.span = &of
	}
	return got, of
}

// pastTables make room for an older state: model.copy keeps all rows of all tables, model.go_back puts them in the place of
// those that are there.
const pastTables = `
	CREATE SCHEMA past;
	CREATE TABLE model.tables AS
		SELECT c.oid::regclass::text AS name, format('past.%I', n.nspname || ' ' || c.relname) AS past, (
			SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
			WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '') AS columns
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE n.nspname IN ('public', 'model') AND c.relkind = 'r' AND c.relname NOT IN ('faults', 'goose_db_version');
	DO $$ DECLARE t record; BEGIN
		FOR t IN SELECT * FROM model.tables LOOP
			EXECUTE format('CREATE TABLE %s AS SELECT %s FROM %s WHERE false', t.past, t.columns, t.name);
		END LOOP;
	END $$;
	CREATE FUNCTION model.copy() RETURNS void LANGUAGE plpgsql AS $$ DECLARE t record; BEGIN
		FOR t IN SELECT * FROM model.tables LOOP
			EXECUTE format('DELETE FROM %s', t.past);
			EXECUTE format('INSERT INTO %s SELECT %s FROM %s', t.past, t.columns, t.name);
		END LOOP;
	END $$;
	CREATE FUNCTION model.go_back() RETURNS void LANGUAGE plpgsql SET session_replication_role = replica AS $$ DECLARE t record; BEGIN
		FOR t IN SELECT * FROM model.tables LOOP
			EXECUTE format('DELETE FROM %s', t.name);
			EXECUTE format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT * FROM %s', t.name, t.columns, t.past);
		END LOOP;
	END $$;`

// copy makes the state as it is now the one that the next failover goes back to. Nothing may be under way.
func (w *world) copy() {
	w.Helper()
	exec(w.T, w.around, `SELECT model.copy()`)
	w.copied, w.copiedAt = true, len(w.ops)
}

// failOver has the database go back to the copy, in one transaction and while no server is connected. The servers see
// their connections end, and keep what they remember. Commands may be under way.
func (w *world) failOver() {
	w.Helper()
	for _, s := range w.servers {
		s.proxy.Refuse(true)
	}
	// What their sessions had under way ends before, one way or the other.
	exec(w.T, w.around, `SELECT pg_terminate_backend(pid, 50000) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> ALL ($1)`, w.ownSessions())
	exec(w.T, w.around, `SELECT model.go_back()`)
	for _, s := range w.servers {
		s.proxy.Refuse(false)
	}
	w.copied = false
}

// ownSessions are those of the test itself.
func (w *world) ownSessions() (pids []int32) {
	for _, c := range w.around.pool.AcquireAllIdle(w.Context()) {
		pids = append(pids, int32(c.Conn().PgConn().PID()))
		c.Release()
	}
	return pids
}

// forget brings the clients' record to what a failover has left. Answers from before the copy must be there; with quiet
// set, nothing was under way, and none of the later ones may be.
func (w *world) forget(quiet bool) (lost []*modelOp) {
	w.Helper()
	kept := w.keys()
	for _, o := range w.ops[w.copiedAt:] {
		if _, ok := kept[idempotency.NewID("tester", "POST", "/", o.key)]; !ok {
			if stored(o.answer) {
				lost = append(lost, o)
			}
			o.answer, o.span = nil, nil
		} else if quiet {
			w.Errorf("%v: there after a failover to the time before it", o)
		}
	}
	w.accounts = slices.DeleteFunc(ask[[]string](w.T, w.around, `SELECT array_agg(id ORDER BY id) FROM accounts`),
		func(id string) bool { return id == "seller" || id[0] != 'a' })
	there := ask[[]uuid.UUID](w.T, w.around, `SELECT coalesce(array_agg(id), '{}') FROM auctions`)
	for id := range w.auctions {
		if !slices.Contains(there, id) {
			delete(w.auctions, id)
		}
	}
	return lost
}

// keys are the records of all keys.
func (w *world) keys() map[idempotency.ID]idempotency.Answer {
	w.Helper()
	rows, err := w.around.pool.Query(w.Context(), `SELECT id, status, body FROM idempotency_keys`)
	if err != nil {
		w.Fatal(err)
	}
	out := map[idempotency.ID]idempotency.Answer{}
	var id, body []byte
	var status int
	if _, err := pgx.ForEachRow(rows, []any{&id, &status, &body}, func() error {
		out[idempotency.ID(id)] = idempotency.Answer{Status: status, Body: bytes.Clone(body)}
		return nil
	}); err != nil {
		w.Fatal(err)
	}
	return out
}
