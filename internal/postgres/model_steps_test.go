package postgres

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// pick draws one of some.
func pick[T any](w *world, some ...T) T { return some[w.rng.IntN(len(some))] }

func (w *world) server() *modelServer { return w.servers[w.rng.IntN(2)] }

// someBid makes a bid that may be right or wrong in every way.
func (w *world) someBid(a *modelAuction) *modelOp {
	account := pick(w, w.accounts...)
	amount := a.offered[account] + 1 + w.rng.Int64N(20)
	switch w.rng.IntN(12) {
	case 0:
		amount = 1 + w.rng.Int64N(amount) // Too low, or another's.
	case 1:
		amount = a.offered[pick(w, w.accounts...)] + 1
	case 2:
		account = pick(w, "seller", "nobody")
	case 3:
		amount = 10_000_000
	}
	return w.bid(a, account, amount)
}

func (w *world) someMoney() *modelOp {
	from, to := pick(w, w.accounts...), pick(w, w.accounts...)
	amount := 1 + w.rng.Int64N(1000)
	if w.rng.IntN(10) == 0 {
		amount = 10_000_000
	}
	var hold uuid.UUID
	if len(w.holds) > 0 {
		hold = pick(w, w.holds...)
	}
	part := (amount + 1) / 2
	reference := ""
	switch w.rng.IntN(6) {
	case 0:
		reference = fmt.Sprintf("r%d", len(w.ops)) // a new one
	case 1:
		reference = fmt.Sprintf("r%d", w.rng.IntN(len(w.ops))) // perhaps another request's
	case 2: // An earlier request comes again, under a key of its own.
		if again := pick(w, w.ops...).money; again != nil && ledger.ReferenceOf(again) != "" {
			return w.op(again)
		}
	}
	third := pick(w, w.accounts...)
	// A fee beside a payment, and what is passed on: some want money in a later leg, and then nothing of them may move.
	split := []ledger.Leg{{From: from, To: to, Amount: amount}, {From: from, To: third, Amount: part}}
	passed := []ledger.Leg{{From: from, To: to, Amount: part}, {From: to, To: third, Amount: amount}}
	return w.op(pick[ledger.Op](w,
		ledger.TransferLegs{Legs: split, Reference: reference}, ledger.TransferLegs{Legs: passed},
		ledger.Deposit{Account: to, Amount: amount, Reference: reference}, ledger.Withdraw{Account: from, Amount: amount, Reference: reference},
		ledger.MakeTransfer{From: from, To: to, Amount: amount, Reference: reference}, ledger.MakeTransfer{From: from, To: to, Amount: amount},
		ledger.PlaceHold{Account: from, Amount: amount}, ledger.CaptureHold{Hold: hold, To: to, Amount: &part},
		ledger.ReleaseHold{Hold: hold}))
}

// steps are what can happen, and how often in each deck.
func (w *world) steps() map[string]struct {
	times int
	run   func()
} {
	return map[string]struct {
		times int
		run   func()
	}{
		"bids one after the other":           {8, w.bidAlone},
		"money moves one after the other":    {3, w.moveAlone},
		"a burst":                            {2, func() { w.burst(nil) }},
		"a burst around which COMMIT is cut": {2, w.cutCommits},
		"a burst of which commits fail":      {2, w.failCommits},
		"a burst with late answers":          {1, w.beLate},
		"a round ends in a late answer":      {2, w.endInLateAnswer},
		"a burst with a locked row":          {1, w.lockRow},
		"repeats":                            {3, w.repeat},
		"a foreign writer":                   {5, w.writeRaw},
		"rounds close":                       {4, w.closeRounds},
		"an auction is cancelled":            {1, w.cancel},
		"an older state is kept":             {1, w.copy},
		"failover":                           {6, w.failOverInQuiet},
		"failover under load":                {2, w.failOverUnderLoad},
		"first bids in quiet":                {1, w.firstBidsInQuiet},
		"a bid repeated elsewhere":           {1, w.bidRepeatedElsewhere},
		"a deposit repeated elsewhere":       {1, w.depositRepeatedElsewhere},
		"audit":                              {2, w.check},
	}
}

