package audit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
	"github.com/fairlead-dev/fairlead/translog/audit/audittest"
)

// judgeAll judges leaves without a tree and a server.
func judgeAll(entries ...[]byte) (*judge, *Finding) {
	j := newJudge(nil)
	for _, entry := range entries {
		l, p := parseLeaf(entry)
		if f := j.next(&l, p); f != nil {
			return j, f
		}
	}
	return j, nil
}

func judgeLeaves(leaves []audittest.Leaf) (*judge, *Finding) {
	var entries [][]byte
	for _, l := range leaves {
		entries = append(entries, l.Entries()...)
	}
	return judgeAll(entries...)
}

// TestRandomHistories judges histories that the server's cores have decided.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	rng, _ := testwait.Rand(t)
	p := &audittest.Player{Rand: rng}
	for range testwait.Count(30, 1000) {
		shape := audittest.AuctionShape{
			Bidders: p.Aliases(1 + rng.IntN(40)), Bids: 1 + rng.IntN(400), Batch: 1 + rng.IntN(20), Rounds: 1 + rng.IntN(5), Winners: 1 + rng.IntN(8),
			Unique: rng.IntN(2) == 0, Cancel: rng.IntN(4) == 0, Open: rng.IntN(4) == 0,
		}
		if _, f := judgeLeaves(p.Auction(audittest.Zero(), shape)); f != nil {
			t.Fatalf("%+v: %v", shape, f)
		}
		draw := audittest.CampaignShape{}
		total := 0
		for range 1 + rng.IntN(6) {
			size := 1 + rng.IntN(30)
			draw.Layers, total = append(draw.Layers, size), total+size
		}
		for i := range rng.IntN(5) {
			prize := fairdraw.Prize{Name: fmt.Sprint("prize ", i), Quantity: 1 + rng.IntN(total)}
			if prize.Layer = rng.IntN(len(draw.Layers) + 1); prize.Layer > 0 {
				prize.Quantity = 1 + rng.IntN(draw.Layers[prize.Layer-1])
			}
			draw.Prizes = append(draw.Prizes, prize)
		}
		if _, f := judgeLeaves(p.Campaign(audittest.Zero(), draw)); f != nil {
			t.Fatalf("%+v: %v", draw, f)
		}
		many := audittest.MultidrawShape{Count: 1 + rng.Int64N(3000), Every: 1 + rng.IntN(500)}
		if rng.IntN(2) == 0 {
			low := int64(rng.Uint64()) >> rng.IntN(63)
			many.Spec.Range = &multidraw.Range{Min: low, Max: low + rng.Int64N(1<<rng.IntN(63)+1)}
			if many.Spec.Range.Max < low {
				many.Spec.Range.Max = 1<<63 - 1
			}
		} else {
			for i := range 1 + rng.IntN(300) {
				many.Spec.Prizes = append(many.Spec.Prizes, multidraw.Prize{ID: fmt.Sprint(i), Weight: 1 + rng.Int64N(1<<rng.IntN(50)), Value: rng.Int64N(9) - 4})
			}
		}
		if _, f := judgeLeaves(p.Multidraw(audittest.Zero(), many)); f != nil {
			t.Fatalf("%+v: %v", many, f)
		}
	}
}

// small is a short history of every kind, the same each time.
func small() []audittest.Leaf {
	p := &audittest.Player{Rand: rand.New(rand.NewPCG(3, 4))}
	chain, round := audittest.Quicknet()
	zero := audittest.Zero()
	prizes := []fairdraw.Prize{{Name: "first", Layer: 1, Quantity: 1}, {Name: "others", Quantity: 3}}
	spec := multidraw.Spec{Prizes: []multidraw.Prize{{ID: "a", Name: "A", Weight: 1}, {ID: "b", Name: "B", Weight: 3, Value: 2}}}
	return slices.Concat(
		p.Auction(zero, audittest.AuctionShape{Bidders: p.Aliases(6), Bids: 60, Batch: 3, Rounds: 2, Winners: 2}),
		p.Campaign(zero, audittest.CampaignShape{Layers: []int{2, 4}, Prizes: prizes}),
		p.Campaign(zero, audittest.CampaignShape{Layers: []int{2, 4}, Prizes: prizes, Chain: chain, Round: round, Lead: 3 * time.Second}),
		p.Multidraw(zero, audittest.MultidrawShape{Count: 50, Every: 20, Spec: spec}),
		p.Multidraw(zero, audittest.MultidrawShape{Count: 50, Every: 20, Spec: multidraw.Spec{Range: &multidraw.Range{Min: -5, Max: 900}}}),
		p.Books(zero, 3),
	)
}

