package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// house is one process that holds auctions.
type house struct {
	t       *testing.T
	db      *DB
	store   *Auctions
	service *auction.Service
	retries *recorder
}

func newHouse(t *testing.T, url string) *house {
	t.Helper()
	h := &house{t: t, retries: &recorder{}}
	h.db = open(t, Options{URL: url, Observer: h.retries})
	h.store = NewAuctions(h.db)
	h.service = auction.NewService(h.store, auction.Options{})
	t.Cleanup(func() { closing(t, h.service.Close) })
	return h
}

// do executes an operation that must succeed.
func (h *house) do(id uuid.UUID, op auction.Op) any {
	h.t.Helper()
	var result any
	if err := untilFree(func() (err error) { result, err = h.try(id, op); return err }); err != nil {
		h.t.Fatalf("%#v: %v", op, err)
	}
	return result
}

func (h *house) try(id uuid.UUID, op auction.Op) (any, error) {
	h.t.Helper()
	var a command.Answer
	var err error
	if c, ok := op.(auction.Create); ok {
		a, err = h.service.Create(h.t.Context(), own[auction.Op](c))
	} else {
		a, err = h.service.Execute(h.t.Context(), id, own(op))
	}
	return a.Result, errors.Join(err, a.Err)
}

func (h *house) bid(id uuid.UUID, account string, amount int64) (auction.Placed, error) {
	h.t.Helper()
	result, err := h.try(id, auction.PlaceBid{Account: account, Amount: amount})
	placed, _ := result.(auction.Placed)
	return placed, err
}

// open makes and starts an auction of two long rounds with a winner each.
func (h *house) open(change func(*auction.Create)) uuid.UUID {
	h.t.Helper()
	c := auction.Create{
		Title: "a", Currency: "EUR", Seller: "seller", MinBid: 1, MinIncrement: 1, UniqueAmounts: true,
		Rounds: []auction.NewRound{{Winners: 1, Duration: time.Hour}, {Winners: 1, Duration: time.Hour}},
	}
	if change != nil {
		change(&c)
	}
	made, ok := h.do(uuid.Nil, c).(*auction.Auction)
	if !ok {
		h.t.Fatal("no auction was made")
	}
	h.do(made.ID, auction.Start{})
	return made.ID
}

// end lets the open round's time be over.
func (h *house) end(id uuid.UUID) {
	h.t.Helper()
	// A bid has the latest time that it may be by the database's clock, which may be a moment from now.
	exec(h.t, h.db, `SELECT pg_sleep_until(max(at) + interval '1 ms') FROM auction_bids WHERE auction = $1`, id)
	exec(h.t, h.db, `WITH t AS (SELECT clock_timestamp() AS now)
		UPDATE auction_rounds SET ends_at = now, duration = (extract(epoch FROM now - started_at) * 1000000)::bigint
		FROM t WHERE auction = $1 AND status = 'active'`, id)
	// What is behind the process's back changed the auction, as only another process's commit would.
	exec(h.t, h.db, `UPDATE auctions SET version = version + 1, revision = gen_random_uuid() WHERE id = $1`, id)
}

