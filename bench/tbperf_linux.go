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
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// The case of SoftwareMill's tb-perf; README.md says what is the same, and what differs.
const (
	tbperfExponent = 2.0
	// The most popular account pays in 61 of 100 transfers and is paid in 24: with tb-perf's 1,000,000 it would be empty within a second.
	tbperfBalance = 1_000_000_000_000
	tbperfClients = 5
	// Connections of each client to Fairlead, with one request on its way each.
	tbperfSingly  = 50
	tbperfBatches = 1
)

// A rate is sustained when its last transfer is answered this little after it was due: a fiftieth of what is measured. The search for the
// highest such rate begins at what a closed loop reached, and goes down.
const (
	tbperfSustained = 0.98
	tbperfStep      = 0.95
	tbperfLeap      = 0.85 // where far less was answered
	tbperfSteps     = 20
)

// tbperfSide is one way to make the transfers.
type tbperfSide struct {
	name     string
	database string // its name
	pool     int    // connections
	each     int    // transfers a request
	counts   tbperfCounts
	usage    func() (usage, error)
	closed   func(context.Context, load.Phases) (*load.Result, error)
	open     func(ctx context.Context, requestsPerSecond float64, warmup, measure time.Duration) (*load.Result, error)
	// verify recomputes the books, of which done transfers were acknowledged since the side was opened.
	verify func(ctx context.Context) error
	close  func(context.Context) error
}

// tbperfCounts are of answers.
type tbperfCounts struct{ done, refused, failed int64 }

// tbperf runs the case with a quorum-synchronous standby, each side in turn, pair after pair.
func (h *house) tbperf(ctx context.Context, o *options, results *Results) (err error) {
	defer func() { err = errors.Join(err, h.stopStandby(ctx)) }()
	if err := h.startStandby(ctx); err != nil {
		return err
	}
	t := &results.TBPerf
	if t.CommitUS, err = h.commitTime(ctx); err != nil {
		return err
	}
	slog.Info("tb-perf: filling accounts", "accounts", o.tbperfAccounts, "commit_us", t.CommitUS)
	sides, err := h.tbperfSides(ctx, o)
	defer func() {
		for _, s := range sides {
			err = errors.Join(err, s.close(ctx))
		}
	}()
	if err != nil {
		return err
	}
	for pair := range o.tbperfPairs {
		for _, s := range inTurn(pair, sides) {
			turn, err := h.tbperfTurn(ctx, o, s)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			slog.Info("tb-perf", "side", s.name, "pair", pair+1, "closed_loop", math.Round(turn.Peak), "sustained", math.Round(turn.Rate), "p50_ms", turn.P50MS,
				"p99_ms", turn.P99MS, "refused", turn.Refused, "errors", turn.Errors)
			t.Turns = append(t.Turns, *turn)
		}
	}
	t.Deadlocks = map[string]int64{}
	for _, s := range sides {
		if err := s.verify(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if t.Deadlocks[s.name], err = h.deadlocks(ctx, s.database); err != nil {
			return err
		}
	}
	return nil
}

// deadlocks counts those that PostgreSQL has ended in a database.
func (h *house) deadlocks(ctx context.Context, database string) (n int64, err error) {
	// Sessions report what they did when they have been idle for a while, at the latest after a second or so.
	_, err = h.admin.Exec(ctx, "SELECT pg_sleep(2)")
	if err == nil {
		err = h.admin.QueryRow(ctx, "SELECT deadlocks FROM pg_stat_database WHERE datname = $1", database).Scan(&n)
	}
	return n, err
}

// tbperfTurn finds out what a closed loop reaches, and then which open-loop rate is sustained.
func (h *house) tbperfTurn(ctx context.Context, o *options, s *tbperfSide) (*TBPerfTurn, error) {
	if err := h.checkpoint(ctx); err != nil {
		return nil, err
	}
	r, err := s.closed(ctx, load.Phases{Warmup: o.warmup, Measure: o.measure})
	if err != nil {
		return nil, err
	}
	peak := r.PerSecond() * float64(s.each)
	rate := peak
	for range tbperfSteps {
		if err := h.checkpoint(ctx); err != nil {
			return nil, err
		}
		before, err := s.usage()
		if err != nil {
			return nil, err
		}
		counts := s.counts
		r, err := s.open(ctx, rate/float64(s.each), o.warmup, o.measure)
		if err != nil {
			return nil, err
		}
		after, err := s.usage()
		if err != nil {
			return nil, err
		}
		answered := r.PerSecond() * float64(s.each)
		if answered < tbperfSustained*rate {
			slog.Info("tb-perf: not sustained", "side", s.name, "rate", rate, "answered", answered)
			rate = min(tbperfStep*rate, max(answered, tbperfLeap*rate))
			continue
		}
		done, refused, failed := s.counts.done-counts.done, s.counts.refused-counts.refused, s.counts.failed-counts.failed
		return &TBPerfTurn{
			TransferTurn: TransferTurn{
				Side: s.name, Connections: s.pool, Rate: rate, Answers: done, PerSecond: answered * float64(done) / float64(done+refused+failed),
				P50MS: ms(r.Quantile(50)), P99MS: ms(r.Quantile(99)), P999MS: ms(r.Quantile(99.9)), Usage: after.since(before),
			},
			Peak: peak, Refused: refused, Errors: failed,
		}, nil
	}
	return nil, fmt.Errorf("no rate from %.0f down to %.0f a second is sustained", peak, rate)
}

// tbperfSides are all of them, filled. Those that were opened are returned with an error, too.
func (h *house) tbperfSides(ctx context.Context, o *options) (sides []*tbperfSide, err error) {
	product, stop, err := h.tbperfProduct(ctx, o)
	if err != nil {
		return nil, err
	}
	sides = append(sides, h.tbperfHTTP(o, product, tbperfSinglyName, tbperfSingly, 1), h.tbperfHTTP(o, product, tbperfBatchesName, tbperfBatches, transferBatch))
	sides[0].close = stop
	for _, p := range []struct{ name, database, function string }{
		{tbperfForUpdate, "tbperf_for_update", "transfer_for_update"},
		{tbperfAtomic, "tbperf_atomic", "transfer_atomic"},
	} {
		s, err := h.tbperfPostgres(ctx, o, p.name, p.database, p.function)
		if err != nil {
			return sides, fmt.Errorf("%s: %w", p.name, err)
		}
		sides = append(sides, s)
	}
	return sides, nil
}

// tbperfProduct starts a server of the product on a database of its own, and fills it.
func (h *house) tbperfProduct(ctx context.Context, o *options) (*side, func(context.Context) error, error) {
	const name = "tbperf_fairlead"
	database, err := h.makeDatabase(ctx, h.serverURL, name)
	if err != nil {
		return nil, nil, err
	}
	s := &side{name: product, store: h.pgPID, databaseURL: database}
	others := len(h.sides)
	arguments := append([]string{"serve", "--data=" + filepath.Join(h.dir, name), "--database-url=" + database}, h.productOptions...)
	if err := h.start(ctx, s, name+"-0123456789abcdef0123456789abcdef", o.productBinary, arguments...); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(s.fill(ctx, 0, o.tbperfAccounts, tbperfBalance), s.analyze(ctx)); err != nil {
		return nil, nil, err
	}
	return s, func(context.Context) error {
		h.sides = append(h.sides[:others], h.sides[others+1:]...)
		return s.stop()
	}, nil
}

// tbperfHTTP makes transfers at the product, each in a request of its own or several in each.
func (h *house) tbperfHTTP(o *options, p *side, name string, connections, each int) *tbperfSide {
	t := &tbperfSide{name: name, database: "tbperf_fairlead", pool: tbperfClients * connections, each: each}
	pairs := newZipfPairs(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), tbperfExponent, o.tbperfAccounts) //nolint:gosec // Load needs no secrecy.
	commands := transfersOf(3, accountID(0), pairs.next)
	next, check := commands.requests(p.key), t.single
	if each > 1 {
		next, check = commands.batches(p.key, each), t.batch()
	}
	run := func(ctx context.Context, with func(*load.Engine) (*load.Result, error)) (*load.Result, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		engine, err := load.Dial(t.pool, p.addr)
		if err != nil {
			return nil, err
		}
		defer engine.Close()
		return with(engine)
	}
	t.closed = func(ctx context.Context, phases load.Phases) (*load.Result, error) {
		return run(ctx, func(e *load.Engine) (*load.Result, error) { return e.Closed(phases, next, check) })
	}
	t.open = func(ctx context.Context, rate float64, warmup, measure time.Duration) (*load.Result, error) {
		return run(ctx, func(e *load.Engine) (*load.Result, error) { return e.Open(rate, warmup, measure, next, check) })
	}
	t.usage = func() (usage, error) { return h.withStandby(p.usage()) }
	t.verify = func(ctx context.Context) error { return p.requireBooks(ctx, o.productBinary) }
	t.close = func(context.Context) error { return nil }
	return t
}

