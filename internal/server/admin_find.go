package server

import (
	"context"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// Limits of what is looked for.
const (
	foundOfEach = 5   // things of each kind that a search gives
	maxNamed    = 200 // ids that are named at once: those of a page
)

// findRoutes are those by which an operator finds things.
func (s *Server) findRoutes() []route {
	return []route{
		filtered(readRoute("/v1/admin/search", accessAdmin, "Find things by id, reference or name", s.search, same[foundView]),
			"q", "an id, the reference of a transfer, the beginning of an account's id, or a part of a name; names are looked through among the newest 1,000 of each kind, and the beginnings of all campaigns' and auctions' names"),
		filtered(readRoute("/v1/admin/names", accessAdmin, "Read the names of things by their ids", s.names, same[foundView]),
			"ids", "up to 200 ids, with commas between them"),
		listRoute("/v1/admin/multidraws", accessAdmin, "List multi-draws, newest first", newestFirst(), func(r *http.Request, before int64, limit int) ([]multidraw.Operation, error) {
			return s.Operator.Multidraws(r.Context(), before, limit)
		}, as[multidrawSummaryView], func(o multidraw.Operation) int64 { return o.Number }),
		listRoute("/v1/admin/publications", accessAdmin, "List publications, newest first", newestFirst(), rowsWith(publicationFilter, s.Operator.Publications),
			viewed(viewPublication), func(p publish.Publication) int64 { return p.Number },
			beside(withStatus(publish.Statuses()...)), beside(filter{name: "target", doc: "only those of the target of this name"}),
			beside(filter{name: "error", doc: "only failed ones whose last error is this one"}),
			beside(filter{name: "cause", doc: "only failed ones whose last attempt failed for this; attempts of servers before this filter have none", known: as[[]string](publish.Causes())})),
		listRoute("/v1/admin/publications/{id}/attempts", accessAdmin, "List a publication's attempts, newest first", newestFirst(),
			rowsWith(pathID("publication"), s.Operator.Attempts), as[attemptView], func(a publish.Attempt) int64 { return a.Version }),
		listRoute("/v1/admin/targets", accessAdmin, "List targets, newest first", newestFirst(), rowsOf(s.Operator.Targets),
			viewed(viewTarget), func(t publish.Target) int64 { return t.Number }),
		listRoute("/v1/admin/automations", accessAdmin, "List automations, newest first", newestFirst(), rowsOf(s.Operator.Automations),
			viewed(viewAutomation), func(a publish.Automation) int64 { return a.Number }),
		listRoute("/v1/admin/automations/{id}/firings", accessAdmin, "List what an automation has fired, newest first", newestFirst(),
			rowsWith(pathID("automation"), s.Operator.Firings), as[firingView], func(f publish.Firing) int64 { return f.Number }),
		listRoute("/v1/admin/campaigns/{id}/purchases", accessAdmin, "List a campaign's purchases, newest first", newestFirst(), s.newestPurchases, viewPurchase,
			func(p lottery.Purchase) int64 { return int64(p.Seq) }, filter{name: "account", doc: "only those of this account"}),
		listRoute("/v1/admin/accounts/{id}/entries", accessAdmin, "List an account's entries with their balances, newest first", newestEntries(),
			rowsWith(systemAccount, s.Operator.Entries), as[accountEntryView], func(e operator.Entry) operator.EntryPlace { return e.Place() }),
	}
}

type foundThing struct {
	Kind   string `json:"kind" enum:"account,auction,automation,campaign,hold,key,lock,multidraw,position,publication,saga,target,transfer"`
	ID     string `json:"id" doc:"of the thing; of a position, its campaign's, and of a hold, its account's"`
	Title  string `json:"title"`
	Status string `json:"status" doc:"empty where it has none"`
}

type foundView struct {
	Items []foundThing `json:"items"`
}

func viewFound(found []operator.Found) foundView {
	v := foundView{Items: []foundThing{}}
	for _, f := range found {
		// What is found by the beginning of its name is found again by a word in it.
		if t := as[foundThing](f); !slices.Contains(v.Items, t) {
			v.Items = append(v.Items, t)
		}
	}
	return v
}

// search finds things by what is typed or pasted. An id may have the word before it that it has in the audit log.
func (s *Server) search(r *http.Request) (foundView, error) {
	q, err := one(r, "q")
	if err != nil {
		return foundView{}, err
	}
	if q = strings.TrimSpace(q); q == "" {
		return viewFound(nil), nil
	}
	found, err := bounded(r.Context(), s.scans, func(ctx context.Context) ([]operator.Found, error) { return s.Operator.Search(ctx, q, foundOfEach) })
	if err != nil {
		return foundView{}, err
	}
	_, bare, prefixed := strings.Cut(q, ":")
	if !prefixed {
		bare = q
	}
	id, err := uuid.Parse(bare)
	if err != nil {
		return viewFound(found), nil //nolint:nilerr // What is no id is a name.
	}
	things, err := s.Operator.Find(r.Context(), []uuid.UUID{id})
	if err != nil {
		return foundView{}, err
	}
	position, is, err := s.Operator.FindPosition(r.Context(), id)
	if is {
		things = append(things, operator.Found{Kind: "position", ID: position.Campaign.String(), Title: "a position of " + position.Name})
	}
	return viewFound(slices.Concat(things, found)), err
}

// names names things. Ids that nothing has are left out.
func (s *Server) names(r *http.Request) (foundView, error) {
	values := r.URL.Query()["ids"]
	if len(values) == 0 {
		return viewFound(nil), nil
	}
	texts := strings.Split(values[0], ",")
	if len(values) > 1 || len(texts) > maxNamed {
		return foundView{}, refuse("ids must be given once, and be at most %d", maxNamed)
	}
	ids := make([]uuid.UUID, len(texts))
	for i, text := range texts {
		var err error
		if ids[i], err = uuid.Parse(text); err != nil {
			return foundView{}, refuse("ids must be ids, with commas between them")
		}
	}
	found, err := s.Operator.Find(r.Context(), ids)
	return viewFound(found), err
}

func publicationFilter(r *http.Request) (operator.PublicationFilter, error) {
	q := r.URL.Query()
	f := operator.PublicationFilter{Status: publish.Status(q.Get("status")), Target: q.Get("target"), Error: q.Get("error"), Cause: publish.Cause(q.Get("cause"))}
	switch failure := f.Error != "" || f.Cause != ""; {
	case failure && f.Status != "" && f.Status != publish.StatusFailed:
		return f, refuse("error and cause are of failed publications")
	case f.Error != "" && f.Cause != "":
		return f, refuse("give error or cause, not both")
	}
	return f, nil
}

func (s *Server) newestPurchases(r *http.Request, before int64, limit int) ([]lottery.Purchase, error) {
	c, err := s.campaignOf(r)
	if err != nil {
		return nil, err
	}
	return byAccount(s, r, func(ctx context.Context, account string) ([]lottery.Purchase, error) {
		return s.Operator.Purchases(ctx, c.ID, account, min(before, int64(c.TotalPositions)+1), limit)
	})
}

func (s *Server) newestBids(r *http.Request, before int64, limit int) ([]auction.Placed, error) {
	id, err := s.existingAuction(r)
	if err != nil {
		return nil, err
	}
	return byAccount(s, r, func(ctx context.Context, account string) ([]auction.Placed, error) {
		return s.Operator.LatestBids(ctx, id, account, before, limit)
	})
}

// byAccount reads a list that may be narrowed to one account. What is one account's is looked for among all, so few may do that at once.
func byAccount[R any](s *Server, r *http.Request, read func(ctx context.Context, account string) ([]R, error)) ([]R, error) {
	account := r.URL.Query().Get("account")
	if account == "" {
		return read(r.Context(), "")
	}
	return bounded(r.Context(), s.scans, func(ctx context.Context) ([]R, error) { return read(ctx, account) })
}

// accountEntryView is an entry with what it belongs to.
type accountEntryView struct {
	ID           uuid.UUID `json:"id"`
	Transfer     uuid.UUID `json:"transfer"`
	Kind         string    `json:"kind" doc:"of the transfer"`
	Counterparty string    `json:"counterparty" doc:"the transfer's other account"`
	Amount       int64     `json:"amount" doc:"signed minor units"`
	Currency     string    `json:"currency"`
	Balance      *int64    `json:"balance" doc:"of the account, available and held, after the entry; null in the accounts that have none"`
	At           timestamp `json:"at"`
	Memo         string    `json:"memo"`
}

// newestEntries orders an account's entries, newest first. The balance at a place never changes, so cursors carry it: it would otherwise
// be the sum of all entries after the place.
func newestEntries() order[operator.EntryPlace] {
	const parts = 3
	return order[operator.EntryPlace]{
		begin: operator.NewestEntry(),
		write: func(path string, p operator.EntryPlace) string {
			balance := ""
			if p.Balance != nil {
				balance = strconv.FormatInt(*p.Balance, 10)
			}
			return textCursor(path, strconv.FormatInt(p.Version, 10)+":"+p.ID.String()+":"+balance)
		},
		read: func(digits string) (p operator.EntryPlace, ok bool) {
			text, err := hex.DecodeString(digits)
			fields := strings.Split(string(text), ":")
			if err != nil || len(fields) != parts {
				return p, false
			}
			version, err := strconv.ParseInt(fields[0], 10, 64)
			if err != nil {
				return p, false
			}
			p.Version = version
			if p.ID, err = uuid.Parse(fields[1]); err != nil {
				return p, false
			}
			if fields[2] == "" {
				return p, true
			}
			balance, err := strconv.ParseInt(fields[2], 10, 64)
			p.Balance = &balance
			return p, err == nil
		},
	}
}
