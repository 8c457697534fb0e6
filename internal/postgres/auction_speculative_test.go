package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// remembered takes what a process remembers of an auction, once nothing is under way.
func (h *house) remembered(id uuid.UUID) *speculation.Known {
	h.t.Helper()
	entry := h.store.memory.Enter(id)
	defer h.store.memory.Leave(id, entry)
	defer h.store.memory.Unlock(entry, nil)
	return h.store.memory.Lock(h.t.Context(), entry, patience)
}

// standing spells an auction and its standing bids.
func standing(s *auction.State) string {
	out := fmt.Sprintf("version %d, event %d, %d bids, round %d", s.Auction.Version, s.Auction.Seq, s.Auction.TotalBids, s.Auction.CurrentRound)
	for rank, b := range s.Standing.All() {
		out += fmt.Sprintf("\n%d: %s %d, event %d, hold %s, at %v", rank, b.Account, b.Amount, b.Seq, b.Hold, b.At)
	}
	return out
}

// TestBidsSentAhead has many bids at once, whose connection is cut now and then, with another process bidding in between.
// What the process then remembers is what the database has, and each of its events was told once.
func TestBidsSentAhead(t *testing.T) {
	t.Parallel()
	url := database(t)
	here, there := newHouse(t, url), newHouse(t, url)
	var mu sync.Mutex
	var told []int64
	here.service = auction.NewService(here.store, auction.Options{Committed: func(_ uuid.UUID, events []auction.Event) {
		mu.Lock()
		defer mu.Unlock()
		for i := range events {
			told = append(told, events[i].Seq)
		}
	}})
	t.Cleanup(func() { closing(t, here.service.Close) })
	accounts := make([]string, 40)
	for i := range accounts {
		accounts[i] = fmt.Sprintf("a%02d", i)
	}
	fund(t, newLedgerService(t, there.db), 1_000_000, append([]string{"seller"}, accounts...)...)
	id := here.open(func(c *auction.Create) { c.Rounds[0].Winners = 3 })
	place := func(h *house, account string, amount int64) {
		_, err := h.bid(id, account, amount)
		if _, low := errors.AsType[*auction.BidTooLowError](err); err != nil && !low && !errors.Is(err, auction.ErrAmountTaken) {
			t.Error(err)
		}
	}
	offered := make([]int, len(accounts)) // by each account: a storm of bids goes on where the one before has ended, lest all be too low
	storm := func(disturb func(), enough func() bool) {
		t.Helper()
		var bidders sync.WaitGroup
		stop := make(chan struct{})
		for n, account := range accounts {
			bidders.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						place(here, account, int64(1+n+offered[n]*len(accounts)+rand.IntN(3)))
						offered[n]++
					}
				}
			})
		}
		for began, n := time.Now(), 0; n < 5 || !enough(); n++ {
			timer := time.NewTimer(60 * time.Millisecond)
			<-timer.C
			disturb()
			if time.Since(began) > patience {
				t.Error("not enough in time")
				break
			}
		}
		close(stop)
		bidders.Wait()
	}
	compare := func() {
		t.Helper()
		known := here.remembered(id)
		if known == nil {
			place(here, accounts[0], 900_000)
			known = here.remembered(id)
		}
		if err := here.db.run(t.Context(), "compare", func(ctx context.Context, tx pgx.Tx) error {
			fresh, _, err := lockAuction(ctx, tx, id, nil, nil)
			if err == nil && standing(fresh.State) != standing(known.State) {
				t.Errorf("remembered is %s\nthere is %s", standing(known.State), standing(fresh.State))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}

	met := func(reason string) bool {
		reasons, _, _ := here.retries.seen()
		return slices.Contains(reasons, reason)
	}

	// The first bids find nothing remembered, read under the lock, and may overtake one that is speculative by then. But
	// such bids are few.
	knowTheTime(t, here.db)
	storm(func() {}, func() bool { _, outcomes, _ := here.retries.seen(); return len(outcomes) >= 400 })
	if reasons, outcomes, _ := here.retries.seen(); len(reasons) > len(outcomes)/20 {
		t.Errorf("of %d undisturbed transactions some were run again for %v", len(outcomes), reasons)
	}
	compare()
	place(here, accounts[1], 800_000) // What was compared was taken.
	cut := int64(0)
	storm(func() {
		cut += exec(t, there.db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE '%INSERT INTO auction_bids%' AND pid <> pg_backend_pid()`)
	}, func() bool { return met("commit_unknown") })
	compare()
	place(here, accounts[2], 810_000)
	before, _, _ := here.retries.seen()
	storm(func() { place(there, accounts[rand.IntN(len(accounts))], 900_000+rand.Int64N(1000)) }, func() bool {
		reasons, _, _ := here.retries.seen()
		return slices.Contains(reasons[len(before):], "stale")
	})
	compare()
	if cut == 0 {
		t.Error("no connection was cut")
	}

	mu.Lock()
	defer mu.Unlock()
	slices.Sort(told)
	if n := len(told); len(slices.Compact(told)) < n || len(told) < 200 {
		t.Errorf("%d events were told: %v", len(told), told)
	}
	a, err := there.store.Auction(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	// Every bid is an event, and every event has its number.
	if n := ask[int64](t, there.db, `SELECT count(DISTINCT seq) FROM auction_bids`); a.Seq != a.TotalBids+2 || n != a.TotalBids {
		t.Errorf("%d bids, %d of them recorded, last event %d", a.TotalBids, n, a.Seq)
	}
	if held, bids := ask[int64](t, there.db, `SELECT sum(held)::bigint FROM accounts`), ask[int64](t, there.db, `SELECT sum(amount)::bigint FROM auction_standing WHERE active`); held != bids {
		t.Errorf("%d are held for bids of %d", held, bids)
	}
}

// TestBidsThatRestOnAFailure has another process bid while bids are under way, each of which rests on the one before.
func TestBidsThatRestOnAFailure(t *testing.T) {
	t.Parallel()
	url := database(t)
	here, there := newHouse(t, url), newHouse(t, url)
	waitLong(here.db)
	fund(t, newLedgerService(t, here.db), 1000, "seller", "ann", "ben", "cat")
	id := here.open(nil)
	for i, account := range []string{"ann", "ben", "cat"} {
		if _, err := here.bid(id, account, int64(1+i)); err != nil {
			t.Fatal(err)
		}
	}
	// A row lock of somebody else's keeps the first one from ending.
	around, err := sessionOf(t, there.db).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := around.Exec(t.Context(), `SELECT FROM auctions WHERE id = $1 FOR UPDATE`, id); err != nil {
		t.Fatal(err)
	}
	knowTheTime(t, here.db)
	// The second bid is decided on the first one's amount.
	ended := make(chan error, 2)
	p := here.db.spec.Pipeline(int(id[len(id)-1]))
	for i, account := range []string{"ann", "ben"} {
		go func() {
			want := auction.Want{Bidders: []string{account}}
			ended <- here.store.Commit(t.Context(), id, want, func(u *auction.Unit) {
				if _, err := auction.Decide(u.State, auction.PlaceBid{Account: account, Amount: 10 + int64(i)}); err != nil {
					t.Error(err)
				}
			})
		}()
		testwait.Eventually(t, patience, "it is sent", func() bool {
			n, _ := p.UnderWay()
			return n == i+1
		})
	}
	// What a bid of another process changes, as far as these two could know.
	if _, err := around.Exec(t.Context(), `UPDATE auctions SET version = version + 1, revision = gen_random_uuid() WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	if err := around.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	reasons, _, _ := here.retries.seen()
	// Both run again under the lock, and on a machine that stalls the second one may wait there for the first one in vain.
	if ran := slices.DeleteFunc(slices.Sorted(slices.Values(reasons)), func(r string) bool { return r == "55P03" }); !slices.Equal(ran, []string{"behind", "stale"}) {
		t.Errorf("run again for %v", reasons)
	}
	if n := ask[int](t, here.db, `SELECT count(*) FROM auction_bids`); n != 5 {
		t.Errorf("%d bids", n)
	}
	for account, held := range map[string]int64{"ann": 10, "ben": 11, "cat": 3} {
		if a := here.account(account); a.Held != held {
			t.Errorf("%s has %d held, want %d", account, a.Held, held)
		}
	}
}

// TestBidsThatMoveTheEnd are decided under the lock: the end of a round is the database's clock's to judge.
func TestBidsThatMoveTheEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t, database(t))
	fund(t, newLedgerService(t, h.db), 1000, "seller", "ann")
	id := h.open(func(c *auction.Create) {
		c.AntiSnipe = auction.AntiSnipe{Window: 2 * time.Hour, Extension: time.Minute, MaxExtensions: 3}
	})
	for i := range int64(5) {
		if _, err := h.bid(id, "ann", 1+i); err != nil {
			t.Fatal(err)
		}
	}
	a, err := h.store.Auction(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if r := a.Open(); r.Extensions != 3 || r.EndsAt.Sub(*r.StartedAt) != time.Hour+3*time.Minute {
		t.Errorf("extended %d times, for %v", r.Extensions, r.EndsAt.Sub(*r.StartedAt))
	}
	if h.remembered(id) == nil {
		t.Error("nothing is remembered")
	}
}
