package mcp

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/fairlead-dev/fairlead/client"
)

type accountInput struct {
	Account  id     `json:"account" jsonschema:"the new account's id, of your choice: letters, digits and . _ : @ -, up to 64"`
	Currency string `json:"currency" jsonschema:"its currency, such as EUR; it can't be changed later"`
}

type legInput struct {
	From   id     `json:"from" jsonschema:"the account that pays"`
	To     id     `json:"to" jsonschema:"the account that is paid"`
	Amount amount `json:"amount" jsonschema:"in minor units"`
}

type transferInput struct {
	From      id         `json:"from,omitzero" jsonschema:"the account that pays; leave it out with legs"`
	To        id         `json:"to,omitzero" jsonschema:"the account that is paid; leave it out with legs"`
	Amount    amount     `json:"amount,omitzero" jsonschema:"in minor units; leave it out with legs"`
	Legs      []legInput `json:"legs,omitzero" jsonschema:"in place of from, to and amount: up to 100 movements, done in this order, all or none"`
	Memo      string     `json:"memo,omitzero" jsonschema:"a note that is kept with it, up to 500 characters"`
	Reference string     `json:"reference,omitzero" jsonschema:"the caller's own name for this movement, such as an invoice number: unique for ever, so that it can't be done twice by way of another id either"`
}

type movementInput struct {
	Account   id     `json:"account" jsonschema:"the account"`
	Amount    amount `json:"amount" jsonschema:"in minor units"`
	Memo      string `json:"memo,omitzero" jsonschema:"a note that is kept with it, up to 500 characters"`
	Reference string `json:"reference,omitzero" jsonschema:"the caller's own name for this movement, such as a bank's transaction id: unique for ever, so that it can't be done twice by way of another id either"`
}

type holdInput struct {
	Account   id     `json:"account" jsonschema:"whose money is set aside"`
	Amount    amount `json:"amount" jsonschema:"in minor units"`
	ExpiresIn string `json:"expires_in,omitzero" jsonschema:"when it is released by itself, as a duration such as 30m; never when absent"`
}

type captureInput struct {
	Hold   id     `json:"hold" jsonschema:"the hold's id"`
	To     id     `json:"to" jsonschema:"the account that is paid"`
	Amount amount `json:"amount,omitzero" jsonschema:"in minor units: the rest is released. All of the hold when absent"`
}

type releaseInput struct {
	Hold id `json:"hold" jsonschema:"the hold's id"`
}

// addMoney adds the tools that prepare what moves money.
func (s *service) addMoney(b *builder) {
	addPrepare(s, b, "account", "Prepare a new account", "Prepares opening an account with nothing on it.", describeAccount)
	addPrepare(s, b, "transfer", "Prepare a transfer", "Prepares moving money between accounts of one currency: one movement, or several of which all are done or none.", describeTransfer)
	addPrepare(s, b, "deposit", "Prepare a deposit", "Prepares bringing money from the outside to an account.", describeDeposit)
	addPrepare(s, b, "withdrawal", "Prepare a withdrawal", "Prepares sending money of an account to the outside.", describeWithdrawal)
	addPrepare(s, b, "hold", "Prepare a hold", "Prepares setting money of an account aside, to be captured or released later.", describeHold)
	addPrepare(s, b, "capture", "Prepare the capture of a hold", "Prepares paying a hold to an account, wholly or in part; the rest is released.", describeCapture)
	addPrepare(s, b, "release", "Prepare the release of a hold", "Prepares giving a hold's money back to its account.", describeRelease)
}

const fundsDetail = "the payer spends too much of its money before"

func describeAccount(ctx context.Context, p *plan, in accountInput) error {
	p.summary = fmt.Sprintf("Open account %s in %s, with nothing on it.", in.Account, in.Currency)
	p.path, p.body = "/v1/accounts", client.CreateAccountRequest{ID: string(in.Account), Currency: in.Currency}
	p.may("account_exists", "somebody opens it before")
	switch a, err := p.s.client.GetAccount(ctx, string(in.Account)); {
	case err == nil:
		p.refuse("account_exists", "there is an account %s, in %s", a.ID, a.Currency)
	case client.CodeOf(err) != "not_found":
		return err
	}
	return nil
}

func describeTransfer(ctx context.Context, p *plan, in transferInput) error {
	q := client.TransferRequest{Memo: in.Memo, Reference: in.Reference}
	p.path = "/v1/transfers"
	p.may("insufficient_funds", fundsDetail)
	switch single := in.From != "" && in.To != "" && in.Amount != 0; {
	case len(in.Legs) > 100:
		return wrongArguments("there are %d legs, and 100 is the most", len(in.Legs))
	case len(in.Legs) > 0 && (in.From != "" || in.To != "" || in.Amount != 0):
		return wrongArguments("give legs, or from, to and amount, and not both")
	case len(in.Legs) == 0 && !single:
		return wrongArguments("give from, to and amount, or legs")
	case single:
		currency, err := p.move(ctx, string(in.From), string(in.To), int64(in.Amount))
		if err != nil {
			return err
		}
		q.From, q.To, q.Amount = string(in.From), string(in.To), int64(in.Amount)
		p.summary = fmt.Sprintf("%s pays %s %s.", in.From, in.To, money(q.Amount, currency))
	default:
		var words []string
		for _, leg := range in.Legs {
			currency, err := p.move(ctx, string(leg.From), string(leg.To), int64(leg.Amount))
			if err != nil {
				return err
			}
			q.Legs = append(q.Legs, client.LegRequest{From: string(leg.From), To: string(leg.To), Amount: int64(leg.Amount)})
			words = append(words, fmt.Sprintf("%s pays %s %s", leg.From, leg.To, money(int64(leg.Amount), currency)))
		}
		p.summary = "All of these or none, in this order: " + strings.Join(words, "; ") + "."
	}
	p.body = q
	return p.reference(ctx, in.Reference)
}

