package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/audit"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/screen"
)

// Guarantee is one row of the closing table.
type Guarantee struct {
	// ID names the guarantee as the design does.
	ID      string `json:"id"`
	Promise string `json:"promise"`
	Held    bool   `json:"held"`
	// Finding is what the database said.
	Finding string `json:"finding"`
}

// question is a row of the table: a guarantee, and the question to the database whose answer is whether it held, and what was
// found. Its arguments are the answers that clients got.
type question struct{ id, promise, sql string }

// kept are the requests, with the answers that their senders got and what is kept under their keys.
const kept = `WITH asked AS (
	SELECT decode(key, 'hex') AS id, buyer, got.status, decode(got.body, 'base64') AS body
	FROM json_to_recordset(@answers::text::json) AS got (key text, buyer text, status int, body text)
), kept AS (
	SELECT k.status, convert_from(k.body, 'UTF8')::json AS body, asked.buyer, asked.status = k.status AND asked.body = k.body AS same
	FROM asked JOIN stored_keys k USING (id)
) `

// questions compare the answers that clients got with what is stored. That what is stored makes sense is the auditor's to say.
func questions() []question {
	return []question{
		{"W1", "no position twice, none too many", `
			SELECT c.total_positions = @positions AND c.sold_positions = @positions AND p.n = @positions AND p.places = @positions,
			       format('%s sold of %s, %s distinct', p.n, c.total_positions, p.places)
			FROM campaigns c, (SELECT count(*) AS n, count(DISTINCT (layer, number)) AS places FROM purchases WHERE campaign = @campaign) p
			WHERE c.id = @campaign`},
		{"W1", "all others refused, none charged", kept + `
			SELECT r.n = @buyers::int - @positions::int AND t.n = 0, format('%s sold_out, %s charged', r.n, t.n)
			FROM (SELECT count(*) AS n FROM kept WHERE body ->> 'code' = 'sold_out') r,
			     (SELECT count(*) AS n FROM transfers t JOIN campaigns c ON c.escrow = t.destination
			      WHERE c.id = @campaign AND t.source IN (SELECT buyer FROM kept WHERE body ->> 'code' = 'sold_out')) t`},
		{"W1", "public data alone gives the draw", `
			SELECT @proof_holds::bool AND count(*) = 1 AND bool_and(winners::jsonb = @winners::text::jsonb),
			       format('%s result, %s', count(*), CASE WHEN @proof_holds::bool THEN 'the proof holds' ELSE 'THE PROOF FAILS' END)
			FROM draws WHERE campaign = @campaign`},
		{"U1", "event numbers without a gap", `
			SELECT a.seq > 0 AND a.seq = n.events AND n.seen = n.events, format('%s events, %s as they were told', n.events, n.seen)
			FROM auctions a, (
				SELECT count(*) AS events, count(*) FILTER (WHERE sent.type = stored.type AND sent.place = stored.seq) AS seen FROM (
					SELECT seq, type FROM auction_events WHERE auction = @auction
					UNION ALL SELECT seq, 'bid.placed' FROM auction_bids WHERE auction = @auction) stored
				FULL JOIN unnest(@seqs::bigint[], @types::text[]) WITH ORDINALITY AS sent (seq, type, place) USING (seq)) n
			WHERE a.id = @auction`},
		{"U1", "a replay gives the same winners", `SELECT @winners_hold::bool, @winners_finding::text`},
		{"U1", "a replay gives the same balances", `SELECT @balances_hold::bool, @balances_finding::text`},
		{"A1", "every acknowledged sale is there", `
			SELECT count(*) = @positions AND count(p.id) = count(*), format('%s of %s', count(p.id), count(*))
			FROM json_to_recordset(@sales::text::json) AS got (id uuid, account text, position json)
			LEFT JOIN purchases p ON p.campaign = @campaign AND p.id = got.id AND p.account = got.account
			     AND p.layer = (position ->> 'layer')::int AND p.number = (position ->> 'number')::int`},
		{"A1", "every acknowledged bid is there", `
			SELECT count(*) > 0 AND count(b.hold) = count(*) AND count(*) = (SELECT count(*) FROM auction_bids WHERE auction = @auction),
			       format('%s of %s', count(b.hold), count(*))
			FROM json_to_recordset(@bids::text::json) AS got (seq bigint, account text, amount bigint, previous_amount bigint, round int, rank int)
			LEFT JOIN (SELECT * FROM auction_bids WHERE auction = @auction) b USING (seq, account, amount, previous_amount, round, rank)`},
		{"I1", "one key, at most one effect", kept + `
			SELECT count(*) = @positions AND bool_and(k.times IS NOT DISTINCT FROM 1), format('%s requests, %s effects', @requests::int, count(*))
			FROM purchases p LEFT JOIN (SELECT body ->> 'id' AS id, count(*) AS times FROM kept WHERE status = 201 GROUP BY 1) k ON k.id = p.id::text
			WHERE p.campaign = @campaign`},
		{"I2", "one key, the same bytes always", kept + `
			SELECT count(*) FILTER (WHERE same) = @buyers AND @replays_hold::bool,
			       format('%s of %s as kept, %s replays', count(*) FILTER (WHERE same), @buyers::int, @replayed::int) FROM kept`},
	}
}

