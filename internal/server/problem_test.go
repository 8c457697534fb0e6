package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// TestProblemTable writes the contract's codes out a second time: changing one is changing the contract.
func TestProblemTable(t *testing.T) {
	t.Parallel()
	transfer := uuid.New()
	inFlight := func(reason error) error { return errors.Join(groupcommit.ErrInFlight, reason) }
	for _, c := range []struct {
		err       error
		status    int
		code      string
		retryable bool
		outcome   string
	}{
		{idempotency.ErrMalformedKey, 400, "idempotency_key_required", false, "not_applied"},
		{idempotency.ErrKeyReused, 422, "idempotency_key_reused", false, "not_applied"},
		{auth.ErrNoCredential, 401, "unauthorized", false, "not_applied"},
		{auth.ErrBadCredential, 401, "unauthorized", false, "not_applied"},
		{auth.ErrUnavailable, 503, "unavailable", true, "not_applied"},
		{auth.ErrUnknownKey, 404, "not_found", false, "not_applied"},
		{auth.ErrKeyExists, 409, "key_exists", false, "not_applied"},
		{auth.ErrLastAdmin, 409, "last_admin", false, "not_applied"},
		{groupcommit.ErrFull, 503, "overloaded", true, "not_applied"},
		{groupcommit.ErrClosed, 503, "shutting_down", true, "not_applied"},
		{inFlight(groupcommit.ErrClosed), 503, "outcome_unknown", true, "unknown"},
		{inFlight(context.Canceled), 503, "outcome_unknown", true, "unknown"},
		{inFlight(context.DeadlineExceeded), 503, "outcome_unknown", true, "unknown"},
		{command.ErrUnknownOutcome, 503, "outcome_unknown", true, "unknown"},
		{command.UnknownOutcome(context.Canceled), 503, "outcome_unknown", true, "unknown"},
		{command.ErrUnavailable, 503, "unavailable", true, "not_applied"},
		{context.Canceled, 503, "unavailable", true, "not_applied"},
		{context.DeadlineExceeded, 503, "unavailable", true, "not_applied"},
		{fmt.Errorf("%w: %w", errNotCounted, context.DeadlineExceeded), 503, "not_counted", true, "not_applied"},
		{fmt.Errorf("%w: %w", errNotCounted, command.Unavailable(context.DeadlineExceeded)), 503, "not_counted", true, "not_applied"},
		{ledger.ErrAccountExists, 409, "account_exists", false, "not_applied"},
		{ledger.ErrSameAccount, 422, "same_account", false, "not_applied"},
		{ledger.ErrCurrencyMismatch, 422, "currency_mismatch", false, "not_applied"},
		{ledger.ErrBalanceOverflow, 422, "balance_overflow", false, "not_applied"},
		{ledger.ErrHoldClosed, 409, "hold_closed", false, "not_applied"},
		{ledger.ErrCaptureTooLarge, 422, "capture_too_large", false, "not_applied"},
		{&ledger.InsufficientFundsError{Account: "alice"}, 402, "insufficient_funds", false, "not_applied"},
		{&ledger.InsufficientFundsError{Account: "alice", Transfer: &transfer}, 402, "insufficient_funds", false, "not_applied"},
		{&ledger.AccountNotFoundError{ID: "alice"}, 404, "not_found", false, "not_applied"},
		{&ledger.HoldNotFoundError{}, 404, "not_found", false, "not_applied"},
		{&ledger.TransferNotFoundError{}, 404, "not_found", false, "not_applied"},
		{&lottery.CampaignNotFoundError{}, 404, "not_found", false, "not_applied"},
		{&lottery.LayerNotFoundError{}, 404, "not_found", false, "not_applied"},
		{&lottery.PositionNotFoundError{}, 404, "not_found", false, "not_applied"},
		{lottery.ErrNotActive, 409, "not_active", false, "not_applied"},
		{lottery.ErrSoldOut, 409, "sold_out", false, "not_applied"},
		{lottery.ErrPurchaseLimit, 409, "purchase_limit", false, "not_applied"},
		{lottery.ErrBadTransition, 409, "bad_transition", false, "not_applied"},
		{lottery.ErrNotSoldOut, 409, "not_sold_out", false, "not_applied"},
		{lottery.ErrNotDrawn, 404, "not_drawn", false, "not_applied"},
		{lottery.ErrTooManyPrizes, 422, "too_many_prizes", false, "not_applied"},
		{ledger.ErrHoldOwned, 409, "hold_owned", false, "not_applied"},
		{&auction.NotFoundError{}, 404, "not_found", false, "not_applied"},
		{auction.ErrNotActive, 409, "not_active", false, "not_applied"},
		{auction.ErrBadTransition, 409, "bad_transition", false, "not_applied"},
		{auction.ErrOwnAuction, 409, "own_auction", false, "not_applied"},
		{auction.ErrAmountTaken, 409, "amount_taken", false, "not_applied"},
		{&auction.BidTooLowError{Least: 5}, 422, "bid_too_low", false, "not_applied"},
		{&auction.CooldownError{RetryAfter: time.Second}, 429, "cooldown", true, "not_applied"},
		// The batch may be committed: its own documentation says so.
		{groupcommit.ErrResultCount, 500, "internal_error", false, "unknown"},
	} {
		for _, err := range []error{c.err, fmt.Errorf("secret-inside: %w", c.err), fmt.Errorf("a: %w", fmt.Errorf("secret-inside %w", c.err))} {
			p := problemOf(err, "id")
			if p.Status != c.status || p.Code != c.code || p.Retryable != c.retryable || p.Outcome != c.outcome || p.RequestID != "id" || p.Type != "/docs/problems#"+c.code || p.Title == "" || p.Detail == "" {
				t.Errorf("%v: %+v, want %d %s retryable %v %s", err, p, c.status, c.code, c.retryable, c.outcome)
			}
			if text := string(mustMarshal(p)); strings.Contains(text, "secret-inside") {
				t.Errorf("%v: what wraps the error goes out: %s", err, text)
			}
			if leak := internalWords.FindString(p.Detail); leak != "" && c.status != 500 {
				t.Errorf("%v: the detail tells of the inside (%q): %s", err, leak, p.Detail)
			}
			wantStored := (c.status == 402 || c.status == 409 || c.status == 422) && !c.retryable && c.code != "idempotency_key_reused"
			if decided(p) != wantStored {
				t.Errorf("%v: kept under its key: %v", err, !wantStored)
			}
		}
	}
	for wait, seconds := range map[time.Duration]int64{
		1: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, 1500 * time.Millisecond: 2, 2 * time.Second: 2, time.Hour: 3600, 0: 1,
	} {
		if got := problemOf(&auction.CooldownError{RetryAfter: wait}, "id").RetryAfter; got != seconds {
			t.Errorf("%s is told as %d s, want %d", wait, got, seconds)
		}
	}
	p := problemOf(&ledger.InsufficientFundsError{Account: "alice", Transfer: &transfer}, "id")
	if p.Transfer != transfer.String() {
		t.Errorf("transfer %q", p.Transfer)
	}
}

