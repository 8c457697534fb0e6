package mcp

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead-dev/fairlead/client"
)

// prepared is the answer of the tools that prepare.
type prepared struct {
	ID       string       `json:"id" jsonschema:"give it to commit. It is the idempotency key of the command"`
	Summary  string       `json:"summary" jsonschema:"what commit would do"`
	Accounts []accountSee `json:"accounts" jsonschema:"the accounts whose balance would change, in minor units"`
	// Refusals that are foreseen, and possible ones.
	RefusedNow []refusal `json:"refused_now" jsonschema:"what would refuse it if it were committed now, as far as can be seen. Empty: nothing"`
	MayRefuse  []refusal `json:"may_refuse" jsonschema:"what can still refuse it, because others act in the meantime"`
	Notes      []string  `json:"notes" jsonschema:"what else is worth knowing before commit"`
	ExpiresAt  time.Time `json:"expires_at" jsonschema:"it can't be committed after that"`
	Command    command   `json:"command" jsonschema:"what commit sends. Keep it with the id: commit needs it if this server is restarted"`
	Next       string    `json:"next"`
}

// accountSee is an account as it was read, and what would change.
type accountSee struct {
	Account         string `json:"account"`
	Currency        string `json:"currency,omitzero" jsonschema:"absent when the account could not be read"`
	Available       *int64 `json:"available,omitzero" jsonschema:"before, as read just now; absent when the account could not be read"`
	Held            *int64 `json:"held,omitzero" jsonschema:"before, as read just now; absent when the account could not be read"`
	AvailableChange int64  `json:"available_change"`
	HeldChange      int64  `json:"held_change"`
}

// refusal is a reason for which the server would not do it.
type refusal struct {
	Code   string `json:"code" jsonschema:"the server's"`
	Detail string `json:"detail"`
}

// plan gathers what a prepared command would do.
type plan struct {
	s        *service
	summary  string
	path     string
	body     any
	accounts []*accountSee
	refused  []refusal
	possible []refusal
	notes    []string
}

// addPrepare adds a tool that prepares a command. describe fills the plan; it only reads.
func addPrepare[In any](s *service, b *builder, name, title, about string, describe func(ctx context.Context, p *plan, in In) error) {
	no := false
	t := tool{
		name: "prepare_" + name, title: title, about: about + " Changes nothing: it describes the effect and returns an id for commit.",
		// Two calls give two ids, so it is not idempotent in what it returns, but has no effect at all.
		annotations: sdk.ToolAnnotations{ReadOnlyHint: true, DestructiveHint: &no, OpenWorldHint: &no}, output: output[prepared](b),
	}
	add(b, t, func(ctx context.Context, in In) (any, error) {
		p := &plan{s: s, body: struct{}{}}
		if err := describe(ctx, p, in); err != nil {
			return nil, err
		}
		return p.prepare()
	})
}

// prepare makes the command's id, and remembers it.
func (p *plan) prepare() (*prepared, error) {
	body, err := canonical(p.body)
	if err != nil {
		return nil, wrongArguments("%v", err)
	}
	if len(body) > maxCommandBytes {
		return nil, wrongArguments("the command would have %d bytes, and %d is the most", len(body), maxCommandBytes)
	}
	now := p.s.now()
	r := remembered{
		summary: p.summary, command: command{Path: p.path, Body: body}, state: statePrepared,
		expires: now.Add(p.s.preparedFor).Truncate(time.Millisecond), // As the id has it.
	}
	r.id = p.s.seal.id(r.command, r.expires)
	if !p.s.shelf.keep(r, now) {
		return nil, &failure{
			Code: codeTooMany, Detail: "there are as many prepared commands as are kept", Outcome: client.NotApplied, Retryable: true,
			WhatToDo: "Commit those that are wanted (list_prepared shows them), or wait until some have expired.",
		}
	}
	out := &prepared{
		ID: r.id, Summary: p.summary, Accounts: []accountSee{}, RefusedNow: listed(p.refused), MayRefuse: listed(p.possible), Notes: listed(p.notes),
		ExpiresAt: r.expires.UTC(), Command: r.command, Next: "Nothing has been done. Call commit with this id to do it.",
	}
	if len(p.refused) > 0 {
		out.Next = "Nothing has been done, and commit would be refused now. A refused id stays refused: remove the reason before you commit, or prepare something else."
	}
	for _, a := range p.accounts {
		out.Accounts = append(out.Accounts, *a)
	}
	return out, nil
}