// TestEveryAlterationIsNoticed alters each value of each leaf's data. What it passes over can be altered without a contradiction: it
// is said once, and nothing follows from it.
func TestEveryAlterationIsNoticed(t *testing.T) {
	t.Parallel()
	said := regexp.MustCompile(`^(auction.created .*\.(title|currency|seller|min_bid|min_increment|cooldown|window|extension|max_extensions)` +
		`|auction.* .*\.duration|campaign.created .*\.(name|currency|beneficiary|price|purchase_limit|witnesses)` +
		`|bid.placed \.amount|books.closed .*\.(root|accounts|currency|currencies))$`)
	leaves := small()
	if _, f := judgeLeaves(leaves); f != nil {
		t.Fatal(f)
	}
	tried := 0
	for i, l := range leaves {
		var data any
		testwait.Must(t, json.Unmarshal([]byte(l.Data), &data))
		walk(data, "", func(path string, value any, set func(any)) {
			if said.MatchString(l.Type + " " + path) {
				return
			}
			for _, other := range alterations(value) {
				set(other)
				text, err := json.Marshal(data, json.Deterministic(true))
				testwait.Must(t, err)
				set(value)
				altered := slices.Clone(leaves)
				altered[i].Data = string(text)
				j, f := judgeLeaves(altered)
				switch {
				case f == nil:
					t.Errorf("leaf %d, %s%s: %v for %v was not noticed", i, l.Type, path, other, value)
				case f.Topic != l.Topic || f.Index < int64(i) || f.Index != j.index-1:
					t.Errorf("leaf %d, %s%s: %v for %v was noticed in %v", i, l.Type, path, other, value, f)
				}
				tried++
			}
		})
	}
	if tried < 500 {
		t.Errorf("only %d alterations", tried)
	}
	t.Logf("%d alterations", tried)
}

// walk visits the values of a decoded document with a way to replace each.
func walk(v any, path string, visit func(path string, value any, set func(any))) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			visit(path+"."+name, value, func(other any) { v[name] = other })
			walk(value, path+"."+name, visit)
		}
	case []any:
		for i, value := range v {
			visit(fmt.Sprintf("%s[%d]", path, i), value, func(other any) { v[i] = other })
			walk(value, fmt.Sprintf("%s[%d]", path, i), visit)
		}
	}
}

func alterations(value any) []any {
	switch v := value.(type) {
	case float64:
		return []any{v + 1, v - 1, nil, "x"}
	case string:
		other := []byte(v)
		if len(other) > 0 {
			other[len(other)-1] ^= 1
		}
		if when, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return []any{when.Add(time.Microsecond).Format("2006-01-02T15:04:05.000000Z"), when.Add(-time.Microsecond).Format("2006-01-02T15:04:05.000000Z"), 1}
		}
		return []any{string(other), v + "x", "", 1}
	case []any:
		all := []any{1, "x"}
		if len(v) > 0 {
			all = append(all, v[1:], append(slices.Clone(v), v[0]))
		}
		return all
	case map[string]any:
		return []any{1, []any{}}
	}
	return nil
}

