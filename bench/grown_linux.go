package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/bench/load"
)

const (
	// grownMonths are the months of the history, up to now.
	grownMonths = 12
	// grownStarts is how many starts, and answers of GET /v1/integrity, are measured at least.
	grownStarts = 5
	// grownWarmupMost is the most that raises and purchases warm up for: raises have few bidders, purchases come after transfers, which
	// have moved the money of all accounts by then, and a campaign has 1,000,000 positions.
	grownWarmupMost = 15 * time.Second
	// closingTimeout bounds the wait for a closing of the books.
	closingTimeout = 15 * time.Minute
)

// database is one of the product's, which its servers are started on in turn.
type database struct {
	name, database, url string
	accounts            int // from grownFirst on
	keys                int // that were used outside of the loads
}

// grown compares the product on an empty database with itself on one with a long history. A server runs only in its turn.
func (h *house) grown(ctx context.Context, o *options, results *Results) error {
	empty := &database{name: grownEmpty, database: "grown_empty", accounts: o.accounts}
	full := &database{name: grownFull, database: "grown_full", accounts: o.grownAccounts}
	g := &results.Grown
	for _, d := range []*database{empty, full} {
		var err error
		if d.url, err = h.makeDatabase(ctx, h.serverURL, d.database); err != nil {
			return err
		}
		// The first start makes the tables.
		if _, err := h.onGrown(ctx, o, d, func(s *side) error {
			if d == full {
				return nil
			}
			return errors.Join(s.fill(ctx, grownFirst, o.accounts, openingBalance), s.analyze(ctx))
		}); err != nil {
			return err
		}
	}
	if err := full.fill(ctx, o, g); err != nil {
		return err
	}
	if err := h.recount(ctx, o, full, g); err != nil {
		return err
	}
	for pair := range o.grownPairs {
		for _, d := range inTurn(pair, []*database{empty, full}) {
			if err := h.grownTurn(ctx, o, d, pair, g); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
		}
	}
	for len(g.StartSeconds) < grownStarts {
		began := time.Now()
		start, err := h.onGrown(ctx, o, full, func(s *side) error { return g.askAtRest(ctx, s, began) })
		if err != nil {
			return err
		}
		g.StartSeconds = append(g.StartSeconds, start.Seconds())
	}
	return nil
}

// onGrown starts a server on a database, uses it, and stops it. It returns how long the server took until it was ready.
func (h *house) onGrown(ctx context.Context, o *options, d *database, use func(*side) error) (start time.Duration, err error) {
	s := &side{name: d.name, store: h.pgPID, databaseURL: d.url, keys: d.keys}
	defer func() { h.sides, d.keys = nil, s.keys }()
	began := time.Now()
	if err := h.start(ctx, s, grownKey, o.productBinary, append([]string{
		"serve", "--data=" + filepath.Join(h.dir, d.database), "--database-url=" + d.url,
	}, h.productOptions...)...); err != nil {
		return 0, err
	}
	start = time.Since(began)
	return start, errors.Join(use(s), s.stop())
}

// grownKey is the admin key of all servers on both databases.
const grownKey = "grown-0123456789abcdef0123456789abcdef"

// fill writes the history.
func (d *database) fill(ctx context.Context, o *options, g *Grown) error {
	now := time.Now().UTC()
	began := time.Now()
	p := newPast(int64(o.grownAccounts), int64(o.grownEntries), time.Date(now.Year(), now.Month()-grownMonths, 1, 0, 0, 0, 0, time.UTC), now)
	slog.Info("filling", "accounts", p.accounts, "transfers", p.transfers, "purchases", p.purchases(), "campaigns", p.campaigns(), "auctions", p.auctions, "bids", p.auctions*pastBids)
	if err := p.write(ctx, d.url); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	g.Accounts, g.Entries, g.FillSeconds = p.accounts, 2*p.transfers, time.Since(began).Seconds()
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		return err
	}
	err = errors.Join(conn.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&g.Bytes), conn.Close(ctx))
	slog.Info("filled", "seconds", math.Round(g.FillSeconds), "entries_per_second", math.Round(float64(g.Entries)/g.FillSeconds), "bytes", g.Bytes)
	return err
}

// recount has fairlead integrity count everything: closings go on from that.
func (h *house) recount(ctx context.Context, o *options, d *database, g *Grown) error {
	if err := h.checkpoint(ctx); err != nil {
		return err
	}
	began := time.Now()
	text, err := exec.CommandContext(ctx, o.productBinary, "integrity", "--database-url", d.url).CombinedOutput() //nolint:gosec // The binary that is measured.
	if err != nil {
		return fmt.Errorf("fairlead integrity: %w: %s", err, text)
	}
	g.RecountSeconds = time.Since(began).Seconds()
	slog.Info("recounted", "seconds", g.RecountSeconds, "entries_per_second", math.Round(float64(g.Entries)/g.RecountSeconds))
	return nil
}

