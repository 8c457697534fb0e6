package replay_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestStream plays the log event by event: what is missing is said between the events, and an error stays.
func TestStream(t *testing.T) {
	s := replay.Begin(twoRounds(), funds())
	missing := map[int64]replay.Type{
		1: replay.RoundStarted, 7: replay.RoundExtended, 9: replay.RoundExtended,
		12: replay.BidCarriedOver, 13: replay.BidCarriedOver, 14: replay.BidCarriedOver, 15: replay.RoundStarted, 19: replay.AuctionCompleted,
	}
	for _, e := range parse(t, goodLog()) {
		testwait.Must(t, s.Apply(e))
		if s.Missing() != missing[e.Seq] {
			t.Errorf("after event %d, %q is missing, want %q", e.Seq, s.Missing(), missing[e.Seq])
		}
	}
	out, err := s.Finish()
	testwait.Must(t, err)
	if s.Status() != "completed" || out.Income != 231 || len(out.Bids) != 0 || len(s.Rounds()) != 2 {
		t.Errorf("outcome %+v", out)
	}
	again := parse(t, goodLog())[:1]
	first := s.Apply(again[0])
	var d *replay.Difference
	if !errors.As(first, &d) || s.Apply(again[0]) != first { //nolint:errorlint // It is the same one.
		t.Errorf("the error did not stay: %v", first)
	}
	if _, err := s.Finish(); err == nil {
		t.Error("finished after an error")
	}
}

// TestFundsUnknown plays the log of an auction whose accounts nobody knows.
func TestFundsUnknown(t *testing.T) {
	rules := twoRounds()
	rules.FundsUnknown = true
	out, err := replay.Replay(rules, nil, parse(t, goodLog()))
	testwait.Must(t, err)
	if len(out.Accounts) != 0 || out.Income != 231 || len(out.Wins()) != 3 {
		t.Errorf("outcome %+v", out)
	}
	log := goodLog()
	log[18] = strings.Replace(log[18], `"amount":60`, `"amount":59`, 1)
	if _, err := replay.Replay(rules, nil, parse(t, log)); err == nil || !strings.Contains(err.Error(), "winners[1].amount") {
		t.Errorf("a winner pays another amount: %v", err)
	}
}
