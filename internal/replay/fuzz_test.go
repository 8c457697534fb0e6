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
		good := parse(t, goodLog())
		for _, before := range []int{0, 2, 5, 11, 20} {
			e.Topic, e.Seq = "auction:1", int64(before+1)
			if out, err := replay.Replay(twoRounds(), funds(), append(good[:before:before], e)); err == nil {
				for account, b := range out.Accounts {
					if b.Available < 0 || b.Held < 0 {
						t.Fatalf("%s has %+v", account, b)
					}
				}
			}
		}
	})
}
