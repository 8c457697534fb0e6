//go:build unix

package explore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// watched is long enough for a server that watches its database to have counted there twice.
const watched = 2500 * time.Millisecond

// repeated are clients of servers whose database comes back as an older copy of itself. When all have their answers, all commands are sent
// again. What was told before the copy, or was asked for after it had come back, must be told again; and what clients are told at last must be
// true of the database.
type repeated struct {
	*World

	answered chan struct{} // gets a value for each answer
	failed   chan struct{} // closed when the database has come back
	clients  sync.WaitGroup

	mu   sync.Mutex
	told []telling
	lost int // successes that nobody knows of any more
}

// telling is an answer, and the life of the database in which it was asked for and came.
type telling struct {
	op        *sim.Op
	answer    sim.Answer
	sent, got int32
}

// stands says that the answer must be the same for ever.
func (t *telling) stands() bool { return t.got == 0 || t.sent == 2 }

// same says that another answer under the same key is of the same execution.
func (t *telling) same(other sim.Answer) bool {
	return t.answer.Status == other.Status && bytes.Equal(t.answer.Body, other.Body) && (other.Replayed || !t.answer.Stored())
}

func newRepeated(w *World) *repeated {
	const mostAnswers = 64
	w.Books = w.History.Clone()
	return &repeated{World: w, answered: make(chan struct{}, mostAnswers), failed: make(chan struct{})}
}