// listed is never nil, so that an empty list is one.
func listed[T any](list []T) []T { return slices.Concat([]T{}, list) }

// refuse notes what would refuse the command now.
func (p *plan) refuse(code, format string, values ...any) {
	p.refused = append(p.refused, refusal{Code: code, Detail: fmt.Sprintf(format, values...)})
}

// may notes what can refuse it later: pairs of code and detail.
func (p *plan) may(pairs ...string) {
	for pair := range slices.Chunk(pairs, 2) {
		p.possible = append(p.possible, refusal{Code: pair[0], Detail: pair[1]})
	}
}

func (p *plan) note(format string, values ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, values...))
}

// account reads an account, once a plan. One that is not found is kept without a balance: it is absent, or another user's.
func (p *plan) account(ctx context.Context, name string) (*accountSee, error) {
	for _, a := range p.accounts {
		if a.Account == name {
			return a, nil
		}
	}
	see := &accountSee{Account: name}
	switch a, err := p.s.client.GetAccount(ctx, name); {
	case client.CodeOf(err) == "not_found":
		p.refuse("not_found", "account %s is not there, as far as this key can see", name)
	case client.CodeOf(err) == "forbidden":
		p.note("The balance of %s can't be read with this key, which is a user's.", name)
	case err != nil:
		return nil, err
	default:
		see.Currency, see.Available, see.Held = a.Currency, &a.Available, &a.Held
	}
	p.accounts = append(p.accounts, see)
	return see, nil
}

// spend takes from what is available, and notes when there is too little.
func (p *plan) spend(a *accountSee, amount int64) {
	if a.Available != nil && *a.Available+a.AvailableChange < amount {
		p.refuse("insufficient_funds", "%s has %d %s available and needs %d", a.Account, *a.Available+a.AvailableChange, a.Currency, amount)
	}
	a.AvailableChange -= amount
}

// move plans a movement between two accounts, and returns its currency.
func (p *plan) move(ctx context.Context, from, to string, amount int64) (string, error) {
	payer, err := p.account(ctx, from)
	if err != nil {
		return "", err
	}
	payee, err := p.account(ctx, to)
	if err != nil {
		return "", err
	}
	switch {
	case from == to:
		p.refuse("same_account", "%s would pay itself", from)
	case payer.Currency != "" && payee.Currency != "" && payer.Currency != payee.Currency:
		p.refuse("currency_mismatch", "%s has %s and %s has %s", from, payer.Currency, to, payee.Currency)
	}
	p.spend(payer, amount)
	payee.AvailableChange += amount
	if payer.Currency != "" {
		return payer.Currency, nil
	}
	return payee.Currency, nil
}

// needs notes that a command is refused because of the state of what it is about.
func (p *plan) needs(code, what, is string, wanted ...string) {
	if !slices.Contains(wanted, is) {
		p.refuse(code, "%s is %s, and must be %s", what, is, strings.Join(wanted, " or "))
	}
}

// money is an amount in words.
func money(amount int64, currency string) string {
	if currency == "" {
		return fmt.Sprintf("%d minor units", amount)
	}
	return fmt.Sprintf("%d minor units of %s", amount, currency)
}

// get reads a document.
func get[Out any](ctx context.Context, s *service, path string) (*Out, error) {
	return client.Call[Out](ctx, s.client, http.MethodGet, path, nil)
}
