package replay_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// zero is when the auctions of these tests start.
var zero = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at is so many milliseconds after the start.
func at(ms int) string {
	return zero.Add(time.Duration(ms) * time.Millisecond).Format(time.RFC3339Nano)
}

// twoRounds are the rules of the hand-written log.
func twoRounds() replay.Rules {
	return replay.Rules{
		Seller: "sel", Rounds: []replay.RoundRule{{Winners: 1, Duration: 10 * time.Second}, {Winners: 2, Duration: 5 * time.Second}},
		MinBid: 10, MinIncrement: 5, Window: 2 * time.Second, Extension: 3 * time.Second, MaxExtensions: 2,
		Cooldown: time.Second, UniqueAmounts: true,
	}
}

func funds() map[string]int64 {
	return map[string]int64{"sel": 7, "ann": 1000, "bob": 100, "cyd": 100, "dan": 500}
}

// message is one event as the server would write it.
func message(seq, ms int, kind, data string) string {
	return fmt.Sprintf(`{"topic":"auction:1","seq":%d,"type":%q,"at":%q,"data":%s}`, seq, kind, at(ms), data)
}

func bid(seq, ms int, account string, amount, previous, round, rank int) string {
	return message(seq, ms, "bid.placed", fmt.Sprintf(
		`{"account":%q,"amount":%d,"previous_amount":%d,"round":%d,"rank":%d,"outbid":[]}`, account, amount, previous, round, rank))
}

// outbids makes a bid the one by which another lost its winning place, after which the given amount would win.
func outbids(message, account string, amount, rank, floor int) string {
	return strings.Replace(message, `"outbid":[]`, fmt.Sprintf(
		`"outbid":[{"account":%q,"amount":%d,"rank":%d}],"min_winning_bid":%d`, account, amount, rank, floor), 1)
}

// unrecorded makes a bid one of an old server, which did not record whose place was lost.
func unrecorded(message string) string {
	return regexp.MustCompile(`,"outbid":.*}}$`).ReplaceAllString(message, "}}")
}

// goodLog is an auction worked out by hand: ann wins the first round after two extensions; bob, cyd and dan are carried
// over, ann bids anew, and dan and ann win the second, bob and cyd get their money back.
func goodLog() []string {
	return []string{
		message(1, 0, "auction.started", `{"rounds":[
			{"round":1,"winners":1,"status":"active","duration":"10s","started_at":"`+at(0)+`","ends_at":"`+at(10000)+`","extensions":0},
			{"round":2,"winners":2,"status":"pending","duration":"5s","started_at":null,"ends_at":null,"extensions":0}]}`),
		message(2, 0, "round.started", `{"round":1,"ends_at":"`+at(10000)+`","winners":1}`),
		bid(3, 1000, "bob", 40, 0, 1, 1),
		outbids(bid(4, 1000, "cyd", 50, 0, 1, 1), "bob", 40, 2, 51),
		bid(5, 2000, "dan", 30, 0, 1, 3),
		bid(6, 3000, "dan", 45, 30, 1, 2),
		outbids(bid(7, 8000, "ann", 100, 0, 1, 1), "cyd", 50, 2, 101), // two seconds before the end: within the window
		message(8, 8000, "round.extended", `{"round":1,"ends_at":"`+at(13000)+`","extensions":1}`),
		bid(9, 11500, "ann", 105, 100, 1, 1),
		message(10, 11500, "round.extended", `{"round":1,"ends_at":"`+at(16000)+`","extensions":2}`),
		bid(11, 15000, "ann", 110, 105, 1, 1), // the third would be one too many
		message(12, 16200, "round.completed", `{"round":1,"winners":[{"account":"ann","amount":110}]}`),
		message(13, 16200, "bid.carried_over", `{"account":"cyd","amount":50,"from_round":1,"to_round":2}`),
		message(14, 16200, "bid.carried_over", `{"account":"dan","amount":45,"from_round":1,"to_round":2}`),
		message(15, 16200, "bid.carried_over", `{"account":"bob","amount":40,"from_round":1,"to_round":2}`),
		message(16, 16200, "round.started", `{"round":2,"ends_at":"`+at(21200)+`","winners":2}`),
		outbids(bid(17, 16300, "ann", 60, 0, 2, 1), "dan", 45, 3, 51),
		outbids(bid(18, 17000, "dan", 61, 45, 2, 1), "cyd", 50, 3, 61),
		message(19, 21200, "round.completed", `{"round":2,"winners":[{"account":"dan","amount":61},{"account":"ann","amount":60}]}`),
		message(20, 21200, "auction.completed", `{"rounds":[
			{"round":1,"winners":1,"status":"completed","ends_at":"`+at(16000)+`","extensions":2},
			{"round":2,"winners":2,"status":"completed","ends_at":"`+at(21200)+`","extensions":0}]}`),
	}
}

