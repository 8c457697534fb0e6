package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
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
	// ID names the guarantee as the design does; all is the audit of everything.
	ID      string `json:"id"`
	Promise string `json:"promise"`
	Held    bool   `json:"held"`
	// Finding is what the database said.
	Finding string `json:"finding"`
}

// check fills the table of guarantees and prints it. It asks the database, on a connection that has nothing to do with the
// server's, what became of the story, and compares that with what the buyers were told; what the server says of itself is not
// asked.
func (d *Demo) check(ctx context.Context, answers []answer) (err error) {
	d.screen.Heading("The guarantees: what the database itself says")
	d.result.Guarantees = nil
	pool, err := pgxpool.New(ctx, d.server.DatabaseURL())
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := d.checkStory(ctx, pool, answers); err != nil {
		return err
	}
	results, err := audit.Report(ctx, pool)
	if err != nil {
		return err
	}
	d.addAudit(results)
	d.result.AllHeld = true
	for _, g := range d.result.Guarantees {
		d.result.AllHeld = d.result.AllHeld && g.Held
		d.row(g)
	}
	if d.result.AllHeld {
		d.screen.Note("\n%s", d.screen.Paint(screen.Green, "Every guarantee held."))
	} else {
		d.screen.Note("\n%s", d.screen.Paint(screen.Red, "NOT EVERY GUARANTEE HELD."))
	}
	return nil
}

// checkStory asks for all rows of the story in one snapshot.
func (d *Demo) checkStory(ctx context.Context, pool *pgxpool.Pool, answers []answer) (err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx))) }()
	args := d.auctionTold()
	if err := d.buyersTold(ctx, tx, answers, args); err != nil {
		return err
	}
	if err := d.compareDraw(ctx, tx, args); err != nil {
		return err
	}
	if err := d.compareReplay(ctx, tx, args); err != nil {
		return err
	}
	for _, q := range questions() {
		g := Guarantee{ID: q.id, Promise: q.promise}
		if err := tx.QueryRow(ctx, q.sql, args).Scan(&g.Held, &g.Finding); err != nil {
			return fmt.Errorf("%s: %w", q.promise, err)
		}
		d.result.Guarantees = append(d.result.Guarantees, g)
	}
	return nil
}

// buyersTold adds what each buyer was told to the arguments of the questions, by the id of its key in the database.
func (d *Demo) buyersTold(ctx context.Context, tx pgx.Tx, answers []answer, args pgx.NamedArgs) error {
	hash := auth.HashKey(d.key)
	var principal string
	if err := tx.QueryRow(ctx, `SELECT id FROM api_keys WHERE hash = $1`, hash[:]).Scan(&principal); err != nil {
		return fmt.Errorf("find the demo's own API key: %w", err)
	}
	var (
		keys, bodies    [][]byte
		buyers          []string
		statuses        []int
		ids, owners     []string
		layers, numbers []int64
	)
	for _, a := range answers {
		id := idempotency.NewID("key:"+principal, http.MethodPost, "/v1/campaigns/"+d.result.Campaign+"/purchases", a.key)
		keys, buyers, statuses, bodies = append(keys, id[:]), append(buyers, a.buyer), append(statuses, a.status), append(bodies, a.body)
		if p := a.purchase; p != nil {
			ids, owners, layers, numbers = append(ids, p.ID), append(owners, a.buyer), append(layers, p.Position.Layer), append(numbers, p.Position.Number)
		}
	}
	args["keys"], args["buyers"], args["statuses"], args["bodies"] = keys, buyers, statuses, bodies
	args["ids"], args["owners"], args["layers"], args["numbers"] = ids, owners, layers, numbers
	r := d.result.Race
	args["requests"], args["replayed"], args["replays_hold"] = r.Requests, r.Replayed, r.DifferentIn == 0 && r.Replayed == r.Repeated
	return nil
}

// auctionTold are the arguments that tell the story, and what bidders and watchers of the auction were told.
func (d *Demo) auctionTold() pgx.NamedArgs {
	a := &d.result.Auction
	var seqs, amounts, previous, rounds, ranks, watched []int64
	var bidders, kinds []string
	for _, b := range a.told {
		seqs, bidders, amounts, previous = append(seqs, b.Seq), append(bidders, b.Account), append(amounts, b.Amount), append(previous, b.PreviousAmount)
		rounds, ranks = append(rounds, b.Round), append(ranks, b.Rank)
	}
	for _, e := range a.socket {
		watched, kinds = append(watched, e.seq), append(kinds, string(e.kind))
	}
	winners := 0
	for _, r := range a.Rounds {
		winners += len(r.Winners)
	}
	return pgx.NamedArgs{
		"campaign": d.result.Campaign, "positions": demoPositions, "buyers_refused": demoBuyers - demoPositions, "currency": demoCurrency,
		"auction": a.ID, "seller": d.seller(), "bots": a.bots, "losers": a.Losers, "winners": winners,
		"seqs": seqs, "bidders": bidders, "amounts": amounts, "previous": previous, "rounds": rounds, "ranks": ranks,
		"watched": watched, "kinds": kinds, "resumes": a.Resumes, "same_on_both": slices.EqualFunc(a.socket, a.stream, func(x, y event) bool {
			return x.seq == y.seq && x.kind == y.kind && bytes.Equal(x.raw, y.raw)
		}),
		"storm": demoStormAmount, "twin": demoTwinAmount,
		"amount_once": a.OneAmount[accepted] == 1 && a.OneAmount["amount_taken"] == demoStorm-1, "amount_refused": a.OneAmount["amount_taken"],
		"account_once": a.OneAccount[accepted] == 1, "account_refused": a.OneAccount["cooldown"] + a.OneAccount["bid_too_low"], "storm_refused": demoStorm - 1,
		"snapshots": a.Snapshots, "off": a.SnapshotsOff, "integrity": a.Integrity,
	}
}

