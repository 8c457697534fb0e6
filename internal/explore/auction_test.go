//go:build unix

package explore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// watchAuctions notes what must not be: a bid that is written at or after its round's end, and a leader's term that falls.
const watchAuctions = `CREATE TABLE library.wrong (what text);
	CREATE FUNCTION library.watch_bid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO library.wrong SELECT format('bid %s was written after the end of round %s', NEW.seq, NEW.round)
			FROM auction_rounds WHERE auction = NEW.auction AND round = NEW.round AND ends_at <= clock_timestamp();
		RETURN NEW;
	END $$;
	CREATE TRIGGER watch AFTER INSERT ON auction_bids FOR EACH ROW EXECUTE FUNCTION library.watch_bid();
	CREATE FUNCTION library.watch_term() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO library.wrong SELECT format('term %s wrote after term %s', NEW.leader_term, OLD.leader_term) WHERE NEW.leader_term < OLD.leader_term;
		RETURN NEW;
	END $$;
	CREATE TRIGGER watch AFTER UPDATE ON auctions FOR EACH ROW EXECUTE FUNCTION library.watch_term()`

// createAuction opens accounts and creates an auction.
func createAuction(ctx context.Context, c *sim.Client, accounts []string, request client.CreateAuctionRequest) (out client.Auction, err error) {
	if err := sim.OpenAccounts(ctx, c, accounts, 1000); err != nil {
		return out, err
	}
	request.Currency, request.Seller, request.Cooldown = "SIM", "house", "0s"
	made, err := c.Settle(ctx, sim.NewOp(sim.KindAuction, "/v1/auctions", "auction", request))
	if err != nil || made.Status != http.StatusCreated {
		return out, fmt.Errorf("create an auction: %v: %w", made, err)
	}
	return out, made.JSON(&out)
}

// startAuction starts an auction, and has both servers remember it.
func startAuction(ctx context.Context, w *World, id string) error {
	return expect(ctx, w,
		expected{"s1", sim.NewOp(sim.KindAuction, "/v1/auctions/"+id+"/start", "start", nil), http.StatusOK},
		expected{"s1", sim.NewBid("warm-1", id, "ann", 1), http.StatusCreated},
		expected{"s2", sim.NewBid("warm-2", id, "bob", 2), http.StatusCreated},
		expected{"s1", sim.NewBid("warm-3", id, "ann", 3), http.StatusCreated},
		expected{"s2", sim.NewBid("warm-4", id, "bob", 4), http.StatusCreated})
}

// lateBids has two bidders bid by two servers until two rounds end, which late bids extend, while two servers take themselves for the
// leader and close them.
func lateBids() Scenario {
	var house client.Auction
	return Scenario{
		Servers: 2, Stall: 1500 * time.Millisecond, Unbooked: true,
		Install: func(ctx context.Context, db *pgx.Conn) error { return execute(ctx, db, watchAuctions) },
		Open: func(ctx context.Context, c *sim.Client) (err error) {
			house, err = createAuction(ctx, c, []string{"ann", "bob", "house"}, client.CreateAuctionRequest{
				Title:     "late",
				Rounds:    []client.RoundRequest{{Winners: 1, Duration: "1500ms"}, {Winners: 1, Duration: "1s"}},
				AntiSnipe: client.AntiSnipeRequest{Window: "500ms", Extension: "400ms", MaxExtensions: 2},
			})
			return err
		},
		Warm: func(ctx context.Context, w *World) error { return startAuction(ctx, w, house.ID) },
		Play: func(ctx context.Context, w *World) {
			leading, over := context.WithCancel(ctx)
			w.Lead(leading, "s1", 1)
			w.Lead(leading, "s2", 2)
			sent := &sentBids{at: map[string]time.Time{}}
			both := sim.NewBid("both", house.ID, "ann", 55)
			for i, bidder := range []string{"ann", "bob"} {
				c := w.Client(bidder, servers(i)...)
				w.Go(func() error {
					for n := range int64(5) {
						op := sim.NewBid(fmt.Sprintf("%s-%d", bidder, n), house.ID, bidder, 10*(n+1)+int64(i))
						if n == 3 {
							op = both // As a client does that lost its patience.
						}
						sent.note(op.Key)
						if _, err := c.Settle(ctx, op); err != nil {
							return err
						}
						wait.For(ctx, 450*time.Millisecond)
					}
					return nil
				})
			}
			w.Go(func() error {
				defer over()
				c := w.Client("house", servers(0)...)
				for {
					var now client.Auction
					if err := c.GetJSON(ctx, "/v1/auctions/"+house.ID, &now); err != nil {
						return err
					}
					if now.Status == "completed" {
						return sent.check(w, now)
					}
					wait.For(ctx, time.Second)
				}
			})
		},
		Check: func(ctx context.Context, w *World, db *pgx.Conn) error { return checkBids(ctx, w, db, house.ID) },
	}
}