// open makes sure that there are two auctions without an end in sight, and one that soon ends.
func (w *world) open() {
	w.Helper()
	long, short := 0, 0
	for id, a := range w.auctions {
		a.over = ask[string](w.T, w.around, `SELECT status FROM auctions WHERE id = $1`, id) != "active"
		switch {
		case a.over:
		case a.rules.Rounds[0].Duration == time.Hour:
			long++
		default:
			short++
		}
	}
	for ; long < 2; long++ {
		w.launch(w.server(), auction.Create{
			UniqueAmounts: w.rng.IntN(2) == 0, MinIncrement: 1 + w.rng.Int64N(2),
			Rounds: []auction.NewRound{{Winners: 2, Duration: time.Hour}},
		})
	}
	if short == 0 {
		rules := auction.Create{UniqueAmounts: w.rng.IntN(2) == 0, Cooldown: pick(w, 0, 2*time.Millisecond, 20*time.Millisecond)}
		for range 1 + w.rng.IntN(3) {
			rules.Rounds = append(rules.Rounds, auction.NewRound{
				Winners: 1 + w.rng.IntN(3), Duration: time.Duration(200+w.rng.IntN(800)) * time.Millisecond,
			})
		}
		if w.rng.IntN(2) == 0 {
			rules.AntiSnipe = auction.AntiSnipe{Window: 100 * time.Millisecond, Extension: 50 * time.Millisecond, MaxExtensions: 3}
		}
		w.launch(w.server(), rules)
	}
}

func (w *world) bidAlone() {
	s := w.server()
	for range 10 {
		if w.rng.IntN(4) == 0 {
			s = w.server()
		}
		w.alone(s, w.someBid(w.anyAuction()))
	}
}

func (w *world) moveAlone() {
	s := w.server()
	for range 6 {
		o := w.someMoney()
		w.alone(s, o)
		if _, ok := o.money.(ledger.PlaceHold); ok && o.answer.Status == 201 {
			w.holds = append(w.holds, uuid.MustParse(told(o.answer).ID))
		}
	}
}

// burst has many clients send commands at once, to both servers; some send one command to both. answered, which may be nil,
// is called after each answer.
func (w *world) burst(answered func()) {
	w.Helper()
	const clients, each = 12, 4
	type call struct {
		s     *modelServer
		o     *modelOp
		twice bool
	}
	var calls [clients][]call
	for c := range calls {
		for range each {
			o := w.someMoney()
			if w.rng.IntN(3) > 0 {
				o = w.someBid(w.anyAuction())
			}
			calls[c] = append(calls[c], call{w.server(), o, answered == nil && w.rng.IntN(5) == 0})
		}
	}
	var group sync.WaitGroup
	for _, of := range calls {
		group.Go(func() {
			for _, c := range of {
				if c.twice {
					group.Go(func() { w.settle(w.servers[1-c.s.n], c.o) })
				}
				w.settle(c.s, c.o)
				if answered != nil {
					answered()
				}
			}
		})
	}
	group.Wait()
}

func (w *world) cutCommits() {
	for _, s := range w.servers {
		s.proxy.Arm(true)
	}
	w.burst(nil)
	for _, s := range w.servers {
		s.proxy.Arm(false)
	}
}

func (w *world) failCommits() {
	exec(w.T, w.around, `UPDATE model.faults SET one_in = 9`)
	w.burst(nil)
	exec(w.T, w.around, `UPDATE model.faults SET one_in = 0`)
}

