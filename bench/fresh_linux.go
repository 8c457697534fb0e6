package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/bench/load"
	"github.com/fairlead-dev/fairlead/claim"
)

// What is done on fresh databases.
const (
	freshBids      = "bids on a new auction"
	freshPurchases = "purchases in a new campaign"
	freshLocks     = "locks over HTTP"
	freshClaims    = "claims of a new table"
)

func freshLoads() []string { return []string{freshBids, freshPurchases, freshLocks, freshClaims} }

const (
	freshAccounts = 2_000
	freshBatch    = 500 // items of one claim
	freshLoops    = 2
)

// tally counts what was served in each second.
type tally struct {
	mu      sync.Mutex
	start   time.Time
	seconds []int64
}

func newTally(length time.Duration) *tally {
	return &tally{start: time.Now(), seconds: make([]int64, int(length/time.Second)+2)}
}

func (t *tally) add(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if second := int(time.Since(t.start) / time.Second); second < len(t.seconds) {
		t.seconds[second] += n
	}
}

// rate is what was served a second in the window from a time on.
func (t *tally) rate(from, window time.Duration) float64 {
	sum := int64(0)
	for second := int(from / time.Second); second < int((from+window)/time.Second); second++ {
		sum += t.seconds[second]
	}
	return float64(sum) / window.Truncate(time.Second).Seconds()
}

// fresh runs each load on a database that nobody has used before, without any warming up: what the planner believes of
// empty tables counts.
func (h *house) fresh(ctx context.Context, o *options, results *Results) error {
	if o.productBinary == "" {
		return nil
	}
	only, err := regexp.Compile(o.freshLoads)
	if err != nil {
		return fmt.Errorf("--fresh-loads: %w", err)
	}
	others := h.sides
	defer func() { h.sides = append(others, h.sides...) }()
	for pair := range o.freshPairs {
		for _, what := range freshLoads() {
			if !only.MatchString(what) {
				continue
			}
			h.sides = nil
			turn, err := h.freshTurn(ctx, o, what)
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			h.sides = nil
			slog.Info("fresh database", "what", what, "pair", pair+1, "first", math.Round(turn.First), "later", math.Round(turn.Later))
			results.Fresh = append(results.Fresh, *turn)
		}
	}
	return nil
}

func (h *house) freshTurn(ctx context.Context, o *options, what string) (_ *FreshTurn, err error) {
	length := o.freshLater + o.freshWindow
	var t *tally
	if what == freshClaims {
		t, err = h.freshClaims(ctx, length)
	} else {
		t, err = h.freshServer(ctx, o, what, length)
	}
	if err != nil {
		return nil, err
	}
	return &FreshTurn{What: what, First: t.rate(0, o.freshWindow), Later: t.rate(o.freshLater, o.freshWindow)}, nil
}

func (h *house) freshServer(ctx context.Context, o *options, what string, length time.Duration) (_ *tally, err error) {
	name := "fresh_" + strconv.FormatInt(time.Now().UnixNano(), 36)
	database, err := h.makeDatabase(ctx, h.serverURL, name)
	if err != nil {
		return nil, err
	}
	s := &side{name: product, store: h.pgPID, databaseURL: database}
	arguments := append([]string{"serve", "--data=" + h.dir + "/" + name, "--database-url=" + database}, h.productOptions...)
	if err := h.start(ctx, s, name+"-0123456789abcdef0123456789abcdef", o.productBinary, arguments...); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.fill(ctx, 0, freshAccounts, openingBalance); err != nil {
		return nil, err
	}
	var (
		next  func() []byte
		check load.Check
	)
	switch what {
	case freshBids:
		next, check, err = s.freshBids(ctx)
	case freshPurchases:
		next, check, err = s.freshPurchases(ctx)
	default:
		next, check = s.locks(100_000_000)
	}
	if err != nil {
		return nil, err
	}
	engine, err := load.Dial(mixConnections, s.addr)
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	t := newTally(length)
	_, err = engine.Closed(load.Phases{Measure: length}, next, func(status int, body []byte) error {
		if status == http.StatusCreated {
			t.add(1)
		}
		return check(status, body)
	})
	return t, err
}

// freshBids are the first bids of all accounts, and then raises.
func (s *side) freshBids(ctx context.Context) (func() []byte, load.Check, error) {
	b, err := s.newBidding(ctx, among(2*freshAccounts, 0))
	if err != nil {
		return nil, nil, err
	}
	b.others = map[string]int64{}
	return b.source(s.key), b.check, nil
}

// freshPurchases are those of any position of a campaign that is too large to be sold out.
func (s *side) freshPurchases(ctx context.Context) (func() []byte, load.Check, error) {
	next, err := s.purchases(ctx, inSequence(freshAccounts))
	return next, wantCreated, err
}

