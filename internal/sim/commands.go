//go:build unix

package sim

// The bodies of requests and answers, as the interface documents them.

type accountBody struct {
	ID       string `json:"id"`
	Currency string `json:"currency"`
}

type moneyBody struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
}

type transferBody struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Amount int64  `json:"amount"`
}

type captureBody struct {
	To     string `json:"to"`
	Amount int64  `json:"amount,omitempty"`
}

type purchaseBody struct {
	Account string `json:"account"`
	Layer   int    `json:"layer,omitempty"`
}

// LayerSpec is one explicit layer of a campaign.
type LayerSpec struct {
	Positions int   `json:"positions"`
	Price     int64 `json:"price,omitempty"`
}

// PrizeSpec is one prize of a campaign.
type PrizeSpec struct {
	Name     string `json:"name"`
	Layer    int    `json:"layer,omitempty"`
	Quantity int    `json:"quantity"`
}

// CampaignSpec is the body that creates a campaign.
type CampaignSpec struct {
	Name          string      `json:"name"`
	BaseLength    int         `json:"base_length,omitempty"`
	Layers        []LayerSpec `json:"layers,omitempty"`
	Price         int64       `json:"price"`
	Currency      string      `json:"currency"`
	Beneficiary   string      `json:"beneficiary"`
	Prizes        []PrizeSpec `json:"prizes"`
	PurchaseLimit int         `json:"purchase_limit,omitempty"`
}

// Campaign is the part of a campaign that the tests look at.
type Campaign struct {
	ID             string `json:"id"`
	Status         string `json:"status"`
	TotalPositions int    `json:"total_positions"`
	SoldPositions  int    `json:"sold_positions"`
	Commitment     string `json:"commitment"`
}

// Purchase is the answer to a purchase.
type Purchase struct {
	ID       string `json:"id"`
	Campaign string `json:"campaign"`
	Account  string `json:"account"`
	Position struct {
		ID     string `json:"id"`
		Layer  int    `json:"layer"`
		Number int    `json:"number"`
	} `json:"position"`
	Price int64 `json:"price"`
}

// Hold is the answer to a hold, its capture and its release.
type Hold struct {
	ID       string `json:"id"`
	Account  string `json:"account"`
	Amount   int64  `json:"amount"`
	Captured int64  `json:"captured"`
	Status   string `json:"status"`
}

// NewAccount makes the command that opens an account.
func NewAccount(key, id, currency string) *Op {
	return NewOp(KindAccount, "/v1/accounts", key, accountBody{id, currency})
}

// NewDeposit makes the command that deposits money.
func NewDeposit(key, account string, amount int64) *Op {
	return NewOp(KindDeposit, "/v1/deposits", key, moneyBody{account, amount})
}

// NewWithdrawal makes the command that withdraws money.
func NewWithdrawal(key, account string, amount int64) *Op {
	return NewOp(KindWithdrawal, "/v1/withdrawals", key, moneyBody{account, amount})
}

// NewTransfer makes the command that moves money between two accounts.
func NewTransfer(key, from, to string, amount int64) *Op {
	return NewOp(KindTransfer, "/v1/transfers", key, transferBody{from, to, amount})
}

// NewHold makes the command that sets money aside.
func NewHold(key, account string, amount int64) *Op {
	return NewOp(KindHold, "/v1/holds", key, moneyBody{account, amount})
}

// NewCapture makes the command that pays a hold out; amount 0 takes all of it.
func NewCapture(key, hold, to string, amount int64) *Op {
	return NewOp(KindCapture, "/v1/holds/"+hold+"/capture", key, captureBody{to, amount})
}

// NewRelease makes the command that gives a hold back.
func NewRelease(key, hold string) *Op {
	return NewOp(KindRelease, "/v1/holds/"+hold+"/release", key, nil)
}

// NewCampaign makes the command that creates a campaign.
func NewCampaign(key string, spec CampaignSpec) *Op {
	return NewOp(KindCampaign, "/v1/campaigns", key, spec)
}

// NewPublish makes the command that puts a campaign on sale.
func NewPublish(key, campaign string) *Op {
	return NewOp(KindPublish, "/v1/campaigns/"+campaign+"/publish", key, nil)
}

// NewCancel makes the command that cancels a campaign.
func NewCancel(key, campaign string) *Op {
	return NewOp(KindCancel, "/v1/campaigns/"+campaign+"/cancel", key, nil)
}

// NewPurchase makes the command that buys a position of a layer, or of any when layer is 0.
func NewPurchase(key, campaign, account string, layer int) *Op {
	return NewOp(KindPurchase, "/v1/campaigns/"+campaign+"/purchases", key, purchaseBody{account, layer})
}
