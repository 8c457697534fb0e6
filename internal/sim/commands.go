package sim

import "github.com/fairlead-dev/fairlead/client"

// NewAccount makes the command that opens an account.
func NewAccount(key, id, currency string) *Op {
	return NewOp(KindAccount, "/v1/accounts", key, client.CreateAccountRequest{ID: id, Currency: currency})
}

// NewDeposit makes the command that deposits money.
func NewDeposit(key, account string, amount int64) *Op {
	return NewOp(KindDeposit, "/v1/deposits", key, client.MovementRequest{Account: account, Amount: amount})
}

// NewTransfer makes the command that moves money between two accounts.
func NewTransfer(key, from, to string, amount int64) *Op {
	return NewOp(KindTransfer, "/v1/transfers", key, client.TransferRequest{From: from, To: to, Amount: amount})
}

// NewLegs makes the command that moves money by several legs.
func NewLegs(key string, legs ...client.LegRequest) *Op {
	return NewOp(KindLegs, "/v1/transfers", key, client.TransferRequest{Legs: legs})
}

// NewHold makes the command that sets money aside.
func NewHold(key, account string, amount int64) *Op {
	return NewOp(KindHold, "/v1/holds", key, client.HoldRequest{Account: account, Amount: amount})
}

// NewCancel makes the command that cancels a campaign.
func NewCancel(key, campaign string) *Op {
	return NewOp(KindCancel, "/v1/campaigns/"+campaign+"/cancel", key, nil)
}

// NewPurchase makes the command that buys a position of a layer, or of any when layer is 0.
func NewPurchase(key, campaign, account string, layer int64) *Op {
	return NewOp(KindPurchase, "/v1/campaigns/"+campaign+"/purchases", key, client.PurchaseRequest{Account: account, Layer: layer})
}

// NewBid makes the command that bids, or raises a bid.
func NewBid(key, auction, account string, amount int64) *Op {
	return NewOp(KindBid, "/v1/auctions/"+auction+"/bids", key, client.BidRequest{Account: account, Amount: amount})
}
