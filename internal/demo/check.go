package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/audit"
	"github.com/fairlead-dev/fairlead/internal/auth"
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

// check asks the database, on a connection that has nothing to do with the server's, what became of the story. What
// the buyers were told is compared with it; what the server says of itself is not asked.
type check struct {
	*Demo

	tx       pgx.Tx
	answers  []answer
	stored   map[idempotency.ID]storedAnswer // the answers kept under the buyers' keys
	ids      []idempotency.ID                // of the buyers' keys, in the order of answers
	verified *fairdraw.Proof                 // nil when the proof is not valid
}

type storedAnswer struct {
	status int
	body   []byte
}

// check fills the table of guarantees and prints it.
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
	c := &check{Demo: d, tx: tx, answers: answers}
	if proof, parseErr := fairdraw.ParseProof(d.result.Proof.document); parseErr == nil && d.result.Proof.Valid {
		c.verified = proof
	}
	if err := c.loadStored(ctx); err != nil {
		return err
	}
	for _, row := range []func(context.Context) error{
		c.sales, c.refusals, c.draw, c.sequence, c.settlement, c.refunds, c.inTime, c.holds, c.acknowledged, c.acknowledgedBids,
		c.keys, c.zeroSums, c.totals, c.snapshots,
	} {
		if err := row(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *check) add(id, promise string, held bool, finding string, args ...any) {
	c.result.Guarantees = append(c.result.Guarantees, Guarantee{ID: id, Promise: promise, Held: held, Finding: fmt.Sprintf(finding, args...)})
}

// loadStored reads what the server keeps under each buyer's key.
func (c *check) loadStored(ctx context.Context) error {
	hash := auth.HashKey(c.key)
	var principal string
	if err := c.tx.QueryRow(ctx, `SELECT id FROM api_keys WHERE hash = $1`, hash[:]).Scan(&principal); err != nil {
		return fmt.Errorf("find the demo's own API key: %w", err)
	}
	wanted := make([][]byte, len(c.answers))
	c.ids = make([]idempotency.ID, len(c.answers))
	for i, a := range c.answers {
		c.ids[i] = idempotency.NewID("key:"+principal, http.MethodPost, "/v1/campaigns/"+c.result.Campaign+"/purchases", a.key)
		wanted[i] = c.ids[i][:]
	}
	rows, err := c.tx.Query(ctx, `SELECT id, status, body FROM idempotency_keys WHERE id = ANY($1)`, wanted)
	if err != nil {
		return err
	}
	c.stored = make(map[idempotency.ID]storedAnswer, len(c.answers))
	var id, body []byte
	var status int
	_, err = pgx.ForEachRow(rows, []any{&id, &status, &body}, func() error {
		c.stored[idempotency.ID(id)] = storedAnswer{status: status, body: bytes.Clone(body)}
		return nil
	})
	return err
}

func (c *check) sales(ctx context.Context) error {
	var total, counted, rows, distinct int
	err := c.tx.QueryRow(ctx, `
		SELECT c.total_positions, c.sold_positions, count(p.id), count(DISTINCT (p.layer, p.number))
		FROM campaigns c LEFT JOIN purchases p ON p.campaign = c.id
		WHERE c.id = $1 GROUP BY c.id`, c.result.Campaign).Scan(&total, &counted, &rows, &distinct)
	if err != nil {
		return err
	}
	held := total == demoPositions && counted == total && rows == total && distinct == total
	c.add("W1", "no position twice, none too many", held, "%d sold of %d, %d distinct", rows, total, distinct)
	return nil
}

func (c *check) refusals(ctx context.Context) error {
	var refused []string
	for i, a := range c.answers {
		s := c.stored[c.ids[i]]
		var problem struct {
			Code string `json:"code"`
		}
		if s.status == http.StatusConflict && json.Unmarshal(s.body, &problem) == nil && problem.Code == "sold_out" {
			refused = append(refused, a.buyer)
		}
	}
	var charged int
	err := c.tx.QueryRow(ctx, `
		SELECT count(*) FROM transfers t JOIN campaigns c ON c.escrow = t.destination
		WHERE c.id = $1 AND t.source = ANY($2)`, c.result.Campaign, refused).Scan(&charged)
	if err != nil {
		return err
	}
	c.add("W1", "all others refused, none charged", len(refused) == demoBuyers-demoPositions && charged == 0,
		"%d sold_out, %d charged", len(refused), charged)
	return nil
}

func (c *check) draw(ctx context.Context) error {
	rows, err := c.tx.Query(ctx, `SELECT winners FROM draws WHERE campaign = $1`, c.result.Campaign)
	if err != nil {
		return err
	}
	draws, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	var winners []fairdraw.Winner
	if len(draws) == 1 {
		if err := json.Unmarshal([]byte(draws[0]), &winners); err != nil {
			return fmt.Errorf("read the stored winners: %w", err)
		}
	}
	var bought int
	for _, w := range winners {
		var is bool
		err := c.tx.QueryRow(ctx, `
			SELECT EXISTS (SELECT FROM purchases WHERE campaign = $1 AND layer = $2 AND number = $3 AND account = $4)`,
			c.result.Campaign, w.Position.Layer, w.Position.Number, w.Position.Account).Scan(&is)
		if err != nil {
			return err
		}
		if is {
			bought++
		}
	}
	c.add("W1", "one result, its winners bought", len(draws) == 1 && len(winners) > 0 && bought == len(winners),
		"%d result row, %d of %d winners", len(draws), bought, len(winners))
	recomputed := c.verified != nil && slices.Equal(c.verified.Winners, winners)
	word := "winners are not those of the proof"
	if recomputed {
		word = "same winners, altered refused"
	}
	if !c.result.Proof.AlteredRefused {
		word = "an altered proof was accepted"
	}
	c.add("W1", "public data alone gives the draw", recomputed && c.result.Proof.AlteredRefused && c.result.Proof.InclusionValid, "%s", word)
	return nil
}

// acknowledged compares the success that each buyer saw with the purchases.
func (c *check) acknowledged(ctx context.Context) error {
	rows, err := c.tx.Query(ctx, `SELECT id, account, layer, number FROM purchases WHERE campaign = $1`, c.result.Campaign)
	if err != nil {
		return err
	}
	type sale struct {
		account       string
		layer, number int64
	}
	sales := map[string]sale{}
	var id uuid.UUID
	var s sale
	if _, err := pgx.ForEachRow(rows, []any{&id, &s.account, &s.layer, &s.number}, func() error {
		sales[id.String()] = s
		return nil
	}); err != nil {
		return err
	}
	told, present := 0, 0
	for _, a := range c.answers {
		if a.purchase == nil {
			continue
		}
		told++
		if sales[a.purchase.ID] == (sale{a.buyer, a.purchase.Position.Layer, a.purchase.Position.Number}) {
			present++
		}
	}
	c.add("A1", "every acknowledged sale is there", told > 0 && present == told, "%d of %d", present, told)
	return nil
}

// keys checks that each key made one purchase or none, and that buyers got the stored bytes.
func (c *check) keys(ctx context.Context) error {
	named, same := map[string]int{}, 0
	for i, a := range c.answers {
		s, ok := c.stored[c.ids[i]]
		if ok && s.status == a.status && bytes.Equal(s.body, a.body) {
			same++
		}
		var made struct {
			ID string `json:"id"`
		}
		if s.status == http.StatusCreated && json.Unmarshal(s.body, &made) == nil {
			named[made.ID]++
		}
	}
	rows, err := c.tx.Query(ctx, `SELECT id::text FROM purchases WHERE campaign = $1`, c.result.Campaign)
	if err != nil {
		return err
	}
	purchases, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	exactlyOne := 0
	for _, id := range purchases {
		if named[id] == 1 {
			exactlyOne++
		}
	}
	r := c.result.Race
	c.add("I1", "one key, at most one effect", exactlyOne == len(purchases) && exactlyOne == len(named),
		"%d requests, %d keys, %d effects", r.Requests, len(c.stored), len(purchases))
	c.add("I2", "one key, the same bytes always", same == len(c.answers) && r.DifferentIn == 0 && r.Replayed == r.Repeated,
		"%d of %d as stored, %d replays", same, len(c.answers), r.Replayed)
	return nil
}

func (c *check) zeroSums(ctx context.Context) error {
	var transfers, odd, accounts, off int
	err := c.tx.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM transfers WHERE status = 'completed'),
		       (SELECT count(*) FROM transfers t LEFT JOIN LATERAL
		               (SELECT count(*) AS n, sum(amount) AS total FROM entries e WHERE e.transfer = t.id) s ON true
		        WHERE (t.status = 'completed') <> (s.n = 2 AND s.total = 0) OR (t.status <> 'completed' AND s.n <> 0)),
		       (SELECT count(*) FROM accounts),
		       (SELECT count(*) FROM accounts a
		        WHERE a.available::numeric + a.held <> (SELECT coalesce(sum(amount), 0) FROM entries e WHERE e.account = a.id))`,
	).Scan(&transfers, &odd, &accounts, &off)
	if err != nil {
		return err
	}
	c.add("A2", "every transfer sums to zero", transfers > 0 && odd == 0, "%d transfers, %d off", transfers, odd)
	c.add("A2", "every balance is its entries' sum", accounts > 0 && off == 0, "%d accounts, %d off", accounts, off)
	return nil
}

func (c *check) totals(ctx context.Context) error {
	var in, out, available, held string
	err := c.tx.QueryRow(ctx, `
		SELECT coalesce(sum(amount) FILTER (WHERE kind = 'deposit'), 0)::text,
		       coalesce(sum(amount) FILTER (WHERE kind = 'withdrawal'), 0)::text,
		       (SELECT coalesce(sum(available), 0)::text FROM accounts WHERE currency = $1),
		       (SELECT coalesce(sum(held), 0)::text FROM accounts WHERE currency = $1)
		FROM transfers WHERE status = 'completed' AND currency = $1`, demoCurrency).Scan(&in, &out, &available, &held)
	if err != nil {
		return err
	}
	balance := new(big.Int)
	for _, part := range []struct {
		text string
		sign int64
	}{{in, 1}, {out, -1}, {available, -1}, {held, -1}} {
		n, ok := new(big.Int).SetString(part.text, 10)
		if !ok {
			return fmt.Errorf("the database summed to %q", part.text)
		}
		balance.Add(balance, n.Mul(n, big.NewInt(part.sign)))
	}
	c.add("A2", "deposits = available + held", balance.Sign() == 0, "%s − %s = %s + %s", in, out, available, held)
	return nil
}

func (c *check) holds(ctx context.Context) error {
	var open, off, negative int
	err := c.tx.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM holds WHERE status = 'open'),
		       (SELECT count(*) FROM holds WHERE status = 'open' AND amount IS NULL) + (SELECT count(*) FROM accounts a WHERE a.held <>
		               (SELECT coalesce(sum(amount), 0) FROM holds h WHERE h.account = a.id AND h.status = 'open')),
		       (SELECT count(*) FROM accounts WHERE available < 0 OR held < 0)`).Scan(&open, &off, &negative)
	if err != nil {
		return err
	}
	c.add("U1", "held = open holds, none negative", open > 0 && off == 0 && negative == 0,
		"%d open, %d off, %d negative", open, off, negative)
	return nil
}

// addAudit adds the verdict of the independent auditor on the whole database.
func (d *Demo) addAudit(results []audit.Result) {
	g := Guarantee{ID: "all", Promise: "independent audit of every table", Held: true}
	kept := 0
	for _, r := range results {
		if r.Total == 0 {
			kept++
			continue
		}
		if g.Held {
			g.Finding = fmt.Sprintf("not so: %s: %s", r.Promise, r.Violations[0])
		}
		g.Held = false
	}
	if g.Held {
		g.Finding = fmt.Sprintf("%d of %d checks", kept, len(results))
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
