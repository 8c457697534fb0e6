package client

import "github.com/fairlead-dev/fairlead/client/api"

// The documents of the contract, as docs/openapi.json describes them.
type (
	// Account is a ledger account with its balance, in minor units.
	Account = api.Account
	// CreateAccountRequest opens an account.
	CreateAccountRequest = api.CreateAccountRequest
	// Entry is one line of an account's history.
	Entry = api.Entry
	// MovementRequest is a deposit or a withdrawal to be made.
	MovementRequest = api.MovementRequest
	// Movement is a deposit or a withdrawal that was made.
	Movement = api.Movement
	// TransferRequest is a transfer to be made.
	TransferRequest = api.TransferRequest
	// Transfer is the intent and the outcome of a transfer.
	Transfer = api.Transfer
	// HoldRequest is money to be set aside.
	HoldRequest = api.HoldRequest
	// CaptureRequest says who gets what of a hold.
	CaptureRequest = api.CaptureRequest
	// Hold is money set aside.
	Hold = api.Hold
	// Integrity is the ledger recomputed from its entries.
	Integrity = api.Integrity

	// CreateCampaignRequest describes a campaign to be made.
	CreateCampaignRequest = api.CreateCampaignRequest
	// LayerRequest is an explicit layer of a campaign to be made.
	LayerRequest = api.LayerRequest
	// PrizeRequest is a prize of a campaign to be made.
	PrizeRequest = api.PrizeRequest
	// Campaign is a campaign in full.
	Campaign = api.Campaign
	// CampaignSummary is a campaign in a list.
	CampaignSummary = api.CampaignSummary
	// Statistics are what a campaign's sales add up to.
	Statistics = api.Statistics
	// PurchaseRequest names who buys, and in which layer.
	PurchaseRequest = api.PurchaseRequest
	// Purchase is a sold position and its buyer.
	Purchase = api.Purchase
	// Position is a position, sold or available.
	Position = api.Position
	// Draw is the one selection of a campaign's winners.
	Draw = api.Draw
	// Winner is one winner of a draw.
	Winner = api.Winner

	// CreateAuctionRequest describes an auction to be made.
	CreateAuctionRequest = api.CreateAuctionRequest
	// RoundRequest is a round of an auction to be made.
	RoundRequest = api.RoundRequest
	// AntiSnipeRequest says when late bids extend the rounds of an auction to be made.
	AntiSnipeRequest = api.AntiSnipeRequest
	// Auction is an auction in full.
	Auction = api.Auction
	// AuctionSummary is an auction in a list.
	AuctionSummary = api.AuctionSummary
	// Round is a round of an auction.
	Round = api.Round
	// BidRequest names who bids, and how much in all.
	BidRequest = api.BidRequest
	// Bid is a bid as its bidder is told of it.
	Bid = api.Bid
	// PlacedBid is an accepted bid in an auction's history.
	PlacedBid = api.PlacedBid
	// Rank is a place on the leaderboard.
	Rank = api.Rank
	// AuctionWinner is a bid that won a round.
	AuctionWinner = api.AuctionWinner

	// CreateTargetRequest describes a target to be made.
	CreateTargetRequest = api.CreateTargetRequest
	// TargetConfig is what can be said of a target beside its URL.
	TargetConfig = api.TargetConfig
	// MadeTarget is a target with its signing secret.
	MadeTarget = api.MadeTarget
	// Target is where publications go.
	Target = api.Target
	// RotateSecretRequest says for how long the old secret signs too.
	RotateSecretRequest = api.RotateRequest
	// CredentialsRequest holds what another server has given to ours.
	CredentialsRequest = api.CredentialsRequest
	// AutomationRequest describes an automation to be made.
	AutomationRequest = api.AutomationRequest
	// Automation is a rule that schedules drafts.
	Automation = api.Automation
	// Firing is one time that an automation fired.
	Firing = api.Firing
	// PublicationRequest describes a publication to be made.
	PublicationRequest = api.PublicationRequest
	// ScheduleRequest says when a publication is due.
	ScheduleRequest = api.ScheduleRequest
	// Publication is one thing to be published once.
	Publication = api.Publication
	// Attempt is one attempt to publish.
	Attempt = api.Attempt

	// LockRequest names what to lock, for whom, and for how long.
	LockRequest = api.LockRequest
	// RenewLockRequest says how long a lock is to last from now on.
	RenewLockRequest = api.RenewLockRequest
	// Lock is a lock that was granted, with its fencing tokens.
	Lock = api.Lock
	// Locks are who holds, who waits, and for whom.
	Locks = api.Locks
	// LockEdge says that one owner waits for another.
	LockEdge = api.LockEdge
	// DatabaseWaits are the sessions of the database that wait for PostgreSQL's own locks.
	DatabaseWaits = api.DatabaseWaits

	// CreateKeyRequest registers an API key by the hash of its secret.
	CreateKeyRequest = api.CreateKeyRequest
	// APIKey is a registered API key; its secret is nowhere.
	APIKey = api.Key
)