// compareDraw compares the winners that are stored with those of the proof.
func (d *Demo) compareDraw(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) error {
	var stored string
	if err := tx.QueryRow(ctx, `SELECT coalesce(max(winners), '[]') FROM draws WHERE campaign = $1`, d.result.Campaign).Scan(&stored); err != nil {
		return err
	}
	var winners []fairdraw.Winner
	if err := json.Unmarshal([]byte(stored), &winners); err != nil {
		return fmt.Errorf("read the stored winners: %w", err)
	}
	p := &d.result.Proof
	proof, err := fairdraw.ParseProof(p.document)
	recomputed := err == nil && p.Valid && slices.Equal(proof.Winners, winners)
	finding := "same winners, altered refused"
	switch {
	case !recomputed:
		finding = "winners are not those of the proof"
	case !p.AlteredRefused:
		finding = "an altered proof was accepted"
	}
	args["draw_holds"], args["draw_finding"] = recomputed && p.AlteredRefused && p.InclusionValid, finding
	return nil
}

// compareReplay plays the auction again from what the live stream told, with a model of its own, and compares the winners and
// the balances.
func (d *Demo) compareReplay(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) error {
	a := &d.result.Auction
	funds := map[string]int64{d.seller(): 0}
	for _, bot := range a.bots {
		funds[bot] = demoBotFunds
	}
	rows, err := tx.Query(ctx, `SELECT round, rank, account, amount FROM auction_winners WHERE auction = $1 ORDER BY round, rank`, a.ID)
	if err != nil {
		return err
	}
	winners, err := pgx.CollectRows(rows, pgx.RowToStructByPos[replay.Win])
	if err != nil {
		return err
	}
	if rows, err = tx.Query(ctx, `SELECT id, available, held FROM accounts WHERE id = ANY($1)`, append([]string{d.seller()}, a.bots...)); err != nil {
		return err
	}
	stored := map[string]replay.Balance{}
	var id string
	var b replay.Balance
	if _, err := pgx.ForEachRow(rows, []any{&id, &b.Available, &b.Held}, func() error { stored[id] = b; return nil }); err != nil {
		return err
	}
	played, difference := replay.Replay(d.auctionRules(), funds, a.replays)
	if difference != nil {
		played = &replay.Outcome{}
	}
	say := func(name string, different error, finding string, args pgx.NamedArgs) {
		if different = errors.Join(difference, different); different != nil {
			finding = different.Error()
		}
		args[name+"_hold"], args[name+"_finding"] = different == nil, finding
	}
	different := played.CompareWinners(winners)
	if different == nil && (played.Status != "completed" || len(winners) == 0) {
		different = errors.New("the auction is " + played.Status)
	}
	say("winners", different, fmt.Sprintf("%d rounds, %d winners, %d bids", len(played.Rounds), len(winners), len(played.Bids)), args)
	say("balances", played.CompareAccounts(stored), fmt.Sprintf("%d accounts to the cent", len(stored)), args)
	args["income"] = played.Income
	return nil
}

// addAudit adds the verdict of the independent auditor on the whole database.
func (d *Demo) addAudit(results []audit.Result) {
	g := Guarantee{ID: "all", Promise: "independent audit of every table", Held: true, Finding: fmt.Sprintf("%d of %[1]d checks", len(results))}
	if i := slices.IndexFunc(results, func(r audit.Result) bool { return r.Total > 0 }); i >= 0 {
		g.Held, g.Finding = false, fmt.Sprintf("not so: %s: %s", results[i].Promise, results[i].Violations[0])
	}
	d.result.Guarantees = append(d.result.Guarantees, g)
}

// row prints one guarantee.
func (d *Demo) row(g Guarantee) {
	s := d.screen
	mark, finding := s.Paint(screen.Green, "✓"), g.Finding
	if !g.Held {
		mark, finding = s.Paint(screen.Red, "✗"), s.Paint(screen.Red, "BROKEN: "+g.Finding)
	}
	s.Note("  %s %s  %s  %s", mark, s.Paint(screen.Bold, screen.Pad(g.ID, 3)), screen.Pad(g.Promise, 33), finding)
}
