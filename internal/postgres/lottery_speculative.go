package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/postgres/turns"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// A campaign is as it is remembered where it has that version and as many sales, and the latest of them is the remembered one. The version
// alone would say so, but for a failover to a server that lacks the last commits: there a version may come again with other sales, but
// not the id of a sale. newestCampaign finds its chapter, as [newestAuction] does. Where a server of before step 42 made the latest sale, the column has an earlier one: the batch is decided anew under
// locks. To look the sale up would open all partitions of the purchases. The concatenation keeps the planner from the index of statuses.
const sameCampaign = `c.id = ANY (ARRAY[n.id]) AND c.chapter = n.chapter AND c.version = n.old_version AND c.sold_positions = n.old_sold AND c.status || '' = 'active'
	AND c.last_sale IS NOT DISTINCT FROM n.last`

const (
	// gateCampaigns is gateCampaign for several. Those of one statement are taken in order, so that two servers which sell several campaigns in
	// one transaction each wait for each other in one direction only.
	gateCampaigns = `SELECT pg_advisory_xact_lock(class, key) FROM (
		SELECT class, hashtext(id) AS key FROM unnest($1::integer[], $2::text[]) AS n (class, id) ORDER BY key) AS gates`
	newestCampaign = newestBefore + `campaigns WHERE id = n.id` + newestBehind
	// sellCampaigns is updateCampaign for what sales change.
	sellCampaigns = `WITH written AS (
		UPDATE campaigns AS c SET sold_positions = n.sold, version = n.version, last_sale = n.new_last, chapter = n.version >> 4
		FROM (SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::uuid[], $5::integer[], $6::bigint[], $7::uuid[])
			AS n (id, old_version, old_sold, last, sold, version, new_last)` + newestCampaign + `
		WHERE ` + sameCampaign + ` RETURNING 1
	) SELECT 1 / (count(*) = $8::bigint)::integer FROM written`
	guardCampaigns = `SELECT 1 / (count(*) = $5::bigint)::integer
		FROM (SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::uuid[]) AS n (id, old_version, old_sold, last)` + newestCampaign + ` JOIN campaigns AS c ON ` + sameCampaign
)

// commitSpeculative decides on what is remembered and sends the writes as one transaction, which the next call may rest on
// before this one has ended: see [Ledger.commitSpeculative]. It sends nothing where the campaign's row must be locked first: for all that
// is no sale, and for a batch that may sell the last position, which is also the draw.
//
// Everything that a decision can rest on is checked by the statements: the campaign with all of its sales by its version, their number and
// the latest one's id; accounts and keys as for bids. Unique indexes of the sales stand behind that.
func (l *Lottery) commitSpeculative(ctx context.Context, id uuid.UUID, t *speculation.Entry[*knownInventory], want lottery.Want,
	turn *turns.Turn, random func(int) int, decide func(*lottery.Unit),
) error {
	switch {
	case len(want.Buyers) == 0 || !l.db.engine.Has(pgkit.AdvisoryLocks): // There are rows instead, which can't be gathered.
		return speculation.NotSent(speculation.Command, nil)
	case turn.IsFirst():
		return speculation.NotSent(speculation.Turn, nil)
	}
	if l.db.spec.Keys.Any([]idempotency.ID{soldOutKey(id)}) {
		return speculation.NotSent(speculation.Closing, nil)
	}
	if err := l.memory.Look(t, func(k *knownInventory) error { return k.mayOnlySell(want) }); err != nil {
		return err
	}
	accounts := append(slices.Clone(want.Buyers), lottery.EscrowOf(id))
	slices.Sort(accounts)
	accounts = slices.Compact(accounts)
	var (
		known *knownInventory // once the transaction is sent
		sent  speculation.Sent
	)
	err := l.db.spec.Commit(ctx, l.db.spec.Pipeline(int(id[len(id)-1])),
		speculation.Want{Place: crashpoint.LotteryBeforeCommit, Target: id.String(), Accounts: accounts, Keys: want.Keys, Doubt: turn != nil},
		func(b *pgx.Batch, on speculation.Scene) error {
			k, err := l.memory.Take(t, turn != nil)
			if err != nil {
				return err
			}
			if err := k.mayOnlySell(want); err != nil {
				l.memory.PutBack(t, k)
				return err
			}
			sent.Undo = l.sellSpeculatively(b, k, random, on, decide)
			known = k
			l.memory.Sent(t, k, &sent)
			return nil
		})
	if known != nil {
		l.memory.Ended(t, known, &sent, err)
	}
	return err
}

// soldOutKey is how a campaign that was lately found to be sold out is remembered among the keys. No key has an empty method.
func soldOutKey(id uuid.UUID) idempotency.ID {
	return idempotency.NewID("", "", "", "sold out "+id.String())
}

// mayOnlySell refuses a batch that may do more than sell, or sells in a campaign that is not open.
func (k *knownInventory) mayOnlySell(want lottery.Want) error {
	need := want.Plan(k.campaign, k.Inventory)
	switch {
	case k.campaign.Status != lottery.StatusActive:
		return speculation.NotSent(speculation.Refusal, nil)
	case need.Result, need.Reread:
		return speculation.NotSent(speculation.Closing, nil)
	}
	return nil
}

// sellSpeculatively decides on what is remembered and queues the writes. It returns what takes the sales back.
func (l *Lottery) sellSpeculatively(b *pgx.Batch, known *knownInventory, random func(int) int, on speculation.Scene, decide func(*lottery.Unit)) (undo func()) {
	c, book := known.campaign, on.Book
	was, sold, last, since := c.Version, c.SoldPositions, known.last, known.at
	u := &lottery.Unit{State: known.state(c, random), Keys: idempotency.NewBatch(nil)}
	u.State.Book = book
	decide(u)
	known.sold(u.State)

	b.Queue(gateCampaigns, []int{campaignLockClass}, []string{c.ID.String()})
	ids, versions, counts, lasts := [][16]byte{c.ID}, []int64{was}, []int{sold}, []*[16]byte{nil}
	if sold > 0 {
		lasts[0] = (*[16]byte)(&last)
	}
	if u.State.Changed {
		b.Queue(sellCampaigns, ids, versions, counts, lasts, []int{c.SoldPositions}, []int64{c.Version}, [][16]byte{known.last}, 1)
	} else {
		b.Queue(guardCampaigns, ids, versions, counts, lasts, 1)
	}
	guardUnchanged(b, book, on.Absent)
	guardMisses(b, u.Keys.Misses())
	saveBook(b, book.Changes(), guardedWrites)
	savePurchases(b, u.State, guardedWrites)
	saveKeys(b, u.Keys.Fresh(), book.Now(), guardedWrites)
	l.db.spec.Keys.Note(u.Keys.Fresh())
	purchases := u.State.Purchases
	return func() { known.undo(purchases, was, last, since) }
}

// undo takes the latest sales back, before which the campaign had this version and this latest sale. What a transaction without sales was decided
// on may have been sold from since.
func (k *knownInventory) undo(purchases []lottery.Purchase, version int64, last uuid.UUID, at time.Time) {
	if len(purchases) == 0 {
		return
	}
	for _, p := range slices.Backward(purchases) {
		k.Unsell(p.Position.Layer, p.Position.Ordinal)
		k.campaign.Layers[p.Position.Layer-1].Sold--
	}
	k.campaign.SoldPositions -= len(purchases)
	k.campaign.Version, k.last, k.at = version, last, at
}
