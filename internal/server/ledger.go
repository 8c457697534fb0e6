package server

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

type createAccountRequest struct {
	ID       string `json:"id" doc:"the caller's name for the account" pattern:"^[A-Za-z0-9._:@-]{1,64}$" example:"alice"`
	Currency string `json:"currency" pattern:"^[A-Z][A-Z0-9]{2,11}$" example:"EUR"`
}

type accountView struct {
	ID        string    `json:"id"`
	Currency  string    `json:"currency"`
	Available int64     `json:"available" doc:"minor units free to spend"`
	Held      int64     `json:"held" doc:"minor units set aside by open holds"`
	Version   int64     `json:"version" doc:"grows with each change"`
	CreatedAt timestamp `json:"created_at"`
}

type entryView struct {
	ID       uuid.UUID `json:"id"`
	Transfer uuid.UUID `json:"transfer"`
	Amount   int64     `json:"amount" doc:"signed minor units"`
	At       timestamp `json:"at"`
	Memo     string    `json:"memo"`
}

type movementRequest struct {
	Account   string  `json:"account"`
	Amount    int64   `json:"amount" minimum:"1" maximum:"9007199254740991" doc:"minor units"`
	Memo      string  `json:"memo,omitempty" maxLength:"500"`
	Reference *string `json:"reference,omitempty" minLength:"1" maxLength:"200" doc:"unique for ever: the same request with it again, under any key, moves nothing"`
}

func (q *movementRequest) check() error {
	var c checks
	c.id("account", q.Account)
	c.amount("amount", q.Amount)
	c.memo("memo", q.Memo)
	c.reference(q.Reference)
	return c.err
}

type movementView struct {
	ID        uuid.UUID `json:"id" doc:"the transfer's id"`
	Account   string    `json:"account"`
	Amount    int64     `json:"amount"`
	Currency  string    `json:"currency"`
	Available int64     `json:"available" doc:"after the movement"`
	Reference string    `json:"reference,omitempty"`
}

func viewMovement(m ledger.Movement) movementView {
	return movementView{
		ID: m.Transfer.ID, Account: m.Account, Amount: m.Transfer.Amount, Currency: m.Transfer.Currency, Available: m.Available,
		Reference: m.Transfer.Reference,
	}
}

type transferRequest struct {
	From      *string      `json:"from,omitzero" doc:"absent with legs, else required, as to and amount are"`
	To        *string      `json:"to,omitzero"`
	Amount    *int64       `json:"amount,omitzero" minimum:"1" maximum:"9007199254740991" doc:"minor units"`
	Legs      []legRequest `json:"legs,omitempty" minItems:"1" maxItems:"100" doc:"in place of from, to and amount: all of them are done in order, or none"`
	Memo      string       `json:"memo,omitempty" maxLength:"500"`
	Reference *string      `json:"reference,omitempty" minLength:"1" maxLength:"200" doc:"unique for ever: the same request with it again, under any key, moves nothing"`
}

type legRequest struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Amount int64  `json:"amount" minimum:"1" maximum:"9007199254740991" doc:"minor units"`
}

// op checks a transfer and makes the operation of it.
func (q *transferRequest) op() (ledger.Op, error) {
	var c checks
	legs := make([]ledger.Leg, len(q.Legs))
	if q.Legs == nil {
		c.id("from", or(q.From, ""))
		c.id("to", or(q.To, ""))
		c.amount("amount", or(q.Amount, 0))
	} else {
		if q.From != nil || q.To != nil || q.Amount != nil {
			c.fail("from, to and amount have no place beside legs")
		}
		c.upTo("the number of legs", len(q.Legs), ledger.MaxLegs)
	}
	for i, leg := range q.Legs {
		if c.err != nil {
			break
		}
		at := "legs[" + strconv.Itoa(i) + "]'s "
		c.id(at+"from", leg.From)
		c.id(at+"to", leg.To)
		c.amount(at+"amount", leg.Amount)
		legs[i] = ledger.Leg{From: leg.From, To: leg.To, Amount: leg.Amount}
	}
	c.memo("memo", q.Memo)
	c.reference(q.Reference)
	if q.Legs != nil {
		return ledger.TransferLegs{Legs: legs, Memo: q.Memo, Reference: or(q.Reference, "")}, c.err
	}
	return ledger.MakeTransfer{From: or(q.From, ""), To: or(q.To, ""), Amount: or(q.Amount, 0), Memo: q.Memo, Reference: or(q.Reference, "")}, c.err
}