// inSequence are the accounts in turn, from any of them on.
func inSequence(accounts int) func() int {
	next := rand.IntN(accounts) //nolint:gosec // Load needs no secrecy.
	return func() int {
		next = (next + 1) % accounts
		return next
	}
}

// purchases are those of the accounts that next names, whose ids are of one length, in a new campaign.
func (s *side) purchases(ctx context.Context, next func() int) (func() []byte, error) {
	var campaign struct {
		ID string `json:"id"`
	}
	in := map[string]any{
		"name": "large", "layers": []any{map[string]any{"positions": 1_000_000, "price": 1}}, "currency": currency,
		"beneficiary": beneficiary, "prizes": []any{map[string]any{"name": "first", "quantity": 1}},
	}
	if err := s.call(ctx, http.MethodPost, "/v1/campaigns", in, http.StatusCreated, &campaign); err != nil {
		return nil, err
	}
	path := "/v1/campaigns/" + campaign.ID
	if err := s.call(ctx, http.MethodPost, path+"/publish", map[string]any{}, http.StatusOK, nil); err != nil {
		return nil, err
	}
	id := accountID(next())
	body := fmt.Sprintf(`{"account":%q}`, id)
	template := load.NewTemplate(path+"/purchases", s.key, body)
	at := template.BodyOffset(body) + len(`{"account":"acc-`)
	digits := len(id) - len("acc-")
	sent := 0
	return func() []byte {
		if sent == 1_000_000 {
			return nil
		}
		request := template.Next()
		load.PutDecimal(request[at:at+digits], next())
		sent++
		return request
	}, nil
}

// locks acquires a key that nobody wants, one of so many in turn, and releases it once the answer has come.
func (s *side) locks(keys int) (func() []byte, load.Check) {
	const digits = 8
	first := rand.IntN(100_000_000) //nolint:gosec // An earlier turn's last ones are still held.
	body := `{"keys":["key-00000000"],"owner":"bench","ttl":"60s"}`
	template := load.NewTemplate("/v1/locks", s.key, body)
	at := template.BodyOffset(body) + len(`{"keys":["key-`)
	sent := 0
	var held []string
	next := func() []byte {
		sent++
		if len(held) > 0 {
			id := held[0]
			held = held[1:]
			return fmt.Appendf(nil, "DELETE /v1/locks/%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nIdempotency-Key: release-%d\r\n\r\n", id, s.key, sent)
		}
		request := template.Next()
		load.PutDecimal(request[at:at+digits], (first+sent%keys)%100_000_000)
		return request
	}
	return next, func(status int, body []byte) error {
		if status == http.StatusNoContent {
			return nil
		}
		_, rest, ok := bytes.Cut(body, []byte(`"id":"`))
		id, _, closed := bytes.Cut(rest, []byte(`"`))
		if status != http.StatusCreated || !ok || !closed {
			return fmt.Errorf("answer %d: %s", status, body)
		}
		held = append(held, string(id))
		return nil
	}
}

// freshClaims adds items to a table, claims and finishes them, as a program of a user's does that begins with an empty one.
func (h *house) freshClaims(ctx context.Context, length time.Duration) (*tally, error) {
	database, err := h.makeDatabase(ctx, h.serverURL, "fresh_claims")
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	table := claim.Table{
		Name: "items", Ready: "status = 'scheduled'", Due: "due_at", OnClaim: "status = 'running'", OnFinish: "status = 'completed'",
		OnFail: "status = 'failed'", OnRelease: "status = 'scheduled'",
	}
	claims, err := claim.New[int64](table)
	if err != nil {
		return nil, err
	}
	const create = `CREATE TABLE items (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status text NOT NULL DEFAULT 'scheduled',
		due_at timestamptz NOT NULL)`
	for _, sql := range append([]string{create, table.DDL()}, table.Indexes()...) {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	t := newTally(length)
	var wg sync.WaitGroup
	failures := make([]error, freshLoops)
	for loop := range freshLoops {
		wg.Go(func() {
			for failures[loop] == nil && time.Since(t.start) < length {
				failures[loop] = freshItems(ctx, pool, claims, t)
			}
		})
	}
	wg.Wait()
	return t, errors.Join(failures...)
}

// freshItems adds items of which half are due, and works off what is.
func freshItems(ctx context.Context, pool *pgxpool.Pool, claims *claim.Claims[int64], t *tally) error {
	const add = `INSERT INTO items (due_at) SELECT clock_timestamp() + (n % 2) * interval '1 day' FROM generate_series(1, $1) AS n`
	if _, err := pool.Exec(ctx, add, 2*freshBatch); err != nil {
		return err
	}
	got, err := claims.ClaimDue(ctx, pool, freshBatch)
	if err != nil || len(got) == 0 {
		return err
	}
	lost, err := claims.FinishAll(ctx, pool, got...)
	if err == nil && len(lost) > 0 {
		err = fmt.Errorf("%d claims were lost", len(lost))
	}
	t.add(int64(len(got)))
	return err
}