// beLate has single answers of the database come late, while clients go on.
func (w *world) beLate() {
	for _, s := range w.servers {
		s.proxy.Delay(10, 20*time.Millisecond, 300*time.Millisecond)
	}
	w.burst(nil)
	for range 5 {
		w.alone(w.server(), w.someBid(w.anyAuction()))
	}
	for _, s := range w.servers {
		s.proxy.Delay(0, 0, 0)
	}
}

// endInLateAnswer lets a round end while one of the answers that a command waits for is on its way, and goes on bidding.
func (w *world) endInLateAnswer() {
	const round = 900 * time.Millisecond
	s, ann := w.server(), w.fund(1)[0]
	quiet := w.launch(s, auction.Create{Rounds: []auction.NewRound{{Winners: 1, Duration: 2 * time.Hour}}})
	testwait.Eventually(w.T, patience, "commands go by the fast path", func() bool { return w.place(s, quiet, ann) })
	w.end(quiet)
	for _, others := range w.rng.Perm(3) {
		a := w.launch(s, auction.Create{Rounds: []auction.NewRound{{Winners: 1, Duration: round}}})
		first := w.bid(a, ann, 1)
		w.alone(s, first)
		s.proxy.DelayNext(others, round+time.Duration(w.rng.IntN(150))*time.Millisecond)
		w.settle(s, first) // It is decided under the lock.
		for n := range int64(3) {
			w.alone(s, w.bid(a, ann, 2+n))
		}
		s.proxy.Delay(0, 0, 0)
	}
}