// hand is an auction worked out by hand: ann and bob win the two places of the only round.
func hand() []audittest.Leaf {
	const (
		ann = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		bob = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
		cyd = "cccccccccccccccccccccccccccccccc"
	)
	var leaves []audittest.Leaf
	add := func(kind string, seconds int, data string) {
		data = strings.NewReplacer("ann", ann, "bob", bob, "cyd", cyd, "T+10", "2023-08-23T15:00:10.000000Z", "T+13", "2023-08-23T15:00:13.000000Z", "T", "2023-08-23T15:00:00.000000Z").Replace(data)
		leaves = append(leaves, audittest.Leaf{
			Type: kind, Topic: "auction:01900000-0000-7000-8000-000000000001", Seq: int64(len(leaves)),
			At: audittest.Zero().Add(time.Duration(seconds) * time.Second), Data: data,
		})
	}
	add("auction.created", 0, `{"title":"a","currency":"EUR","seller":"dddddddddddddddddddddddddddddddd","rounds":[{"winners":2,"duration":10000000}],`+
		`"min_bid":10,"min_increment":1,"window":2000000,"extension":3000000,"max_extensions":1,"cooldown":0,"unique_amounts":true}`)
	add("auction.started", 0, `{"rounds":[{"round":1,"winners":2,"status":"active","duration":"10s","started_at":"T","ends_at":"T+10","extensions":0}]}`)
	add("round.started", 0, `{"round":1,"ends_at":"T+10","winners":2}`)
	add("bid.placed", 1, `{"account":"ann","amount":20,"previous_amount":0,"round":1,"rank":1}`)
	add("bid.placed", 2, `{"account":"bob","amount":15,"previous_amount":0,"round":1,"rank":2}`)
	add("bid.placed", 3, `{"account":"cyd","amount":18,"previous_amount":0,"round":1,"rank":2}`)
	add("bid.placed", 9, `{"account":"bob","amount":30,"previous_amount":15,"round":1,"rank":1}`)
	add("round.extended", 9, `{"round":1,"ends_at":"T+13","extensions":1}`)
	add("round.completed", 14, `{"round":1,"winners":[{"account":"bob","amount":30},{"account":"ann","amount":20}]}`)
	add("auction.completed", 14, `{"rounds":[{"round":1,"winners":2,"status":"completed","duration":"10s","started_at":"T","ends_at":"T+13","extensions":1}]}`)
	return leaves
}

func replaced(leaves []audittest.Leaf, i int, before, after string) []audittest.Leaf {
	leaves = slices.Clone(leaves)
	if !strings.Contains(leaves[i].Data, before) {
		panic("nothing to replace: " + leaves[i].Data)
	}
	leaves[i].Data = strings.Replace(leaves[i].Data, before, after, 1)
	return leaves
}

// renumbered gives the leaves of one topic the numbers 0, 1, 2, …
func renumbered(leaves []audittest.Leaf) []audittest.Leaf {
	leaves = slices.Clone(leaves)
	for i := range leaves {
		leaves[i].Seq = int64(i)
	}
	return leaves
}

func without(leaves []audittest.Leaf, from, to int) []audittest.Leaf {
	return slices.Delete(slices.Clone(leaves), from, to)
}