func (h *house) account(id string) ledger.Account {
	h.t.Helper()
	a, err := NewLedger(h.db).Account(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

func TestAuctionFromStartToEnd(t *testing.T) {
	h := newHouse(t, database(t))
	fund(t, newLedgerService(t, h.db), 1000, "seller", "ann", "ben", "cat")
	id := h.open(nil)
	for i, b := range []struct {
		account string
		amount  int64
		rank    int
	}{{"ann", 10, 1}, {"ben", 20, 1}, {"cat", 15, 2}, {"ann", 30, 1}} {
		placed, err := h.bid(id, b.account, b.amount)
		if err != nil || placed.Rank != b.rank {
			t.Fatalf("bid %d: %+v, %v", i, placed, err)
		}
	}
	h.end(id)
	if _, err := h.bid(id, "ben", 50); !errors.Is(err, auction.ErrNotActive) {
		t.Errorf("a bid after the end of a round: %v", err)
	}
	h.do(id, auction.CloseRound{Round: 1, Term: 3})
	if _, err := h.try(id, auction.CloseRound{Round: 2, Term: 2}); !errors.Is(err, auction.ErrSuperseded) {
		t.Errorf("a close of an older term: %v", err)
	}
	if placed, err := h.bid(id, "ann", 5); err != nil || placed.Rank != 3 || placed.PreviousAmount != 0 {
		t.Errorf("the winner's new bid: %+v, %v", placed, err)
	}
	h.end(id)
	h.do(id, auction.CloseRound{Round: 2, Term: 3})
	for account, want := range map[string]int64{"seller": 1050, "ann": 970, "ben": 980, "cat": 1000} {
		if a := h.account(account); a.Available != want || a.Held != 0 {
			t.Errorf("%s has %d and %d held, want %d", account, a.Available, a.Held, want)
		}
	}
	winners, err := h.store.Winners(t.Context(), id, 0, 0, 10)
	if err != nil || len(winners) != 2 || winners[0].Account != "ann" || winners[1].Account != "ben" {
		t.Errorf("winners: %+v, %v", winners, err)
	}
	board, round, err := h.store.Leaderboard(t.Context(), id, 0, 10)
	want := []auction.Ranked{{Rank: 1, Account: "ben", Amount: 20, Winning: true}, {Rank: 2, Account: "cat", Amount: 15}, {Rank: 3, Account: "ann", Amount: 5}}
	if err != nil || round != 2 || !slices.Equal(board, want) {
		t.Errorf("the last leaderboard: round %d, %+v, %v", round, board, err)
	}
	if board, _, err := h.store.Leaderboard(t.Context(), id, 1, 1); err != nil || !slices.Equal(board, want[1:2]) {
		t.Errorf("its second page: %+v, %v", board, err)
	}
	if _, err := h.store.Floor(t.Context(), id); !errors.Is(err, auction.ErrNotActive) {
		t.Errorf("the least winning bid after the end: %v", err)
	}
}

// What a process remembers of an auction and of accounts is never believed: every kind of change behind its back is
// noticed by the transaction that rests on it.
func TestRememberedAuction(t *testing.T) {
	url := database(t)
	here, there := newHouse(t, url), newHouse(t, url)
	money := newLedgerService(t, there.db)
	fund(t, money, 100, "seller", "ann", "ben", "cat", "dan")
	id := here.open(nil)
	place := func(h *house, account string, amount int64) {
		t.Helper()
		if _, err := h.bid(id, account, amount); err != nil {
			t.Fatalf("%s bids %d: %v", account, amount, err)
		}
	}
	place(here, "ann", 10)
	place(here, "ben", 11)
	retried := func() []string { reasons, _, _ := here.retries.seen(); return reasons }
	if got := retried(); len(got) != 0 {
		t.Fatalf("undisturbed bids were run again: %v", got)
	}

	// Another process takes an amount; here it looks free.
	place(there, "cat", 12)
	if _, err := here.bid(id, "ann", 12); !errors.Is(err, auction.ErrAmountTaken) {
		t.Errorf("an amount that another process let somebody have: %v", err)
	}
	if got := retried(); len(got) != 1 || got[0] != "stale" {
		t.Errorf("the bid on what was remembered was run again because of %v", got)
	}
	knowTheTime(t, here.db)
	// The backoff passes.
	for i := range int64(speculation.BackoffTransactions + 4) {
		place(here, "ann", 13+i)
	}
	before := len(retried())

	// Another process spends the money; here it looks available. And the other way round.
	do(t, money, ledger.Withdraw{Account: "ben", Amount: 80})
	var short *ledger.InsufficientFundsError
	if _, err := here.bid(id, "ben", 60); !errors.As(err, &short) {
		t.Errorf("a bid with money that is gone: %v", err)
	}
	do(t, money, ledger.Deposit{Account: "ben", Amount: 80})
	place(here, "ben", 61)

	// An account that was not there is.
	var absent *ledger.AccountNotFoundError
	if _, err := here.bid(id, "eve", 70); !errors.As(err, &absent) {
		t.Errorf("a bid of nobody: %v", err)
	}
	fund(t, money, 100, "eve")
	place(here, "eve", 70)

	// Another process cancels.
	there.do(id, auction.Cancel{})
	if _, err := here.bid(id, "dan", 90); !errors.Is(err, auction.ErrNotActive) {
		t.Errorf("a bid in an auction that another process cancelled: %v", err)
	}
	if len(retried()) == before {
		t.Error("nothing was decided on what is remembered, so this test has tested nothing")
	}
}

// A refusal that leaves no record, such as a cooldown, is not given to a request that has an answer already.
func TestCooldownAndReplayOnAnotherProcess(t *testing.T) {
	url := database(t)
	here, there := newHouse(t, url), newHouse(t, url)
	fund(t, newLedgerService(t, here.db), 100, "seller", "ann", "ben")
	id := here.open(func(c *auction.Create) { c.Cooldown = time.Hour })
	testwait.Must(t, testwait.Err(here.bid(id, "ben", 5)))
	first := keyed[auction.Op](auction.PlaceBid{Account: "ann", Amount: 10}, "k", "10")
	a, err := there.service.Execute(t.Context(), id, first)
	if err != nil || a.Status != 201 {
		t.Fatalf("the bid: %d %s, %v", a.Status, a.Body, err)
	}
	again := keyed[auction.Op](auction.PlaceBid{Account: "ann", Amount: 10}, "k", "10")
	for _, h := range []*house{here, there, here} {
		b, err := h.service.Execute(t.Context(), id, again)
		if err != nil || !b.Replayed || string(b.Body) != string(a.Body) {
			t.Errorf("the repeated bid: %d %s, %v", b.Status, b.Body, err)
		}
	}
	other := keyed[auction.Op](auction.PlaceBid{Account: "ann", Amount: 20}, "l", "20")
	for range 2 {
		b, err := here.service.Execute(t.Context(), id, other)
		if err != nil || b.Status != 409 || b.Replayed || !strings.Contains(string(b.Body), "bid again") {
			t.Errorf("a second bid: %d %s, %v", b.Status, b.Body, err)
		}
	}
}

// Two processes bid at the same time, on the same auction and with the same accounts.
func TestTwoProcessesOneAuction(t *testing.T) {
	url := database(t)
	houses := []*house{newHouse(t, url), newHouse(t, url)}
	accounts := make([]string, 10)
	for i := range accounts {
		accounts[i] = fmt.Sprintf("a%d", i)
	}
	fund(t, newLedgerService(t, houses[0].db), 100_000, append([]string{"seller"}, accounts...)...)
	id := houses[0].open(func(c *auction.Create) { c.Rounds[0].Winners = 3 })
	var bidders sync.WaitGroup
	for n := range 8 {
		bidders.Go(func() {
			h := houses[n%2]
			for i := range 60 {
				_, err := h.bid(id, accounts[(n+i)%len(accounts)], int64(1+n+8*i))
				_, low := errors.AsType[*auction.BidTooLowError](err)
				if err != nil && !low && !errors.Is(err, auction.ErrAmountTaken) {
					t.Error(err)
				}
			}
		})
	}
	bidders.Wait()
	a, err := houses[1].store.Auction(t.Context(), id)
	testwait.Must(t, err)
	if a.Seq != a.TotalBids+2 || a.TotalBids < 60 {
		t.Errorf("%d bids, last event %d", a.TotalBids, a.Seq)
	}
	houses[0].end(id)
	houses[1].do(id, auction.CloseRound{Round: 1, Term: 1})
	houses[0].end(id)
	houses[0].do(id, auction.CloseRound{Round: 2, Term: 1})
	if held := ask[int64](t, houses[0].db, `SELECT sum(held)::bigint FROM accounts`); held != 0 {
		t.Errorf("%d are still held after the last round", held)
	}
}

// After a failover that lost the last commits, the versions of the lost ones come again with another content.
func TestRememberedAuctionOfALostTimeline(t *testing.T) {
	url := database(t)
	here, there := newHouse(t, url), newHouse(t, url)
	fund(t, newLedgerService(t, here.db), 100, "seller", "ann", "ben")
	id := here.open(nil)
	testwait.Must(t, testwait.Err(here.bid(id, "ann", 10)))
	entry := here.store.memory.Enter(id)
	known := here.store.memory.Lock(t.Context(), entry, patience)
	lost, err := here.service.Auction(t.Context(), id)
	testwait.Must(t, err)
	// The other process stands for the same version of another history: what is remembered here has another bid of ben's.
	row := *known.Auction
	row.Version, row.Seq, row.TotalBids = row.Version+1, row.Seq+1, row.TotalBids+1
	bid := auction.Bid{Account: "ben", Amount: 50, Round: 1, Seq: row.Seq, At: known.Last.At, Hold: uuid.New()}
	known.CatchUp(&row, []auction.Bid{bid})
	known.Revision, known.Last.Bid = uuid.New(), bid
	here.store.memory.Unlock(entry, known)
	here.store.memory.Leave(id, entry)
	testwait.Must(t, testwait.Err(there.bid(id, "ben", 11)))
	// Under the auction's lock: a speculative bid would fail, and what is remembered be forgotten.
	var result any
	var refusal error
	want := auction.Want{Bidders: []string{"ann"}, Settling: func(*auction.State) []string { return nil }}
	err = here.store.Commit(t.Context(), id, want, func(u *auction.Unit) {
		result, refusal = auction.Decide(u.State, auction.PlaceBid{Account: "ann", Amount: 12})
	})
	if placed, ok := result.(auction.Placed); !ok || err != nil || placed.Rank != 1 || placed.Seq != lost.Seq+2 {
		t.Errorf("a bid after the failover: %+v, %v, %v", result, refusal, err)
	}
}
