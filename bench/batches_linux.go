package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// Of what batches are made. As many commands as these are on their way at a time as in the single turns, or a few times as many.
const (
	bidBatch             = 64
	bidBatchRequests     = 8
	transferBatch        = 1000
	transferBatchRequest = 4
	singleConnections    = 64
)

// What is sent.
const (
	batchBids      = "bids"
	batchTransfers = "transfers"
)

// batchShape is one way to send commands: each in a request of its own when batch is 1.
type batchShape struct {
	what               string
	batch, connections int
	sides              []string
}

func batchShapes() []batchShape {
	return []batchShape{
		{batchBids, bidBatch, bidBatchRequests, []string{product, peerRedis}},
		{batchBids, 1, singleConnections, []string{product, peerRedis, peer}},
		{batchTransfers, transferBatch, transferBatchRequest, []string{product}},
		{batchTransfers, 1, singleConnections, []string{product, peer}},
	}
}

// batches runs all shapes in turn, pair after pair.
func (h *house) batches(ctx context.Context, o *options, results *Results) error {
	bySide := map[string]*side{}
	for _, s := range h.sides {
		bySide[s.name] = s
		slog.Info("opening bids", "side", s.name, "accounts", o.accounts)
		if err := s.openAuction(ctx, o.accounts); err != nil {
			return fmt.Errorf("%s: open an auction: %w", s.name, err)
		}
	}
	for pair := range o.batchPairs {
		for _, shape := range batchShapes() {
			for _, name := range inTurn(pair, shape.sides) {
				s := bySide[name]
				if s == nil {
					continue
				}
				turn, err := s.batchTurn(ctx, o, shape)
				if err != nil {
					return fmt.Errorf("%s: %s in batches of %d: %w", name, shape.what, shape.batch, err)
				}
				slog.Info("batches", "what", shape.what, "batch", shape.batch, "side", name, "pair", pair+1, "per_second", math.Round(turn.PerSecond),
					"p99_ms", turn.P99MS, "others", turn.Others)
				results.Batches = append(results.Batches, *turn)
			}
		}
	}
	return nil
}

// bodies lays commands of one kind out: each call of put overwrites a body, all of one length, and tells whether there is another one.
type bodies struct {
	path, body string
	put        func(body []byte) bool
}

// requests sends each body in a request of its own.
func (b bodies) requests(key string) func() []byte {
	template := load.NewTemplate(b.path, key, b.body)
	at := template.BodyOffset(b.body)
	return func() []byte {
		request := template.Next()
		if !b.put(request[at:]) {
			return nil
		}
		return request
	}
}

// batches sends n bodies a request, each under a key of its own.
func (b bodies) batches(key string, n int) func() []byte {
	const open, before = `{"commands":[`, `{"key":"`
	prefix := fmt.Sprintf("%08x", rand.Uint32()) //nolint:gosec // Load needs no secrecy.
	member := before + prefix + strings.Repeat("0", 16) + `","path":"` + b.path + `","body":`
	whole := open + strings.Repeat(member+b.body+"},", n-1) + member + b.body + "}]}"
	template := load.NewTemplate("/v1/commands", key, whole)
	first := template.BodyOffset(whole) + len(open)
	sent := uint64(0)
	return func() []byte {
		request := template.Next()
		for i := range n {
			command := request[first+i*(len(member)+len(b.body)+len("},")):][:len(member)+len(b.body)]
			sent++
			load.PutHex(command[len(before)+len(prefix):][:16], sent)
			if !b.put(command[len(member):]) {
				return nil
			}
		}
		return request
	}
}

// batchAnswers checks that an answer has a result for each of n commands, and counts those that are not 201 by their status.
func batchAnswers(n int, others map[string]int64, refused *int64) load.Check {
	mark := []byte(`{"status":`)
	return func(status int, body []byte) error {
		if status != http.StatusOK {
			return fmt.Errorf("answer %d: %.500s", status, body)
		}
		results := 0
		for rest := body; ; {
			i := bytes.Index(rest, mark)
			if i < 0 {
				break
			}
			rest = rest[i+len(mark):]
			if bytes.HasPrefix(rest, []byte{'"'}) {
				continue // It is of a document.
			}
			results++
			switch code := rest[:min(3, len(rest))]; {
			case string(code) == "201":
			case len(code) == 3 && code[0] == '4':
				others[string(code)]++
				*refused++
			default:
				return fmt.Errorf("a result: %.300s", rest)
			}
		}
		if results != n {
			return fmt.Errorf("%d results of %d commands: %.500s", results, n, body)
		}
		return nil
	}
}