// TestCheats has one history each that an operator could sign, and wants the first leaf that does not follow, and why.
func TestCheats(t *testing.T) {
	t.Parallel()
	good := hand()
	if _, f := judgeLeaves(good); f != nil {
		t.Fatal(f)
	}
	seal := small()
	sealed := slices.IndexFunc(seal, func(l audittest.Leaf) bool { return l.Type == "campaign.sealed" && strings.Contains(l.Data, "round") })
	late := slices.Clone(seal)
	late[sealed].At = late[sealed].At.Add(time.Microsecond)
	early := slices.Clone(good)
	early[6].At = early[5].At.Add(-time.Microsecond)
	after := good[5]
	after.At = good[9].At
	moved := slices.Clone(good)
	moved[3], moved[4] = moved[4], moved[3]
	for name, test := range map[string]struct {
		leaves []audittest.Leaf
		index  int
		what   string
	}{
		"rank":                       {replaced(good, 5, `"rank":2}`, `"rank":3}`), 5, "rank"},
		"removed":                    {without(good, 4, 5), 4, "seq"},
		"inserted twice":             {slices.Insert(slices.Clone(good), 5, good[4]), 5, "seq"},
		"reordered":                  {moved, 3, "seq"},
		"reordered and renumbered":   {renumbered(moved), 3, "rank"},
		"does not begin":             {good[1:], 0, "seq"},
		"begins with another":        {renumbered(good[1:]), 0, "order"},
		"begins twice":               {renumbered(slices.Insert(slices.Clone(good), 3, good[0])), 3, "order"},
		"a bid is left out":          {renumbered(without(good, 4, 5)), 5, "previous amount"},
		"the first bid is left out":  {renumbered(without(good, 3, 4)), 3, "rank"},
		"two bids are left out":      {renumbered(without(good, 4, 6)), 4, "previous amount"},
		"bid after the end":          {renumbered(append(slices.Clone(good), after)), 10, "order"},
		"swapped winners":            {replaced(replaced(good, 8, "bbbbbbbb", "aaaaaaaa"), 8, "bbbbbbbb", "aaaaaaaa"), 8, "winners[0].account"},
		"other payment":              {replaced(good, 8, `"amount":20`, `"amount":19`), 8, "winners[1].amount"},
		"a winner is left out":       {replaced(good, 8, `,{"account":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","amount":20}`, ""), 8, "length of winners"},
		"extension is too long":      {replaced(good, 7, `:13.`, `:14.`), 7, "extension.ends_at"},
		"extension is left out":      {renumbered(without(good, 7, 8)), 7, "type"},
		"extension without a reason": {renumbered(slices.Insert(slices.Clone(good), 4, good[7])), 4, "type"},
		"started earlier":            {replaced(good, 1, `"started_at":"2023-08-23T15:00:00`, `"started_at":"2023-08-23T14:00:00`), 1, "rounds[0].started_at"},
		"time runs backwards":        {early, 6, "at, which never runs backwards"},
		"seal after the round":       {late, sealed, "round"},
	} {
		_, f := judgeLeaves(test.leaves)
		if f == nil || f.Index != int64(test.index) || f.What != test.what || f.Topic != test.leaves[test.index].Topic || f.Seq != test.leaves[test.index].Seq {
			t.Errorf("%s: %v, want leaf %d and %s", name, f, test.index, test.what)
		}
	}
}

// TestRolledBack compares what can be compared of a multi-draw whose seed stays secret.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	p := &audittest.Player{Rand: rand.New(rand.NewPCG(1, 1))}
	spec := multidraw.Spec{Range: &multidraw.Range{Min: 1, Max: 6}}
	none := p.Multidraw(audittest.Zero(), audittest.MultidrawShape{Count: 50, Every: 20, Spec: spec, RolledBack: -1})
	some := p.Multidraw(audittest.Zero(), audittest.MultidrawShape{Count: 50, Every: 20, Spec: spec, RolledBack: 20})
	for i, test := range []struct {
		leaves []audittest.Leaf
		what   string
	}{
		{none, ""},
		{some, ""},
		{replaced(none, 0, `"max":6`, `"max":7`), "digest"},
		{replaced(some, 1, `"completed":20`, `"completed":21`), "completed"},
		{replaced(some, 1, `"completed":20`, `"completed":50`), "status"},
		{replaced(some, 1, `"rolled_back"`, `"completed"`), "status"},
		{replaced(some, 1, `"status"`, `"seed":"00","status"`), "seed"},
	} {
		_, f := judgeLeaves(test.leaves)
		if (f == nil) != (test.what == "") || f != nil && f.What != test.what {
			t.Errorf("%d: %v, want %q", i, f, test.what)
		}
	}
}

// TestUnfinished ends in the middle of a transaction, which is no contradiction: the rest may be in the next checkpoint.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	if j, f := judgeLeaves(hand()[:7]); f != nil || j.tally().Unfinished != 1 {
		t.Errorf("%v, %+v", f, j.tally())
	}
	if j, f := judgeLeaves(hand()); f != nil || j.tally().Unfinished != 0 {
		t.Errorf("%v, %+v", f, j.tally())
	}
}