// requireBooks has the product's command recompute the books. They are too many for a request, which has to be answered within its time.
func (s *side) requireBooks(ctx context.Context, binary string) error {
	out, err := exec.CommandContext(ctx, binary, "integrity", "--database-url="+s.databaseURL).CombinedOutput() //nolint:gosec // Our own program.
	if err != nil {
		return fmt.Errorf("the books don't balance, or can't be read: %w: %s", err, out)
	}
	return nil
}

// withStandby adds the standby's processor time to that of the database.
func (h *house) withStandby(u usage, err error) (usage, error) {
	if err != nil {
		return u, err
	}
	standby, err := treeTime(h.standby.PID())
	u.store += standby
	return u, err
}

// single takes a completed transfer, or a refusal for lack of money; anything else ends the run.
func (t *tbperfSide) single(status int, body []byte) error {
	if status == http.StatusPaymentRequired {
		t.counts.refused++
		return nil
	}
	t.counts.done++
	return wantCompleted(status, body)
}

func (t *tbperfSide) batch() load.Check {
	others := map[string]int64{}
	results := batchAnswers(t.each, others, &t.counts.refused)
	return func(status int, body []byte) error {
		refused := t.counts.refused
		if err := results(status, body); err != nil {
			return err
		}
		completed := bytes.Count(body, []byte(`"completed"`))
		t.counts.done += int64(completed)
		if others["402"] != t.counts.refused || t.each-completed != int(t.counts.refused-refused) {
			return fmt.Errorf("%d of %d are completed, refusals so far: %v", completed, t.each, others)
		}
		return nil
	}
}
