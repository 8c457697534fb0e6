//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// TestJudgeLocks checks each threshold on locks from both sides.
func TestJudgeLocks(t *testing.T) {
	t.Parallel()
	turn := func(side, shape string, perSecond, p99, spread float64) LockTurn {
		return LockTurn{Side: side, Shape: shape, Grants: 1, PerSecond: perSecond, FairP99MS: p99, Spread: spread}
	}
	for _, tc := range []struct {
		name                                        string
		alone, own, p99, contended, spread, inRedis float64
		pass                                        bool
	}{
		{"all", 75, 90, 10, 600, 0.1, 0.1, true},
		{"alone below redislock", 74, 90, 10, 600, 0.1, 0.1, false},
		{"64 keys below redislock", 75, 89, 10, 600, 0.1, 0.1, false},
		{"p99 above a tenth", 75, 90, 11, 600, 0.1, 0.1, false},
		{"too near to a lease row", 75, 90, 10, 599, 0.1, 0.1, false},
		{"unfair", 75, 90, 10, 600, 0.11, 0.1, false},
		{"unfair in Redis", 75, 90, 10, 600, 0.1, 0.11, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := &Results{Options: map[string]any{"lock_pairs": 1}, Locks: []LockTurn{
				turn(lockRedis, shapeAlone, tc.alone, 1, 0), turn(lockBSM, shapeAlone, 100, 1, 0),
				turn(lockRedis, shapeOwn, tc.own, 1, 0), turn(lockBSM, shapeOwn, 100, 1, 0),
				turn(lockRedis, shapeOne, 1, tc.p99, tc.inRedis), turn(lockBSM, shapeOne, 1e6, 100, 9),
				turn(lockPostgres, shapeOne, tc.contended, 1, tc.spread), turn(lockLeaseRow, shapeOne, 100, 1, 9),
			}}
			var out bytes.Buffer
			if got := r.judge(&printer{w: &out}); got != tc.pass {
				t.Fatalf("pass is %v, want %v:\n%s", got, tc.pass, out.String())
			}
			r.printLocks(&printer{w: &out})
			if !strings.Contains(out.String(), lockLeaseRow) {
				t.Fatalf("the table lacks a side:\n%s", out.String())
			}
		})
	}
}

// TestCountGrants checks rate and spread.
func TestCountGrants(t *testing.T) {
	t.Parallel()
	var turn LockTurn
	turn.count([]int64{9, 10, 11}, 2)
	if turn.Grants != 30 || turn.PerSecond != 15 || turn.Spread != 0.2 {
		t.Fatalf("counted %+v", turn)
	}
}

// TestCorrected: a contender that starves counts for as often as it would have asked; equal waits stay as they are.
func TestCorrected(t *testing.T) {
	t.Parallel()
	equal := hdrhistogram.New(1, 1e9, 3)
	starved := hdrhistogram.New(1, 1e9, 3)
	for range 1000 {
		_, _ = equal.RecordValue(1000), starved.RecordValue(10)
	}
	_ = starved.RecordValue(1_000_000)
	if got := corrected(equal, 10, 10_000); got.TotalCount() != 1000 || got.ValueAtQuantile(99) > 1010 {
		t.Errorf("equal waits became %d with a p99 of %d", got.TotalCount(), got.ValueAtQuantile(99))
	}
	if got := corrected(starved, 2, 1000); starved.ValueAtQuantile(99) > 10 || got.ValueAtQuantile(99) < 900_000 {
		t.Errorf("the starved one's second became a p99 of %d", got.ValueAtQuantile(99))
	}
}
