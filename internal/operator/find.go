package operator

import (
	"math"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// Found is a thing that an operator looked for.
type Found struct {
	Kind   string // account, campaign, auction, transfer, …
	ID     string // of its page
	Title  string
	Status string // empty where it has none
}

// Position is where a campaign's position was found.
type Position struct {
	Campaign uuid.UUID
	Name     string // of the campaign
	Total    int    // its positions
}

// PublicationFilter narrows the list of publications. An error and a cause are those of failed ones; one of them at most is set.
type PublicationFilter struct {
	Status publish.Status
	Target string // its name
	Error  string
	Cause  publish.Cause
}

// EntryPlace is a place in an account's list of entries, newest first. All entries of the outside have version 0.
type EntryPlace struct {
	Version int64 // of the entry before the place
	ID      uuid.UUID
	Balance *int64 // of the account before that entry; nil at the newest, and in the accounts that have none
}

// NewestEntry is where the list begins.
func NewestEntry() EntryPlace { return EntryPlace{Version: math.MaxInt64, ID: uuid.Max} }

// Entry is an entry with what it belongs to.
type Entry struct {
	ledger.Entry

	Kind         string // of the transfer
	Counterparty string // the transfer's other account
	Balance      *int64 // of the account, available and held, after the entry; nil in the accounts that have none
}

// Place is the entry's place in the list.
func (e *Entry) Place() EntryPlace {
	p := EntryPlace{Version: e.Version, ID: e.ID}
	if e.Balance != nil {
		p.Balance = new(*e.Balance - e.Amount)
	}
	return p
}
