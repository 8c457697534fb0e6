package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestBatchesAreLaidOut reads requests of batches as the server does: every command has a key and a body of its own.
func TestBatchesAreLaidOut(t *testing.T) {
	t.Parallel()
	const n = 3
	b := &bidding{path: "/v1/auctions/x", order: []int{3, 0, 4, 1, 2}}
	for _, commands := range []bodies{b.bids(), transferBodies(0, 5)} {
		next, keys, seen := commands.batches("secret", n), map[string]bool{}, map[string]bool{}
		for range 2 {
			_, body, _ := bytes.Cut(next(), []byte("\r\n\r\n"))
			var in struct {
				Commands []struct {
					Key, Path string
					Body      json.RawMessage
				}
			}
			if err := json.Unmarshal(body, &in); err != nil || len(in.Commands) != n {
				t.Fatalf("%d commands, %v in %s", len(in.Commands), err, body)
			}
			for _, c := range in.Commands {
				if c.Path != commands.path || len(c.Key) != 24 || keys[c.Key] || !json.Valid(c.Body) {
					t.Fatalf("a command: %+v", c)
				}
				keys[c.Key], seen[string(c.Body)] = true, true
			}
		}
		if commands.path != "/v1/transfers" && len(seen) != 2*n { // Transfers are random.
			t.Fatalf("%d different bodies", len(seen))
		}
	}
}

func TestResultsOfBatchesAreCounted(t *testing.T) {
	t.Parallel()
	const created, refused, failed = `{"status":201,"body":{"status":"completed"},"replayed":false}`, `{"status":422,"body":{},"replayed":false}`, `{"status":503,"body":{},"replayed":false}`
	results := func(all ...string) []byte { return []byte(`{"results":[` + strings.Join(all, ",") + `]}`) }
	others, n := map[string]int64{}, int64(0)
	check := batchAnswers(2, others, &n)
	if err := check(http.StatusOK, results(created, refused)); err != nil || n != 1 || others["422"] != 1 {
		t.Fatalf("%d refused, %v: %v", n, others, err)
	}
	for name, err := range map[string]error{
		"a failure":       check(http.StatusOK, results(created, failed)),
		"too few results": check(http.StatusOK, results(created)),
		"another status":  check(http.StatusServiceUnavailable, results(created, created)),
	} {
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestJudgeBatches checks each threshold from both sides.
func TestJudgeBatches(t *testing.T) {
	t.Parallel()
	turn := func(what string, batch int, side string, rate float64) BatchTurn {
		return BatchTurn{TransferTurn: TransferTurn{Side: side, Answers: 1, PerSecond: rate}, What: what, Batch: batch}
	}
	for _, tc := range []struct {
		name                  string
		bids, transfers, each float64
		pass                  bool
	}{
		{"all", 2000, 3000, 150, true},
		{"bids below", 1999, 3000, 150, false},
		{"transfers below", 2000, 2999, 100, false},
		{"too near to a transaction each", 2000, 3000, 151, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := &Results{Options: map[string]any{}, Batches: []BatchTurn{
				turn(batchBids, bidBatch, product, tc.bids), turn(batchBids, 1, peerRedis, 1000),
				turn(batchTransfers, transferBatch, product, tc.transfers), turn(batchTransfers, 1, product, 1000), turn(batchTransfers, 1, peer, tc.each),
			}}
			var out bytes.Buffer
			if got := r.judge(&printer{w: &out}); got != tc.pass {
				t.Fatalf("pass is %v, want %v:\n%s", got, tc.pass, out.String())
			}
		})
	}
}

// TestJudgeSnapshots checks the threshold from both sides.
func TestJudgeSnapshots(t *testing.T) {
	t.Parallel()
	for rate, pass := range map[float64]bool{85: true, 84: false} {
		r := &Results{Snapshots: []SnapshotTurn{{What: batchBids, PerSecond: 100}, {What: batchBids, Reader: true, PerSecond: rate}}}
		var out bytes.Buffer
		if got := r.judge(&printer{w: &out}); got != pass {
			t.Fatalf("at %v pass is %v:\n%s", rate, got, out.String())
		}
	}
}
