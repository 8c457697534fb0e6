package lottery

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
)

// Unit is what one transaction works on. Exactly one of State, Creation and Blocked is set.
type Unit struct {
	State    *State
	Creation *Creation
	// Blocked is why the campaign can't be worked on now. Every command that its key does not answer is refused with it.
	Blocked error
	Keys    *idempotency.Batch
	Waited  time.Duration // for the campaign's lock; 0: it was not taken
	Audit   []command.Audit
}

// Want is what a batch needs beside the campaign.
type Want struct {
	Keys []idempotency.ID
	// Buyers are the accounts of a batch that only sells; nil for another one.
	Buyers []string
	// Plan returns what else the batch needs, of a campaign in the given state.
	Plan func(*Campaign, *Inventory) Need
}

// Store is what the service needs of a database. Create and Commit run one transaction, call decide with what it locked and
// loaded, write what decide changed, and commit; decide is called again with a new unit whenever the transaction has to be
// run again. Errors: command.ErrUnavailable, command.ErrUnknownOutcome, or what the database refused.
type Store interface {
	Reader
	// Create makes campaigns; the accounts are the beneficiaries'.
	Create(ctx context.Context, accounts []string, keys []idempotency.ID, decide func(*Unit)) error
	// Await returns when it is time to take the next batch of commands on a campaign: other processes may take turns with this one. It protects
	// nothing, and waits for a fraction of a second at most. It reports whether it has waited, for a turn that begins now.
	Await(ctx context.Context, campaign uuid.UUID) (begun bool)
	// Commit works on one campaign. It returns [CampaignNotFoundError] when there is no such campaign. It may be called while an
	// earlier call for the same campaign has not returned.
	Commit(ctx context.Context, campaign uuid.UUID, want Want, decide func(*Unit)) error
	// ClaimRounds returns up to limit campaigns whose round is to be asked for now, the longest waiting first, and
	// schedules another attempt for each of them: at once when its round falls due, and afterwards with a growing delay.
	// One process at a time therefore asks for a campaign's round; correctness does not depend on that.
	ClaimRounds(ctx context.Context, limit int) ([]Wait, error)
	// RoundMissed notes that the round could not be had, and why, in one word.
	RoundMissed(ctx context.Context, campaign uuid.UUID, failure string) error
	// RoundEarly records that the round was published more than a second before it was due, if that is so by the database's
	// clock now, and reports whether it is.
	RoundEarly(ctx context.Context, campaign uuid.UUID) (early bool, err error)
}

// Reader answers questions about campaigns.
type Reader interface {
	// Campaign returns one campaign, or [CampaignNotFoundError].
	Campaign(ctx context.Context, id uuid.UUID) (*Campaign, error)
	// Campaigns returns up to limit campaigns with a number above after, in order, without layers and prizes; drafts only
	// when asked for.
	Campaigns(ctx context.Context, after int64, limit int, drafts bool) ([]Campaign, error)
	// Owners returns the owners of the positions with ordinals in [from, to), empty where a position is free. It returns [SalesNotFoundError] where the
	// sales are archived, as do the others that read a campaign's sales.
	Owners(ctx context.Context, campaign uuid.UUID, from, to int) ([]string, error)
	// Purchases returns up to limit purchases with a sale number above after, in order. With an account, it returns that account's
	// alone, and looks at every sale of the campaign to find them.
	Purchases(ctx context.Context, campaign uuid.UUID, account string, after, limit int) ([]Purchase, error)
	// AccountPurchases returns up to limit purchases of an account in all campaigns with an id below before, newest first. Archived ones are missing.
	AccountPurchases(ctx context.Context, account string, before uuid.UUID, limit int) ([]Purchase, error)
	// Result returns the draw and, with it, the seed that it reveals. It returns [ErrNotDrawn] before.
	Result(ctx context.Context, campaign uuid.UUID) (*Draw, fairdraw.Seed, error)
	// Statistics sums up a campaign's sales.
	Statistics(ctx context.Context, campaign uuid.UUID) (Statistics, error)
	// Watch looks for what should not be: campaigns that are drawing for longer than stuckAfter, and broken invariants.
	Watch(ctx context.Context, stuckAfter time.Duration) (Watch, error)
}

// Watch is what the sweeper looks at.
type Watch struct {
	Stuck      []uuid.UUID // campaigns that are drawing for too long
	Oversold   int         // campaigns with more purchases than positions
	Duplicates int         // how many campaigns have more than one result, or one that they should not have yet
	// Waiting is how many campaigns are sealed and wait for their round, and Overdue how long the longest of them has
	// waited since its round was due; 0 while none is.
	Waiting int
	Overdue time.Duration
}
