package postgres

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// mostRead is how many rows one node of a hot statement's plan may read. The batches of these tests have at most
// planBatch elements, and each element needs a handful of rows; a plan that reads one auction, or one table, reads
// thousands.
const mostRead = 400

// planned is a node of a plan, as auto_explain reports it.
type planned struct {
	Type      string  `json:"Node Type"`
	Table     string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	Condition string  `json:"Index Cond"`
	Direction string  `json:"Scan Direction"`
	TIDs      string  `json:"TID Cond"`
	Rows      float64 `json:"Actual Rows"`
	Loops     float64 `json:"Actual Loops"`
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Plans     []planned
}

// planWatch sees the plan of every statement that goes by it, those inside of functions included, as PostgreSQL's own
// auto_explain tells them: what is looked at is what really ran, on the product's own connections.
type planWatch struct {
	url string // of the database, by the proxy

	mu       sync.Mutex
	seen     map[string]bool // the statements
	problems map[string]string
}

// watchPlans makes a database whose plans are watched. Nothing is vacuumed or analyzed in it but by the test.
func watchPlans(t *testing.T, cacheMode string) (w *planWatch, direct string) {
	t.Helper()
	direct = pgtest.NewDatabase(t, migrated)
	conn := pgtest.Connect(t, direct)
	if _, err := conn.Exec(t.Context(), "LOAD 'auto_explain'"); err != nil {
		give := t.Skipf
		if os.Getenv("CI") == "true" {
			give = t.Fatalf
		}
		give("PLANS ARE NOT WATCHED: auto_explain, which comes with PostgreSQL's contrib modules, can't be loaded here: %v", err)
	}
	config := conn.Config()
	for _, setting := range []string{
		"session_preload_libraries = 'auto_explain'", "auto_explain.log_min_duration = 0", "auto_explain.log_analyze = on",
		"auto_explain.log_timing = off", "auto_explain.log_nested_statements = on", "auto_explain.log_format = json",
		"auto_explain.log_level = notice", "plan_cache_mode = " + cacheMode,
	} {
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), "ALTER DATABASE "+pgx.Identifier{config.Database}.Sanitize()+" SET "+setting)))
	}
	unattended(t, conn)
	w = &planWatch{seen: map[string]bool{}, problems: map[string]string{}}
	_, w.url = wire.Through(t, direct, wire.Options{Notice: w.notice})
	return w, direct
}

// unattended keeps autovacuum away from all tables.
func unattended(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), `DO $$ DECLARE name regclass; BEGIN
		FOR name IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
			EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', name);
		END LOOP; END $$`); err != nil {
		t.Fatal(err)
	}
}

func (w *planWatch) notice(body []byte) {
	var n pgproto3.NoticeResponse
	if n.Decode(body) != nil {
		return
	}
	_, text, ok := strings.Cut(n.Message, "plan:\n")
	if !ok {
		return
	}
	var plan struct {
		Query string `json:"Query Text"`
		Plan  planned
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		w.problems[n.Message] = err.Error()
		return
	}
	w.seen[plan.Query] = true
	if !coldStatement(plan.Query) {
		w.check(plan.Query, text, &plan.Plan)
	}
}

// check looks at a node and at those below it.
func (w *planWatch) check(query, text string, n *planned) {
	if fault := n.fault(query); fault != "" {
		if _, known := w.problems[query+fault]; !known {
			w.problems[query+fault] = fmt.Sprintf("%s\n%s", fault, text)
		}
	}
	for i := range n.Plans {
		w.check(query, text, &n.Plans[i])
	}
}

// fault says what is wrong with a node: it reads a whole table, an index without the column that leads to the rows, or
// more rows than it is asked for. A statement that doesn't name the chapter may look for the id alone.
func (n *planned) fault(query string) string {
	switch {
	case n.Type == "Seq Scan" && !slices.Contains(smallTables(), n.Table):
		return "a sequential scan of " + n.Table
	case n.Index != "":
		columns, ok := pointIndexes()[ofPartition.ReplaceAllString(n.Index, "$2")]
		if !ok {
			return "an index that no hot statement is known to use: " + n.Index
		}
		for _, column := range columns {
			// The highest row is read backward. From PostgreSQL 17 on, it needs no condition on a column that is never null.
			if n.Condition == boundHolds || n.Direction == "Backward" && column != columns[0] {
				break
			}
			if !strings.Contains(n.Condition, "("+column+" ") && (column != "chapter" || strings.Contains(query, column)) {
				return fmt.Sprintf("a scan of %s without a condition on %s: %s", n.Index, column, n.Condition)
			}
		}
	}
	if read := (n.Rows + n.Filtered + n.Rechecked) * max(n.Loops, 1); read > mostRead && (n.Index != "" || n.Table != "") {
		return fmt.Sprintf("a scan of %s by %q reads more than %d rows", n.Table, n.Index, mostRead)
	}
	return ""
}

// ofPartition is what the name of a partition's index, or of a turned table's, has more than that of its table's.
var ofPartition = regexp.MustCompile(`_(first|rest|\d{8})(_|$)|_\d+$`)

// report fails the test with what was found since the last report.
func (w *planWatch) report(t *testing.T, when string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, problem := range w.problems {
		t.Errorf("%s: %s", when, problem)
	}
	clear(w.problems)
}

