package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/replay"
)

// sequence compares what both watchers were given with the database's numbers.
func (c *check) sequence(ctx context.Context) error {
	a := &c.result.Auction
	rows, err := c.tx.Query(ctx, `
		SELECT seq, type FROM auction_events WHERE auction = $1
		UNION ALL SELECT seq, 'bid.placed' FROM auction_bids WHERE auction = $1 ORDER BY seq`, a.ID)
	if err != nil {
		return err
	}
	type numbered struct {
		Seq  int64
		Type string
	}
	stored, err := pgx.CollectRows(rows, pgx.RowToStructByPos[numbered])
	if err != nil {
		return err
	}
	var last int64
	if err := c.tx.QueryRow(ctx, `SELECT seq FROM auctions WHERE id = $1`, a.ID).Scan(&last); err != nil {
		return err
	}
	gapless := last > 0 && int64(len(stored)) == last && len(a.socket) == len(stored) && len(a.stream) == len(stored)
	for i := 0; gapless && i < len(stored); i++ {
		s, w, e := stored[i], a.socket[i], a.stream[i]
		gapless = s.Seq == int64(i)+1 && w.seq == s.Seq && e.seq == s.Seq && string(w.kind) == s.Type && w.kind == e.kind &&
			bytes.Equal(w.raw, e.raw)
	}
	c.add("U1", "event numbers without a gap", gapless, "%d on %d streams, %d resumes", len(stored), 2, a.Resumes)
	return nil
}

// settlement plays the auction again from what the live stream told, with a model of its own, and compares the winners.
func (c *check) settlement(ctx context.Context) error {
	a := &c.result.Auction
	funds := map[string]int64{c.seller(): 0}
	for _, bot := range a.bots {
		funds[bot] = demoBotFunds
	}
	played, err := replay.Replay(c.auctionRules(), funds, a.replays)
	if difference, ok := errors.AsType[*replay.Difference](err); ok {
		c.add("U1", "a replay gives the same winners", false, "%s", difference)
		c.add("U1", "a replay gives the same balances", false, "%s", difference)
		return nil
	}
	if err != nil {
		return err
	}
	rows, err := c.tx.Query(ctx, `SELECT round, rank, account, amount FROM auction_winners WHERE auction = $1 ORDER BY round, rank`, a.ID)
	if err != nil {
		return err
	}
	stored, err := pgx.CollectRows(rows, pgx.RowToStructByPos[replay.Win])
	if err != nil {
		return err
	}
	finding := fmt.Sprintf("%d rounds, %d winners, %d bids", len(played.Rounds), len(stored), len(played.Bids))
	difference := played.CompareWinners(stored)
	if difference != nil {
		finding = difference.Error()
	}
	c.add("U1", "a replay gives the same winners", difference == nil && played.Status == "completed" && len(stored) > 0, "%s", finding)
	return c.balances(ctx, played)
}

// balances compares every balance with the replay's, and each payment with its transfer.
func (c *check) balances(ctx context.Context, played *replay.Outcome) error {
	a := &c.result.Auction
	rows, err := c.tx.Query(ctx, `SELECT id, available, held FROM accounts WHERE id = ANY($1)`, append([]string{c.seller()}, a.bots...))
	if err != nil {
		return err
	}
	stored := map[string]replay.Balance{}
	var id string
	var b replay.Balance
	if _, err := pgx.ForEachRow(rows, []any{&id, &b.Available, &b.Held}, func() error { stored[id] = b; return nil }); err != nil {
		return err
	}
	var paid, winners, exact int64
	err = c.tx.QueryRow(ctx, `
		SELECT coalesce(sum(w.amount), 0)::bigint, count(*), count(*) FILTER (WHERE t.status = 'completed' AND t.source = w.account
			AND t.destination = $2 AND t.amount = w.amount)
		FROM auction_winners w LEFT JOIN transfers t ON t.id = w.transfer WHERE w.auction = $1`, a.ID, c.seller()).Scan(&paid, &winners, &exact)
	if err != nil {
		return err
	}
	difference := played.CompareAccounts(stored)
	finding := fmt.Sprintf("%d accounts to the cent", len(stored))
	if difference != nil {
		finding = difference.Error()
	}
	c.add("U1", "a replay gives the same balances", difference == nil, "%s", finding)
	c.add("U1", "winners paid the seller exactly", winners > 0 && exact == winners && paid == played.Income && paid == stored[c.seller()].Available,
		"%d of %d, %s", exact, winners, money(paid))
	return nil
}

