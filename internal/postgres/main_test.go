package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/audit"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// patience bounds every wait of these tests; a loaded machine may need some of it, a bug all.
const patience = testwait.Patience

func migrated(ctx context.Context, url string) error {
	_, err := Migrate(ctx, url)
	return err
}

// database returns the URL of a migrated database, on which all promises are audited when the test ends.
func database(t *testing.T) string {
	t.Helper()
	url := pgtest.NewDatabase(t, migrated)
	t.Cleanup(func() { auditDatabase(t, url) })
	return url
}

func auditDatabase(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Errorf("audit: %v", err)
		return
	}
	testwait.Check(t, errors.Join(audit.Audit(context.Background(), conn), conn.Close(context.Background())))
}

// open opens a pool of its own, as another process would. A database that a busy machine keeps silent is not absent, and a transaction
// that was kept waiting is run again: unless a test says otherwise, both have all of its patience.
func open(t *testing.T, o Options) *DB {
	t.Helper()
	o.Patience, o.UnavailableAfter = cmp.Or(o.Patience, patience), cmp.Or(o.UnavailableAfter, patience)
	db, err := Open(t.Context(), o)
	testwait.Must(t, err)
	db.runner.For = patience
	t.Cleanup(db.Close)
	return db
}

// sessionOf opens a session with the settings of a server's sessions, whose transactions may be idle for as long as the test takes.
func sessionOf(t *testing.T, db *DB) *pgx.Conn {
	t.Helper()
	config := db.pool.Config().ConnConfig
	config.ConnectTimeout = patience
	config.RuntimeParams["idle_in_transaction_session_timeout"] = "0"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	testwait.Must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// settled runs a statement outside of the code under test, again where PostgreSQL had no time for it: nothing of it was done then.
func settled(do func() error) error {
	for began := time.Now(); ; {
		err := do()
		_, notConnected := errors.AsType[*pgconn.ConnectError](err)
		if !notConnected && !isLockTimeout(err) || time.Since(began) > patience {
			return err
		}
	}
}

// exec runs statements outside of the code under test.
func exec(t *testing.T, db *DB, sql string, args ...any) int64 {
	t.Helper()
	var tag pgconn.CommandTag
	if err := settled(func() (err error) {
		tag, err = db.pool.Exec(t.Context(), sql, args...)
		return err
	}); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

// ask reads one value.
func ask[T any](t *testing.T, db *DB, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := settled(func() error { return db.pool.QueryRow(t.Context(), sql, args...).Scan(&v) }); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// recorder is an [Observer] that remembers, and calls onRetry, which may be nil, before each rerun.
type recorder struct {
	onRetry func(reason string)

	mu       sync.Mutex
	fell     map[string]int
	reasons  []string
	outcomes []string
	attempts []int
	tables   int
}

func (r *recorder) Transaction(_ string, attempts int, _ time.Duration, outcome string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes, r.attempts = append(r.outcomes, outcome), append(r.attempts, attempts)
}

func (r *recorder) Fallback(_, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fell == nil {
		r.fell = map[string]int{}
	}
	r.fell[reason]++
}

func (r *recorder) Blocked(int, int) {}

func (r *recorder) BlockedTables(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tables = n
}

func (r *recorder) blockedTables() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tables
}

func (r *recorder) MetOldPrimary(refused bool) {
	r.Fallback("", fmt.Sprint("old primary, refused: ", refused))
}

// fallbacks returns how often each reason kept a transaction from the fast path.
func (r *recorder) fallbacks() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.fell)
}

func (r *recorder) Retry(_, reason string) {
	r.mu.Lock()
	r.reasons = append(r.reasons, reason)
	r.mu.Unlock()
	if r.onRetry != nil {
		r.onRetry(reason)
	}
}

func (r *recorder) seen() (reasons, outcomes []string, attempts []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reasons, r.outcomes, r.attempts
}

// render speaks outcomes as JSON, which the audit understands: it looks for the object that a stored answer names.
func render(result any, err error) command.Rendered {
	body, status, decided := map[string]any{}, 201, true
	switch v := result.(type) {
	case ledger.Account:
		body["id"] = v.ID
	case ledger.Movement:
		body["id"], body["available"] = v.Transfer.ID.String(), v.Available
	case ledger.Transfer:
		body["id"] = v.ID.String()
	case ledger.Repeated:
		first := render(v.First, nil)
		first.Status = 200
		return first
	case ledger.Hold:
		body["id"] = v.ID.String()
	case lottery.Purchase:
		body["id"] = v.ID.String()
	case *lottery.Campaign:
		if v != nil {
			body["id"] = v.ID.String()
		}
	case *auction.Auction:
		if v != nil {
			body["id"] = v.ID.String()
		}
	case auction.Placed:
		body["auction"], body["account"], body["amount"], body["seq"] = v.Auction.String(), v.Account, v.Amount, v.Seq
	case *multidraw.Operation:
		if v != nil {
			body["id"], body["status"], body["completed"] = v.ID.String(), v.Status, v.Completed
		}
	case *lottery.Draw:
		body["campaign"] = v.Campaign.String()
	}
	if err != nil {
		body, status = map[string]any{"detail": err.Error()}, 409
		if short, ok := errors.AsType[*ledger.InsufficientFundsError](err); ok && short.Transfer != nil {
			body["transfer"] = short.Transfer.String()
		}
		_, absent := errors.AsType[*ledger.AccountNotFoundError](err)
		_, early := errors.AsType[*auction.CooldownError](err)
		decided = !absent && !early && !errors.Is(err, idempotency.ErrKeyReused)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return command.Rendered{Status: status, Body: raw, Decided: decided}
}

// keyed makes a command under a key; the content tells requests apart that reuse it.
func keyed[Op any](op Op, key, content string) command.Command[Op] {
	return command.Command[Op]{Op: op, Render: render, Principal: "tester", RequestID: "r-" + key, Key: &idempotency.Request{
		ID: idempotency.NewID("tester", "POST", "/", key), Fingerprint: idempotency.NewFingerprint([]byte(content)), Execution: uuid.New(),
	}}
}

// own makes a command of the server itself, whose result comes back as it is.
func own[Op any](op Op) command.Command[Op] { return command.Command[Op]{Op: op} }

func newLedgerService(t *testing.T, db *DB) *ledger.Service {
	t.Helper()
	s := ledger.NewService(NewLedger(db), groupcommit.Options{})
	t.Cleanup(func() { closing(t, s.Close) })
	return s
}

func newLotteryService(t *testing.T, store lottery.Store, o lottery.Options) *lottery.Service {
	t.Helper()
	s := lottery.NewService(store, o)
	t.Cleanup(func() { closing(t, s.Close) })
	return s
}

func closing(t *testing.T, closer func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	testwait.Check(t, closer(ctx))
}

// do executes a ledger operation that must succeed.
func do(t *testing.T, s *ledger.Service, op ledger.Op) any {
	t.Helper()
	a, err := s.Execute(t.Context(), own(op))
	if err = errors.Join(err, a.Err); err != nil {
		t.Fatalf("%#v: %v", op, err)
	}
	return a.Result
}

// fund makes accounts that each have amount.
func fund(t *testing.T, s *ledger.Service, amount int64, ids ...string) {
	t.Helper()
	for _, id := range ids {
		do(t, s, ledger.CreateAccount{ID: id, Currency: "EUR"})
		if amount > 0 {
			do(t, s, ledger.Deposit{Account: id, Amount: amount})
		}
	}
}