// requireSeen keeps the workload honest: the statements that matter most were among those that ran.
func (w *planWatch) requireSeen(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sql := range hotStatements() {
		if !w.seen[sql] {
			t.Errorf("this statement never ran: %s", sql)
		}
	}
}

// TestPlansDoNotDependOnStatistics runs every kind of command on tables that are empty, have grown since they were last
// analyzed or were never, and are analyzed at last; by connections that have their plans from the beginning, and by new
// ones; with generic and with custom plans. No plan may read more than the rows that its statement names.
func TestPlansDoNotDependOnStatistics(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.AdvisoryLocks) // Other statements are planned by other engines.
	for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
		for _, stale := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s stale %v", mode, stale), func(t *testing.T) {
				t.Parallel()
				w, direct := watchPlans(t, mode)
				around := pgtest.Connect(t, direct)
				s := newScene(t, w.url, around)
				step := func(when string) {
					t.Helper()
					s.everything(s.old)
					w.report(t, when+", old connections")
					s.everything(s.process())
					w.report(t, when+", new connections")
				}
				step("empty")
				if stale {
					s.run("ANALYZE")
					step("empty and analyzed")
				}
				if testwait.Torture() {
					s.grow(2_000)
					step("some rows")
				}
				s.grow(manyRows())
				step("grown")
				s.run("ANALYZE")
				step("analyzed")
				s.turnHolds(true)
				step("with holds in two tables")
				s.turnHolds(false)
				step("with closed holds")
				w.requireSeen(t)
			})
		}
	}
}

// manyRows is how large the tables become: far more than a plan may read.
func manyRows() int {
	if os.Getenv("FAIRLEAD_TORTURE") != "" {
		return 100_000
	}
	return 6_000
}

// pointIndexes are the indexes by which hot statements find rows, each with the columns that a condition must name, lest it
// read all that belongs to an auction or a campaign, or all there is.
func pointIndexes() map[string][]string {
	return map[string][]string{
		"accounts_pkey": {"id", "chapter"}, "idempotency_keys_pkey": {"id"}, "idempotency_keys_1_pkey": {"id"}, "key_slots_written": {}, "holds_pkey": {"id"}, "closed_holds_pkey": {"id"}, "transfers_pkey": {"id"},
		"hold_rows_one_an_auction": {"auction", "account"}, "holds_open_by_account": {"account"}, "hold_rows_open_by_expiry": {"expires_at"}, "holds_open_by_expiry": {"expires_at"},
		"pg_class_oid_index": {"oid"}, "auctions_pkey": {"id", "chapter"}, "auction_rounds_pkey": {"auction"}, "auction_standing_unique_amount": {"auction", "unique_amount"},
		"auction_standing_by_chapter": {"account", "(auction)::text"}, "auction_bids_pkey": {"auction", "seq"}, "auction_events_pkey": {"auction", "seq"},
		"campaigns_pkey": {"id", "chapter"}, "campaign_layers_pkey": {"campaign", "layer", "chapter"}, "campaign_prizes_pkey": {"campaign"}, "campaign_seeds_pkey": {"campaign"},
		"purchases_pkey": {"campaign", "seq"}, "purchases_by_account": {"account"}, "purchases_account_id_idx": {"account"}, "draws_pkey": {"campaign"},
		"lock_keys_pkey": {"key"}, "lock_grants_pkey": {"id"}, "lock_grants_owner": {"owner"}, "lock_waiters_pkey": {"id"},
		"lock_waiters_request_key": {"request"}, "lock_queue_pkey": {"key"}, "lock_fences_pkey": {"resource"},
		"publications_pkey": {"id"}, "publications_due": {"target"}, "publications_claimed": {"execution_locked_at"},
		"publication_attempts_pkey": {"publication", "version"}, "target_outcomes_pkey": {"target", "delivered"}, "targets_pkey": {}, "targets_name_key": {"name"}, "campaign_prizes_campaign_name_key": {"campaign"},
		"items_pkey": {"id"}, "items_claimable": {"due"}, "items_claimed": {"execution_locked_at"},
	}
}

// boundHolds is how the view of holds finds the amount of an auction's own hold (docs/adr/0019). Others have no auction, and
// read nothing by it.
const boundHolds = "(auction = h.auction)"

// smallTables may be read as a whole: one row, or a list that somebody keeps by hand and all of which is asked for.
func smallTables() []string { return []string{"lock_arbiter", "targets"} }

// coldStatement reports whether a statement is meant to read a whole auction or campaign: once, where a process does not
// remember it.
func coldStatement(sql string) bool {
	return slices.Contains([]string{selectStanding}, sql)
}

// hotStatements are some that must have been seen.
func hotStatements() []string {
	return []string{
		guardedUpdateAccounts, guardedInsertAccounts, updateAccounts, insertTransfers, insertHolds, insertKeys, lockAccounts, selectAccounts,
		selectHolds, selectClosedHolds, selectKeys, updateHolds, raiseAuction, guardAuction, guardSameAccounts, guardedRaiseUnique, guardedRaiseStanding,
		insertStanding, insertBids, lockAuctionRow, selectRounds, insertPurchases, guardedSellLayers, guardedUpdateCampaign, lockCampaignRow,
		selectLastSale,
		claimDue(), concludePublications, selectEvents, accountSources,
	}
}