// check fills the table of guarantees and prints it. It asks the database, on a connection that has nothing to do with the
// server's, what became of the story, and compares that with the answers that the buyers got; what the server says of itself is not
// asked.
func (d *Demo) check(ctx context.Context) error {
	d.screen.Heading("The guarantees: what the database itself says")
	d.result.Guarantees = nil
	pool, err := pgxpool.New(ctx, d.server.DatabaseURL())
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := d.checkStory(ctx, pool); err != nil {
		return err
	}
	if err := d.audit(ctx, pool); err != nil {
		return err
	}
	d.result.AllHeld = true
	s := d.screen
	for _, g := range d.result.Guarantees {
		d.result.AllHeld = d.result.AllHeld && g.Held
		mark, finding := s.Paint(screen.Green, "✓"), g.Finding
		if !g.Held {
			mark, finding = s.Paint(screen.Red, "✗"), s.Paint(screen.Red, "BROKEN: "+g.Finding)
		}
		s.Note("  %s %s  %s  %s", mark, s.Paint(screen.Bold, screen.Pad(g.ID, 3)), screen.Pad(g.Promise, 33), finding)
	}
	took := time.Since(d.began)
	d.result.TotalMS = took.Milliseconds()
	if d.result.AllHeld {
		s.Note("\n%s", s.Paint(screen.Green, "Every guarantee held."))
	} else {
		s.Note("\n%s", s.Paint(screen.Red, "NOT EVERY GUARANTEE HELD."))
	}
	s.Note("All of this took %s.", screen.Seconds(took))
	return nil
}

// checkStory asks for all rows of the story in one snapshot.
func (d *Demo) checkStory(ctx context.Context, pool *pgxpool.Pool) (err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx))) }()
	args, err := d.answersGot(ctx, tx)
	if err != nil {
		return err
	}
	if err := d.compareReplay(ctx, tx, args); err != nil {
		return err
	}
	if err := d.crashArguments(ctx, args); err != nil {
		return err
	}
	for _, q := range slices.Concat(questions(), lockQuestions(d.databases.writes), d.crashQuestions()) {
		g := Guarantee{ID: q.id, Promise: q.promise}
		var held *bool // Null, and no row at all, is what is lost, too.
		var finding *string
		if err := tx.QueryRow(ctx, q.sql, args).Scan(&held, &finding); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%s: %w", q.promise, err)
		}
		if g.Held = held != nil && *held; finding != nil {
			g.Finding = *finding
		}
		d.result.Guarantees = append(d.result.Guarantees, g)
	}
	return nil
}