// payers are the accounts that the money comes from.
func (q *transferRequest) payers() []string {
	if q.Legs == nil {
		return []string{or(q.From, "")}
	}
	from := make([]string, len(q.Legs))
	for i := range q.Legs {
		from[i] = q.Legs[i].From
	}
	return from
}

type transferView struct {
	ID          uuid.UUID             `json:"id"`
	Kind        ledger.Kind           `json:"kind" doc:"transfer, deposit, withdrawal, capture (of a hold), purchase, payout, refund, or cross (to or from another ledger)"`
	From        string                `json:"from" doc:"with legs, the first leg's, as to, amount and currency are; of a transfer that failed, the refused leg's"`
	To          string                `json:"to"`
	Amount      int64                 `json:"amount"`
	Currency    string                `json:"currency"`
	Legs        []legView             `json:"legs,omitempty" doc:"of a transfer that was asked for by legs"`
	Status      ledger.TransferStatus `json:"status" enum:"pending,completed,failed"`
	Reason      string                `json:"reason" doc:"of a failure, else empty"`
	Memo        string                `json:"memo"`
	CreatedAt   timestamp             `json:"created_at"`
	CompletedAt *timestamp            `json:"completed_at" doc:"null unless completed"`
	Reference   string                `json:"reference,omitempty"`
}

type legView struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency,omitzero" doc:"absent where a failed transfer did not get as far"`
}

func viewTransfer(t ledger.Transfer) transferView {
	v := viewMoved(t)
	for _, leg := range t.Legs {
		v.Legs = append(v.Legs, legView(leg))
	}
	return v
}

func viewMoved(t ledger.Transfer) transferView {
	return transferView{
		ID: t.ID, Kind: t.Kind, From: t.From, To: t.To, Amount: t.Amount, Currency: t.Currency,
		Status: t.Status, Reason: t.Reason, Memo: t.Memo, CreatedAt: timestamp(t.CreatedAt),
		CompletedAt: (*timestamp)(t.CompletedAt()), Reference: t.Reference,
	}
}

type holdRequest struct {
	Account   string  `json:"account"`
	Amount    int64   `json:"amount" minimum:"1" maximum:"9007199254740991" doc:"minor units"`
	ExpiresIn *string `json:"expires_in,omitempty" doc:"Go duration; without it the hold does not expire" example:"30m"`
}

type captureRequest struct {
	To     string `json:"to"`
	Amount *int64 `json:"amount,omitempty" minimum:"1" maximum:"9007199254740991" doc:"minor units; without it all of the hold"`
}

type holdView struct {
	ID        uuid.UUID         `json:"id"`
	Account   string            `json:"account"`
	Amount    int64             `json:"amount"`
	Captured  int64             `json:"captured"`
	Status    ledger.HoldStatus `json:"status" enum:"open,captured,released,expired"`
	ExpiresAt *timestamp        `json:"expires_at"`
	CreatedAt timestamp         `json:"created_at"`
}

type integrityView struct {
	Valid           bool                    `json:"valid"`
	Difference      *big.Int                `json:"difference" doc:"sum of the currencies' absolute differences"`
	CheckedAt       timestamp               `json:"checked_at"`
	Currencies      []currencyIntegrityView `json:"currencies"`
	FirstBadAccount *string                 `json:"first_bad_account" doc:"the first account that disagrees with its entries or holds"`
	BadTransfers    int64                   `json:"bad_transfers" doc:"transfers whose entries do not sum to zero"`
	ClosedAt        timestamp               `json:"closed_at" doc:"the last closing of the books. The entries since then are counted for this answer, the older ones were counted before. Equal to checked_at if all entries are counted for this answer"`
	RecountedAt     timestamp               `json:"recounted_at" doc:"when the last recount began. It counted all older entries. A later change by hand to a closed entry is found by the next recount. Equal to checked_at if all entries are counted for this answer"`
}