// grownTurn measures a start, each load, and GET /v1/integrity before and behind them, where it has to count what is new.
func (h *house) grownTurn(ctx context.Context, o *options, d *database, pair int, g *Grown) error {
	began := time.Now()
	start, err := h.onGrown(ctx, o, d, func(s *side) error {
		if d.name == grownFull {
			if err := g.askAtRest(ctx, s, began); err != nil {
				return err
			}
		}
		for _, what := range grownLoads() {
			turn, err := s.grownLoad(ctx, o, d, what)
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			slog.Info("grown", "database", d.name, "what", what, "pair", pair+1, "per_second", math.Round(turn.PerSecond), "p99_ms", turn.P99MS,
				"cpu_us_each", math.Round(1e6*processorTimeEach(turn.TransferTurn)))
			g.Turns = append(g.Turns, *turn)
		}
		if d.name == grownFull {
			return ask(ctx, s, &g.BehindSeconds)
		}
		return s.requireIntegrity(ctx)
	})
	if d.name == grownFull && err == nil {
		g.StartSeconds = append(g.StartSeconds, start.Seconds())
		slog.Info("grown", "start_s", start.Seconds(), "integrity_s", g.IntegritySeconds, "behind_the_load_s", g.BehindSeconds)
	}
	return err
}

// askAtRest measures GET /v1/integrity after a closing of the books that began after a time.
func (g *Grown) askAtRest(ctx context.Context, s *side, after time.Time) error {
	if err := s.awaitClosing(ctx, after); err != nil {
		return err
	}
	return ask(ctx, s, &g.IntegritySeconds)
}

// ask measures GET /v1/integrity, whose answer must be that all agrees.
func ask(ctx context.Context, s *side, seconds *[]float64) error {
	began := time.Now()
	err := s.requireIntegrity(ctx)
	*seconds = append(*seconds, time.Since(began).Seconds())
	return err
}

// awaitClosing waits until the books were closed by a closing that began after a time: then its row says so.
func (s *side) awaitClosing(ctx context.Context, after time.Time) (err error) {
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	ctx, cancel := context.WithTimeout(ctx, closingTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for closed := false; !closed; {
		if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM ledger_closing WHERE at > $1)`, after).Scan(&closed); err != nil {
			return fmt.Errorf("wait for a closing of the books: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no closing of the books within %s", closingTimeout)
		case <-tick.C:
		}
	}
	return nil
}

// grownLoad runs a load among the accounts of a database.
func (s *side) grownLoad(ctx context.Context, o *options, d *database, what string) (*GrownTurn, error) {
	var (
		next  func() []byte
		check load.Check
		b     *bidding
		err   error
	)
	switch what {
	case grownRaises:
		order := rand.Perm(d.accounts)[:o.accounts] //nolint:gosec // Load needs no secrecy.
		for i := range order {
			order[i] += grownFirst
		}
		if b, err = s.newBidding(ctx, order); err == nil {
			b.others = map[string]int64{}
			next, check, err = b.source(s.key), b.check, s.bidOnce(b)
		}
	case grownPurchases:
		random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // As above.
		next, err = s.purchases(ctx, func() int { return grownFirst + random.IntN(d.accounts) })
		check = wantCreated
	default:
		next, check = s.transferSourceAmong(grownFirst, d.accounts), wantCompleted
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.vacuumSmall(ctx), s.h.checkpoint(ctx)); err != nil {
		return nil, err
	}
	timed := *o
	timed.warmup, timed.measure = o.grownWarmup, o.grownMeasure
	if what != grownTransfers {
		timed.warmup = min(timed.warmup, grownWarmupMost)
	}
	r, used, err := s.closedTurn(&timed, singleConnections, next, check, nil)
	if err != nil {
		return nil, err
	}
	if b != nil && b.refused > 0 {
		return nil, fmt.Errorf("bids were refused: %v", b.others)
	}
	if b != nil {
		s.bidding = b
		if err := s.requireTotal(ctx); err != nil {
			return nil, err
		}
	}
	return &GrownTurn{what, TransferTurn{
		Side: d.name, Connections: singleConnections, Answers: r.Answers, PerSecond: r.PerSecond(),
		P50MS: ms(r.Quantile(50)), P99MS: ms(r.Quantile(99)), P999MS: ms(r.Quantile(99.9)), Usage: used,
	}}, nil
}

// vacuumSmall has PostgreSQL know of the bids that have just been made: what it does not know is measured on fresh databases.
func (s *side) vacuumSmall(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `VACUUM (ANALYZE) auction_standing, hold_rows`)
	return errors.Join(err, conn.Close(ctx))
}
