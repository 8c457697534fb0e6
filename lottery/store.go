package lottery

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
)

// Unit is what one transaction works on. Exactly one of State and Creation is set.
type Unit struct {
	State    *State
	Creation *Creation
	Keys     *idempotency.Batch
	Audit    []command.Audit
}

// Store is what the service needs of a database. Both methods run one transaction, call decide with what it locked and
// loaded, write what decide changed, and commit; decide is called again with a new unit whenever the transaction has to
// be run again. Errors: command.ErrUnavailable, command.ErrUnknownOutcome, or what the database refused.
type Store interface {
	Reader
	// Create makes campaigns; the accounts are the beneficiaries'.
	Create(ctx context.Context, accounts []string, keys []idempotency.ID, decide func(*Unit)) error
	// Commit works on one campaign. It asks plan what else is needed once the campaign is locked and its inventory is
	// up to date. It returns [CampaignNotFoundError] when there is no such campaign.
	Commit(ctx context.Context, campaign uuid.UUID, keys []idempotency.ID, plan func(*Campaign, *Inventory) Need, decide func(*Unit)) error
}

// Reader answers questions about campaigns.
type Reader interface {
	// Campaign returns one campaign, or [CampaignNotFoundError].
	Campaign(ctx context.Context, id uuid.UUID) (*Campaign, error)
	// Campaigns returns up to limit campaigns with a number above after, in order, without layers and prizes.
	Campaigns(ctx context.Context, after int64, limit int) ([]Campaign, error)
	// Owners returns the owners of the positions with ordinals in [from, to), empty where a position is free.
	Owners(ctx context.Context, campaign uuid.UUID, from, to int) ([]string, error)
	// Purchases returns up to limit purchases with a sale number above after, in order; their Position has no ID.
	Purchases(ctx context.Context, campaign uuid.UUID, after, limit int) ([]Purchase, error)
	// Result returns the draw and, with it, the seed that it reveals. It returns [ErrNotDrawn] before.
	Result(ctx context.Context, campaign uuid.UUID) (*Draw, fairdraw.Seed, error)
	// Statistics sums up a campaign's sales.
	Statistics(ctx context.Context, campaign uuid.UUID) (Statistics, error)
	// Watch looks for what should not be: campaigns that are drawing for longer than stuckAfter, and broken invariants.
	Watch(ctx context.Context, stuckAfter time.Duration) (Watch, error)
}

// Watch is what the sweeper looks at.
type Watch struct {
	Stuck    []uuid.UUID // campaigns that are drawing for too long
	Oversold int         // campaigns with more purchases than positions
}
