package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// operations says by which method each operation of docs/openapi.json is reached.
var operations = map[string]string{
	// Open is for what is no document.
	"get-docs": "Open", "get-docs-asset": "Open", "get-openapi-json": "Open", "get-metrics": "Open", "get-events": "Open", "get-live": "Open",
	"get-p-auctions-id": "Open", "get-p-campaigns-id": "Open", "get-p-check": "Open",

	"get-healthz": "Healthy", "get-readyz": "Ready",
	"get-keys": "APIKeys", "post-keys": "RegisterKey", "delete-keys-id": "RevokeKey",

	"post-accounts": "CreateAccount", "get-accounts-id": "GetAccount", "get-accounts-id-entries": "Entries", "get-accounts-id-holds": "AccountHolds", "get-accounts-id-aliases": "Alias",
	"post-deposits": "Deposit", "post-withdrawals": "Withdraw", "post-transfers": "Transfer", "get-transfers-id": "GetTransfer",
	"post-holds": "Hold", "get-holds-id": "GetHold", "post-holds-id-capture": "CaptureHold", "post-holds-id-release": "ReleaseHold",
	"get-transfers": "TransferByReference", "get-integrity": "Integrity",

	"get-campaigns": "Campaigns", "post-campaigns": "CreateCampaign", "get-campaigns-id": "GetCampaign", "get-campaigns-id-statistics": "Statistics",
	"post-campaigns-id-publish": "PublishCampaign", "post-campaigns-id-cancel": "CancelCampaign",
	"post-campaigns-id-purchases": "Buy", "get-campaigns-id-purchases": "Purchases", "get-campaigns-id-positions": "Positions", "get-accounts-id-purchases": "AccountPurchases",
	"post-campaigns-id-draw": "Draw", "get-campaigns-id-draw": "GetDraw",
	"get-campaigns-id-proof": "Proof", "get-campaigns-id-proof-positions-position": "InclusionProof",

	"get-auctions": "Auctions", "post-auctions": "CreateAuction", "get-auctions-id": "GetAuction",
	"post-auctions-id-start": "StartAuction", "post-auctions-id-cancel": "CancelAuction",
	"post-auctions-id-bids": "Bid", "get-auctions-id-bids": "Bids", "get-auctions-id-min-winning-bid": "MinWinningBid", "get-accounts-id-bids": "AccountBids",
	"get-auctions-id-leaderboard": "Leaderboard", "get-auctions-id-winners": "AuctionWinners",

	"get-p-campaigns-id-state": "PublicCampaign", "get-p-campaigns-id-positions-position": "PublicPosition", "get-p-auctions-id-state": "PublicAuction",

	"get-multidraws": "Multidraws", "post-multidraws": "CreateMultidraw", "get-multidraws-id": "GetMultidraw",
	"get-multidraws-id-results": "MultidrawInts MultidrawPrizes", "get-multidraws-id-proof": "MultidrawProof",
	"post-multidraws-id-resume": "ResumeMultidraw", "post-multidraws-id-rollback": "RollbackMultidraw",

	"get-locks": "Locks", "post-locks": "AcquireLock", "delete-locks-id": "ReleaseLock", "post-locks-id-renew": "RenewLock",

	"get-targets": "Targets", "post-targets": "CreateTarget", "get-targets-id": "GetTarget", "post-targets-id-secret": "RotateSecret",
	"post-targets-id-credentials": "ReplaceCredentials", "post-targets-id-pause": "PauseTarget", "post-targets-id-resume": "ResumeTarget",
	"get-publications": "Publications", "post-publications": "CreatePublication", "get-publications-id": "GetPublication",
	"get-publications-id-attempts": "Attempts", "post-publications-id-schedule": "Schedule", "post-publications-id-publish": "PublishNow",
	"post-publications-id-cancel": "CancelPublication", "post-publications-id-retry": "RetryPublication",
	"get-automations": "Automations", "post-automations": "CreateAutomation", "get-automations-id": "GetAutomation",
	"get-automations-id-firings": "Firings", "post-automations-id-pause": "PauseAutomation", "post-automations-id-resume": "ResumeAutomation",
	"post-automations-id-cancel": "CancelAutomation",
	"get-subscriptions":          "Subscriptions", "post-subscriptions": "CreateSubscription", "get-subscriptions-id": "GetSubscription",
	"get-subscriptions-id-topics": "SubscriptionTopics", "post-subscriptions-id-pause": "PauseSubscription",
	"post-subscriptions-id-resume": "ResumeSubscription", "post-subscriptions-id-replay": "ReplayTopic", "delete-subscriptions-id": "DeleteSubscription",

	"get-campaigns-id-log": "CampaignLog", "get-campaigns-id-seal": "CampaignSeal", "get-auctions-id-log": "AuctionLog", "get-multidraws-id-log": "MultidrawLog", "get-accounts-id-proof": "AccountProof",
	"get-log-checkpoint": "Open", "get-log-key": "Open", "get-log-tile-level-tile": "Open",

	"get-cross-transfers": "CrossTransfers", "post-cross-transfers": "CrossTransfer", "get-cross-transfers-id": "GetCrossTransfer",
	"post-cross-transfers-id-retry": "RetryCrossTransfer", "post-cross-transfers-id-compensate": "CompensateCrossTransfer",
	"post-cross-legs": "ExecuteCrossLeg", "get-in-doubt": "InDoubt", "post-in-doubt-adopt": "Adopt",
	"get-sagas": "Sagas", "get-sagas-id": "GetSaga", "post-sagas-id-retry": "RetrySaga", "post-sagas-id-compensate": "CompensateSaga",

	"get-admin-measurements": "Measurements", "get-admin-deadlocks": "Deadlocks", "get-admin-accounts-id-balances": "Balances",
	"get-admin-campaigns-id-sales": "Sales", "get-admin-campaigns-id-purchases": "AdminPurchases",
	"get-admin-search": "Search", "get-admin-names": "Names", "get-admin-publications": "AdminPublications", "get-admin-multidraws": "AdminMultidraws",
	"get-admin-overview": "Overview", "get-admin-database-waits": "DatabaseWaits", "get-admin-idempotency": "KeyRecord", "get-admin-audit": "Audits",
	"get-admin-accounts": "Accounts", "get-admin-accounts-id-entries": "AdminEntries", "get-admin-accounts-id-holds": "OpenHolds",
	"get-admin-transfers": "Transfers", "get-admin-campaigns": "AdminCampaigns", "get-admin-campaigns-id-map": "SaleMap",
	"get-admin-sagas": "AdminSagas", "get-admin-targets": "AdminTargets", "get-admin-publications-id-attempts": "AdminAttempts",
	"get-admin-automations": "AdminAutomations", "get-admin-automations-id-firings": "AdminFirings", "get-admin-keys": "AdminKeys",
	"get-admin-auctions": "AdminAuctions", "get-admin-auctions-id-bids": "AdminBids", "get-admin-auctions-id-chart": "BidChart",
}

