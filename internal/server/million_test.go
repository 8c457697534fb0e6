package server

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// pageLimit is how long any page of any list may take, on a machine that has other things to do. What looks at every row of
// a million takes longer.
const pageLimit = time.Second

// bulk fills tables as years of use would, past the services: they are not asked to do a million things one by one.
type bulk struct {
	*env

	conn *pgx.Conn
	n    int // rows of each
}

// uuidOf is the id of the row i, in SQL; ids of rows that a test makes by the API are greater.
func uuidOf(i string) string {
	return `('01800000-0000-7000-8000-' || lpad(to_hex(` + i + `::bigint), 12, '0'))::uuid`
}

// idOf is the id of the row i.
func idOf(i int) string { return fmt.Sprintf("01800000-0000-7000-8000-%012x", i) }

func (b *bulk) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.conn.Exec(context.Background(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// copies fills a table with copies of the one row that where selects; replaced columns are expressions of i.
func (b *bulk) copies(table, where string, replaced map[string]string, args ...any) {
	b.t.Helper()
	rows, err := b.conn.Query(context.Background(), `SELECT attname::text FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0
		AND NOT attisdropped AND attidentity = '' AND attgenerated = ''`, table)
	must(b.t, err)
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(b.t, err)
	values := make([]string, len(columns))
	for i, column := range columns {
		if values[i] = "src." + column; replaced[column] != "" {
			values[i] = replaced[column]
		}
	}
	b.exec(`INSERT INTO `+table+` (`+strings.Join(columns, ", ")+`) SELECT `+strings.Join(values, ", ")+
		` FROM generate_series(1, `+fmt.Sprint(b.n)+`) AS i, (SELECT * FROM `+table+` WHERE `+where+`) AS src`, args...)
}

func (b *bulk) number(sql string, args ...any) (n int64) {
	b.t.Helper()
	must(b.t, b.conn.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// farPage is a list, its filter, and the place from which a late page of it begins.
type farPage struct {
	path, filter string
	place        int64
	text         string // the place, where places are ids
	most         int    // rows that a page may have fewer than; 0: a page is full
}

// late is the address of the late page.
func (p farPage) late() string {
	path := p.path
	if p.filter != "" && strings.HasPrefix(p.path, "/v1/admin/") || strings.HasPrefix(p.path, "/v1/publications") && p.filter != "" {
		value, err := url.ParseQuery(p.filter)
		if err == nil {
			for name, values := range value {
				path += "?" + name + "=" + values[0]
			}
		}
	}
	after := cursor(path, p.place)
	if p.text != "" {
		decoded, _ := url.PathUnescape(path)
		after = textCursor(decoded, p.text)
	}
	return p.first() + "&after=" + url.QueryEscape(after)
}

func (p farPage) first() string { return p.path + "?" + strings.TrimPrefix(p.filter+"&limit=50", "&") }

// TestEveryListWithAMillionRows asks for the first page and a late one of every list there is, with every filter that it has,
// with a million rows behind it. It runs with few rows unless FAIRLEAD_TORTURE is set: then it looks whether what fills the
// tables still does.
func TestEveryListWithAMillionRows(t *testing.T) {
	t.Parallel()
	b := &bulk{env: newEnv(t), n: 2000}
	if testwait.Torture() {
		b.n = 1_000_000
	}
	b.conn = b.connect()
	defer func() { _ = b.conn.Close(context.Background()) }()
	b.exec(`SET synchronous_commit = off`)
	began := time.Now()
	pages := slices.Concat(b.ledgerRows(), b.lotteryRows(), b.auctionRows(), b.publishingRows(), b.otherRows())
	b.exec(`VACUUM ANALYZE`)
	t.Logf("%d rows in each of them, made in %s", b.n, time.Since(began).Round(time.Second))

	took := map[string]time.Duration{}
	listed := map[string]bool{}
	c := b.contract()
	for _, p := range pages {
		pattern, _ := c.operation(http.MethodGet, p.path)
		listed[pattern] = true
		for which, address := range map[string]string{"first": p.first(), "late": p.late()} {
			if which == "late" && p.place == 0 && p.text == "" {
				continue // There is one page of it.
			}
			took[fmt.Sprintf("%s %s %s", pattern, p.filter, which)] = b.fastest(address, p.most)
		}
	}
	// What is no list and is looked at by the console beside them.
	for _, address := range []string{
		"/v1/locks", "/v1/in-doubt", "/v1/admin/overview", "/v1/accounts/great", "/v1/admin/search?q=acc", "/v1/admin/search?q=nothing", "/v1/admin/search?q=" + idOf(1), "/v1/admin/names?ids=" + idOf(1),
		"/v1/admin/idempotency?key=a&method=POST&path=%2Fv1%2Faccounts&principal=" + url.QueryEscape("key:"+b.adminID),
	} {
		took[address] = b.fastest(address, math.MaxInt)
	}
	for _, name := range slices.SortedFunc(maps.Keys(took), func(x, y string) int { return int(took[y] - took[x]) }) {
		t.Logf("%8.1f ms %s", float64(took[name].Microseconds())/1000, name)
		if testwait.Torture() && took[name] > pageLimit {
			t.Errorf("%s took %s", name, took[name])
		}
	}
	for _, r := range b.server.routes() {
		paged := slices.ContainsFunc(r.doc.query, func(p parameter) bool { return p.name == "after" })
		// An installation has a handful of keys, and they are kept in memory anyway. A topic's leaves: postgres.TestLogOfManyLeaves.
		if strings.HasSuffix(r.path, "/log") {
			continue
		}
		if paged && !listed[r.path] && r.path != "/v1/keys" && r.path != "/v1/admin/keys" {
			t.Errorf("%s is a list that was not tried", r.path)
		}
	}
	b.tidy()
}

// fastest is the shortest of a few times that an address takes: the longer ones are the machine's.
func (b *bulk) fastest(address string, most int) time.Duration {
	b.t.Helper()
	best := time.Duration(math.MaxInt64)
	for range 3 {
		start := time.Now()
		r := b.get(address)
		best = min(best, time.Since(start))
		if most == math.MaxInt {
			continue // It is no list.
		}
		if n := len(r.want(http.StatusOK).items()); most == 0 && n != 50 || most > 0 && n > most {
			b.t.Errorf("%s: %d items", address, n)
		}
	}
	return best
}

// ledgerRows makes accounts without money, and a great one that was paid a unit a million times and has held each.
func (b *bulk) ledgerRows() []farPage {
	b.account("great", "EUR", 1)
	b.post("/v1/holds", `{"account":"great","amount":1}`).want(http.StatusCreated)
	b.copies("accounts", "id = 'great'", map[string]string{"id": "'acc-' || lpad(i::text, 7, '0')", "available": "0", "held": "0"})
	b.copies("transfers", "destination = 'great'", map[string]string{"id": uuidOf("i")})
	b.exec(`INSERT INTO transfer_references SELECT `+uuidOf("i")+`, 'ref-' || i, true, 0 FROM generate_series(1, $1::integer) AS i`, b.n)
	b.exec(`INSERT INTO transfers (id, kind, source, destination, amount, currency, status, reason, created_at)
		SELECT `+uuidOf("i + (1 << 30)")+`, 'transfer', 'great', 'nobody', 1, 'EUR', 'failed', 'insufficient_funds', now()
		FROM generate_series(1, $1::integer / 20) AS i`, b.n)
	b.copies("entries", "account = 'great'", map[string]string{"id": uuidOf("i"), "transfer": uuidOf("i"), "version": "i + 10"})
	b.copies("entries", "account = 'outside/EUR'", map[string]string{"id": uuidOf("i"), "transfer": uuidOf("i")})
	b.copies("hold_rows", "account = 'great'", map[string]string{"id": uuidOf("i")})
	b.exec(`UPDATE accounts SET held = $1, version = $2 WHERE id = 'great'`, b.n+1, 2*b.n+20)
	// A few of another account's, among all those.
	b.account("small", "EUR", 5)
	for range 5 {
		b.post("/v1/holds", `{"account":"small","amount":1}`).want(http.StatusCreated)
	}
	far := int64(b.n) - 100
	return []farPage{
		{path: "/v1/admin/accounts", text: fmt.Sprintf("acc-%07d", far)},
		{path: "/v1/admin/accounts", filter: "prefix=acc-", text: fmt.Sprintf("acc-%07d", far)},
		{path: "/v1/admin/accounts", filter: "prefix=small", text: "smalk", most: 1},
		{path: "/v1/accounts/great/entries", place: far},
		{path: "/v1/admin/accounts/great/entries", text: "100:" + idOf(90) + ":90"},
		{path: "/v1/admin/accounts/outside%2FEUR/entries", text: "0:" + idOf(100) + ":"},
		{path: "/v1/accounts/great/holds", text: idOf(100)},
		{path: "/v1/admin/accounts/great/holds", text: idOf(100)},
		{path: "/v1/admin/accounts/small/holds", text: idOf(100), most: 5},
		{path: "/v1/transfers", filter: "reference=ref-7", most: 1},
		{path: "/v1/admin/transfers", text: idOf(100)},
		{path: "/v1/admin/transfers", filter: "status=completed", text: idOf(100)},
		{path: "/v1/admin/transfers", filter: "status=failed", text: idOf(1<<30 + 60)},
		{path: "/v1/admin/transfers", filter: "status=pending", text: idOf(100), most: 50},
	}
}

func (b *bulk) lotteryRows() []farPage {
	plain := b.campaign(`"base_length":2`, "")
	great := b.onSale(fmt.Sprintf(`"layers":[{"positions":%d}]`, b.n), "")
	b.exec(`UPDATE campaigns SET sold_positions = $2, version = version + 1 WHERE id = $1`, great, b.n-1)
	b.exec(`UPDATE campaign_layers SET sold = $2 WHERE campaign = $1`, great, b.n-1)
	b.exec(`INSERT INTO purchases (campaign, seq, id, account, layer, number, ordinal, price, transfer, at)
		SELECT $1, i, `+uuidOf("i")+`, 'great', 1, i, i - 1, 100, `+uuidOf("i")+`, now() FROM generate_series(1, $2::integer) AS i`, great, b.n-1)
	b.copies("campaigns", "id = $1", map[string]string{
		"id": uuidOf("i"), "escrow": "'escrow/' || i", "status": "CASE WHEN i % 20000 = 0 THEN 'cancelled' ELSE 'pending' END",
	}, plain)
	b.exec(`INSERT INTO campaign_layers (campaign, layer, positions, price, sold) SELECT `+uuidOf("i")+`, 1, 3, 100, 0 FROM generate_series(1, $1::integer) AS i`, b.n)
	draws := b.post("/v1/multidraws", fmt.Sprintf(`{"lock_key":"great","count":%d,"range":{"min":1,"max":6}}`, b.n)).want(http.StatusCreated).str("id")
	one := b.post("/v1/multidraws", `{"lock_key":"one","count":1,"range":{"min":1,"max":6}}`).want(http.StatusCreated).str("id")
	b.copies("multidraws", "id = $1", map[string]string{"id": uuidOf("i")}, one)
	first, far := b.number(`SELECT min(number) + 100 FROM campaigns`), int64(b.n)-100
	return []farPage{
		{path: "/v1/campaigns", place: far},
		{path: "/v1/admin/campaigns", place: first},
		{path: "/v1/admin/campaigns", filter: "status=pending", place: first},
		{path: "/v1/admin/campaigns", filter: "status=cancelled", place: first, most: 50},
		{path: "/v1/admin/campaigns", filter: "status=completed", place: first, most: 50},
		{path: "/v1/campaigns/" + great + "/positions", place: far},
		{path: "/v1/campaigns/" + great + "/purchases", place: far},
		{path: "/v1/accounts/great/purchases", text: idOf(100)},
		{path: "/v1/multidraws", place: far},
		{path: "/v1/admin/multidraws", place: 100},
		{path: "/v1/admin/campaigns/" + great + "/purchases", place: 100},
		{path: "/v1/admin/campaigns/" + great + "/purchases", filter: "account=great", place: 100},
		{path: "/v1/admin/campaigns/" + great + "/purchases", filter: "account=small", place: 100, most: 1},
		{path: "/v1/multidraws/" + draws + "/results", place: far},
	}
}

func (b *bulk) auctionRows() []farPage {
	plain := b.auctioned(twoRounds, "")
	great := b.started(`[{"winners":5,"duration":"24h"}]`, "")
	b.exec(`INSERT INTO auction_bids (auction, seq, account, amount, previous_amount, round, rank, at, hold)
		SELECT $1, i + 10, 'acc-' || lpad(i::text, 7, '0'), i + 1, 0, 1, 1, now(), `+uuidOf("i")+` FROM generate_series(1, $2::integer) AS i`, great, b.n)
	b.exec(`INSERT INTO auction_standing (auction, account, amount, unique_amount, round, seq, at, hold, active)
		SELECT auction, account, amount, amount, round, seq, at, hold, true FROM auction_bids WHERE auction = $1`, great)
	b.exec(`UPDATE auctions SET total_bids = $2::bigint, seq = $2::bigint + 10, version = version + 1, revision = gen_random_uuid() WHERE id = $1`, great, b.n)
	bidder := fmt.Sprintf("acc-%07d", b.n/2)
	b.exec(`INSERT INTO hold_rows (id, account, captured, status, created_at, owner)
		SELECT gen_random_uuid(), account, 0, 'open', at, 'auction:' || auction FROM auction_standing WHERE auction = $1 AND account = $2`, great, bidder)
	// As many winners as there can be.
	winners := min(b.n, 1<<rankBits-1)
	b.exec(`INSERT INTO auction_winners (auction, round, rank, account, amount, transfer)
		SELECT $1, 1, i, 'acc-' || lpad(i::text, 7, '0'), i, `+uuidOf("i")+` FROM generate_series(1, $2::integer) AS i`, plain, winners)
	b.copies("auctions", "id = $1", map[string]string{
		"id": uuidOf("i"), "status": "CASE WHEN i % 20000 = 0 THEN 'cancelled' ELSE 'pending' END",
	}, plain)
	first, far := b.number(`SELECT min(number) + 100 FROM auctions`), int64(b.n)-100
	return []farPage{
		{path: "/v1/auctions", place: far},
		{path: "/v1/admin/auctions", place: first},
		{path: "/v1/admin/auctions", filter: "status=pending", place: first},
		{path: "/v1/admin/auctions", filter: "status=cancelled", place: first, most: 50},
		{path: "/v1/auctions/" + great + "/bids", place: far},
		{path: "/v1/admin/auctions/" + great + "/bids", place: 100},
		{path: "/v1/admin/auctions/" + great + "/bids", filter: "account=" + bidder, place: 100, most: 1},
		{path: "/v1/auctions/" + great + "/leaderboard", place: far},
		{path: "/v1/accounts/" + bidder + "/bids", place: 1, most: 1},
		{path: "/v1/auctions/" + plain + "/winners", place: 1<<rankBits | int64(winners-100)},
	}
}

func (b *bulk) publishingRows() []farPage {
	b.target("great", "http://127.0.0.1:9/")
	target := b.get("/v1/targets").str("items.0.id")
	id := strings.TrimPrefix(b.publication("great", `,"payload":1`), "/v1/publications/")
	b.copies("publications", "id = $1", map[string]string{
		"id": uuidOf("i"), "status": "CASE WHEN i % 20000 = 0 THEN 'failed' ELSE 'cancelled' END",
	}, id)
	b.exec(`INSERT INTO publication_attempts (publication, version, lock_id, started_at, ended_at, result)
		SELECT $1, i, `+uuidOf("i")+`, now(), now(), 'failed' FROM generate_series(1, $2::integer) AS i`, id, b.n)
	rule := b.post("/v1/automations", `{"name":"great","target":"great","weekdays":["mon"],"times":["09:00"]}`).want(http.StatusCreated).str("id")
	b.post("/v1/automations/"+rule+"/cancel", "").want(http.StatusOK)
	b.exec(`INSERT INTO automation_firings (automation, scheduled_for, fired_at, outcome, skipped)
		SELECT $1, now() - i * interval '1 second', now() - i * interval '1 second', 'no_draft', 0 FROM generate_series(1, $2::integer) AS i`, rule, b.n)
	b.copies("automations", "id = $1", map[string]string{"id": uuidOf("i"), "name": "'rule ' || i"}, rule)
	subscription := b.subscribe("great", "great", `"topics":["auction:*"]`).str("id")
	b.post("/v1/subscriptions/"+subscription+"/pause", "").want(http.StatusOK)
	b.exec(`INSERT INTO subscription_topics (subscription, topic, seq) SELECT $1, 'auction:' || `+uuidOf("i")+`, i FROM generate_series(1, $2::integer) AS i`, subscription, b.n)
	// Nobody has a million of these, and the overview looks at each of them.
	all := b.n
	b.n /= 20
	b.copies("subscriptions", "id = $1", map[string]string{"id": uuidOf("i"), "name": "'subscription ' || i"}, subscription)
	b.copies("targets", "id = $1", map[string]string{"id": uuidOf("i"), "name": "'target ' || i"}, target)
	targets := int64(b.n) - 60
	b.n = all
	far := int64(b.n) - 100
	return []farPage{
		{path: "/v1/publications", place: far},
		{path: "/v1/publications", filter: "status=cancelled", place: far},
		{path: "/v1/admin/publications", place: 100},
		{path: "/v1/admin/publications", filter: "status=cancelled", place: 100},
		{path: "/v1/admin/publications", filter: "target=great", place: 100},
		{path: "/v1/admin/publications", filter: "target=nothing", place: 100, most: 1},
		{path: "/v1/admin/publications", filter: "error=refused", place: 100, most: 50},
		{path: "/v1/admin/publications", filter: "cause=dns", place: 100, most: 50},
		{path: "/v1/publications", filter: "status=failed", place: far, most: 50},
		{path: "/v1/publications", filter: "status=scheduled", place: far, most: 50},
		{path: "/v1/publications/" + id + "/attempts", place: far},
		{path: "/v1/automations", place: far},
		{path: "/v1/automations/" + rule + "/firings", place: far},
		{path: "/v1/targets", place: targets},
		{path: "/v1/subscriptions", place: targets},
		{path: "/v1/subscriptions/" + subscription + "/topics", text: "auction:" + idOf(int(far))},
		{path: "/v1/admin/publications/" + id + "/attempts", place: 100},
		{path: "/v1/admin/automations", place: 100},
		{path: "/v1/admin/automations/" + rule + "/firings", place: 100},
		{path: "/v1/admin/targets", place: 61},
	}
}

// otherRows makes locks, sagas, keys and the audit log.
func (b *bulk) otherRows() []farPage {
	held := b.lock("somebody", "24h", "", "great").want(http.StatusCreated).str("id")
	b.copies("lock_grants", "id = $1", map[string]string{"id": uuidOf("i"), "owner": "'owner ' || i", "keys": "ARRAY['key ' || i]"}, held)
	b.copies("lock_keys", "key = 'great'", map[string]string{"key": "'key ' || i", "holder": uuidOf("i")})
	b.account("mover", "EUR", 1)
	done := b.post("/v1/cross-transfers", crossBody("local", "mover", "local", "small", 1, "saga")).want(http.StatusCreated).str("id")
	b.waitingCross("small", "small") // Stuck, and the oldest of all.
	b.copies("sagas", "id = $1", map[string]string{"id": uuidOf("i"), "status": "CASE WHEN i % 20000 = 0 THEN 'failed' ELSE 'completed' END"}, done)
	b.waitingCross("small", "small")
	b.exec(`UPDATE sagas SET name = 'another' WHERE number = (SELECT min(number) FROM sagas WHERE status = 'pending')`)
	b.copies("idempotency_keys", "id = (SELECT id FROM idempotency_keys LIMIT 1)", map[string]string{"id": "sha256(i::text::bytea)"})
	b.copies("audit_log", "action = 'automation.cancel'", map[string]string{
		"id": uuidOf("i"), "action": "CASE WHEN i % 20000 = 0 THEN 'lock.release' ELSE 'campaign.create' END", "object": "'object ' || (i % 1000)",
	})
	last := b.number(`SELECT max(number) - 100 FROM sagas`)
	principal := url.QueryEscape("key:" + b.adminID)
	return []farPage{
		{path: "/v1/sagas", place: last},
		{path: "/v1/cross-transfers", place: last},
		{path: "/v1/sagas", filter: "status=completed", place: last},
		{path: "/v1/sagas", filter: "name=cross-transfer", place: last, most: 101},
		{path: "/v1/sagas", filter: "status=failed", place: last, most: 50},
		{path: "/v1/sagas", filter: "status=pending", place: last, most: 50},
		{path: "/v1/sagas", filter: "stuck=true", place: last, most: 50},
		{path: "/v1/cross-transfers", filter: "stuck=true", place: last, most: 50},
		{path: "/v1/sagas", filter: "name=another", place: last, most: 50},
		{path: "/v1/sagas", filter: "name=nothing&status=compensated", place: last, most: 50},
		{path: "/v1/sagas", filter: "name=cross-transfer&status=failed", place: last, most: 50},
		{path: "/v1/admin/sagas", place: 102},
		{path: "/v1/admin/sagas", filter: "name=cross-transfer"},
		{path: "/v1/admin/sagas", filter: "status=failed", most: 50},
		{path: "/v1/admin/sagas", filter: "stuck=true", most: 50},
		{path: "/v1/admin/sagas", filter: "account=mover", place: 102},
		{path: "/v1/admin/sagas", filter: "account=small", place: 102},
		{path: "/v1/admin/sagas", filter: "account=nobody", most: 1},
		{path: "/v1/admin/audit", text: idOf(100)},
		{path: "/v1/admin/audit", filter: "principal=" + principal, text: idOf(100)},
		{path: "/v1/admin/audit", filter: "action=campaign.create", text: idOf(100)},
		{path: "/v1/admin/audit", filter: "action=lock.release", text: idOf(100), most: 50},
		{path: "/v1/admin/audit", filter: "object=object+7", text: idOf(100), most: 50},
		{path: "/v1/admin/audit", filter: "object=nothing", text: idOf(100), most: 50},
	}
}

// tidy takes away what would be at work until the end of the test, and a hold without money.
func (b *bulk) tidy() {
	b.t.Helper()
	b.exec(`DELETE FROM sagas WHERE status = 'pending'`)
	b.exec(`DELETE FROM hold_rows WHERE auction IS NOT NULL`)
}
