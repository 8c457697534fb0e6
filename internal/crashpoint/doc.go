// Package crashpoint names the places at which a process must be able to die without harm.
//
// A binary built with the tag crashpoints kills itself with SIGKILL when it reaches the place that the environment
// variable FAIRLEAD_CRASH_AT names ("lottery.draw", or "lottery.draw:3" for the third time it is reached). In every
// other build [Hit] is empty. The fault-injection tests walk through all names.
package crashpoint

// The named places.
const (
	LedgerBeforeCommit   = "ledger.before_commit"   // everything written, COMMIT not yet sent
	LedgerAfterCommit    = "ledger.after_commit"    // committed, no caller answered yet
	LotteryBeforeCommit  = "lottery.before_commit"  // everything written, COMMIT not yet sent
	LotteryAfterCommit   = "lottery.after_commit"   // committed, no caller answered yet
	LotteryDraw          = "lottery.draw"           // the draw is computed, its rows are not yet written
	LotteryCancelRefunds = "lottery.cancel_refunds" // the refunds are written, the campaign is not yet cancelled
	LotterySealed        = "lottery.sealed"         // a campaign is sealed and its round named, not announced yet
	LotteryRound         = "lottery.round"          // the beacon's round is there and verified, the draw not begun
	LotteryRoundDrawn    = "lottery.round_drawn"    // a draw from a beacon's round is committed
	AuctionBeforeCommit  = "auction.before_commit"  // everything written, COMMIT not yet sent
	AuctionAfterCommit   = "auction.after_commit"   // committed, no caller answered yet
	PublishClaimed       = "publish.claimed"        // the claim is committed, nothing is sent yet
	PublishSent          = "publish.sent"           // the target has answered, nothing is written yet
	PublishMarked        = "publish.marked"         // the result is written, COMMIT not yet sent
	SubscriptionSent     = "subscription.sent"      // the target has an event, its place is not moved yet
	AuctionSettle        = "auction.settle"         // the money of a round is moved, the round is not yet closed
	// Of a transfer between ledgers. Legs have numbers from 0 in the order in which they are executed or prepared.
	CrossIntent    = "cross.intent"    // the intent is committed, nothing is done yet
	CrossDebited   = "cross.debited"   // the first leg is done, the log does not say so
	CrossCredited  = "cross.credited"  // the second leg is done, likewise
	CrossUndone    = "cross.undone"    // the first leg is undone, likewise
	CrossPrepared  = "cross.prepared"  // the first leg is prepared
	CrossReady     = "cross.ready"     // both legs are prepared, nothing is decided
	CrossDecided   = "cross.decided"   // the decision is logged, nothing is committed
	CrossCommitted = "cross.committed" // the first leg is committed
	CrossUnlogged  = "cross.unlogged"  // both legs are committed, the log does not say so
	// Of a multi-draw, with each of its checkpoints.
	MultidrawBeforeCheckpoint = "multidraw.before_checkpoint" // the draws are written, COMMIT not yet sent
	MultidrawAfterCheckpoint  = "multidraw.after_checkpoint"  // committed, not announced yet
	// Of the public log.
	LogAppend   = "log.append"   // leaves are made, nothing is written yet
	LogAppended = "log.appended" // they are committed, no checkpoint is signed yet
	LogSigned   = "log.signed"   // a checkpoint is signed and noted, nobody has it yet
	LogSeen     = "log.seen"     // witnesses have it, it is not published yet
	// Of the closings of the books, and of recounts.
	BooksClosed  = "books.closed"  // a part of the new entries is counted, for a closing or a check
	BooksBegun   = "books.begun"   // a recount has begun
	BooksCounted = "books.counted" // a part of the entries is counted, which is not written yet
	BooksSaved   = "books.saved"   // it is written
	// Of archives of the history.
	ArchiveSealed   = "archive.sealed"   // its partitions take no rows any more
	ArchiveCopied   = "archive.copied"   // one of them is in a file
	ArchiveCarried  = "archive.carried"  // some of its entries are added up
	ArchiveDetached = "archive.detached" // it has left the tables, and is not dropped yet
	// Of the turns of the table of holds.
	HoldsTurned = "holds.turned" // a new table has taken its place
	HoldsMoved  = "holds.moved"  // some open holds are in the new one
	// Of the slots of idempotency keys.
	KeysTurn  = "keys.turn"  // the other slot is noted as the one that is written, COMMIT not yet sent
	KeysEmpty = "keys.empty" // a slot is truncated, COMMIT not yet sent
)

// Names are all places, in the order above.
func Names() []string {
	return []string{
		LedgerBeforeCommit, LedgerAfterCommit, LotteryBeforeCommit, LotteryAfterCommit, LotteryDraw, LotteryCancelRefunds, LotterySealed,
		LotteryRound, LotteryRoundDrawn, AuctionBeforeCommit, AuctionAfterCommit, PublishClaimed, PublishSent, PublishMarked,
		SubscriptionSent, AuctionSettle, CrossIntent, CrossDebited, CrossCredited, CrossUndone, CrossPrepared, CrossReady, CrossDecided,
		CrossCommitted, CrossUnlogged, MultidrawBeforeCheckpoint, MultidrawAfterCheckpoint, LogAppend, LogAppended, LogSigned, LogSeen,
		BooksClosed, BooksBegun, BooksCounted, BooksSaved, ArchiveSealed, ArchiveCopied, ArchiveCarried, ArchiveDetached, HoldsTurned, HoldsMoved,
		KeysTurn, KeysEmpty,
	}
}