// TestParts reads a fact that is too large for one leaf.
func TestParts(t *testing.T) {
	t.Parallel()
	var prizes []fairdraw.Prize
	for i := range 1000 {
		prizes = append(prizes, fairdraw.Prize{Name: fmt.Sprintf("prize %d \u00e4\U0001f600\"\\", i), Quantity: 1})
	}
	p := &audittest.Player{Rand: rand.New(rand.NewPCG(5, 6))}
	leaves := p.Campaign(audittest.Zero(), audittest.CampaignShape{Layers: []int{50}, Prizes: prizes})
	parts := leaves[0].Entries()
	if len(parts) < 3 {
		t.Fatalf("%d parts", len(parts))
	}
	var rest [][]byte
	for _, l := range leaves[1:] {
		rest = append(rest, l.Entries()...)
	}
	if _, f := judgeAll(slices.Concat(parts, rest)...); f != nil {
		t.Fatal(f)
	}
	if j, f := judgeAll(parts[:2]...); f != nil || j.tally().Unfinished != 1 {
		t.Errorf("%v, %+v", f, j.tally())
	}
	changed := func(i int, before, after string) [][]byte {
		all := slices.Clone(parts)
		all[i] = bytes.Replace(all[i], []byte(before), []byte(after), 1)
		return all
	}
	whole := leaves[0]
	whole.Data = `{"a":1}`
	inner := audittest.Quote(whole.Data)
	for name, test := range map[string]struct {
		entries [][]byte
		index   int64
		what    string
	}{
		"removed":         {slices.Delete(slices.Clone(parts), 1, 2), 1, "part"},
		"last is missing": {slices.Concat(parts[:len(parts)-1], rest), int64(len(parts)) - 1, "part"},
		"not the first":   {parts[1:], 0, "part"},
		"other seq":       {changed(1, `"seq":0`, `"seq":1`), 1, "part"},
		"other number":    {changed(1, fmt.Sprintf(`"parts":%d`, len(parts)), `"parts":99`), 1, "part"},
		"other data":      {changed(1, `\"layer\":0`, `\"layer\":7`), 0, "prizes["},
		"no JSON":         {changed(1, `\"layer\":0`, `\"layer\":-`), 0, "form of the data"},
		"small": {[][]byte{
			[]byte(strings.Replace(string(whole.Entries()[0]), `"data":`+whole.Data, `"part":1,"parts":2,"text":`+inner, 1)),
			[]byte(strings.Replace(string(whole.Entries()[0]), `"data":`+whole.Data, `"part":2,"parts":2,"text":`+inner, 1)),
		}, 0, "size of the data in parts"},
	} {
		_, f := judgeAll(test.entries...)
		if f == nil || f.Index != test.index || !strings.HasPrefix(f.What, test.what) {
			t.Errorf("%s: %v, want leaf %d and %s", name, f, test.index, test.what)
		}
	}
}

// TestUntrustedChain refuses a beacon whose key may be the operator's, unless its hash was given.
func TestUntrustedChain(t *testing.T) {
	t.Parallel()
	leaves := small()
	i := slices.IndexFunc(leaves, func(l audittest.Leaf) bool { return strings.Contains(l.Data, "quicknet") })
	own := replaced(leaves, i, `"quicknet"`, `"own"`)
	chain, _ := audittest.Quicknet()
	chain.BeaconID = "own"
	own = replaced(own, i, "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971", chain.Hash())
	if _, f := judgeLeaves(own); f == nil || f.Index != int64(i) || f.What != "beacon.chain_hash" {
		t.Error(f)
	}
	j := newJudge([]string{chain.Hash()})
	for _, leaf := range own {
		l, p := parseLeaf(leaf.Entries()[0])
		if f := j.next(&l, p); f != nil {
			t.Fatal(f)
		}
	}
}
