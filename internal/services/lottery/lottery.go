package lottery

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Limits of a campaign.
const (
	// MaxBaseLength makes a triangle of 500,500 positions.
	MaxBaseLength = 1000
	MaxLayers     = 1000 // the largest number of explicit layers
	// MaxPositions is the most positions of a campaign: its draw, and its cancellation, are one transaction each.
	MaxPositions = 1_000_000
	MaxPrizes    = 1000    // the most kinds of prizes of a campaign
	MaxWinners   = 100_000 // the most that the quantities of a campaign's prizes may sum to
)

// Status is the state of a campaign.
type Status string

// The states of a campaign; completed and cancelled are final.
const (
	StatusPending   Status = "pending"
	StatusActive    Status = "active"
	StatusDrawing   Status = "drawing"
	StatusCompleted Status = "completed"
	StatusCancelled Status = "cancelled"
)

// Topic is the name of a campaign in the live stream.
func Topic(id uuid.UUID) string { return "campaign:" + id.String() }

// The modes of drawing.
const (
	DrawInstant = "instant" // the mode in which the last sale's transaction draws
	// DrawBeacon is the mode in which the last sale's transaction seals what was sold and names a round of a public beacon
	// that is still unknown; the draw follows when the round is published.
	DrawBeacon = "beacon"
)

// Campaign is a campaign with its layers and prizes. Prices are minor units.
type Campaign struct {
	ID             uuid.UUID
	Number         int64 // the order of lists
	Name           string
	Status         Status
	DrawMode       string
	BaseLength     *int // of a triangle; nil with explicit layers
	Currency       string
	Price          *int64 // of positions whose layer has no price of its own
	Beneficiary    string
	Escrow         string // the account that keeps the money until the campaign ends
	PurchaseLimit  *int   // positions an account may buy; nil: any number
	TotalPositions int
	SoldPositions  int
	Commitment     [32]byte // SHA-256 of the server seed
	Version        int64    // grows with each change
	CreatedAt      time.Time
	PublishedAt    *time.Time
	DrawStartedAt  *time.Time
	CompletedAt    *time.Time
	CancelledAt    *time.Time
	Witnesses      int     // of the log: how many must have seen the seal before its round, in beacon mode; 0: none
	Beacon         *Beacon // in beacon mode; nil otherwise, and in lists
	Layers         []Layer // in order; layer k is Layers[k-1]
	Prizes         []Prize
}

// Layer is a row of positions at one price.
type Layer struct {
	Positions int
	Sold      int
	Price     int64
	First     int // the ordinal of its first position
}

// Prize is won by quantity positions of its layer, or of any when Layer is 0.
type Prize struct {
	Name     string
	Layer    int
	Quantity int
}

// Purchase is a sold position.
type Purchase struct {
	ID       uuid.UUID
	Campaign uuid.UUID
	Seq      int // the number of the sale within the campaign, from 1
	Account  string
	Position Position
	Price    int64
	Transfer uuid.UUID
	At       time.Time
}

// Position is a place in a campaign.
type Position struct {
	ID      uuid.UUID
	Layer   int // from 1
	Number  int // within the layer, from 1
	Ordinal int // within the campaign, from 0
}

// Draw is a campaign's one result.
type Draw struct {
	Campaign    uuid.UUID
	Root        [32]byte // of the sealed positions
	Winners     []fairdraw.Winner
	CompletedAt time.Time
	Round       *fairdraw.Round // of the beacon, in beacon mode; nil otherwise
}

// Statistics are what a campaign's sales add up to. Amounts are minor units.
type Statistics struct {
	Buyers      int
	Revenue     int64 // the prices of everything sold, refunded or not
	FirstSaleAt *time.Time
	LastSaleAt  *time.Time
	LargestSold int // most positions bought by one account
}

// Draft reports whether the campaign was never published.
func (c *Campaign) Draft() bool { return c.PublishedAt == nil }