// answersGot are the arguments of the questions: the answers that buyers and bidders got, and the events that the watcher of the
// auction saw. It adds to each buyer's answer the id of its key in the database.
func (d *Demo) answersGot(ctx context.Context, tx pgx.Tx) (pgx.NamedArgs, error) {
	hash := auth.HashKey(d.key)
	var principal string
	if err := tx.QueryRow(ctx, `SELECT id FROM api_keys WHERE hash = $1`, hash[:]).Scan(&principal); err != nil {
		return nil, fmt.Errorf("find the demo's own API key: %w", err)
	}
	var sales []any
	for i := range d.answers {
		a := &d.answers[i]
		id := idempotency.NewID("key:"+principal, http.MethodPost, "/v1/campaigns/"+d.result.Campaign+"/purchases", a.key)
		if a.ID = fmt.Sprintf("%x", id[:]); a.purchase != nil {
			sales = append(sales, a.purchase)
		}
	}
	var seqs []int64
	var types []string
	for _, e := range d.events {
		seqs, types = append(seqs, e.Seq), append(types, string(e.Type))
	}
	p, r := d.result.Proof, d.result.Race
	args := pgx.NamedArgs{
		"campaign": d.result.Campaign, "positions": demoPositions, "buyers": demoBuyers, "auction": d.result.Auction.ID, "seqs": seqs, "types": types,
		"requests": r.Requests, "replayed": r.Replayed, "replays_hold": r.DifferentIn == 0 && r.Replayed == r.Repeated,
		"proof_holds": p.Valid && p.AlteredRefused && p.InclusionValid,
	}
	proof, err := fairdraw.ParseProof(d.proof)
	if err != nil {
		return nil, err
	}
	for name, document := range map[string]any{"answers": d.answers, "sales": sales, "bids": d.bidsPlaced, "winners": proof.Winners} {
		b, err := json.Marshal(document)
		if err != nil {
			return nil, err
		}
		args[name] = string(b)
	}
	return args, nil
}

// compareReplay plays the auction again from the events of the live stream, with a model of its own, and compares the winners and
// the balances.
func (d *Demo) compareReplay(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) error {
	funds := map[string]int64{d.seller(): 0}
	for _, bot := range d.bots() {
		funds[bot] = demoBotFunds
	}
	rows, err := tx.Query(ctx, `SELECT round, rank, account, amount FROM auction_winners WHERE auction = $1 ORDER BY round, rank`, d.result.Auction.ID)
	if err != nil {
		return err
	}
	winners, err := pgx.CollectRows(rows, pgx.RowToStructByPos[replay.Win])
	if err != nil {
		return err
	}
	if rows, err = tx.Query(ctx, `SELECT id, available, held FROM accounts WHERE id = ANY($1)`, append(d.bots(), d.seller())); err != nil {
		return err
	}
	stored := map[string]replay.Balance{}
	var id string
	var b replay.Balance
	if _, err := pgx.ForEachRow(rows, []any{&id, &b.Available, &b.Held}, func() error { stored[id] = b; return nil }); err != nil {
		return err
	}
	played, difference := replay.Replay(d.auctionRules(), funds, d.events)
	if difference != nil {
		played = &replay.Outcome{}
	}
	say := func(name string, different error, finding string) {
		if different = errors.Join(difference, different); different != nil {
			finding = different.Error()
		}
		args[name+"_hold"], args[name+"_finding"] = different == nil, finding
	}
	different := replay.Compare("winners", winners, played.Wins())
	if different == nil && (played.Status != "completed" || len(winners) == 0) {
		different = errors.New("the auction is " + played.Status)
	}
	say("winners", different, fmt.Sprintf("%d rounds, %d winners, %d bids", len(played.Rounds), len(winners), len(played.Bids)))
	say("balances", replay.Compare("accounts", stored, played.Accounts), fmt.Sprintf("%d accounts to the cent", len(stored)))
	return nil
}

// audit adds a row for each group of promises that the independent auditor checks on the whole database.
func (d *Demo) audit(ctx context.Context, pool *pgxpool.Pool) error {
	results, err := audit.Report(ctx, pool)
	if err != nil {
		return err
	}
	ids := map[audit.Guarantee]string{audit.Money: "A2", audit.Lottery: "W1", audit.Auctions: "U1", audit.Keys: "I1", audit.Publications: "P1", audit.Multidraws: "C1"}
	checks := 0
	g := Guarantee{Held: true}
	for i, r := range results {
		checks++
		if r.Total > 0 && g.Held {
			g.Held, g.Finding = false, fmt.Sprintf("not so: %s: %s", r.Promise, r.Violations[0])
		}
		if i+1 < len(results) && results[i+1].Guarantee == r.Guarantee {
			continue
		}
		if g.ID, g.Promise = ids[r.Guarantee], "audit of all "+string(r.Guarantee); g.Held {
			g.Finding = fmt.Sprintf("%d of %[1]d checks", checks)
		}
		d.result.Guarantees = append(d.result.Guarantees, g)
		g, checks = Guarantee{Held: true}, 0
	}
	return nil
}