func parse(t *testing.T, messages []string) []replay.Event {
	t.Helper()
	var events []replay.Event
	for _, m := range messages {
		e, err := replay.ParseEvent([]byte(m))
		testwait.Must(t, err)
		events = append(events, e)
	}
	return events
}

func play(t *testing.T, messages []string) *replay.Outcome {
	t.Helper()
	out, err := replay.Replay(twoRounds(), funds(), parse(t, messages))
	testwait.Must(t, err)
	return out
}

func balances() map[string]replay.Balance {
	return map[string]replay.Balance{
		"sel": {Available: 7 + 110 + 61 + 60}, "ann": {Available: 1000 - 110 - 60}, "bob": {Available: 100},
		"cyd": {Available: 100}, "dan": {Available: 500 - 61},
	}
}

func TestGoodLog(t *testing.T) {
	out := play(t, goodLog())
	if out.Status != "completed" || out.Income != 231 || out.Held() != 0 || out.Seq != 20 || len(out.Bids) != 9 {
		t.Errorf("outcome %+v", out)
	}
	if !maps.Equal(out.Accounts, balances()) {
		t.Errorf("accounts %+v", out.Accounts)
	}
	want := []replay.Place{{1, "dan", 61, true}, {2, "ann", 60, true}, {3, "cyd", 50, false}, {4, "bob", 40, false}}
	if !slices.Equal(out.Board, want) {
		t.Errorf("board %+v", out.Board)
	}
	wins := []replay.Win{{1, 1, "ann", 110}, {2, 1, "dan", 61}, {2, 2, "ann", 60}}
	if !slices.Equal(out.Wins(), wins) {
		t.Errorf("winners %+v", out.Wins())
	}
	if ends := out.Bids[4].RoundEndsAt; !ends.Equal(zero.Add(13 * time.Second)) {
		t.Errorf("the bid that extended says the round ends at %v", ends)
	}
}

// TestOldLog begins with bids of a server that did not record whose place was lost. The rest is held to the letter.
func TestOldLog(t *testing.T) {
	rules, log := twoRounds(), goodLog()
	rules.OutbidOptional = true
	for i := 2; i < 7; i++ {
		log[i] = unrecorded(log[i])
	}
	out, err := replay.Replay(rules, funds(), parse(t, log))
	testwait.Must(t, err)
	if !maps.Equal(out.Accounts, balances()) || out.Bids[1].Outbid != nil || out.Bids[7].Outbid == nil {
		t.Errorf("outcome %+v", out)
	}
	log[16] = strings.Replace(log[16], `"account":"dan"`, `"account":"cyd"`, 1)
	if _, err := replay.Replay(rules, funds(), parse(t, log)); err == nil || !strings.Contains(err.Error(), "outbid") {
		t.Errorf("another account is named to have lost its place: %v", err)
	}
}

