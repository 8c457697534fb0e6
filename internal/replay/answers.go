package replay

import "fmt"

// Auction is an auction as the server shows it.
type Auction struct {
	ID, Status   string
	CurrentRound int
	Rounds       []RoundView
	TotalBids    int64
	Seq          int64
}

// Place is a place on the leaderboard.
type Place struct {
	Rank    int
	Account string
	Amount  int64
	Winning bool
}

// Leaderboard is a page of an auction's leaderboard. Next is empty on the last page.
type Leaderboard struct {
	Round  int
	Places []Place
	Next   string
}

// Win is an item of the list of winners.
type Win struct {
	Round, Rank int
	Account     string
	Amount      int64
}

// ParseAuction reads an auction. It returns ErrParse for what the contract does not allow, as do all readers here.
func ParseAuction(body []byte) (Auction, error) {
	r := readObject(body)
	a := Auction{
		ID: r.text("id", maxName), Status: r.text("status", maxName), CurrentRound: r.count("current_round", 0),
		Rounds: r.rounds(), TotalBids: r.number("total_bids", 0, maxCount), Seq: r.number("seq", 0, maxCount),
	}
	return a, r.wrap(body)
}

// ParseLeaderboard reads a page of the leaderboard.
func ParseLeaderboard(body []byte) (Leaderboard, error) {
	r := readObject(body)
	l := Leaderboard{Round: r.count("round", 0), Next: r.cursor()}
	for _, item := range r.list("items") {
		l.Places = append(l.Places, Place{
			Rank: item.count("rank", 1), Account: item.text("account", maxName),
			Amount: item.number("amount", 1, MaxAmount), Winning: item.flag("winning"),
		})
		r.take(item)
	}
	return l, r.wrap(body)
}

// ParseWinners reads a page of the winners and its cursor, empty on the last page.
func ParseWinners(body []byte) (wins []Win, next string, err error) {
	r := readObject(body)
	for _, item := range r.list("items") {
		wins = append(wins, Win{
			Round: item.count("round", 1), Rank: item.count("rank", 1),
			Account: item.text("account", maxName), Amount: item.number("amount", 1, MaxAmount),
		})
		r.take(item)
	}
	return wins, r.cursor(), r.wrap(body)
}

// ParseBids reads a page of the history of bids and its cursor, empty on the last page. The bids come as events of type
// bid.placed without a topic and without a rank, which that list does not have to tell.
func ParseBids(body []byte) (bids []Event, next string, err error) {
	r := readObject(body)
	for _, item := range r.list("items") {
		bids = append(bids, Event{
			Seq: item.number("seq", 1, maxCount), Type: BidPlaced, At: item.time("at"),
			Bid: &Bid{
				Account: item.text("account", maxName), Amount: item.number("amount", 1, MaxAmount),
				PreviousAmount: item.number("previous_amount", 0, MaxAmount), Round: item.count("round", 1),
			},
		})
		r.take(item)
	}
	return bids, r.cursor(), r.wrap(body)
}

// ParseBalance reads an account.
func ParseBalance(body []byte) (account string, b Balance, err error) {
	r := readObject(body)
	account = r.text("id", maxName)
	b = Balance{Available: r.number("available", 0, MaxAmount), Held: r.number("held", 0, MaxAmount)}
	return account, b, r.wrap(body)
}

// cursor reads the cursor of a list, which is there and may be null.
func (r *reader) cursor() string {
	if field, ok := r.fields["next"]; ok && string(field) == "null" {
		return ""
	}
	return r.text("next", 0)
}

func (r *reader) wrap(body []byte) error {
	if r.err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w: %.300s", ErrParse, r.err, body)
}
