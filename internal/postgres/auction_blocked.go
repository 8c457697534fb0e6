package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// lockedStanding lists the accounts whose standing bid in an auction somebody else has locked. It goes through the auction's bids, and runs only after a wait in vain.
const lockedStanding = `WITH free AS (SELECT account FROM auction_standing WHERE auction = $1 AND account = ANY($2) AND active FOR NO KEY UPDATE SKIP LOCKED)
	SELECT account FROM auction_standing WHERE auction = $1 AND account = ANY($2) AND active EXCEPT TABLE free`

// standingID names an account's standing bid among blocked rows.
func standingID(auction uuid.UUID, account string) string { return auction.String() + "/" + account }

// findStanding returns which of the accounts' standing bids in an auction are known to be locked, and why they can't be had.
func (b *blockedRows) findStanding(auction uuid.UUID, accounts []string) map[string]*command.BlockedError {
	if rows, _ := b.count(); rows == 0 {
		return nil
	}
	locked := map[string]*command.BlockedError{}
	for _, account := range accounts {
		if reason := b.find(standingRow, standingID(auction, account)); reason != nil {
			locked[account] = reason
		}
	}
	return locked
}

// standing sets bidders aside whose standing bid somebody else has locked: those that are known, and, in a run after one that waited in vain, those that
// turn out to be. So the others' bids need not wait for that.
func (a *setAside) standing(ctx context.Context, tx pgx.Tx, book *ledger.Book, auction uuid.UUID, bidders []string) error {
	for account, reason := range a.rows.findStanding(auction, bidders) {
		book.SetAside(account, a.reason(reason))
	}
	if !a.skip || len(bidders) == 0 {
		return nil
	}
	locked, err := pgkit.Rows(ctx, tx, pgx.RowTo[string], lockedStanding, auction, bidders)
	for _, account := range locked {
		book.SetAside(account, a.add(standingRow, standingID(auction, account)))
	}
	return err
}