type currencyIntegrityView struct {
	Currency    string   `json:"currency"`
	Deposits    *big.Int `json:"deposits"`
	Withdrawals *big.Int `json:"withdrawals"`
	Available   *big.Int `json:"available"`
	Held        *big.Int `json:"held"`
	Difference  *big.Int `json:"difference" doc:"deposits - withdrawals - available - held"`
}

func (s *Server) ledgerRoutes() []route {
	execute := s.Ledger.Execute
	executeAll := func(ctx context.Context, _ uuid.UUID, list []command.Command[ledger.Op]) func() []command.Listed {
		return s.Ledger.ExecuteAll(ctx, list)
	}
	move := func(path, summary string, op func(q *movementRequest) ledger.Op) route {
		return hot(once(path, accessStaff, summary, viewMovement, mutation[movementRequest, ledger.Op]{
			execute: execute, executeAll: executeAll, op: func(_ sender, q *movementRequest) (ledger.Op, error) { return op(q), q.check() },
		}))
	}
	return []route{
		commandRoute("/v1/accounts", accessStaff, http.StatusCreated, "Open an account", as[accountView, ledger.Account], mutation[createAccountRequest, ledger.Op]{
			execute: execute,
			op: func(_ sender, q *createAccountRequest) (ledger.Op, error) {
				var c checks
				c.id("id", q.ID)
				c.currency("currency", q.Currency)
				return ledger.CreateAccount{ID: q.ID, Currency: q.Currency}, c.err
			},
		}),
		readRoute("/v1/accounts/{id}", accessUser, "Read an account", with(s.ownAccount, s.Ledger.Account), as[accountView]),
		s.ofAccount(listRoute("/v1/accounts/{id}/entries", accessUser, "List an account's entries, oldest first", oldestFirst(),
			rowsWith(s.existingAccount, s.Ledger.Entries), as[entryView], versionOfEntry)),
		s.ofAccount(listRoute("/v1/accounts/{id}/holds", accessUser, "List an account's open holds, newest first", newestIDs(),
			rowsWith(s.existingAccount, s.Ledger.OpenHolds), as[openHoldView], idOfHold)),
		move("/v1/deposits", "Bring money in from the outside", func(q *movementRequest) ledger.Op {
			return ledger.Deposit{Account: q.Account, Amount: q.Amount, Memo: q.Memo, Reference: or(q.Reference, "")}
		}),
		move("/v1/withdrawals", "Take money to the outside", func(q *movementRequest) ledger.Op {
			return ledger.Withdraw{Account: q.Account, Amount: q.Amount, Memo: q.Memo, Reference: or(q.Reference, "")}
		}),
		filtered(fresh(listRoute("/v1/transfers", accessUser, "Find the deposit, withdrawal or transfer that has completed with a reference", newestIDs(), s.referenced,
			viewTransfer, func(t ledger.Transfer) uuid.UUID { return t.ID })), "reference", "which must be given; users find what they are a party to"),
		hot(once("/v1/transfers", accessUser, "Move money between accounts", viewTransfer, mutation[transferRequest, ledger.Op]{
			execute: execute, executeAll: executeAll, accounts: (*transferRequest).payers, op: plain((*transferRequest).op),
		})),
		readRoute("/v1/transfers/{id}", accessUser, "Read a transfer", owned("transfer", s.Ledger.Transfer,
			func(t ledger.Transfer) []string { return t.Parties() }), viewTransfer),
		commandRoute("/v1/holds", accessStaff, http.StatusCreated, "Set money aside", as[holdView, ledger.Hold], mutation[holdRequest, ledger.Op]{
			execute: execute, executeAll: executeAll,
			op: func(_ sender, q *holdRequest) (ledger.Op, error) {
				var c checks
				c.id("account", q.Account)
				c.amount("amount", q.Amount)
				expires := c.duration("expires_in", q.ExpiresIn, maxExpiry)
				return ledger.PlaceHold{Account: q.Account, Amount: q.Amount, ExpiresIn: expires}, c.err
			},
		}),
		readRoute("/v1/holds/{id}", accessUser, "Read a hold", owned("hold", s.Ledger.Hold, func(h ledger.Hold) []string { return []string{h.Account} }), as[holdView]),
		commandRoute("/v1/holds/{id}/capture", accessStaff, http.StatusOK, "Pay from a hold; what is not captured is released", as[holdView, ledger.Hold],
			mutation[captureRequest, ledger.Op]{
				execute: execute, executeAll: executeAll,
				op: func(from sender, q *captureRequest) (ledger.Op, error) {
					var c checks
					c.id("to", q.To)
					if q.Amount != nil {
						c.amount("amount", *q.Amount)
					}
					if c.err != nil {
						return nil, c.err
					}
					id, err := pathUUID(from.id, "hold")
					return ledger.CaptureHold{Hold: id, To: q.To, Amount: q.Amount}, err
				},
			}),
		commandRoute("/v1/holds/{id}/release", accessStaff, http.StatusOK, "Give a hold's money back", as[holdView, ledger.Hold], mutation[noFields, ledger.Op]{
			execute: execute, executeAll: executeAll,
			op: func(from sender, _ *noFields) (ledger.Op, error) {
				id, err := pathUUID(from.id, "hold")
				return ledger.ReleaseHold{Hold: id}, err
			},
		}),
		filtered(readRoute("/v1/accounts/{id}/aliases", accessUser, "Read what public pages call an account", s.alias, same[aliasView]), "topic", "campaign:ID or auction:ID"),
		stale(readRoute("/v1/integrity", accessStaff, "Check all balances against the entries", s.integrity, as[integrityView])),
	}
}