// lockRow has another session hold a row while clients go on.
func (w *world) lockRow() {
	tx, err := w.around.pool.Begin(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	// The test may stall while it has the row.
	testwait.Must(w.T, testwait.Err(tx.Exec(w.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0`)))
	if w.rng.IntN(2) == 0 {
		_, err = tx.Exec(w.Context(), `SELECT FROM accounts WHERE id = $1 FOR UPDATE`, pick(w, w.accounts...))
	} else {
		_, err = tx.Exec(w.Context(), `SELECT FROM auctions WHERE id = $1 FOR UPDATE`, w.anyAuction().id)
	}
	if err != nil {
		w.Fatal(err)
	}
	released := make(chan error, 1)
	go func() {
		if err := pause(w.Context(), 50*time.Millisecond); err != nil {
			released <- err
			return
		}
		released <- tx.Commit(w.Context())
	}()
	w.burst(nil)
	if err := <-released; err != nil {
		w.Error(err)
	}
}

// repeat sends commands again that have an answer: at one of the servers, or at both.
func (w *world) repeat() {
	for range 8 {
		if o := pick(w, w.ops...); o.answer != nil && stored(o.answer) {
			w.settle(w.server(), o)
		}
	}
}

// writeRaw is another program that writes with SQL of its own.
func (w *world) writeRaw() {
	account, amount := pick(w, w.accounts...), 1+w.rng.Int64N(1000)
	switch w.rng.IntN(3) {
	case 0: // As an operator does who edits an auction.
		exec(w.T, w.around, `UPDATE auctions SET version = version + 1, revision = gen_random_uuid() WHERE id = $1`, w.anyAuction().id)
		return
	case 1:
		amount = -min(amount, ask[int64](w.T, w.around, `SELECT available FROM accounts WHERE id = $1`, account))
	}
	if amount == 0 {
		return
	}
	exec(w.T, w.around, `WITH a AS (
			UPDATE accounts SET available = available + $2, version = version + 1 WHERE id = $1 RETURNING version
		), t AS (
			INSERT INTO transfers (id, kind, source, destination, amount, currency, status, reason, memo, created_at)
			SELECT $3, CASE WHEN $2 > 0 THEN 'deposit' ELSE 'withdrawal' END, CASE WHEN $2 > 0 THEN 'outside/EUR' ELSE $1 END,
				CASE WHEN $2 > 0 THEN $1 ELSE 'outside/EUR' END, abs($2::bigint), 'EUR', 'completed', '', 'raw', clock_timestamp() FROM a
		)
		INSERT INTO entries (account, id, version, transfer, amount, currency, at, memo)
		SELECT $1, gen_random_uuid(), version, $3::uuid, $2, 'EUR', clock_timestamp(), 'raw' FROM a
		UNION ALL SELECT 'outside/EUR', gen_random_uuid(), 0, $3, -$2, 'EUR', clock_timestamp(), 'raw' FROM a`, account, amount, uuid.New())
}

// closeRounds is the leader's work.
func (w *world) closeRounds() {
	running, now, err := NewAuctions(w.around).Running(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, r := range running {
		if !r.EndsAt.After(now) {
			w.mustExecute(r.Auction, auction.CloseRound{Round: r.Round, Term: 1})
		}
	}
	w.open()
}

func (w *world) cancel() {
	w.end(w.anyAuction())
	w.open()
}

// end cancels an auction.
func (w *world) end(a *modelAuction) {
	w.Helper()
	w.mustExecute(a.id, auction.Cancel{})
	a.over = true
}

func (w *world) mustExecute(id uuid.UUID, op auction.Op) {
	w.Helper()
	if err := untilFree(func() error { return answerErr(w.server().bidding.Execute(w.Context(), id, own(op))) }); err != nil {
		w.Errorf("%#v: %v", op, err)
	}
}

// failOverInQuiet goes back to an older state between commands. Then what was lost comes again, by the other server, one
// part of it from somebody else, as clients do; and the server that remembers what was lost goes on.
func (w *world) failOverInQuiet() {
	here, there := w.servers[w.rng.IntN(2)], (*modelServer)(nil)
	there = w.servers[1-here.n]
	if !w.copied || w.rng.IntN(2) == 0 {
		w.copy()
	}
	a := w.longest()
	if a != nil {
		for range 3 + w.rng.IntN(4) {
			account := pick(w, w.accounts...)
			w.alone(here, w.bid(a, account, a.offered[account]+1+w.rng.Int64N(50)))
		}
	}
	w.failOver()
	lost := w.forget(true)
	w.open()
	if a = w.auctions[w.idOf(a)]; a == nil {
		return
	}
	var again []*modelOp
	for _, o := range lost {
		if o.auction == a.id {
			again = append(again, o)
		}
	}
	for i, o := range again {
		n := w.bid(a, o.bid.Account, o.bid.Amount)
		if i < len(again)-1 && w.rng.IntN(3) == 0 {
			n.bid.Account = pick(w, w.accounts...)
			n.bid.Amount += w.rng.Int64N(50)
		}
		w.alone(there, n)
	}
	for n := range 6 {
		// A repeat is decided under the lock, any other bid perhaps on what is remembered.
		if n == 0 && w.rng.IntN(3) > 0 || w.rng.IntN(4) == 0 {
			if o := w.answered(a); o != nil {
				w.settle(here, o)
			}
		}
		w.alone(here, w.someBid(a))
	}
}

// answered draws a bid on an auction that has its answer.
func (w *world) answered(a *modelAuction) *modelOp {
	var some []*modelOp
	for _, o := range w.ops {
		if o.auction == a.id && stored(o.answer) {
			some = append(some, o)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return pick(w, some...)
}

// longest finds an active auction without an end in sight.
func (w *world) longest() *modelAuction {
	for range 20 {
		if a := w.anyAuction(); a.rules.Rounds[0].Duration == time.Hour {
			return a
		}
	}
	return nil
}

func (w *world) idOf(a *modelAuction) uuid.UUID {
	if a == nil {
		return uuid.Nil
	}
	return a.id
}

func (w *world) failOverUnderLoad() {
	if !w.copied {
		w.copy()
	}
	var answers atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.burst(func() { answers.Add(1) })
	}()
	testwait.Eventually(w.T, patience, "some are answered", func() bool { return answers.Load() >= 10 })
	w.failOver()
	<-done
	w.forget(false)
	w.open()
}
