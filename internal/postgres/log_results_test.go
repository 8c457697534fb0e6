package postgres

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw/beacon/beacontest"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// TestCheckLogFindsResults changes by hand what is in no leaf of the public log as it stands, and yet follows from leaves.
func TestCheckLogFindsResults(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, migrated)
	of := beacontest.New(t)
	of.Set(beacontest.Absent)
	v := enter(t, url, beaconOptions(t, of))
	s := newLedgerService(t, v.db)
	fund(t, s, 100_000, buyers()...)
	fund(t, s, 0, "house", "seller")
	drawn := v.create(t, 2)
	for _, buyer := range []string{"ann", "ben", "cleo"} {
		v.must(t, drawn, lottery.Buy{Account: buyer})
	}
	sealed, open := v.sellOut(t), v.create(t, 2)
	h := newHouse(t, url)
	won := h.open(nil)
	for i, bidder := range []string{"ann", "ben"} {
		_, err := h.bid(won, bidder, int64(10+i))
		testwait.Must(t, err)
	}
	h.end(won)
	h.do(won, auction.CloseRound{Round: 1, Term: 1})
	exec(t, v.db, `UPDATE auction_rounds SET ends_at = (SELECT (data::jsonb->>'ends_at')::timestamptz FROM auction_events
		WHERE auction = $1 AND type = 'round.started' ORDER BY seq LIMIT 1) WHERE auction = $1 AND round = 1`, won) // As it was before end.
	numbers := made(t, newMultidraws(t, NewMultidraws(v.db), multidraw.Options{}), inRange("dice", 150, false)).ID

	l := &Log{db: v.db, lottery: v.store, auctions: h.store, draws: NewMultidraws(v.db)}
	topics := map[string]logkeeper.Topic{
		"drawn": {Kind: logkeeper.KindCampaign, ID: drawn}, "sealed": {Kind: logkeeper.KindCampaign, ID: sealed}, "open": {Kind: logkeeper.KindCampaign, ID: open},
		"auction": {Kind: logkeeper.KindAuction, ID: won}, "numbers": {Kind: logkeeper.KindMultidraw, ID: numbers},
	}
	sound := func(when string) {
		t.Helper()
		for name, topic := range topics {
			if difference, err := l.compareResults(t.Context(), logkeeper.News{Topic: topic}); err != nil || difference != "" {
				t.Errorf("%s, %s: %q, %v", when, name, difference, err)
			}
		}
	}
	sound("untouched")
	for _, change := range []struct {
		topic    string
		id       uuid.UUID
		do, undo string
		want     string
	}{
		{"drawn", drawn, `UPDATE draws SET winners = replace(winners, '"account":"', '"account":"x') WHERE campaign = $1`, `UPDATE draws SET winners = replace(winners, '"account":"x', '"account":"') WHERE campaign = $1`, "follows from its purchases with"},
		{"drawn", drawn, `UPDATE purchases SET account = 'dan' WHERE campaign = $1 AND account = 'ben'`, `UPDATE purchases SET account = 'ben' WHERE campaign = $1 AND account = 'dan'`, "its purchases have the root"},
		{"drawn", drawn, `UPDATE purchases SET ordinal = ordinal + 3 WHERE campaign = $1 AND account = 'cleo'`, `UPDATE purchases SET ordinal = ordinal - 3 WHERE campaign = $1 AND account = 'cleo'`, "its draw can't be made again"},
		{"sealed", sealed, `UPDATE purchases SET account = 'dan' WHERE campaign = $1 AND seq = 1`, `UPDATE purchases SET account = 'ann' WHERE campaign = $1 AND seq = 1`, "its purchases have the root"},
		{"auction", won, `UPDATE auction_winners SET account = 'ann' WHERE auction = $1`, `UPDATE auction_winners SET account = 'ben' WHERE auction = $1`, "its list of winners has"},
		{"auction", won, `UPDATE auction_winners SET amount = amount + 1 WHERE auction = $1`, `UPDATE auction_winners SET amount = amount - 1 WHERE auction = $1`, "its list of winners has"},
		{"auction", won, `UPDATE auctions SET status = 'cancelled' WHERE id = $1`, `UPDATE auctions SET status = 'active' WHERE id = $1`, "by its events"},
		{"auction", won, `UPDATE auction_rounds SET ends_at = ends_at + interval '1 hour' WHERE auction = $1`, `UPDATE auction_rounds SET ends_at = ends_at - interval '1 hour' WHERE auction = $1`, "by its events"},
		{"auction", won, `UPDATE auction_rounds SET extensions = extensions + 2 WHERE auction = $1`, `UPDATE auction_rounds SET extensions = extensions - 2 WHERE auction = $1`, "by its events"},
		{"auction", won, `UPDATE auction_rounds SET winners = winners + 1 WHERE auction = $1`, `UPDATE auction_rounds SET winners = winners - 1 WHERE auction = $1`, "by its events"},
		{"drawn", drawn, `UPDATE draws SET completed_at = completed_at + interval '1 hour' WHERE campaign = $1`, `UPDATE draws SET completed_at = completed_at - interval '1 hour' WHERE campaign = $1`, "its draw is of"},
		{"numbers", numbers, `UPDATE multidraw_chunks SET seq = 9 WHERE multidraw = $1 AND seq = 1`, `UPDATE multidraw_chunks SET seq = 1 WHERE multidraw = $1 AND seq = 9`, "a checkpoint is missing"},
		{"numbers", numbers, `UPDATE multidraw_chunks SET data = set_byte(data, 0, 255 - get_byte(data, 0)) WHERE multidraw = $1 AND seq = 1`, `UPDATE multidraw_chunks SET data = set_byte(data, 0, 255 - get_byte(data, 0)) WHERE multidraw = $1 AND seq = 1`, "its numbers have the digest"},
	} {
		do := func(sql string) {
			t.Helper()
			if tag, err := v.db.pool.Exec(t.Context(), sql, change.id); err != nil || tag.RowsAffected() == 0 {
				t.Fatalf("%s: %v, %v", sql, tag, err)
			}
		}
		do(change.do)
		difference, err := l.compareResults(t.Context(), logkeeper.News{Topic: topics[change.topic]})
		if err != nil || !strings.Contains(difference, change.want) || !strings.Contains(difference, change.id.String()) {
			t.Errorf("%s: %q, %v; want %q", change.do, difference, err, change.want)
		}
		do(change.undo)
	}
	sound("as it was")
}
