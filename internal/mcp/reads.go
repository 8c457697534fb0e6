package mcp

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// page is which part of a list is asked for.
type page struct {
	Limit limit  `json:"limit,omitzero" jsonschema:"most items to return, 1 to 200; 50 when absent"`
	After string `json:"after,omitzero" jsonschema:"the next of the page before"`
}

// of appends the page, and pairs of a further parameter and its value, to a list's path. Empty values are left out.
func (p page) of(path string, pairs ...string) string {
	query := url.Values{}
	if p.Limit > 0 {
		pairs = append(pairs, "limit", strconv.Itoa(int(p.Limit)))
	}
	pairs = append(pairs, "after", p.After)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// read adds a tool that returns the document of a GET as the server sends it.
func read[In any](s *service, b *builder, name, title, about string, path func(in In) string) {
	add(b, tool{name: name, title: title, about: about, annotations: isReading()}, func(ctx context.Context, in In) (any, error) {
		document, err := get[jsontext.Value](ctx, s, path(in))
		if err != nil {
			return nil, err
		}
		return *document, nil
	})
}

// What the tools that read are asked for.
type (
	ofAccount struct {
		Account id `json:"account" jsonschema:"the account's id"`
	}
	listOfAccount struct {
		Account id `json:"account" jsonschema:"the account's id"`
		page
	}
	ofCampaign struct {
		Campaign id `json:"campaign" jsonschema:"the campaign's id"`
	}
	listOfCampaign struct {
		Campaign id `json:"campaign" jsonschema:"the campaign's id"`
		page
	}
	ofAuction struct {
		Auction id `json:"auction" jsonschema:"the auction's id"`
	}
	listOfAuction struct {
		Auction id `json:"auction" jsonschema:"the auction's id"`
		page
	}
	ofPublication struct {
		Publication id `json:"publication" jsonschema:"the publication's id"`
	}
	ofMultidraw struct {
		Multidraw id `json:"multidraw" jsonschema:"the id of the operation"`
	}
)

// addReads adds the tools that read.
func (s *service) addReads(b *builder) {
	s.addLedgerReads(b)
	s.addSaleReads(b)
	s.addOtherReads(b)
}

func (s *service) addLedgerReads(b *builder) {
	read(s, b, "get_account", "Read an account's balance",
		"Reads an account: currency, available (free to spend) and held (set aside by holds and bids), in minor units.",
		func(in ofAccount) string { return at("/v1/accounts/%s", in.Account) })
	type accounts struct {
		Prefix string `json:"prefix,omitzero" jsonschema:"only accounts whose id begins with this"`
		page
	}
	read(s, b, "list_accounts", "List accounts", "Lists accounts with their balances, by id. It takes an admin or a reader key.",
		func(in accounts) string { return in.of("/v1/admin/accounts", "prefix", in.Prefix) })
	read(s, b, "list_entries", "List an account's entries",
		"Lists what came to an account and left it, oldest first: signed amounts that add up to available + held, each with its transfer and memo.",
		func(in listOfAccount) string { return in.of(at("/v1/accounts/%s/entries", in.Account)) })
	read(s, b, "list_holds", "List an account's open holds", "Lists the open holds of an account, newest first: money that is set aside, and by whom.",
		func(in listOfAccount) string { return in.of(at("/v1/accounts/%s/holds", in.Account)) })
	type hold struct {
		Hold id `json:"hold" jsonschema:"the hold's id"`
	}
	read(s, b, "get_hold", "Read a hold", "Reads a hold: amount, what was captured of it, status (open, captured, released or expired) and expiry.",
		func(in hold) string { return at("/v1/holds/%s", in.Hold) })
	type transfer struct {
		Transfer id `json:"transfer" jsonschema:"the id of a transfer, a deposit or a withdrawal"`
	}
	read(s, b, "get_transfer", "Read a transfer", "Reads a transfer, deposit or withdrawal by its id: who paid whom, and whether it is pending, completed or failed, and why.",
		func(in transfer) string { return at("/v1/transfers/%s", in.Transfer) })
	type reference struct {
		Reference string `json:"reference" jsonschema:"the caller's own name for the movement"`
	}
	read(s, b, "find_transfer", "Find a transfer by its reference", "Finds the transfer, deposit or withdrawal that has completed with a reference: a list of one, or an empty one.",
		func(in reference) string { return page{}.of("/v1/transfers", "reference", in.Reference) })
	type cross struct {
		Transfer id `json:"transfer" jsonschema:"the id of a transfer between ledgers"`
	}
	read(s, b, "get_cross_transfer", "Read a transfer between ledgers", "Reads a transfer between two ledgers, with its steps: completed, failed, compensated or pending.",
		func(in cross) string { return at("/v1/cross-transfers/%s", in.Transfer) })
	read(s, b, "check_integrity", "Recompute the books",
		"Recomputes all balances from the entries. valid is true when deposits − withdrawals = available + held in every currency and every account agrees with its entries; else it names the first account that doesn't.",
		func(struct{}) string { return "/v1/integrity" })
}

func (s *service) addSaleReads(b *builder) {
	read(s, b, "list_campaigns", "List campaigns", "Lists lottery campaigns, oldest first, with status and how many positions are sold.",
		func(in page) string { return in.of("/v1/campaigns") })
	read(s, b, "get_campaign", "Read a campaign",
		"Reads a campaign: status (pending, active, drawing, completed or cancelled), layers with prices and what is sold, prizes, purchase limit, and the commitment to the draw's seed.",
		func(in ofCampaign) string { return at("/v1/campaigns/%s", in.Campaign) })
	read(s, b, "get_campaign_statistics", "Read a campaign's sales", "Reads what a campaign's sales add up to: buyers, revenue, the largest buyer, the first and the last sale.",
		func(in ofCampaign) string { return at("/v1/campaigns/%s/statistics", in.Campaign) })
	read(s, b, "list_campaign_purchases", "List a campaign's purchases", "Lists the purchases of a campaign in the order of sale: who bought which position at which price.",
		func(in listOfCampaign) string { return in.of(at("/v1/campaigns/%s/purchases", in.Campaign)) })
	read(s, b, "list_account_purchases", "List an account's purchases", "Lists an account's purchases in all campaigns, newest first.",
		func(in listOfAccount) string { return in.of(at("/v1/accounts/%s/purchases", in.Account)) })
	read(s, b, "get_draw", "Read a campaign's winners", "Reads the draw of a campaign: each prize with the position and the account that won it. not_drawn: there is none yet. verify_draw checks it.",
		func(in ofCampaign) string { return at("/v1/campaigns/%s/draw", in.Campaign) })
	read(s, b, "get_multidraw", "Read an operation of many draws", "Reads an operation of many draws: status, progress, commitment, and up to 1,000 results. verify_multidraw checks it.",
		func(in ofMultidraw) string { return at("/v1/multidraws/%s", in.Multidraw) })
	read(s, b, "list_auctions", "List auctions", "Lists auctions, oldest first, with status, current round and number of bids.",
		func(in page) string { return in.of("/v1/auctions") })
	read(s, b, "get_auction", "Read an auction", "Reads an auction: status, rounds with their ends and extensions, least bid and raise, seller, and number of bids.",
		func(in ofAuction) string { return at("/v1/auctions/%s", in.Auction) })
	read(s, b, "get_leaderboard", "Read an auction's leaderboard", "Lists the standing bids of an auction by rank, and whether each would win if the round ended now.",
		func(in listOfAuction) string { return in.of(at("/v1/auctions/%s/leaderboard", in.Auction)) })
	read(s, b, "get_min_winning_bid", "Read the least bid that would win", "Reads the least new bid that would win now in an auction. not_active: no round is open.",
		func(in ofAuction) string { return at("/v1/auctions/%s/min-winning-bid", in.Auction) })
	read(s, b, "list_auction_winners", "List an auction's winners", "Lists who won, by round and rank, and at which amount.",
		func(in listOfAuction) string { return in.of(at("/v1/auctions/%s/winners", in.Auction)) })
	read(s, b, "list_bids", "List an auction's bids", "Lists all accepted bids of an auction, oldest first.",
		func(in listOfAuction) string { return in.of(at("/v1/auctions/%s/bids", in.Auction)) })
	read(s, b, "list_account_bids", "List an account's standing bids", "Lists an account's standing bids in auctions under way, with rank and whether each would win now.",
		func(in listOfAccount) string { return in.of(at("/v1/accounts/%s/bids", in.Account)) })
}

func (s *service) addOtherReads(b *builder) {
	type publications struct {
		Status publicationStatus `json:"status,omitzero" jsonschema:"only those of this status"`
		page
	}
	read(s, b, "list_publications", "List publications", "Lists publications, oldest first: target, status, time, attempts and last error.",
		func(in publications) string { return in.of("/v1/publications", "status", string(in.Status)) })
	read(s, b, "get_publication", "Read a publication", "Reads a publication with its payload, status, time, attempts and last error.",
		func(in ofPublication) string { return at("/v1/publications/%s", in.Publication) })
	type attempts struct {
		Publication id `json:"publication" jsonschema:"the publication's id"`
		page
	}
	read(s, b, "list_attempts", "List a publication's attempts", "Lists the attempts to publish something, with the target's answers.",
		func(in attempts) string { return in.of(at("/v1/publications/%s/attempts", in.Publication)) })
	read(s, b, "list_targets", "List targets", "Lists where publications go, by name, and how each fares: delivering, failing, slowed, or paused and why.",
		func(in page) string { return in.of("/v1/targets") })
	read(s, b, "list_subscriptions", "List subscriptions", "Lists subscriptions: which topics' events go to which target, and whether they are paused and why.",
		func(in page) string { return in.of("/v1/subscriptions") })
	type topics struct {
		Subscription id `json:"subscription" jsonschema:"the subscription's id"`
		page
	}
	read(s, b, "list_subscription_topics", "List a subscription's topics", "Lists the topics that a subscription has come to: how many events are still to be delivered, and the last error.",
		func(in topics) string { return in.of(at("/v1/subscriptions/%s/topics", in.Subscription)) })
	type found struct {
		Text string `json:"text" jsonschema:"an id, the reference of a transfer, the beginning of an account's id, or a part of a name"`
	}
	read(s, b, "search", "Find things", "Finds accounts, transfers, campaigns, auctions, publications and other things by an id, a reference or a part of a name: at most five of each kind. It takes an admin or a reader key.",
		func(in found) string { return page{}.of("/v1/admin/search", "q", in.Text) })
	s.addLocks(b)
}

// lockSee is what list_locks shows: the server's lists, cut to what an agent can read.
type lockSee struct {
	Holders []jsontext.Value `json:"holders"`
	Waiters []jsontext.Value `json:"waiters"`
	Edges   []jsontext.Value `json:"edges"`
	Left    string           `json:"left_out,omitzero"`
}

func (s *service) addLocks(b *builder) {
	type locks struct {
		Limit limit `json:"limit,omitzero" jsonschema:"most items of each list, 1 to 200; 50 when absent"`
	}
	add(b, tool{
		name: "list_locks", title: "List locks", annotations: isReading(),
		about: "Lists who holds which lock keys with which fencing tokens, who waits, and for whom. It takes an admin or a reader key.",
	}, func(ctx context.Context, in locks) (any, error) {
		all, err := get[lockSee](ctx, s, "/v1/locks")
		if err != nil {
			return nil, err
		}
		most := int(in.Limit)
		if most == 0 {
			most = 50
		}
		left := 0
		for _, list := range []*[]jsontext.Value{&all.Holders, &all.Waiters, &all.Edges} {
			left += max(0, len(*list)-most)
			*list = listed((*list)[:min(most, len(*list))])
		}
		if left > 0 {
			all.Left = fmt.Sprintf("%d more: ask with a larger limit", left)
		}
		return all, nil
	})
}