// await waits for a value of a channel, or its end, and says whether there was one before ctx ended.
func await(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// settle has a client send commands, one after the other, each until it has a final answer.
func (r *repeated) settle(ctx context.Context, name string, first int, begin <-chan struct{}, ops ...*sim.Op) {
	c := r.Client(name, servers(first)...)
	r.clients.Add(1)
	r.Go(func() error {
		defer r.clients.Done()
		if begin != nil && !await(ctx, begin) {
			return ctx.Err()
		}
		for _, op := range ops {
			if err := r.settleOne(ctx, c, op); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *repeated) settleOne(ctx context.Context, c *sim.Client, op *sim.Op) error {
	for {
		sent := r.Life()
		a := c.Once(ctx, op)
		if a.Final() {
			r.mu.Lock()
			r.told = append(r.told, telling{op, a, sent, r.Life()})
			r.mu.Unlock()
			r.answered <- struct{}{}
			return nil
		}
		if !wait.For(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%w: %s", sim.ErrUnsettled, op)
		}
	}
}

// fail copies the database after up to so many answers, and loses it after up to so many more, as the seed has it. There must be as many before
// it has failed.
func (r *repeated) fail(ctx context.Context, before, between int) {
	r.Go(func() error {
		var b [2]byte
		_, _ = rand.Read(b[:]) // It never fails.
		for range int(b[0]) % (before + 1) {
			await(ctx, r.answered)
		}
		if err := r.Copy(ctx); err != nil {
			return err
		}
		for range int(b[1]) % (between + 1) {
			await(ctx, r.answered)
		}
		defer close(r.failed)
		return r.Lose(ctx, nil)
	})
}

// repeat sends all commands again when all have an answer and the database has come back.
func (r *repeated) repeat(ctx context.Context) {
	r.Go(func() error {
		await(ctx, r.failed)
		r.clients.Wait()
		wait.For(ctx, watched)
		slices.SortFunc(r.told, func(a, b telling) int { return cmp.Compare(a.op.Key, b.op.Key) })
		c := r.clientOf(r.Books, "again", servers(0)...)
		for _, t := range r.told {
			var body any
			if len(t.op.Body) > 0 {
				body = json.RawMessage(t.op.Body)
			}
			again, err := c.Settle(ctx, sim.NewOp(t.op.Kind, t.op.Path, t.op.Key, body))
			if err != nil {
				return err
			}
			switch {
			case t.same(again):
			case t.stands():
				r.Wrong(fmt.Errorf("%s was answered %v, in life %d of the database, and %v again", t.op, t.answer, t.got, again))
			case t.answer.Status < http.StatusMultipleChoices:
				r.lost++
			}
		}
		return nil
	})
}

// noticed compares what is lost with what servers say of it.
func (r *repeated) noticed(ctx context.Context, db *pgx.Conn) error {
	var losses int
	if err := db.QueryRow(ctx, `SELECT count(*) FROM history_losses`).Scan(&losses); err != nil {
		return err
	}
	if r.watched && r.lost > 0 && losses == 0 {
		return fmt.Errorf("%d successes that clients were told are lost, and no server has noticed it", r.lost)
	}
	if r.keptAll && losses > 0 {
		return fmt.Errorf("%d losses were reported, and nothing was lost", losses)
	}
	return nil
}

// olderState has two servers that remember accounts and a campaign, and whose database comes back as an older copy of itself: what was
// acknowledged after the copy must not be believed by either.
func olderState() Scenario {
	var campaign client.Campaign
	var r *repeated
	return Scenario{
		Servers: 2, Stall: 3 * time.Second, Watched: true,
		Open: func(ctx context.Context, c *sim.Client) error {
			err := errors.Join(openPurses(ctx, c), sim.OpenAccounts(ctx, c, []string{"dot", "eve", "house"}, 100))
			if err != nil {
				return err
			}
			campaign, err = launch(ctx, c, "older")
			return err
		},
		Warm: func(ctx context.Context, w *World) error {
			return errors.Join(acquainted(ctx, w), expect(ctx, w,
				expected{"s1", sim.NewPurchase("warm-5", campaign.ID, "dot", 0), http.StatusCreated},
				expected{"s2", sim.NewPurchase("warm-6", campaign.ID, "eve", 0), http.StatusCreated}))
		},
		Play: func(ctx context.Context, w *World) {
			r = newRepeated(w)
			buyers := []string{"dot", "eve"}
			for i, from := range []string{"ann", "bob"} {
				name, to := fmt.Sprintf("c%d", i+1), []string{"bob", "ann"}[i]
				r.settle(ctx, name, i, nil,
					sim.NewTransfer(name+"-1", from, to, 40),
					sim.NewPurchase(name+"-2", campaign.ID, buyers[i], 0),
					sim.NewDeposit(name+"-3", "cyd", 10),
					sim.NewTransfer(name+"-4", "cyd", from, 10),
					sim.NewPurchase(name+"-5", campaign.ID, buyers[i], 0),
					sim.NewTransfer(name+"-6", from, to, 30),
				)
			}
			r.settle(ctx, "late", 0, r.failed, sim.NewDeposit("late-1", "cyd", 30), sim.NewTransfer("late-covered", "cyd", "ann", 1), sim.NewPurchase("late-3", campaign.ID, "dot", 0))
			r.fail(ctx, 6, 6)
			r.repeat(ctx)
		},
		Check: func(ctx context.Context, w *World, db *pgx.Conn) error {
			if w.Count("late-covered", http.StatusCreated) != 1 {
				return errors.New("a transfer was refused although a deposit that had been acknowledged covers it")
			}
			return r.noticed(ctx, db)
		},
	}
}

// olderAuction has two servers that remember an auction, and whose database comes back as an older copy of itself.
func olderAuction() Scenario {
	var house client.Auction
	var r *repeated
	return Scenario{
		Servers: 2, Stall: 3 * time.Second, Watched: true, Unbooked: true,
		Install: func(ctx context.Context, db *pgx.Conn) error { return execute(ctx, db, watchAuctions) },
		Open: func(ctx context.Context, c *sim.Client) (err error) {
			house, err = createAuction(ctx, c, []string{"ann", "bob", "cyd", "house"}, client.CreateAuctionRequest{
				Title: "older", Rounds: []client.RoundRequest{{Winners: 1, Duration: "2h"}},
			})
			return err
		},
		Warm: func(ctx context.Context, w *World) error { return startAuction(ctx, w, house.ID) },
		Play: func(ctx context.Context, w *World) {
			r = newRepeated(w)
			for i, bidder := range []string{"ann", "bob"} {
				var ops []*sim.Op
				for n := range int64(4) {
					ops = append(ops, sim.NewBid(fmt.Sprintf("%s-%d", bidder, n), house.ID, bidder, 10*(n+1)+int64(i)))
				}
				r.settle(ctx, bidder, i, nil, ops...)
			}
			r.settle(ctx, "late", 1, r.failed, sim.NewBid("late-1", house.ID, "cyd", 15), sim.NewBid("late-2", house.ID, "cyd", 25), sim.NewBid("late-3", house.ID, "ann", 60))
			r.fail(ctx, 4, 4)
			r.repeat(ctx)
		},
		Check: func(ctx context.Context, w *World, db *pgx.Conn) error {
			return errors.Join(checkBids(ctx, w, db, house.ID), r.noticed(ctx, db))
		},
	}
}