// reference looks whether something was done with a reference.
func (p *plan) reference(ctx context.Context, reference string) error {
	if reference == "" {
		return nil
	}
	p.may("reference_taken", "something else is done with the same reference before")
	found, err := get[struct {
		Items []client.Transfer `json:"items"`
	}](ctx, p.s, "/v1/transfers?reference="+url.QueryEscape(reference))
	switch {
	case client.CodeOf(err) == "forbidden":
		return nil
	case err != nil:
		return err
	}
	for _, t := range found.Items {
		p.note("%s %s has completed with this reference: %s from %s to %s. If it asks for the same, commit moves nothing and returns its answer; else it is refused with reference_taken.",
			t.Kind, t.ID, money(t.Amount, t.Currency), t.From, t.To)
	}
	return nil
}

func describeDeposit(ctx context.Context, p *plan, in movementInput) error {
	a, err := p.account(ctx, string(in.Account))
	if err != nil {
		return err
	}
	a.AvailableChange += int64(in.Amount)
	p.summary = fmt.Sprintf("Bring %s from the outside to %s.", money(int64(in.Amount), a.Currency), in.Account)
	p.path, p.body = "/v1/deposits", in.request()
	p.may("balance_overflow", "the account gets more than it can hold")
	return p.reference(ctx, in.Reference)
}

func describeWithdrawal(ctx context.Context, p *plan, in movementInput) error {
	a, err := p.account(ctx, string(in.Account))
	if err != nil {
		return err
	}
	p.spend(a, int64(in.Amount))
	p.summary = fmt.Sprintf("Send %s of %s to the outside.", money(int64(in.Amount), a.Currency), in.Account)
	p.path, p.body = "/v1/withdrawals", in.request()
	p.may("insufficient_funds", fundsDetail)
	return p.reference(ctx, in.Reference)
}

func (in movementInput) request() client.MovementRequest {
	return client.MovementRequest{Account: string(in.Account), Amount: int64(in.Amount), Memo: in.Memo, Reference: in.Reference}
}

func describeHold(ctx context.Context, p *plan, in holdInput) error {
	a, err := p.account(ctx, string(in.Account))
	if err != nil {
		return err
	}
	p.spend(a, int64(in.Amount))
	a.HeldChange += int64(in.Amount)
	p.summary = fmt.Sprintf("Set %s of %s aside until it is captured or released.", money(int64(in.Amount), a.Currency), in.Account)
	if in.ExpiresIn != "" {
		p.summary = fmt.Sprintf("Set %s of %s aside until it is captured or released, for %s at most.", money(int64(in.Amount), a.Currency), in.Account, in.ExpiresIn)
	}
	p.path, p.body = "/v1/holds", client.HoldRequest{Account: string(in.Account), Amount: int64(in.Amount), ExpiresIn: in.ExpiresIn}
	p.may("insufficient_funds", fundsDetail)
	return nil
}

// hold reads a hold and its account, and notes when it can be neither captured nor released.
func (p *plan) hold(ctx context.Context, name id) (*client.Hold, *accountSee, error) {
	h, err := p.s.client.GetHold(ctx, string(name))
	if err != nil {
		return nil, nil, err
	}
	a, err := p.account(ctx, h.Account)
	if err != nil {
		return nil, nil, err
	}
	p.needs("hold_closed", "the hold", string(h.Status), string(client.HoldStatusOpen))
	p.may("hold_closed", "it is captured or released, or expires, before", "hold_owned", "it belongs to an auction's bid, which only the auction can end")
	if !h.ExpiresAt.IsZero() {
		p.note("The hold expires at %s.", h.ExpiresAt.Format(timeFormat))
	}
	return h, a, nil
}

func describeCapture(ctx context.Context, p *plan, in captureInput) error {
	h, a, err := p.hold(ctx, in.Hold)
	if err != nil {
		return err
	}
	to, err := p.account(ctx, string(in.To))
	if err != nil {
		return err
	}
	q, paid := client.CaptureRequest{To: string(in.To)}, h.Amount
	if in.Amount != 0 {
		paid = int64(in.Amount)
		q.Amount = &paid
	}
	if paid > h.Amount {
		p.refuse("capture_too_large", "the hold has %d, and %d are asked for", h.Amount, paid)
	}
	if a.Currency != "" && to.Currency != "" && a.Currency != to.Currency {
		p.refuse("currency_mismatch", "%s has %s and %s has %s", a.Account, a.Currency, to.Account, to.Currency)
	}
	a.HeldChange -= h.Amount
	a.AvailableChange += h.Amount - paid
	to.AvailableChange += paid
	p.summary = fmt.Sprintf("Capture hold %s: %s pays %s %s.", h.ID, h.Account, in.To, money(paid, a.Currency))
	if rest := h.Amount - paid; rest > 0 {
		p.summary += fmt.Sprintf(" The rest, %d, is free again.", rest)
	}
	p.path, p.body = at("/v1/holds/%s/capture", in.Hold), q
	return nil
}

func describeRelease(ctx context.Context, p *plan, in releaseInput) error {
	h, a, err := p.hold(ctx, in.Hold)
	if err != nil {
		return err
	}
	a.HeldChange -= h.Amount
	a.AvailableChange += h.Amount
	p.summary = fmt.Sprintf("Release hold %s: %s can spend %s again.", h.ID, h.Account, money(h.Amount, a.Currency))
	p.path = at("/v1/holds/%s/release", in.Hold)
	return nil
}