// TestLogUnderWay stops the log in the first round.
func TestLogUnderWay(t *testing.T) {
	out := play(t, goodLog()[:8])
	want := []replay.Place{{1, "ann", 100, true}, {2, "cyd", 50, false}, {3, "dan", 45, false}, {4, "bob", 40, false}}
	if !slices.Equal(out.Board, want) {
		t.Errorf("board %+v", out.Board)
	}
	if out.Held() != 235 || out.Accounts["dan"] != (replay.Balance{Available: 455, Held: 45}) || out.Floor() != 101 {
		t.Errorf("held %d, accounts %+v, floor %d", out.Held(), out.Accounts, out.Floor())
	}
	if out := play(t, goodLog()[:2]); out.Floor() != 10 {
		t.Errorf("floor with free places: %d", out.Floor())
	}
}

func TestCancellation(t *testing.T) {
	log := slices.Concat(goodLog()[:8], []string{message(9, 9000, "auction.cancelled", `{"rounds":[
		{"round":1,"winners":1,"status":"completed","ends_at":"`+at(13000)+`","extensions":1},
		{"round":2,"winners":2,"status":"pending","ends_at":null,"extensions":0}]}`)})
	out := play(t, log)
	want := map[string]replay.Balance{}
	for account, amount := range funds() {
		want[account] = replay.Balance{Available: amount}
	}
	if out.Status != "cancelled" || !maps.Equal(out.Accounts, want) || out.Income != 0 {
		t.Errorf("outcome %+v", out)
	}
}

// TestEveryAlterationIsNoticed alters each field of each event, in each of the ways that fit its type.
func TestEveryAlterationIsNoticed(t *testing.T) {
	// What the auditor passes over: it is not in the contract, which says so of nothing else.
	ignored := []string{"duration", "started_at"}
	log, tried := goodLog(), 0
	good := play(t, log).Bids
	for i := range log {
		var whole any
		testwait.Must(t, json.Unmarshal([]byte(log[i]), &whole))
		walk(whole, "", func(path string, value any, set func(any)) {
			if slices.ContainsFunc(ignored, func(name string) bool { return strings.HasSuffix(path, "."+name) }) {
				return
			}
			for _, other := range alterations(value) {
				set(other)
				altered, err := json.Marshal(whole)
				set(value)
				testwait.Must(t, err)
				if notice(good, append(append(slices.Clone(log[:i]), string(altered)), log[i+1:]...)) == nil {
					t.Errorf("event %d: %s: %v for %v was not noticed", i+1, path, other, value)
				}
				tried++
			}
		})
	}
	if tried < 200 {
		t.Errorf("only %d alterations", tried)
	}
	t.Logf("%d alterations", tried)
}

// walk visits the leaves of a decoded document with a way to replace each.
func walk(v any, path string, visit func(path string, value any, set func(any))) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if _, inner := value.(map[string]any); !inner {
				if _, list := value.([]any); !list {
					visit(path+"."+name, value, func(other any) { v[name] = other })
					continue
				}
			}
			walk(value, path+"."+name, visit)
		}
	case []any:
		for i, value := range v {
			walk(value, fmt.Sprintf("%s[%d]", path, i), visit)
		}
	}
}

func alterations(value any) []any {
	switch v := value.(type) {
	case float64:
		return []any{v + 1, v - 1, nil, "x"}
	case string:
		if when, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return []any{
				when.Add(time.Microsecond).Format(time.RFC3339Nano), when.Add(-time.Microsecond).Format(time.RFC3339Nano), nil,
				when.In(time.FixedZone("", 3600)).Format(time.RFC3339Nano),
			}
		}
		return []any{v + "x", "", nil, 1}
	case nil:
		return []any{at(123456), 1}
	}
	return nil
}

// notice parses and replays, and also compares with what else the server says, as any use of the auditor does: a bid's
// time a microsecond off changes nothing that the events alone could tell.
func notice(good []replay.PlacedBid, log []string) error {
	var events []replay.Event
	for _, m := range log {
		e, err := replay.ParseEvent([]byte(m))
		if err != nil {
			return err
		}
		events = append(events, e)
	}
	out, err := replay.Replay(twoRounds(), funds(), events)
	if err != nil {
		return err
	}
	return errors.Join(replay.Compare("bids", out.Bids, good), replay.Compare("accounts", balances(), out.Accounts))
}

