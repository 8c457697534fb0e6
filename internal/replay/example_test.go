package replay_test

import (
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/replay"
)

// A log whose second bid claims a rank that it does not have.
func Example() {
	rules := replay.Rules{Seller: "gallery", Rounds: []replay.RoundRule{{Winners: 1, Duration: time.Minute}}}
	var log []replay.Event
	for _, message := range []string{
		`{"topic":"auction:1","seq":1,"type":"auction.started","at":"2026-03-01T12:00:00Z","data":{"rounds":[
			{"round":1,"winners":1,"status":"active","ends_at":"2026-03-01T12:01:00Z","extensions":0}]}}`,
		`{"topic":"auction:1","seq":2,"type":"round.started","at":"2026-03-01T12:00:00Z","data":
			{"round":1,"ends_at":"2026-03-01T12:01:00Z","winners":1}}`,
		`{"topic":"auction:1","seq":3,"type":"bid.placed","at":"2026-03-01T12:00:10Z","data":
			{"account":"ann","amount":50,"previous_amount":0,"round":1,"rank":1,"outbid":[]}}`,
		`{"topic":"auction:1","seq":4,"type":"bid.placed","at":"2026-03-01T12:00:11Z","data":
			{"account":"bob","amount":40,"previous_amount":0,"round":1,"rank":1,"outbid":[]}}`,
	} {
		event, err := replay.ParseEvent([]byte(message))
		if err != nil {
			fmt.Println(err)
			return
		}
		log = append(log, event)
	}
	_, err := replay.Replay(rules, map[string]int64{"ann": 100, "bob": 100}, log)
	fmt.Println(err)
	// Output: event 4: rank: the server says 1, recomputed 2
}
