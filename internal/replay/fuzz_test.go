package replay_test

import (
	"errors"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/replay"
)

// FuzzParseEvent reads arbitrary messages. What is read is complete and within its bounds, so that an auditor can be fed
// with it, and anything else is ErrParse.
func FuzzParseEvent(f *testing.F) {
	for _, m := range goodLog() {
		f.Add([]byte(m))
	}
	f.Add([]byte(message(0, 5, "countdown", `{"round":1,"remaining_ms":1000,"ends_at":"`+at(0)+`"}`)))
	f.Add([]byte(message(9, 5, "auction.cancelled", `{"rounds":[]}`)))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := replay.ParseEvent(text)
		if err != nil {
			if !errors.Is(err, replay.ErrParse) {
				t.Fatalf("%v is not ErrParse", err)
			}
			return
		}
		parts := 0
		for _, set := range []bool{e.Bid != nil, e.Extension != nil, e.Close != nil, e.Opening != nil, e.Carry != nil, e.Countdown != nil, e.Rounds != nil} {
			if set {
				parts++
			}
		}
		if parts != 1 || e.Topic == "" || (e.Seq == 0) != (e.Type == replay.CountdownTick) || e.At.Nanosecond()%1000 != 0 {
			t.Fatalf("read %+v", e)
		}
		if e.Bid != nil && (e.Bid.Amount < 1 || e.Bid.Amount > replay.MaxAmount || e.Bid.Rank < 1) {
			t.Fatalf("read %+v", *e.Bid)
		}
		// An auditor survives whatever can be read, wherever it comes in the log.
		for _, before := range []int{0, 2, 5, 11, 20} {
			auditor := replay.New(twoRounds(), funds())
			for _, m := range goodLog()[:before] {
				good, err := replay.ParseEvent([]byte(m))
				if err != nil {
					t.Fatal(err)
				}
				if err := auditor.Apply(good); err != nil {
					t.Fatal(err)
				}
			}
			e.Topic, e.Seq = "auction:1", int64(before+1)
			_ = auditor.Apply(e)
			if out, err := auditor.Finish(); err == nil {
				for account, b := range out.Accounts {
					if b.Available < 0 || b.Held < 0 {
						t.Fatalf("%s has %+v", account, b)
					}
				}
			}
		}
	})
}

// FuzzParseAnswers reads arbitrary answers: none makes a reader panic, and an error is ErrParse.
func FuzzParseAnswers(f *testing.F) {
	f.Add([]byte(`{"id":"1","status":"active","current_round":1,"rounds":[{"round":1,"winners":1,"status":"active","ends_at":null,"extensions":2}],"total_bids":8,"seq":20}`))
	f.Add([]byte(`{"items":[{"rank":1,"account":"ann","amount":100,"winning":true}],"round":1,"next":null}`))
	f.Add([]byte(`{"items":[{"round":1,"rank":1,"account":"ann","amount":110}],"next":"x"}`))
	f.Add([]byte(`{"items":[{"account":"bob","amount":40,"previous_amount":0,"round":1,"seq":3,"at":"` + at(1000) + `"}],"next":null}`))
	f.Add([]byte(`{"id":"dan","available":455,"held":45}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, auctionErr := replay.ParseAuction(body)
		_, boardErr := replay.ParseLeaderboard(body)
		_, _, winnersErr := replay.ParseWinners(body)
		_, _, bidsErr := replay.ParseBids(body)
		_, _, balanceErr := replay.ParseBalance(body)
		for _, err := range []error{auctionErr, boardErr, winnersErr, bidsErr, balanceErr} {
			if err != nil && !errors.Is(err, replay.ErrParse) {
				t.Fatalf("%v is not ErrParse", err)
			}
		}
	})
}
