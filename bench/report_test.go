//go:build linux

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(tc.in); got != tc.want {
			t.Errorf("median of %v is %v, want %v", tc.in, got, tc.want)
		}
	}
}

// TestJudge checks that each ratio has the better side's figure where it belongs and the threshold it is due.
func TestJudge(t *testing.T) {
	t.Parallel()
	results := func(peerTotal, productRate float64) *Results {
		return &Results{
			Races: []RaceTurn{
				{Side: product, TotalMS: 20, P99MS: 20},
				{Side: peer, TotalMS: peerTotal, P99MS: peerTotal},
				{Side: peerPipelined, TotalMS: 30, P99MS: 30},
			},
			Transfers: []TransferTurn{
				{Side: product, Connections: 64, PerSecond: productRate},
				{Side: peer, Connections: 64, PerSecond: 100},
			},
		}
	}
	for _, tc := range []struct {
		name                   string
		peerTotal, productRate float64
		pass                   bool
	}{
		{"both", 160, 600, true},
		{"race below", 159, 600, false},
		{"transfers below", 160, 599, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if got := results(tc.peerTotal, tc.productRate).judge(&printer{w: &out}); got != tc.pass {
				t.Fatalf("pass is %v, want %v:\n%s", got, tc.pass, out.String())
			}
			if strings.Contains(out.String(), "FAIL") == tc.pass {
				t.Fatalf("the printed verdict contradicts the returned one:\n%s", out.String())
			}
			if !strings.Contains(out.String(), "pipelined") {
				t.Fatalf("the pipelined peer isn't shown:\n%s", out.String())
			}
		})
	}
}

// TestJudgeBids checks each threshold on bids from both sides.
func TestJudgeBids(t *testing.T) {
	t.Parallel()
	turn := func(side string, connections int, perSecond, p99 float64) BidTurn {
		return BidTurn{TransferTurn: TransferTurn{
			Side: side, Connections: connections, Answers: 1, PerSecond: perSecond, P99MS: p99,
		}}
	}
	for _, tc := range []struct {
		name                   string
		low, high, p99, single float64 // The product's rates and p99, and the peer's rate.
		pass                   bool
	}{
		{"all", 900, 1100, 15, 100, true},
		{"below the script at 64", 899, 1100, 15, 100, false},
		{"below the script at 256", 900, 1099, 15, 100, false},
		{"p99 above the script's", 900, 1100, 15.1, 100, false},
		{"too near to a transaction a bid", 900, 1100, 15, 113, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := &Results{Bids: []BidTurn{
				turn(product, 64, tc.low, tc.p99), turn(peerRedis, 64, 1000, 10), turn(peer, 64, tc.single, 100),
				turn(product, 256, tc.high, tc.p99), turn(peerRedis, 256, 1000, 10), turn(peer, 256, tc.single, 100),
				turn(peerPipelined, 64, 1e6, 1),
			}}
			var out bytes.Buffer
			if got := r.judge(&printer{w: &out}); got != tc.pass {
				t.Fatalf("pass is %v, want %v:\n%s", got, tc.pass, out.String())
			}
		})
	}
}

func TestOtherAnswersAreShown(t *testing.T) {
	t.Parallel()
	r := &Results{Options: map[string]any{"bid_pairs": 1}, Bids: []BidTurn{
		{TransferTurn{Side: product, Connections: 64, Answers: 1}, map[string]int64{"409 amount_taken": 2}},
		{TransferTurn{Side: product, Connections: 64, Answers: 1}, map[string]int64{"409 amount_taken": 3}},
	}}
	var out bytes.Buffer
	r.printBids(&printer{w: &out})
	if !strings.Contains(out.String(), "fairlead: 409 amount_taken 5 times") {
		t.Fatalf("the refusals aren't shown:\n%s", out.String())
	}
}

func TestOnly(t *testing.T) {
	t.Parallel()
	if _, err := parseOptions([]string{"--peer=p", "--only=bid"}); err == nil {
		t.Fatal("an unknown part was taken")
	}
	o, err := parseOptions([]string{"--peer=p", "--only=bids"})
	if err != nil || !o.wants(onlyBids) || o.wants(onlyRace) || o.wants(onlyTransfers) {
		t.Fatalf("options %+v (%v)", o, err)
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	t.Parallel()
	before, _, err := processorTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for spent, deadline := before, time.Now().Add(10*time.Second); spent < before+0.05; {
		if time.Now().After(deadline) {
			t.Fatalf("%.2f s of processor time after 10 s of work", spent-before)
		}
		if spent, _, err = processorTime(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	now, peak, err := residentMemory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if now <= 0 || peak < now/2 {
		t.Fatalf("resident %d, at most %d bytes", now, peak)
	}
	if total, err := treeTime(os.Getppid()); err != nil || total < before {
		t.Fatalf("the parent's tree has used %.2f s, this process alone %.2f s (%v)", total, before, err)
	}
}