// checkBatch counts the accepted bids of batches of n, and refusals.
func (b *bidding) checkBatch(n int) load.Check {
	results := batchAnswers(n, b.others, &b.refused)
	return func(status int, body []byte) error {
		before := b.refused
		err := results(status, body)
		if err == nil {
			b.total += int64(n) - (b.refused - before)
		}
		return err
	}
}

func (s *side) batchTurn(ctx context.Context, o *options, shape batchShape) (*BatchTurn, error) {
	if err := s.h.checkpoint(ctx); err != nil {
		return nil, err
	}
	b := s.bidding
	b.others, b.refused = map[string]int64{}, 0
	commands, check := b.bids(), b.check
	if shape.what == batchTransfers {
		commands, check = transferBodies(0, o.accounts), wantCompleted
	}
	next := commands.requests(s.key)
	if shape.batch > 1 {
		next = commands.batches(s.key, shape.batch)
		check = b.checkBatch(shape.batch)
		if shape.what == batchTransfers {
			results := batchAnswers(shape.batch, b.others, &b.refused)
			check = func(status int, body []byte) error {
				err := results(status, body)
				if err == nil && bytes.Count(body, []byte(`"completed"`)) != shape.batch {
					err = fmt.Errorf("not all transfers are completed: %.500s", body)
				}
				return err
			}
		}
	}
	var refusedBefore int64
	var before walUse
	var walErr error
	r, used, err := s.closedTurn(o, shape.connections, next, check, func() {
		refusedBefore = b.refused
		before, walErr = s.h.walUse(ctx)
	})
	if err == nil {
		err = walErr
	}
	if err != nil {
		return nil, err
	}
	after, err := s.h.walUse(ctx)
	if err != nil {
		return nil, err
	}
	if shape.what == batchBids {
		if err := s.requireTotal(ctx); err != nil {
			return nil, err
		}
	}
	// As in the turns of bids, the few refusals after the measured part count as if they were in it.
	accepted := r.Answers*int64(shape.batch) - (b.refused - refusedBefore)
	if accepted < 1 {
		return nil, fmt.Errorf("nothing was accepted: %v", b.others)
	}
	turn := &BatchTurn{
		TransferTurn: TransferTurn{
			Side: s.name, Connections: shape.connections, Answers: accepted, PerSecond: float64(accepted) / r.Elapsed.Seconds(),
			P50MS: ms(r.Quantile(50)), P99MS: ms(r.Quantile(99)), P999MS: ms(r.Quantile(99.9)), Usage: used,
		},
		What: shape.what, Batch: shape.batch, Others: b.others,
	}
	if s.databaseURL != "" {
		turn.WALBytesEach = (after.bytes - before.bytes) / float64(accepted)
		turn.SyncsEach = (after.syncs - before.syncs) / float64(accepted)
	}
	return turn, nil
}

// walUse is what PostgreSQL has written to its log so far, and how often it has synced it.
type walUse struct{ bytes, syncs float64 }

// walUse reads it. Sessions report their syncs when they have been idle, at the latest after a second or so.
func (h *house) walUse(ctx context.Context) (u walUse, err error) {
	const inIO = 180000 // Since this version pg_stat_io counts syncs.
	var version int
	if err := h.admin.QueryRow(ctx, "SELECT current_setting('server_version_num')::integer").Scan(&version); err != nil {
		return u, err
	}
	syncs := "SELECT wal_sync FROM pg_stat_wal"
	if version >= inIO {
		syncs = "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal'"
	}
	err = h.admin.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8, coalesce(("+syncs+"), 0)::float8").Scan(&u.bytes, &u.syncs)
	return u, err
}