func versionOfEntry(e ledger.Entry) int64 { return e.Version }

func idOfHold(h ledger.Hold) uuid.UUID { return h.ID }

// ownAccount reads the account of the path and refuses it to a user whose it is not.
func (s *Server) ownAccount(r *http.Request) (string, error) {
	raw := r.PathValue("id")
	if err := ownOnly(infoOf(r).principal.MayRead(raw)); err != nil {
		return "", err
	}
	return pathAccount(raw)
}

// ofAccount refuses an account's list to other users before it looks at anything else, the page included.
func (s *Server) ofAccount(list route) route {
	next := list.handler
	list.handler = func(w http.ResponseWriter, r *http.Request) error {
		if _, err := s.ownAccount(r); err != nil {
			return err
		}
		return next(w, r)
	}
	return list
}

// existingAccount is ownAccount of an account that there is.
func (s *Server) existingAccount(r *http.Request) (string, error) {
	id, err := s.ownAccount(r)
	if err == nil {
		_, err = s.Ledger.Account(r.Context(), id)
	}
	return id, err
}

// integrityTimeout bounds the check over HTTP. Before a large ledger's first recount, a check counts everything.
const integrityTimeout = 30 * time.Second

// errNotCounted is returned when a check takes longer than integrityTimeout.
var errNotCounted = errors.New("counting the ledger takes longer than a request may: fairlead integrity --database-url counts all of it, however long that takes, " +
	"and after a recount, which the server makes, too, a check counts only what is new")

func (s *Server) integrity(r *http.Request) (ledger.Integrity, error) {
	return countInTime(r.Context(), s.checks, s.Ledger.Integrity)
}

// countInTime counts when it is its turn, and for no longer than integrityTimeout.
func countInTime(ctx context.Context, turns *bound, count func(context.Context) (ledger.Integrity, error)) (ledger.Integrity, error) {
	timed, cancel := context.WithTimeout(ctx, integrityTimeout)
	defer cancel()
	in, err := bounded(timed, turns, count)
	if err != nil && timed.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errNotCounted, err)
	}
	return in, err
}

// timestamp is a time as the contract spells it: RFC 3339, UTC, with microseconds.
type timestamp time.Time

const timestampLayout = "2006-01-02T15:04:05.000000Z07:00"

// MarshalText implements [encoding.TextMarshaler].
func (t timestamp) MarshalText() ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(nil, timestampLayout), nil
}

// Timestamp spells a time as all documents of the routes do, for the command line.
func Timestamp(t time.Time) string { return t.UTC().Format(timestampLayout) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *timestamp) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(time.RFC3339, string(text))
	*t = timestamp(parsed)
	return err //nolint:wrapcheck // The decoder adds where.
}

// IntegrityDocument spells an integrity check as GET /v1/integrity does, for the command line.
func IntegrityDocument(in ledger.Integrity) []byte { return mustMarshal(as[integrityView](in)) }