// TestBrokenLogs breaks the log as a whole: each is told by the event at which it is noticed, and by what.
func TestBrokenLogs(t *testing.T) {
	log := goodLog()
	without := func(seq int) []string { return slices.Delete(slices.Clone(log), seq-1, seq) }
	tests := map[string]struct {
		log  []string
		seq  int64
		what string
	}{
		"gap":                       {without(5), 6, "sequence number"},
		"double":                    {slices.Insert(slices.Clone(log), 5, log[4]), 5, "sequence number"},
		"swapped":                   {append(append(slices.Clone(log[:4]), log[5], log[4]), log[6:]...), 6, "sequence number"},
		"extension is missing":      {renumber(without(8)), 8, "type"},
		"extension without cause":   {renumber(slices.Insert(slices.Clone(log), 3, log[7])), 4, "type"},
		"carry-over is missing":     {renumber(without(14)), 14, "carry.account"},
		"close is missing":          {renumber(without(12)), 12, "type"},
		"round is not opened":       {renumber(without(16)), 16, "type"},
		"end is not told":           {log[:19], 20, "type of the event after the last"},
		"stops within an extension": {log[:7], 8, "type of the event after the last"},
		"bid before the start":      {renumber(slices.Concat(log[2:3], log)), 1, "status of the auction"},
		"bid after the end":         {renumber(append(slices.Clone(log), bid(21, 21201, "bob", 90, 0, 2, 1))), 21, "status of the auction"},
		"second close":              {renumber(append(slices.Clone(log), log[18])), 21, "status of the auction"},
		"time runs backwards":       {append(slices.Clone(log[:5]), bid(6, 1999, "ann", 60, 0, 1, 1)), 6, "time, which never runs backwards"},
		"close is early":            {append(slices.Clone(log[:11]), strings.Replace(log[11], at(16200), at(15999), 1)), 12, "time of a close, which is not before the round's end"},
		"bid at the end":            {append(slices.Clone(log[:11]), bid(12, 16000, "bob", 90, 40, 1, 2)), 12, "time of a bid, which is before its round's end"},
		"bid of the seller":         {append(slices.Clone(log[:2]), bid(3, 1, "sel", 10, 0, 1, 1)), 3, "bidder"},
		"low":                       {append(slices.Clone(log[:2]), bid(3, 1, "ann", 9, 0, 1, 1)), 3, "amount, which is not under the least"},
		"raise is low":              {append(slices.Clone(log[:4]), bid(5, 3000, "bob", 44, 40, 1, 2)), 5, "amount, which is not under the least"},
		"raise is early":            {append(slices.Clone(log[:4]), bid(5, 1999, "bob", 60, 40, 1, 1)), 5, "time of a raise, which is after the cooldown"},
		"amount is taken":           {append(slices.Clone(log[:4]), bid(5, 3000, "bob", 50, 40, 1, 2)), 5, "owner of the amount, which is unique"},
		"not covered":               {append(slices.Clone(log[:4]), bid(5, 3000, "bob", 101, 40, 1, 1)), 5, "further amount held, which is covered"},
		"no money at all":           {append(slices.Clone(log[:4]), bid(5, 3000, "eve", 55, 0, 1, 1)), 5, "further amount held, which is covered"},
		"outbid is absent":          {append(slices.Clone(log[:3]), unrecorded(log[3])), 4, "presence of outbid"},
		"outbid is absent, nobody":  {append(slices.Clone(log[:2]), unrecorded(log[2])), 3, "presence of outbid"},
		"outbid is not told":        {append(slices.Clone(log[:3]), bid(4, 1000, "cyd", 50, 0, 1, 1)), 4, "length of outbid"},
		"nobody is outbid":          {append(slices.Clone(log[:4]), outbids(bid(5, 2000, "dan", 30, 0, 1, 3), "dan", 30, 3, 51)), 5, "length of outbid"},
		"other topic":               {append(slices.Clone(log[:3]), strings.Replace(log[3], "auction:1", "auction:2", 1)), 4, "topic"},
		"started twice":             {append(slices.Clone(log[:2]), strings.Replace(log[0], `"seq":1`, `"seq":3`, 1)), 3, "status before the start"},
		"cancelled after the end":   {append(slices.Clone(log), message(21, 30000, "auction.cancelled", `{"rounds":[]}`)), 21, "status before the cancellation"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := replay.Replay(twoRounds(), funds(), parse(t, test.log))
			var d *replay.Difference
			if !errors.As(err, &d) || d.Seq != test.seq || d.What != test.what {
				t.Errorf("got %v, want a difference of event %d in %s", err, test.seq, test.what)
			}
		})
	}
}

