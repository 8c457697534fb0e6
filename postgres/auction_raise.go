package postgres

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/auction"
	"github.com/fairlead-dev/fairlead/ledger"
)

// raiseBids writes a batch of raises whole: of each the account's balances, the hold, the standing bid and the history. It is one
// statement in place of four, with a third of their values, because what a statement takes to begin and what an array takes
// to be unfolded is, in a batch of thirty bids, a third of all that the database does.
//
// Each step works on the rows that the one before has written, so a row that is not as it was remembered is missing at the
// end. That also keeps the order of locks: no hold is written before its account, and the accounts come in order of their ids.
// A version may come again after a failover to a server that lacks the last commits, so the amounts are looked at, too.
const raiseBids = `WITH paid AS (
		UPDATE accounts AS a SET available = a.available - (n.amount - n.previous), held = a.held + (n.amount - n.previous), version = a.version + 1
		FROM unnest($5::text[], $6::bigint[], $7::bigint[], $8::uuid[], $9::bigint[], $10::bigint[], $11::bigint[], $12::integer[])
			AS n (account, available, version, hold, amount, previous, seq, rank)
		WHERE a.id = n.account AND a.version = n.version AND a.available = n.available
		RETURNING n.account, n.hold, n.amount, n.previous, n.seq, n.rank
	), frozen AS (
		UPDATE holds AS h SET amount = n.amount FROM paid AS n
		WHERE h.id = n.hold AND h.status = 'open' AND h.amount = n.previous
		RETURNING n.account, n.hold, n.amount, n.previous, n.seq, n.rank
	), raised AS (
		UPDATE auction_standing AS s SET amount = n.amount, unique_amount = CASE WHEN $2 THEN n.amount END, round = $3::bigint, seq = n.seq, at = $4
		FROM frozen AS n
		WHERE s.auction = $1 AND s.account = n.account AND s.active AND s.hold = n.hold AND s.amount = n.previous
		RETURNING n.account, n.hold, n.amount, n.previous, n.seq, n.rank
	), placed AS (
		INSERT INTO auction_bids (auction, seq, account, amount, previous_amount, round, rank, at, hold)
		SELECT $1, seq, account, amount, previous, $3, rank, $4, hold FROM raised RETURNING 1
	) SELECT 1 / (count(*) = $13::bigint)::integer FROM placed`

// queueRaises queues the writes of transactions that do nothing but raise bids, each of another account; of others it
// queues none, and reports false. An account that raises twice in one batch, or bids for the first time, makes it another.
func queueRaises(b *pgx.Batch, st *auction.State, c *ledger.Changes) bool {
	added, raised, removed := st.StandingChanges()
	n := len(st.Placed)
	switch {
	case n == 0, len(added)+len(removed) > 0, len(raised) != n, len(c.UpdatedHolds) != n, len(c.UpdatedAccounts) != n,
		len(c.CreatedHolds)+len(c.CreatedAccounts)+len(c.Transfers) > 0, len(st.Events) != n:
		return false
	}
	placed := make([]*auction.Placed, n)
	for i := range st.Placed {
		placed[i] = &st.Placed[i]
	}
	slices.SortFunc(placed, func(x, y *auction.Placed) int { return strings.Compare(x.Account, y.Account) })
	slices.SortFunc(c.UpdatedAccounts, func(x, y ledger.AccountChange) int { return strings.Compare(x.ID, y.ID) })
	accounts, available, versions, holds := make([]string, n), make([]int64, n), make([]int64, n), make([][16]byte, n)
	amounts, previous, seqs, ranks := make([]int64, n), make([]int64, n), make([]int64, n), make([]int, n)
	first := placed[0]
	for i, p := range placed {
		account := &c.UpdatedAccounts[i]
		before, more := &account.Before, p.Amount-p.PreviousAmount
		if account.ID != p.Account || p.PreviousAmount == 0 || p.Round != first.Round || !p.At.Equal(first.At) ||
			account.Available != before.Available-more || account.Held != before.Held+more || account.Version != before.Version+1 {
			return false
		}
		accounts[i], available[i], versions[i], holds[i] = p.Account, before.Available, before.Version, p.Hold
		amounts[i], previous[i], seqs[i], ranks[i] = p.Amount, p.PreviousAmount, p.Seq, p.Rank
	}
	b.Queue(raiseBids, st.Auction.ID, st.Auction.UniqueAmounts, first.Round, first.At,
		accounts, available, versions, holds, amounts, previous, seqs, ranks, n)
	return true
}