// refunds wants nothing to be held at the end.
func (c *check) refunds(ctx context.Context) error {
	a := &c.result.Auction
	var held, open, captured, released, active int64
	err := c.tx.QueryRow(ctx, `
		SELECT (SELECT coalesce(sum(held), 0)::bigint FROM accounts WHERE id = ANY($2)), count(*) FILTER (WHERE status = 'open'),
			count(*) FILTER (WHERE status = 'captured'), count(*) FILTER (WHERE status = 'released'),
			(SELECT count(*) FROM auction_standing WHERE auction = $3 AND active)
		FROM holds WHERE owner = $1`, "auction:"+a.ID, a.bots, a.ID).Scan(&held, &open, &captured, &released, &active)
	if err != nil {
		return err
	}
	winners := 0
	for _, r := range a.Rounds {
		winners += len(r.Winners)
	}
	back := held == 0 && open == 0 && active == 0 && released == int64(a.Losers) && released > 0 && captured == int64(winners)
	c.add("U1", "the last losers have all back", back, "%d released, %s held", released, money(held))
	return nil
}

// inTime wants every bid within its round, and no amount or account to have been served twice in the storms.
func (c *check) inTime(ctx context.Context) error {
	a := &c.result.Auction
	var bids, late, extensions, same, twin int
	err := c.tx.QueryRow(ctx, `
		SELECT count(*), count(*) FILTER (WHERE r.round IS NULL OR b.at < r.started_at OR b.at >= r.ends_at),
			(SELECT coalesce(sum(extensions), 0) FROM auction_rounds WHERE auction = $1),
			count(*) FILTER (WHERE b.amount = $2), count(*) FILTER (WHERE b.amount = $3)
		FROM auction_bids b LEFT JOIN auction_rounds r ON r.auction = b.auction AND r.round = b.round
		WHERE b.auction = $1`, a.ID, demoStormAmount, demoTwinAmount).Scan(&bids, &late, &extensions, &same, &twin)
	if err != nil {
		return err
	}
	c.add("U1", "no bid at or past its round's end", bids > 0 && late == 0, "%d bids, %d late, %d extensions", bids, late, extensions)
	once := same == 1 && a.OneAmount[accepted] == 1 && a.OneAmount["amount_taken"] == demoStorm-1
	c.add("U1", "one bid an amount, ten at once", once, "%d taken, %d refused", same, a.OneAmount["amount_taken"])
	refused := a.OneAccount["cooldown"] + a.OneAccount["bid_too_low"]
	c.add("U1", "one bid an account, ten at once", twin == 1 && a.OneAccount[accepted] == 1 && refused == demoStorm-1,
		"%d taken, %d refused", twin, refused)
	return nil
}

// acknowledgedBids compares the success that each bidder saw with the history.
func (c *check) acknowledgedBids(ctx context.Context) error {
	a := &c.result.Auction
	rows, err := c.tx.Query(ctx, `SELECT seq, account, amount, previous_amount, round, rank FROM auction_bids WHERE auction = $1`, a.ID)
	if err != nil {
		return err
	}
	stored := map[int64]client.Bid{}
	b := client.Bid{Auction: a.ID}
	if _, err := pgx.ForEachRow(rows, []any{&b.Seq, &b.Account, &b.Amount, &b.PreviousAmount, &b.Round, &b.Rank}, func() error {
		stored[b.Seq] = b
		return nil
	}); err != nil {
		return err
	}
	present := 0
	for _, told := range a.told {
		told.RoundEndsAt = b.RoundEndsAt // Is not in the history; the replay knows it.
		if stored[told.Seq] == told {
			present++
		}
	}
	c.add("A1", "every acknowledged bid is there", present > 0 && present == len(a.told) && present == len(stored), "%d of %d", present, len(a.told))
	return nil
}

// snapshots tells of the books while the bots were bidding.
func (c *check) snapshots(context.Context) error {
	a := &c.result.Auction
	c.add("A2", "the books add up while they bid", a.Snapshots > 0 && a.SnapshotsOff == 0 && a.Integrity,
		"%d snapshots, %d off", a.Snapshots, a.SnapshotsOff)
	return nil
}