// Ended reports whether the campaign sells nothing any more, and its draw is made or its buyers have their money back.
func (c *Campaign) Ended() bool { return c.Status == StatusCompleted || c.Status == StatusCancelled }

// Position returns the position with the given ordinal.
func (c *Campaign) Position(ordinal int) Position {
	layer := sort.Search(len(c.Layers), func(i int) bool { return c.Layers[i].First > ordinal })
	return Position{ID: PositionID(c.ID, ordinal), Layer: layer, Number: ordinal - c.Layers[layer-1].First + 1, Ordinal: ordinal}
}

// PositionID is a position's identifier: a UUIDv7 with the campaign's time, its ordinal in the last four bytes, and between
// them a hash that binds the two. Positions therefore need no row to have an identity.
func PositionID(campaign uuid.UUID, ordinal int) uuid.UUID {
	var in [20]byte
	copy(in[:], campaign[:])
	binary.BigEndian.PutUint32(in[16:], uint32(ordinal)) //nolint:gosec // Ordinals are below MaxPositions.
	sum := sha256.Sum256(in[:])
	var id uuid.UUID
	copy(id[:6], campaign[:6])
	copy(id[6:12], sum[:])
	copy(id[12:], in[16:])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// FindPosition returns the position with the given identifier, or false when the campaign has none.
func (c *Campaign) FindPosition(id uuid.UUID) (Position, bool) {
	ordinal := int(binary.BigEndian.Uint32(id[12:]))
	if ordinal >= c.TotalPositions || PositionID(c.ID, ordinal) != id {
		return Position{}, false
	}
	return c.Position(ordinal), true
}

// Refusals. Each is a decision: nothing changed.
var (
	// ErrNotActive is returned when a position of a pending or cancelled campaign is bought.
	ErrNotActive = errors.New("the campaign is not active")
	// ErrSoldOut is returned when no position of the wanted layer, or of any, is left.
	ErrSoldOut = errors.New("no position is left")
	// ErrPurchaseLimit is returned when the account has bought as many positions as it may.
	ErrPurchaseLimit = errors.New("the account has reached the campaign's purchase limit")
	// ErrBadTransition is returned when the campaign's state does not allow the operation.
	ErrBadTransition = errors.New("the campaign's status does not allow this")
	// ErrNotSoldOut is returned when the draw of a campaign is asked for that is not sold out.
	ErrNotSoldOut = errors.New("the campaign is not sold out")
	// ErrNotDrawn is returned when the result of a campaign is read that was not drawn.
	ErrNotDrawn = errors.New("the campaign is not drawn")
	// ErrTooManyPrizes is returned when a prize's quantity exceeds the positions that can win it, or when the quantities
	// sum to more than [MaxWinners].
	ErrTooManyPrizes = errors.New("a prize's quantity exceeds the positions that can win it, or all of them together 100000")
)

// CampaignNotFoundError is returned when an operation names a campaign that does not exist.
type CampaignNotFoundError struct{ ID uuid.UUID }

func (e *CampaignNotFoundError) Error() string { return fmt.Sprintf("there is no campaign %s", e.ID) }

// SalesNotFoundError is returned when the sales of a campaign are read that were archived.
type SalesNotFoundError struct {
	Campaign uuid.UUID
	Archived time.Time // the purchases of campaigns of before were archived
}

func (e *SalesNotFoundError) Error() string {
	return ledger.NotFound("sale of campaign", e.Campaign, e.Archived)
}

// LayerNotFoundError is returned when an operation names a layer that the campaign does not have.
type LayerNotFoundError struct{ Layer int }

func (e *LayerNotFoundError) Error() string {
	return fmt.Sprintf("the campaign has no layer %d", e.Layer)
}

// PositionNotFoundError is returned when a position is asked for that the campaign does not have.
type PositionNotFoundError struct{ ID uuid.UUID }

func (e *PositionNotFoundError) Error() string {
	return fmt.Sprintf("the campaign has no position %s", e.ID)
}
