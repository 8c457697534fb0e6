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
	AuctionBeforeCommit  = "auction.before_commit"  // everything written, COMMIT not yet sent
	AuctionAfterCommit   = "auction.after_commit"   // committed, no caller answered yet
	AuctionSettle        = "auction.settle"         // the money of a round is moved, the round is not yet closed
)