// TestInternalErrorsStayInside answers with errors that nobody foresaw.
func TestInternalErrorsStayInside(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, err := range []error{
		errors.New("pq: secret-inside"), fmt.Errorf("postgres: ledger: %w", &pgconn.PgError{Code: "42P01", Message: `relation "secret-inside" does not exist`}),
		&groupcommit.PanicError{Value: "secret-inside", Stack: []byte("goroutine 1 [running]: secret-inside")},
	} {
		w := httptest.NewRecorder()
		e.server.outermost(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.server.writeProblem(w, r, err) })).
			ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", http.NoBody))
		checkInternalError(t, w)
		if !strings.Contains(e.logs.String(), w.Header().Get("X-Request-Id")) {
			t.Error("the log does not have the request id")
		}
	}
	for _, value := range []any{"secret-inside", errors.New("secret-inside"), 5, &struct{ s string }{"secret-inside"}} {
		w := httptest.NewRecorder()
		e.server.outermost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(value) })).
			ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/x", http.NoBody))
		checkInternalError(t, w)
	}
	if !strings.Contains(e.logs.String(), "handler panicked") || !strings.Contains(e.logs.String(), "secret-inside") {
		t.Error("the log does not say what happened")
	}
}

func checkInternalError(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	var p Problem
	must(t, json.Unmarshal(w.Body.Bytes(), &p))
	if w.Code != http.StatusInternalServerError || p.Code != "internal_error" || w.Header().Get("Content-Type") != contentTypeProblem || p.RequestID != w.Header().Get("X-Request-Id") {
		t.Errorf("%d %s %s", w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	if text := w.Body.String(); strings.Contains(text, "secret-inside") || strings.Contains(text, "goroutine") {
		t.Errorf("the inside goes out: %s", text)
	}
}

// TestDatabaseErrorsStayInside breaks the schema under a running server.
func TestDatabaseErrorsStayInside(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100)
	conn := e.connect()
	defer func() { _ = conn.Close(t.Context()) }()
	rename := func(from, to string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to)
		must(t, err)
	}
	for name, other := range map[string]string{"holds": "secret_outside", "hold_rows": "secret_inside"} {
		rename(name, other)
		defer rename(other, name)
	}
	for _, s := range []send{
		{method: http.MethodGet, path: "/v1/holds/" + newUUID()}, {method: http.MethodPost, path: "/v1/holds", body: `{"account":"alice","amount":1}`, key: newUUID()},
	} {
		response, err := e.trySend(s)
		must(t, err)
		w := httptest.NewRecorder()
		w.Code = response.StatusCode
		maps.Copy(w.Header(), response.Header)
		_, err = w.Body.ReadFrom(response.Body)
		must(t, errors.Join(err, response.Body.Close()))
		checkInternalError(t, w)
		if strings.Contains(w.Body.String(), "holds") {
			t.Errorf("the table is named: %s", w.Body)
		}
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, id := range []string{"abc", "a-b_c.d:e/f+g=@h", strings.Repeat("x", 128), "0af7651916cd43dd8448eb211c80319c"} {
		for _, path := range []string{"/healthz", "/v1/accounts/nobody"} {
			r := e.send(send{method: http.MethodGet, path: path, header: http.Header{"X-Request-Id": {id}}})
			if got := r.header.Get("X-Request-Id"); got != id {
				t.Errorf("request id %q is answered with %q", id, got)
			}
		}
	}
	seen := map[string]bool{}
	for _, id := range []string{"", "!~", `"><script>`, "a b", "a\tb", "schlüssel", "\xff", "\u2028", strings.Repeat("x", 129), " "} {
		r := e.send(send{method: http.MethodGet, path: "/v1/accounts/nobody", header: http.Header{"X-Request-Id": {id}}})
		got := r.header.Get("X-Request-Id")
		if !uuidPattern.MatchString(got) || seen[got] {
			t.Errorf("request id %q is answered with %q", id, got)
		}
		seen[got] = true
	}
}