// operation is what the contract says of one.
type operation struct {
	OperationID string
	Parameters  []struct{ Name, In string }
	RequestBody *struct{}
	Responses   map[string]struct{}
}

// TestEveryOperationIsReached calls the method of every operation of the contract, and compares what it sends.
func TestEveryOperationIsReached(t *testing.T) {
	text, err := os.ReadFile("../docs/openapi.json")
	testwait.Must(t, err)
	var document struct {
		Paths map[string]map[string]operation
	}
	testwait.Must(t, json.Unmarshal(text, &document))
	var got []string
	mux := http.NewServeMux()
	paths := map[string]string{}
	for path, methods := range document.Paths {
		for method, op := range methods {
			paths[op.OperationID] = path
			mux.HandleFunc(strings.ToUpper(method)+" "+path, func(w http.ResponseWriter, r *http.Request) {
				got = append(got, op.OperationID)
				compare(t, op, r)
				if _, empty := op.Responses["204"]; empty {
					w.WriteHeader(http.StatusNoContent)
					return
				}
				_, _ = fmt.Fprint(w, "{}")
			})
		}
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	c, err := client.New(s.URL, "key")
	testwait.Must(t, err)
	for _, id := range slices.Sorted(maps.Keys(paths)) {
		for method := range strings.FieldsSeq(operations[id]) {
			got = nil
			call(t, c, method, paths[id])
			if !slices.Equal(got, []string{id}) {
				t.Errorf("%s sends %q, not %s", method, got, id)
			}
		}
		if operations[id] == "" && id != "post-commands" { // Which a Batcher sends, see TestBatcherGathers.
			t.Errorf("no method reaches %s", id)
		}
	}
}

// call calls a method with the n-th string being "n/" and each flag set, and reads a list to its end.
func call(t *testing.T, c *client.Client, name, path string) {
	t.Helper()
	if name == "Open" {
		resp, err := c.Open(t.Context(), strings.NewReplacer("{id}", "1%2F", "{asset}", "1%2F", "{level}", "1%2F", "{tile}", "2%2F").Replace(path))
		if err != nil {
			t.Fatalf("Open %s: %v", path, err)
		}
		_ = resp.Body.Close()
		return
	}
	method := reflect.ValueOf(c).MethodByName(name)
	if !method.IsValid() {
		t.Fatalf("there is no method %s", name)
	}
	in, texts := []reflect.Value{reflect.ValueOf(t.Context())}, 0
	for i := 1; i < method.Type().NumIn()-1; i++ {
		v := reflect.New(method.Type().In(i)).Elem()
		if v.Kind() == reflect.String {
			texts++
			v.SetString(fmt.Sprint(texts, "/"))
		}
		if v.Kind() == reflect.Bool {
			v.SetBool(true)
		}
		if v.Kind() == reflect.Struct {
			for _, field := range v.Fields() {
				switch field.Kind() { //nolint:exhaustive // Of others there are none that queries need.
				case reflect.String:
					field.SetString("x")
				case reflect.Bool:
					field.SetBool(true)
				case reflect.Int:
					field.SetInt(1)
				}
			}
		}
		in = append(in, v)
	}
	out := method.Call(in)
	if out[0].Kind() == reflect.Func {
		for _, err := range out[0].Seq2() {
			out = append(out, err)
		}
	}
	if err, failed := reflect.TypeAssert[error](out[len(out)-1]); failed {
		t.Errorf("%s: %v", name, err)
	}
}

// compare checks a request's parameters and body against the contract.
func compare(t *testing.T, op operation, r *http.Request) {
	t.Helper()
	want, ids := map[string]bool{}, 0
	for _, p := range op.Parameters {
		switch p.In {
		case "query":
			// The client reads ids, and knows the prizes.
			want[p.Name] = p.Name != "after" && p.Name != "prize_results" && operations[op.OperationID] != "Open"
		case "path":
			if ids++; r.PathValue(p.Name) != fmt.Sprint(ids, "/") {
				t.Errorf("%s: %s is %q", op.OperationID, p.Name, r.PathValue(p.Name))
			}
		case "header":
			want[p.Name] = p.Name != "Fairlead-After" // Once the client was told one: see TestReadsCarryThePosition.
		}
	}
	for name := range r.URL.Query() {
		if _, known := want[name]; !known {
			t.Errorf("%s: unknown parameter %s", op.OperationID, name)
		}
	}
	for name, sent := range want {
		if sent && !r.URL.Query().Has(name) && r.Header.Get(name) == "" {
			t.Errorf("%s: %s is missing", op.OperationID, name)
		}
	}
	if (r.ContentLength > 0) != (op.RequestBody != nil) || r.Header.Get("Authorization") != "Bearer key" {
		t.Errorf("%s: a body of %d bytes, credential %q", op.OperationID, r.ContentLength, r.Header.Get("Authorization"))
	}
}

// TestOpen reads an event while the stream goes on, talks over an upgraded connection, and gets a refusal as a problem.
func TestOpen(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "id: %s\n", r.Header.Get("Last-Event-ID"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("GET /v1/live", func(w http.ResponseWriter, _ *http.Request) {
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.CopyN(conn, both, 4)
		_ = conn.Close()
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	c, err := client.New(s.URL, "key", client.WithHTTPClient(&http.Client{Timeout: time.Hour}))
	testwait.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	events, err := c.Open(ctx, "/v1/events", client.Header("Last-Event-ID", "7"))
	testwait.Must(t, err)
	line, err := bufio.NewReader(events.Body).ReadString('\n')
	if err != nil || line != "id: 7\n" {
		t.Errorf("read %q, %v", line, err)
	}
	cancel()
	_ = events.Body.Close()
	live, err := c.Open(t.Context(), "/v1/live", client.Header("Connection", "Upgrade"), client.Header("Upgrade", "websocket"))
	testwait.Must(t, err)
	if conn, ok := live.Body.(io.Writer); !ok {
		t.Error("the body is no connection")
	} else if _, err := conn.Write([]byte("ping")); err != nil {
		t.Error(err)
	}
	if back, err := io.ReadAll(live.Body); string(back) != "ping" || err != nil {
		t.Errorf("read %q, %v", back, err)
	}
	_ = live.Body.Close()
	if _, err := newClient().Open(t.Context(), "/v1/events?topic=auction:1"); client.CodeOf(err) != "not_found" {
		t.Errorf("the events of an auction that does not exist: %v", err)
	}
}
