//go:build linux

package main

import (
	"fmt"
	"slices"
)

// What is required of locks: of those in Redis against bsm/redislock, of those in PostgreSQL against a lease row that is
// polled; and how far apart the contenders' grants may be, as a part of their mean.
const (
	requiredLockAloneRatio = 0.75 // one worker
	requiredLockRatio      = 0.9  // a key each
	requiredLockP99Ratio   = 10
	requiredLeaseRowRatio  = 6
	allowedSpreadOfGrants  = 0.1
	smallestSpreadOfGrants = 1e-3 // so that perfect fairness has a ratio
)

// LockTurn is one measured stretch of acquiring and releasing. A latency is that of both together.
type LockTurn struct {
	Side      string  `json:"side"`
	Shape     string  `json:"shape"`
	Grants    int64   `json:"grants"`
	PerSecond float64 `json:"per_second"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
	MaxMS     float64 `json:"max_ms"`
	// FairP99MS is the p99 as if all contenders had asked equally often. Where one of them gets the lock again and again while
	// others starve, next to all latencies are its own, and P99MS does not show the others'.
	FairP99MS float64 `json:"fair_p99_ms"`
	// Spread is how far apart the luckiest and the unluckiest contender are in their grants, as a part of the mean.
	Spread        float64 `json:"spread"`
	ClientSeconds float64 `json:"client_cpu_s"`
	StoreSeconds  float64 `json:"store_cpu_s"`
}

// processorTime is what a grant costs all parts together, in seconds.
func (t LockTurn) processorTime() float64 {
	if t.Grants == 0 {
		return 0
	}
	return (t.ClientSeconds + t.StoreSeconds) / float64(t.Grants)
}

func (r *Results) pickLocks(side, shape string, figure func(LockTurn) float64) []float64 {
	return pick(r.Locks, func(t LockTurn) bool { return t.Side == side && t.Shape == shape }, figure)
}

func (r *Results) printLocks(out *printer) {
	for _, shape := range lockShapes() {
		if !slices.ContainsFunc(r.Locks, func(t LockTurn) bool { return t.Shape == shape.name }) {
			continue
		}
		out.printf("\nLocks, acquired and released, %s. Median (least … most) of %d turns a side.\n", shape.name, r.Options["lock_pairs"])
		lines := []string{"\tper second\tp50 ms\tp99 ms\tp99 ms, asked equally often\tmax ms\tspread of grants %\tclient CPU µs each\tstore"}
		for _, s := range lockSides() {
			figure := func(f func(LockTurn) float64) []float64 { return r.pickLocks(s.name, shape.name, f) }
			if len(figure(LockTurn.processorTime)) == 0 {
				continue
			}
			each := func(f func(LockTurn) float64) float64 {
				return median(figure(func(t LockTurn) float64 { return 1e6 * f(t) / float64(max(1, t.Grants)) }))
			}
			fairness := "-"
			if shape.workers > 1 {
				fairness = fmt.Sprintf("%.0f", 100*median(figure(func(t LockTurn) float64 { return t.Spread })))
			}
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%.1f\t%s\t%.0f\t%.0f", s.name,
				spread(figure(func(t LockTurn) float64 { return t.PerSecond }), "%.0f"),
				spread(figure(func(t LockTurn) float64 { return t.P50MS }), "%.2f"),
				spread(figure(func(t LockTurn) float64 { return t.P99MS }), "%.2f"),
				spread(figure(func(t LockTurn) float64 { return t.FairP99MS }), "%.2f"),
				slices.Max(figure(func(t LockTurn) float64 { return t.MaxMS })), fairness,
				each(func(t LockTurn) float64 { return t.ClientSeconds }),
				each(func(t LockTurn) float64 { return t.StoreSeconds })))
		}
		out.table(lines)
	}
}

// judgeLocks adds the verdicts on locks. Those without a threshold are shown so that nobody has to wonder.
func (r *Results) judgeLocks() {
	if len(r.Locks) == 0 {
		return
	}
	rate := func(t LockTurn) float64 { return t.PerSecond }
	of := func(side, shape string, figure func(LockTurn) float64) float64 {
		return median(r.pickLocks(side, shape, figure))
	}
	compare := func(mine, against, shape string, requiredRate, requiredP99 float64) {
		what := fmt.Sprintf("%s, %%s: %s against %s", shape, mine, against)
		r.verdict(fmt.Sprintf(what, "a second"), of(mine, shape, rate), of(against, shape, rate), requiredRate)
		p99, name := func(t LockTurn) float64 { return t.P99MS }, "p99"
		if shape == shapeOne {
			p99, name = func(t LockTurn) float64 { return t.FairP99MS }, "p99, asked equally often"
		}
		r.verdict(fmt.Sprintf(what, name), of(against, shape, p99), of(mine, shape, p99), requiredP99)
		r.verdict(fmt.Sprintf(what, "processor time"), of(against, shape, LockTurn.processorTime), of(mine, shape, LockTurn.processorTime), 0)
	}
	compare(lockRedis, lockBSM, shapeAlone, requiredLockAloneRatio, 0)
	compare(lockRedis, lockBSM, shapeOwn, requiredLockRatio, 0)
	compare(lockRedis, lockBSM, shapeOne, 0, requiredLockP99Ratio)
	compare(lockRedis, lockBSMOften, shapeOne, 0, 0)
	compare(lockRedis, lockRedsync, shapeOne, 0, 0)
	for _, shape := range []string{shapeAlone, shapeOwn, shapeOne} {
		required := 0.0
		if shape == shapeOne {
			required = requiredLeaseRowRatio
		}
		compare(lockPostgres, lockLeaseRow, shape, required, 0)
		compare(lockPostgres, lockAdvisory, shape, 0, 0)
		compare(lockPostgres, lockEtcdMutex, shape, 0, 0)
	}
	for _, side := range []string{lockPostgres, lockRedis} {
		if len(r.pickLocks(side, shapeOne, rate)) == 0 {
			continue
		}
		fairness := max(smallestSpreadOfGrants, of(side, shapeOne, func(t LockTurn) float64 { return t.Spread }))
		r.verdict(fmt.Sprintf("%s, fairness: %s, against a spread of %.0f %%", shapeOne, side, 100*allowedSpreadOfGrants),
			allowedSpreadOfGrants, fairness, 1)
	}
}
