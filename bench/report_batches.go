//go:build linux

package main

import (
	"fmt"
	"slices"
)

// What is required of commands in batches, and of the load beside a long snapshot.
const (
	requiredBidBatch      = 2  // the script called singly
	requiredTransferBatch = 3  // Fairlead's own transfers, sent singly
	requiredTransferEach  = 20 // one transaction each
	requiredSnapshot      = 0.85
)

// BatchTurn is one measured stretch of commands in batches, or singly when Batch is 1. Its figures count accepted commands, and its
// latencies are those of requests. WALBytesEach and SyncsEach are PostgreSQL's a command.
type BatchTurn struct {
	TransferTurn

	What         string           `json:"what"`
	Batch        int              `json:"batch"`
	WALBytesEach float64          `json:"wal_bytes_each,omitempty"`
	SyncsEach    float64          `json:"wal_syncs_each,omitempty"`
	Others       map[string]int64 `json:"others,omitempty"`
}

const (
	snapshotPurchases    = "purchases"    // of a few campaigns
	snapshotLocks        = "locks"        // over HTTP, that nobody else wants
	snapshotMultidraws   = "multidraws"   // of ten draws, each behind the lock of a key
	snapshotPublications = "publications" // that are overdue, to a few targets
)

// snapshotKinds are what is measured beside a long snapshot.
func snapshotKinds() []string {
	return []string{batchBids, batchTransfers, snapshotPurchases, snapshotLocks, snapshotMultidraws, snapshotPublications}
}

// SnapshotTurn is one measured stretch with or without a reader in a long transaction.
type SnapshotTurn struct {
	What      string  `json:"what"`
	Reader    bool    `json:"reader"`
	PerSecond float64 `json:"per_second"`
	P50MS     float64 `json:"p50_ms"` // 0 for publications, which nobody waits for
	P99MS     float64 `json:"p99_ms"`
}

func (r *Results) printBatches(out *printer) {
	out.printf("\nCommands singly and in batches, closed loop. Median (least … most) of %v turns; latencies are of requests, all else of accepted commands.\n",
		r.Options["batch_pairs"])
	lines := []string{"\tcommands a second\tp50 ms\tp99 ms\tserver CPU µs each\tdatabase\tgenerator\tWAL bytes each\tsyncs a 1,000"}
	for _, shape := range batchShapes() {
		for _, name := range shape.sides {
			figure := func(f func(BatchTurn) float64) []float64 { return r.batchFigures(shape.what, shape.batch, name, f) }
			if len(figure(func(BatchTurn) float64 { return 0 })) == 0 {
				continue
			}
			each := func(f func(BatchTurn) float64) float64 {
				return median(figure(func(t BatchTurn) float64 { return 1e6 * f(t) / float64(t.Answers) }))
			}
			how := fmt.Sprintf("in batches of %d, %d requests at a time", shape.batch, shape.connections)
			if shape.batch == 1 {
				how = fmt.Sprintf("singly, %d connections", shape.connections)
			}
			lines = append(lines, fmt.Sprintf("%s %s, %s\t%s\t%s\t%s\t%.1f\t%.1f\t%.1f\t%.0f\t%.1f", name, shape.what, how,
				spread(figure(func(t BatchTurn) float64 { return t.PerSecond }), "%.0f"),
				spread(figure(func(t BatchTurn) float64 { return t.P50MS }), "%.2f"),
				spread(figure(func(t BatchTurn) float64 { return t.P99MS }), "%.2f"),
				each(func(t BatchTurn) float64 { return t.ServerSeconds }),
				each(func(t BatchTurn) float64 { return t.StoreSeconds }),
				each(func(t BatchTurn) float64 { return t.GeneratorSeconds }),
				median(figure(func(t BatchTurn) float64 { return t.WALBytesEach })),
				1e3*median(figure(func(t BatchTurn) float64 { return t.SyncsEach }))))
		}
	}
	out.table(lines)
}

func (r *Results) batchFigures(what string, batch int, side string, figure func(BatchTurn) float64) []float64 {
	return pick(r.Batches, func(t BatchTurn) bool { return t.What == what && t.Batch == batch && t.Side == side }, figure)
}

// judgeBatches compares within a pair, in which all shapes run one after the other.
func (r *Results) judgeBatches() {
	rates := func(what string, batch int, side string) []float64 {
		return r.batchFigures(what, batch, side, func(t BatchTurn) float64 { return t.PerSecond })
	}
	for _, v := range []struct {
		what     string
		batch    int
		side     string // compared with batches of one
		other    int
		words    string
		required float64
	}{
		{batchBids, bidBatch, peerRedis, 1, "the script called singly", requiredBidBatch},
		{batchBids, bidBatch, peerRedis, bidBatch, "the script pipelined as deep", 0},
		{batchBids, bidBatch, product, 1, "bids singly", 0},
		{batchBids, bidBatch, peer, 1, "a transaction each", 0},
		{batchTransfers, transferBatch, product, 1, "transfers singly", requiredTransferBatch},
		{batchTransfers, transferBatch, peer, 1, "a transaction each", requiredTransferEach},
	} {
		ratios := slices.Clone(rates(v.what, v.batch, product))
		against := rates(v.what, v.other, v.side)
		if len(against) != len(ratios) {
			continue
		}
		for i := range ratios {
			ratios[i] /= against[i]
		}
		r.verdict(fmt.Sprintf("%s in batches of %d, against %s, within a turn", v.what, v.batch, v.words), median(ratios), 1, v.required)
	}
}

func (r *Results) printSnapshots(out *printer) {
	out.printf("\nBeside a reader in a REPEATABLE READ transaction, closed loop, %d connections, after %v s. Median (least … most) of %v turns.\n",
		singleConnections, r.Options["snapshot_after_s"], r.Options["snapshot_pairs"])
	lines := []string{"\tper second\tp50 ms\tp99 ms"}
	for _, what := range snapshotKinds() {
		for _, reader := range []bool{false, true} {
			figure := func(f func(SnapshotTurn) float64) []float64 {
				return pick(r.Snapshots, func(t SnapshotTurn) bool { return t.What == what && t.Reader == reader }, f)
			}
			if len(figure(func(SnapshotTurn) float64 { return 0 })) == 0 {
				continue
			}
			name := what + ", nobody reads"
			if reader {
				name = what + " beside the reader"
			}
			latency := func(f func(SnapshotTurn) float64) string {
				if what == snapshotPublications {
					return ""
				}
				return spread(figure(f), "%.2f")
			}
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s", name, spread(figure(func(t SnapshotTurn) float64 { return t.PerSecond }), "%.0f"),
				latency(func(t SnapshotTurn) float64 { return t.P50MS }), latency(func(t SnapshotTurn) float64 { return t.P99MS })))
		}
	}
	out.table(lines)
}

// judgeSnapshots compares the two turns of a pair.
func (r *Results) judgeSnapshots() {
	for _, what := range snapshotKinds() {
		rates := func(reader bool) []float64 {
			return pick(r.Snapshots, func(t SnapshotTurn) bool { return t.What == what && t.Reader == reader }, func(t SnapshotTurn) float64 { return t.PerSecond })
		}
		ratios := rates(true)
		if len(ratios) == 0 {
			continue
		}
		for i, rate := range rates(false) {
			ratios[i] /= rate
		}
		r.verdict(what+" beside a long snapshot, within a turn", median(ratios), 1, requiredSnapshot)
	}
}