// sentBids says when the first attempt at a bid was sent. All clocks show the same time.
type sentBids struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (s *sentBids) note(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at[key].IsZero() {
		s.at[key] = time.Now()
	}
}

// check wants bids to be refused that were sent after the end of the last round.
func (s *sentBids) check(w *World, now client.Auction) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := now.Rounds[len(now.Rounds)-1]
	for _, op := range w.History.Ops() {
		final, _ := op.Final()
		if at := s.at[op.Key]; !last.EndsAt.IsZero() && !at.Before(last.EndsAt) && final.Status == http.StatusCreated {
			return fmt.Errorf("bid %s was sent at %v, after the last round's end at %v, and was taken", op.Key, at, last.EndsAt)
		}
	}
	return nil
}

// checkBids compares what bidders were told with the bids that are there, and these with the ends of their rounds.
func checkBids(ctx context.Context, w *World, db *pgx.Conn, house string) error {
	var wrong []error
	told := map[int64]client.Bid{}
	for _, op := range w.Books.Ops() {
		final, _ := op.Final()
		if op.Kind != sim.KindBid || !strings.Contains(op.Path, house) || final.Status != http.StatusCreated {
			continue
		}
		var b client.Bid
		if err := final.JSON(&b); err != nil {
			return err
		}
		if _, twice := told[b.Seq]; twice {
			wrong = append(wrong, fmt.Errorf("bid %d was told to two commands", b.Seq))
		}
		told[b.Seq] = b
	}
	rows, err := db.Query(ctx, `SELECT what FROM library.wrong UNION ALL
		SELECT format('round %s was closed at %s, before its end at %s', round, ended_at, ends_at) FROM auction_rounds WHERE auction = $1 AND ended_at < ends_at`, house)
	if err != nil {
		return err
	}
	seen, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, what := range seen {
		wrong = append(wrong, errors.New(what))
	}
	type bid struct {
		Seq, Amount int64
		Account     string
		At, Ends    time.Time
	}
	rows, err = db.Query(ctx, `SELECT seq, amount, account, at, ends_at FROM auction_bids JOIN auction_rounds USING (auction, round) WHERE auction = $1 ORDER BY seq`, house)
	if err != nil {
		return err
	}
	bids, err := pgx.CollectRows(rows, pgx.RowToStructByPos[bid])
	for _, b := range bids {
		if t, ok := told[b.Seq]; !ok || t.Account != b.Account || t.Amount != b.Amount {
			wrong = append(wrong, fmt.Errorf("bid %+v was told as %+v", b, t))
		}
		if !b.At.Before(b.Ends) {
			wrong = append(wrong, fmt.Errorf("bid %+v is after its round's end", b))
		}
		delete(told, b.Seq)
	}
	for _, t := range told {
		wrong = append(wrong, fmt.Errorf("bid %+v was told, and is not there", t))
	}
	return errors.Join(append(wrong, err, checkEnds(ctx, db, house))...)
}

// checkEnds lets the bids of each round move its end again.
func checkEnds(ctx context.Context, db *pgx.Conn, house string) error {
	rows, err := db.Query(ctx, `WITH RECURSIVE bids AS (
			SELECT round, at, row_number() OVER (PARTITION BY round ORDER BY seq) AS n FROM auction_bids WHERE auction = $1
		), ends AS (
			SELECT round, 0::bigint AS n, started_at + duration * interval '1 microsecond' AS "end", 0 AS extensions
				FROM auction_rounds WHERE auction = $1 AND started_at IS NOT NULL
			UNION ALL
			SELECT e.round, b.n, CASE WHEN late THEN "end" + snipe_extension * interval '1 microsecond' ELSE "end" END, extensions + late::integer
				FROM ends e JOIN bids b ON b.round = e.round AND b.n = e.n + 1 JOIN auctions a ON a.id = $1,
				LATERAL (SELECT snipe_window > 0 AND extensions < snipe_max AND "end" - b.at <= snipe_window * interval '1 microsecond' AS late) l
		)
		SELECT format('round %s ends at %s with %s extensions; by its bids it does at %s with %s', r.round, r.ends_at, r.extensions, e."end", e.extensions)
			FROM auction_rounds r JOIN (SELECT DISTINCT ON (round) * FROM ends ORDER BY round, n DESC) e USING (round)
			WHERE auction = $1 AND (r.ends_at <> e."end" OR r.extensions <> e.extensions)`, house)
	if err != nil {
		return err
	}
	wrong, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (error, error) {
		var what string
		err := row.Scan(&what)
		return errors.New(what), err
	})
	return errors.Join(append(wrong, err)...)
}
