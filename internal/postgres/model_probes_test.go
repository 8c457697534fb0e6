package postgres

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// route tells whether a bid or a transfer came by the fast path.
func (w *world) route(a *idempotency.Answer) bool {
	w.Helper()
	if o := told(a); o.Auction != "" {
		return ask[bool](w.T, w.around, `SELECT ahead FROM model.bids WHERE auction = $1 AND seq = $2`, uuid.MustParse(o.Auction), o.Seq)
	}
	return ask[bool](w.T, w.around, `SELECT ahead FROM model.transfers WHERE id = $1`, uuid.MustParse(told(a).ID))
}

// place bids and reports whether that went by the fast path.
func (w *world) place(s *modelServer, a *modelAuction, account string) bool {
	w.Helper()
	o := w.bid(a, account, 1+slices.Max(append([]int64{0}, values(a.offered)...)))
	w.alone(s, o)
	if o.answer == nil || o.answer.Status != 201 {
		w.Fatalf("%v: %+v", o, told(o.answer))
	}
	return w.route(o.answer)
}

// slow notes that what is right was slow. Nothing is wrong by that, so the run goes on; it fails at its end.
func (w *world) slow(format string, args ...any) {
	w.complaints = append(w.complaints, fmt.Sprintf(format, args...))
}

func values(m map[string]int64) (out []int64) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// firstBidsInQuiet wants first bids to go by the fast path, where raises right before and after them do.
func (w *world) firstBidsInQuiet() {
	const enough = 4
	s := w.server()
	a := w.launch(s, auction.Create{UniqueAmounts: w.rng.IntN(2) == 0, Rounds: []auction.NewRound{{Winners: 1, Duration: 2 * time.Hour}}})
	ann := w.fund(1)[0]
	w.place(s, a, ann)
	compared, deadline := 0, time.Now().Add(2*patience)
	for compared < enough {
		newcomer := w.fund(1)[0]
		before := w.place(s, a, ann)
		first := w.place(s, a, newcomer)
		after := w.place(s, a, ann)
		if before && first {
			w.end(a)
			return
		}
		if before && after {
			compared++
		}
		if time.Now().After(deadline) {
			w.Fatalf("server %d: raises never go by the fast path: %v", s.n, s.seen)
		}
	}
	w.slow("server %d: none of %d first bids went by the fast path, though the raises before and after them did: %v", s.n, enough, s.seen)
}

// repeatedElsewhere wants commands to go by the fast path soon after a client has repeated a command here that it had sent
// elsewhere: that is no other server's write.
func (w *world) repeatedElsewhere(s *modelServer, repeated *modelOp, goesAhead func() bool) {
	w.Helper()
	const soon = 8
	testwait.Eventually(w.T, patience, "commands go by the fast path", goesAhead)
	w.settle(s, repeated)
	for range soon {
		if goesAhead() {
			return
		}
	}
	w.slow("server %d: a client's repeat has cost the next %d commands the fast path: %v", s.n, soon, s.seen)
}

// stranger opens an account that one server alone remembers.
func (w *world) stranger(s *modelServer) string {
	id := w.name()
	w.alone(s, w.op(ledger.CreateAccount{ID: id, Currency: "EUR"}))
	w.alone(s, w.op(ledger.Deposit{Account: id, Amount: 1000}))
	w.accounts = append(w.accounts, id)
	return id
}

func (w *world) bidRepeatedElsewhere() {
	here := w.server()
	a := w.launch(w.servers[1-here.n], auction.Create{Rounds: []auction.NewRound{{Winners: 1, Duration: 2 * time.Hour}}})
	there, ann := w.servers[1-here.n], w.fund(1)[0]
	// Nothing here remembers the account, so that its repeat meets the key's record and nothing else.
	stranger := w.stranger(there)
	o := w.bid(a, stranger, 10)
	w.alone(there, o)
	w.repeatedElsewhere(here, o, func() bool { return w.place(here, a, ann) })
	w.end(a)
}

func (w *world) depositRepeatedElsewhere() {
	here := w.server()
	there, accounts := w.servers[1-here.n], w.fund(2)
	o := w.op(ledger.Deposit{Account: w.stranger(there), Amount: 10})
	w.alone(there, o)
	w.repeatedElsewhere(here, o, func() bool {
		m := w.op(ledger.MakeTransfer{From: accounts[0], To: accounts[1], Amount: 1})
		w.alone(here, m)
		if m.answer.Status != 201 || !strings.HasPrefix(told(m.answer).Said, "completed") {
			w.Fatalf("%v: %+v", m, told(m.answer))
		}
		return w.route(m.answer)
	})
}
