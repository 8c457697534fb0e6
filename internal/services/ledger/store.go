package ledger

import (
	"context"
	"math/big"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
)

// Want names what a transaction has to lock and load.
type Want struct {
	Accounts []string // in any order, repeats allowed
	Holds    []uuid.UUID
	Keys     []idempotency.ID
	// References are those of the commands, repeats allowed. The book gets the completed requests that have them.
	References []string
	// Parts are those that the commands work on, each once.
	Parts []Part
}

// Unit is what one transaction works on.
type Unit struct {
	Book *Book
	Keys *idempotency.Batch
	// Blocked is why nothing can be decided but by its key, nil in the usual case: there is no book then.
	Blocked error
	// Without has the parts whose tables somebody else has locked, and why: what works on them is not decided.
	Without map[Part]error
	// Refused is set by decide when it refused a command: its reasons were then read from accounts that it may have left
	// unchanged.
	Refused bool
	// Audit is for holds that an operator releases. What clients release leaves no such row.
	Audit []command.Audit
}

// Store is what the service needs of a database.
type Store interface {
	Reader
	// Await returns when it is time to take the next batch of commands: other processes may take turns with this one. It protects nothing, and
	// waits for a fraction of a second at most. It reports whether it has waited, for a turn that begins now.
	Await(ctx context.Context) (begun bool)
	// Commit runs one transaction: it locks and loads what is wanted (absent rows are simply not in the book), calls
	// decide, writes the book's changes and the fresh records, and commits. decide is called again, with a new unit,
	// whenever the transaction has to be run again. Errors: a command.BlockedError where somebody has locked a table, and decide
	// was called with the reason; command.ErrUnavailable, command.ErrUnknownOutcome, or what the database refused.
	Commit(ctx context.Context, want Want, decide func(*Unit)) error
	// ExpireHolds locks and loads up to limit open holds whose time is over by the database's clock, those first that have
	// been due for longest, with their accounts, calls decide with their ids, and commits the book's changes in one
	// transaction. It never waits: a hold that is locked, or whose account is locked, is left to a later call. It returns
	// how many it found. decide is called again when the transaction has to be run again.
	ExpireHolds(ctx context.Context, limit int, decide func(book *Book, due []uuid.UUID)) (int, error)
}

// Reader answers questions about the ledger, each from one snapshot.
type Reader interface {
	// Account returns one account, or [AccountNotFoundError].
	Account(ctx context.Context, id string) (Account, error)
	// Entries returns up to limit entries of an account with a version above after, in order.
	Entries(ctx context.Context, account string, after int64, limit int) ([]Entry, error)
	// Transfer returns one transfer, or [TransferNotFoundError]. The id of a leg's part is as good as the transfer's own.
	Transfer(ctx context.Context, id uuid.UUID) (Transfer, error)
	// Referenced returns the completed transfers with one of the references.
	Referenced(ctx context.Context, references ...string) ([]Referenced, error)
	// Hold returns one hold, or [HoldNotFoundError].
	Hold(ctx context.Context, id uuid.UUID) (Hold, error)
	// OpenHolds returns up to limit open holds of an account with an id below before, newest first.
	OpenHolds(ctx context.Context, account string, before uuid.UUID, limit int) ([]Hold, error)
	// Integrity holds all balances against the entries, in one snapshot: all entries, or those since a closing.
	Integrity(ctx context.Context) (Integrity, error)
}

// Integrity is the result of recomputing the ledger from its entries.
//
// Entries from before ClosedAt are those that the last closing has counted, and a change that was made in one of them since is found by
// the next recount. Where everything was counted, both times are CheckedAt.
type Integrity struct {
	Valid           bool
	Difference      *big.Int // Σ of the absolute differences of the currencies
	CheckedAt       time.Time
	Currencies      []CurrencyIntegrity // in order of currency
	FirstBadAccount string              // the first, by id, that disagrees with its entries or its holds; empty when none
	BadTransfers    int64               // transfers whose entries do not sum to zero, or are missing
	ClosedAt        time.Time           // when the last closing began
	RecountedAt     time.Time           // when the last recount of all entries began
}

// CurrencyIntegrity is one currency's sums, in minor units. Difference = deposits − withdrawals − available − held. An
// account fits 64 bits, the sum over all accounts need not.
type CurrencyIntegrity struct {
	Currency    string
	Deposits    *big.Int
	Withdrawals *big.Int
	Available   *big.Int
	Held        *big.Int
	Difference  *big.Int
}
