package postgres

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

const (
	insertCampaign = `INSERT INTO campaigns (id, name, status, draw_mode, base_length, currency, price, beneficiary, escrow,
		purchase_limit, total_positions, sold_positions, commitment, version, created_at, witnesses)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`
	insertLayer = `INSERT INTO campaign_layers (campaign, layer, positions, price, sold) VALUES ($1, $2, $3, $4, 0)`
	insertPrize = `INSERT INTO campaign_prizes (campaign, ordinal, name, layer, quantity) VALUES ($1, $2, $3, nullif($4, 0), $5)`
	insertSeed  = `INSERT INTO campaign_seeds (campaign, seed) VALUES ($1, $2)`

	insertPurchases = `INSERT INTO purchases (campaign, seq, id, account, layer, number, ordinal, price, transfer, at)
		SELECT * FROM unnest($1::uuid[], $2::integer[], $3::uuid[], $4::text[], $5::integer[], $6::integer[], $7::integer[],
			$8::bigint[], $9::uuid[], $10::timestamptz[])`

	// The guard repeats, in SQL, what the core has decided under the lock: the row is the very version that was read,
	// and it becomes drawing or completed only from active or drawing and with everything sold. The status is an
	// expression there, so that the row is found by its id and never by the index on the status.
	updateCampaign = `UPDATE campaigns SET status = $3, sold_positions = $4, version = $2, published_at = $5,
			draw_started_at = $6, completed_at = $7, cancelled_at = $8, last_sale = coalesce($9, last_sale), chapter = $2::bigint >> 4
		WHERE id = $1 AND chapter = (SELECT chapter FROM campaigns WHERE id = $1 ORDER BY chapter DESC LIMIT 1) AND version = $2 - 1
			AND ($3 NOT IN ('drawing', 'completed') OR (status || '' IN ('active', 'drawing') AND $4 = total_positions))
			AND ($3 <> 'active' OR status || '' IN ('pending', 'active'))
			AND ($3 <> 'cancelled' OR status || '' IN ('pending', 'active') OR (status || '' = 'drawing' AND witnesses > 0)) RETURNING 1`
	guardedUpdateCampaign = `WITH written AS (` + updateCampaign + `)
		SELECT 1 / (count(*) = $10::bigint)::integer FROM written`
	// Layers have no version: their chapters are of 128 sales.
	sellLayers = `UPDATE campaign_layers AS l SET sold = n.sold, chapter = n.sold >> 7
		FROM (SELECT * FROM unnest($1::uuid[], $2::integer[], $3::integer[], $4::integer[]) AS n (campaign, layer, old_sold, sold)
			` + newestBefore + `campaign_layers WHERE campaign = n.campaign AND layer = n.layer` + newestBehind + `
		WHERE l.campaign = ANY (ARRAY[n.campaign]) AND l.layer = n.layer AND l.chapter = n.chapter AND l.sold = n.old_sold RETURNING 1`
	guardedSellLayers = `WITH written AS (` + sellLayers + `)
		SELECT 1 / (count(*) = $5::bigint)::integer FROM written`
	insertDraw = `INSERT INTO draws (campaign, root, winners, completed_at) VALUES ($1, $2, $3, $4)`

	// Without a time it is the database's.
	insertAudit = `INSERT INTO audit_log (id, at, principal, action, object, request_id) VALUES ($1, coalesce($2, clock_timestamp()), $3, $4, $5, $6)`
)

func saveNewCampaign(b *pgx.Batch, n lottery.NewCampaign) {
	c := n.Campaign
	expectRows(b.Queue(insertCampaign, c.ID, c.Name, c.Status, c.DrawMode, c.BaseLength, c.Currency, c.Price, c.Beneficiary,
		c.Escrow, c.PurchaseLimit, c.TotalPositions, c.SoldPositions, c.Commitment[:], c.Version, c.CreatedAt, c.Witnesses), 1, errLostRow)
	for i, l := range c.Layers {
		expectRows(b.Queue(insertLayer, c.ID, i+1, l.Positions, l.Price), 1, errLostRow)
	}
	for i, p := range c.Prizes {
		expectRows(b.Queue(insertPrize, c.ID, i, p.Name, p.Layer, p.Quantity), 1, errLostRow)
	}
	expectRows(b.Queue(insertSeed, c.ID, n.Seed[:]), 1, errLostRow)
}

// savePurchases queues the sales of a transaction, and the counters of the layers that they are of.
func savePurchases(b *pgx.Batch, st *lottery.State, how writes) {
	n := len(st.Purchases)
	if n == 0 {
		return
	}
	campaigns, seqs, ids, accounts := make([][16]byte, n), make([]int, n), make([][16]byte, n), make([]string, n)
	layers, numbers, ordinals := make([]int, n), make([]int, n), make([]int, n)
	prices, transfers, at := make([]int64, n), make([][16]byte, n), make([]time.Time, n)
	sold := map[int]int{}
	for i, p := range st.Purchases {
		campaigns[i], seqs[i], ids[i], accounts[i] = p.Campaign, p.Seq, p.ID, p.Account
		layers[i], numbers[i], ordinals[i] = p.Position.Layer, p.Position.Number, p.Position.Ordinal
		prices[i], transfers[i], at[i] = p.Price, p.Transfer, p.At
		sold[p.Position.Layer]++
	}
	expectRows(b.Queue(insertPurchases, campaigns, seqs, ids, accounts, layers, numbers, ordinals, prices, transfers, at), n, errLostRow)
	n = len(sold)
	campaigns, layers = make([][16]byte, n), slices.Sorted(maps.Keys(sold))
	before, after := make([]int, n), make([]int, n)
	for i, layer := range layers {
		campaigns[i], after[i] = st.Campaign.ID, st.Campaign.Layers[layer-1].Sold
		before[i] = after[i] - sold[layer]
	}
	how.queue(b, sellLayers, guardedSellLayers, n, errLostRow, campaigns, layers, before, after)
}

// saveCampaign writes the campaign's row from the version that was read under the lock.
func saveCampaign(b *pgx.Batch, st *lottery.State, how writes) {
	c := st.Campaign
	var last *[16]byte
	if n := len(st.Purchases); n > 0 {
		last = (*[16]byte)(&st.Purchases[n-1].ID)
	}
	how.queue(b, updateCampaign, guardedUpdateCampaign, 1, errLostRow, c.ID, c.Version, c.Status, c.SoldPositions, c.PublishedAt, c.DrawStartedAt,
		c.CompletedAt, c.CancelledAt, last)
}

func saveDraw(b *pgx.Batch, d *lottery.Draw) error {
	winners, err := json.Marshal(d.Winners)
	if err != nil {
		return err
	}
	if d.Round != nil {
		saveBeaconDraw(b, d, string(winners))
		return nil
	}
	expectRows(b.Queue(insertDraw, d.Campaign, d.Root[:], string(winners), d.CompletedAt), 1, errLostRow)
	return nil
}

func saveAudit(b *pgx.Batch, audit []command.Audit, now time.Time) {
	for _, a := range audit {
		expectRows(b.Queue(insertAudit, newID(), now, a.Principal, a.Action, a.Object, a.RequestID), 1, errLostRow)
	}
}
