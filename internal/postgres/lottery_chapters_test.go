package postgres

import (
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestPurchasesBesideALongSnapshot buys while somebody holds a snapshot, so that PostgreSQL may remove no version of the rows of the campaign and its layers.
// Purchases and looks then pass most of them over.
func TestPurchasesBesideALongSnapshot(t *testing.T) {
	pgtest.Needs(t, pgkit.RowVersions)
	v, url := newVenue(t, lottery.Options{})
	const sales = 1200
	a, err := v.Create(t.Context(), own[lottery.Op](lottery.Create{
		Name: "large", Layers: []lottery.NewLayer{{Positions: 2 * sales}, {Positions: 1}}, Price: new(int64(1)), Currency: "EUR", Beneficiary: "house",
		Prizes: []lottery.Prize{{Name: "grand", Quantity: 1}},
	}))
	testwait.Must(t, err)
	testwait.Must(t, a.Err)
	id := result[*lottery.Campaign](t, a.Result).ID
	v.must(t, id, lottery.Publish{})
	snapshot(t, url)
	for i := range sales {
		v.must(t, id, lottery.Buy{Account: buyers()[i%len(buyers())], Layer: 1})
	}
	var (
		version, sold int64
		last          uuid.UUID
	)
	conn := pgtest.Connect(t, url)
	testwait.Must(t, conn.QueryRow(t.Context(), `SELECT version, sold_positions, last_sale FROM campaigns WHERE id = $1`, id).Scan(&version, &sold, &last))
	ids, one := [][16]byte{id}, func(n int64) []int64 { return []int64{n} }
	for _, c := range []struct {
		index, all string
		looks      map[string]statementWith
	}{
		{"campaigns_pkey", `SELECT version FROM campaigns WHERE id = $1`, map[string]statementWith{
			"read":              {selectCampaign, []any{id}},
			"heads of streams":  {NewEvents(v.db, EventViews{}).topics[1].heads, []any{ids}},
			"lock":              {lockCampaignRow, []any{id}},
			"guard":             {guardCampaigns, []any{ids, one(version), one(sold), [][16]byte{last}, 1}},
			"sell":              {sellCampaigns, []any{ids, one(version), one(sold), [][16]byte{last}, one(sold + 1), one(version + 1), [][16]byte{uuid.New()}, 1}},
			"sell under a lock": {guardedUpdateCampaign, []any{id, version + 1, "active", sold + 1, nil, nil, nil, nil, uuid.New(), 1}},
		}},
		{"campaign_layers_pkey", `SELECT sold FROM campaign_layers WHERE campaign = $1`, map[string]statementWith{
			"read": {selectLayers, []any{id}},
			"sell": {guardedSellLayers, []any{ids, one(1), one(sold), one(sold + 1), 1}},
		}},
	} {
		entries := entriesMet(t, url, c.index)
		all := entries(c.all, id)
		// A chapter has an entry, and one more for each time that a page was full. A sale looks the chapter up, and then the row; a reader each layer, and the last one twice.
		const most = 8
		if all <= most {
			t.Fatalf("a look without the chapter meets %d entries of %s, so there is nothing to be saved, and this test tests nothing", all, c.index)
		}
		for name, look := range c.looks {
			if got := entries(look.sql, look.args...); got > most {
				t.Errorf("%s: it meets %d entries of %s, where a look without the chapter meets %d", name, got, c.index, all)
			}
		}
	}
}

// statementWith is a statement with its arguments.
type statementWith struct {
	sql  string
	args []any
}