// renumber gives the messages the numbers 1, 2, … again.
func renumber(log []string) []string {
	all := make([]string, len(log))
	for i, m := range log {
		from := strings.Index(m, `"seq":`) + len(`"seq":`)
		all[i] = fmt.Sprintf("%s%d%s", m[:from], i+1, m[from+strings.IndexByte(m[from:], ','):])
	}
	return all
}

// TestAlteredAnswers alters each field of each answer that is compared with the outcome.
func TestAlteredAnswers(t *testing.T) {
	done, half := play(t, goodLog()), play(t, goodLog()[:8])
	altered(t, done.Views,
		func(r *[]replay.RoundView) { *r = (*r)[:1] },
		func(r *[]replay.RoundView) { (*r)[0].Round++ },
		func(r *[]replay.RoundView) { (*r)[0].Winners++ },
		func(r *[]replay.RoundView) { (*r)[0].Status = "active" },
		func(r *[]replay.RoundView) { (*r)[1].Extensions++ },
		func(r *[]replay.RoundView) { (*r)[0].EndsAt = &zero },
		func(r *[]replay.RoundView) { (*r)[1].EndsAt = nil },
	)
	altered(t, func() []replay.PlacedBid { return slices.Clone(half.Bids) },
		func(b *[]replay.PlacedBid) { *b = (*b)[:3] },
		func(b *[]replay.PlacedBid) { (*b)[3].Account = "bob" },
		func(b *[]replay.PlacedBid) { (*b)[3].Seq++ },
		func(b *[]replay.PlacedBid) { (*b)[3].At = zero },
	)
	altered(t, func() map[string]replay.Balance { return maps.Clone(half.Accounts) },
		func(b *map[string]replay.Balance) { delete(*b, "dan") },
		func(b *map[string]replay.Balance) { (*b)["eve"] = replay.Balance{} },
		func(b *map[string]replay.Balance) { delete(*b, "dan"); (*b)["eve"] = replay.Balance{} },
		func(b *map[string]replay.Balance) { (*b)["dan"] = replay.Balance{Available: 456, Held: 45} },
		func(b *map[string]replay.Balance) { (*b)["dan"] = replay.Balance{Available: 455, Held: 44} },
	)
	board := []replay.Place{{1, "ann", 100, true}, {2, "cyd", 50, false}, {3, "dan", 45, false}, {4, "bob", 40, false}}
	if half.CompareLeaderboard(1, board) != nil || half.CompareLeaderboard(2, board) == nil || half.CompareLeaderboard(1, board[:3]) == nil || half.Floor() != 101 {
		t.Error("it is round 1, and the least winning bid is 101")
	}
}

// altered makes sure that a good answer compares as equal, and with any one alteration does not.
func altered[T any](t *testing.T, good func() T, alterations ...func(*T)) {
	t.Helper()
	testwait.Must(t, replay.Compare("answer", good(), good()))
	for i, alter := range alterations {
		said := good()
		if alter(&said); replay.Compare("answer", said, good()) == nil {
			t.Errorf("%T: alteration %d was not noticed", said, i)
		}
	}
}
