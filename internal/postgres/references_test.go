package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
)

// TestReferencesAreTakenOnce has two servers decide requests with the same references at once, on accounts that most of them do not
// share. One request of each reference completes. All others repeat it, if they are the same, and are refused, if not.
func TestReferencesAreTakenOnce(t *testing.T) {
	t.Parallel()
	url := database(t)
	seen := &recorder{}
	dbs := []*DB{open(t, Options{URL: url, Observer: seen}), open(t, Options{URL: url, Observer: seen})}
	services := []*ledger.Service{newLedgerService(t, dbs[0]), newLedgerService(t, dbs[1])}
	ids := []string{"a", "b", "c", "d"}
	fund(t, services[0], 1_000_000, ids...)
	const references, each = 100, 12
	for n := range references {
		reference := fmt.Sprintf("r%d", n)
		ops := []ledger.Op{
			ledger.MakeTransfer{From: "a", To: "b", Amount: 5, Reference: reference},
			ledger.Deposit{Account: "c", Amount: 5, Reference: reference},
			ledger.Withdraw{Account: "d", Amount: 5, Reference: reference},
			ledger.Deposit{Account: "c", Amount: 6, Reference: reference},
		}
		var all sync.WaitGroup
		answers := make([]command.Answer, each)
		for i := range each {
			all.Go(func() {
				var err error
				if answers[i], err = services[i%2].Execute(t.Context(), own(ops[i%len(ops)])); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		first := uuid.Nil
		var winner ledger.Op
		for i, a := range answers {
			if id := idOf(a.Result); a.Err == nil && id != uuid.Nil {
				if first != uuid.Nil {
					t.Fatalf("%s: two requests completed", reference)
				}
				first, winner = id, ops[i%len(ops)]
			}
		}
		for i, a := range answers {
			repeated, again := a.Result.(ledger.Repeated)
			taken, refused := errors.AsType[*ledger.ReferenceTakenError](a.Err)
			switch {
			case idOf(a.Result) == first && first != uuid.Nil:
			case ops[i%len(ops)] == winner && again && idOf(repeated.First) == first:
			case ops[i%len(ops)] != winner && refused && taken.Transfer == first:
			default:
				t.Fatalf("%s: %#v got %+v, %v; the first was %#v, %s", reference, ops[i%len(ops)], a.Result, a.Err, winner, first)
			}
		}
	}
	if n := ask[int](t, dbs[0], `SELECT count(*) FROM transfer_references WHERE completed`); n != references {
		t.Errorf("%d references are taken, want %d", n, references)
	}
	if fell := seen.fallbacks(); fell[speculation.Stale]+fell["key_known"]+fell["repeat"] == 0 {
		t.Errorf("no server met what the other one had done: fallbacks %v", fell)
	}
}

// idOf is the transfer that a result says to be new.
func idOf(result any) uuid.UUID {
	switch r := result.(type) {
	case ledger.Movement:
		return r.Transfer.ID
	case ledger.Transfer:
		return r.ID
	}
	return uuid.Nil
}

// TestReferencesTakeTheFastPath: a client that gives each request a reference of its own loses nothing by it.
func TestReferencesTakeTheFastPath(t *testing.T) {
	t.Parallel()
	seen := &recorder{}
	db := open(t, Options{URL: database(t), Observer: seen})
	s := newLedgerService(t, db)
	fund(t, s, 1000, "ann", "ben")
	do(t, s, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1})
	knowTheTime(t, db)
	before := seen.fallbacks()
	for n := range 20 {
		if _, err := s.Execute(t.Context(), keyed[ledger.Op](ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1, Reference: fmt.Sprint(n)}, fmt.Sprint(n), "")); err != nil {
			t.Fatal(err)
		}
	}
	fell := seen.fallbacks()
	for reason, n := range before {
		fell[reason] -= n
	}
	if fell[speculation.Command]+fell[speculation.Stale]+fell["repeat"]+fell["encode"]+fell["key_known"] > 0 {
		t.Errorf("fallbacks %v", fell)
	}
	if n := ask[int](t, db, `SELECT count(*) FROM transfer_references JOIN transfers ON id = transfer WHERE completed`); n != 20 {
		t.Errorf("%d references", n)
	}
}

// TestTransfersWithoutAReferenceCostNothingMore looks at the statements that a batch would send, and has a server do without the table of references.
func TestTransfersWithoutAReferenceCostNothingMore(t *testing.T) {
	t.Parallel()
	for reference, statements := range map[string]int{"": 2, "r": 3} {
		for _, how := range []writes{countedWrites, guardedWrites} {
			book := ledger.NewBook(time.Now(), newID)
			book.LoadAccount(ledger.Account{ID: "a", Currency: "EUR", Available: 10})
			book.LoadAccount(ledger.Account{ID: "b", Currency: "EUR"})
			if _, err := ledger.Decide(book, ledger.MakeTransfer{From: "a", To: "b", Amount: 1, Reference: reference}); err != nil {
				t.Fatal(err)
			}
			var b pgx.Batch
			saveBook(&b, book.Changes(), how)
			if b.Len() != statements {
				t.Errorf("reference %q: %d statements, want %d", reference, b.Len(), statements)
			}
		}
	}

	// Nobody can use the table of references now, and nobody has to.
	db := open(t, Options{URL: database(t)})
	s := newLedgerService(t, db)
	fund(t, s, 1000, "ann", "ben")
	do(t, s, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1, Reference: "r"})
	stranger(t, db, `LOCK TABLE transfer_references`)
	for n := range 10 {
		for _, op := range []ledger.Op{
			ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1}, ledger.Withdraw{Account: "ann", Amount: 1}, ledger.PlaceHold{Account: "ben", Amount: 1}, // under locks
		} {
			if _, err := s.Execute(t.Context(), keyed(op, fmt.Sprintf("%d %T", n, op), "")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestAContestedReferenceStopsItsOwnCommandsAlone: another session has taken a reference in a transaction that does not end.
func TestAContestedReferenceStopsItsOwnCommandsAlone(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	s := newLedgerService(t, db)
	fund(t, s, 1000, "ann", "ben")
	goAway := stranger(t, db, `INSERT INTO transfer_references VALUES ($1, 'r', true, 0)`, uuid.New())
	deposit := func(account, reference string) error {
		return answerErr(s.Execute(t.Context(), own[ledger.Op](ledger.Deposit{Account: account, Amount: 1, Reference: reference})))
	}
	done := stays(func() error { return deposit("ann", "r") })
	isWaiting(t, db, "the deposit with the reference", done)
	n := 0
	neighbour(t, "a deposit with another reference", func() error {
		n++
		return errors.Join(deposit("ann", fmt.Sprint(n)), deposit("ben", ""))
	})
	goAway()
	if err := <-done; err != nil {
		t.Error(err)
	}
	nothingBlocked(t, db)
	if n := ask[int](t, db, `SELECT count(*) FROM transfer_references WHERE reference = 'r'`); n != 1 {
		t.Errorf("the reference was taken %d times", n)
	}
}

// TestContestedIsFoundAmongMany: the others are not taken for contested.
func TestContestedIsFoundAmongMany(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	stranger(t, db, `INSERT INTO transfer_references VALUES ($1, 'r3', true, 0), ($2, 'r50', true, 0)`, uuid.New(), uuid.New())
	var references []string
	for n := range 77 {
		references = append(references, fmt.Sprintf("r%d", n))
	}
	err := pgx.BeginFunc(t.Context(), sessionOf(t, db), func(tx pgx.Tx) error {
		taken, err := contested(t.Context(), tx, referenceRow, references)
		if got := strings.Join(taken, " "); got != "r3 r50" {
			t.Errorf("contested: %s", got)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestReferencesOutliveKeysAndLostAnswers sends each request again and again, to two servers, under new keys, because an answer to
// COMMIT, or to the client, was lost, or for no reason. Meanwhile all keys expire soon. No request has a second effect, and all of
// its answers are the same.
func TestReferencesOutliveKeysAndLostAnswers(t *testing.T) {
	t.Parallel()
	seed := seeded(t)
	requests, clients := torture(500, 100_000), 64
	url := database(t)
	around := open(t, Options{URL: url})
	w := &lossyServers{t: t}
	for n := range w.services {
		proxy, through := wire.Through(t, url, wire.Options{Seed: seed + uint64(n), LoseOneIn: 8, Blackout: 20 * time.Millisecond})
		s := ledger.NewService(NewLedger(open(t, Options{URL: through, MaxConns: 6})), groupcommit.Options{})
		t.Cleanup(func() { closing(t, s.Close) })
		w.services[n], w.proxies[n] = s, proxy
	}
	accounts := make([]string, 50)
	for i := range accounts {
		accounts[i] = fmt.Sprintf("a%02d", i)
	}
	fund(t, w.services[0], int64(requests), accounts...)
	for _, p := range w.proxies {
		p.Arm(true)
	}
	ctx, stop := context.WithCancel(t.Context())
	var sweeper, group sync.WaitGroup
	expired := int64(0)
	sweeper.Go(func() {
		for ctx.Err() == nil {
			tag, err := around.pool.Exec(t.Context(), `DELETE FROM idempotency_keys WHERE created_at < clock_timestamp() - interval '200 ms'`)
			if err != nil && !isLockTimeout(err) {
				t.Error(err)
				return
			}
			expired += tag.RowsAffected()
			_ = pause(ctx, 50*time.Millisecond)
		}
	})
	next := atomic.Int64{}
	for c := range clients {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(c)))
			for n := next.Add(1); n <= int64(requests) && !t.Failed(); n = next.Add(1) {
				w.request(rng, int(n), accounts)
			}
		})
	}
	group.Wait()
	stop()
	sweeper.Wait()
	lost := 0
	for _, p := range w.proxies {
		p.Arm(false)
		lost += p.Stats().Lost()
	}
	w.check(around, requests, accounts)
	t.Logf("%d requests sent %d times, %d of them undecided, %d answers to COMMIT lost, %d keys expired, %d repeats and %d refusals answered",
		requests, w.sent.Load(), w.unknown.Load(), lost, expired, w.repeated.Load(), w.refused.Load())
	if lost == 0 || expired == 0 || w.repeated.Load() == 0 || w.refused.Load() == 0 {
		t.Error("nothing was lost, expired, repeated or refused")
	}
}

// lossyServers are two servers whose databases lose commits and answers.
type lossyServers struct {
	t                                *testing.T
	services                         [2]*ledger.Service
	proxies                          [2]*wire.Proxy
	sent, unknown, repeated, refused atomic.Int64
}

// askedFor is what the n-th request asks for, and another request with its reference.
func askedFor(n int, accounts []string) (op, other ledger.Op) {
	reference, account := fmt.Sprintf("request %d", n), accounts[n%len(accounts)]
	switch n % 3 {
	case 0:
		return ledger.Deposit{Account: account, Amount: 1, Reference: reference}, ledger.Withdraw{Account: account, Amount: 1, Reference: reference}
	case 1:
		return ledger.Withdraw{Account: account, Amount: 1, Reference: reference}, ledger.Withdraw{Account: account, Amount: 2, Reference: reference}
	}
	to := accounts[(n+1)%len(accounts)]
	return ledger.MakeTransfer{From: account, To: to, Amount: 1, Reference: reference}, ledger.MakeTransfer{From: account, To: to, Amount: 1, Memo: "m", Reference: reference}
}

// request sends one request until it is answered, and some requests once more, or another one with the reference.
func (w *lossyServers) request(rng *rand.Rand, n int, accounts []string) {
	op, other := askedFor(n, accounts)
	first := w.settle(rng, op)
	if first.Status != 201 && first.Status != 200 {
		w.t.Errorf("%#v: %d %s", op, first.Status, first.Body)
	}
	for range rng.IntN(3) {
		if again := w.settle(rng, op); again.Status != 200 || string(again.Body) != string(first.Body) {
			w.t.Errorf("%#v: first %s, then %d %s", op, first.Body, again.Status, again.Body)
		}
		w.repeated.Add(1)
	}
	if rng.IntN(4) == 0 {
		if a := w.settle(rng, other); a.Status != 409 || !strings.Contains(string(a.Body), "reference") {
			w.t.Errorf("%#v: %d %s", other, a.Status, a.Body)
		}
		w.refused.Add(1)
	}
}

// settle sends a request under a new key each time, until it is answered.
func (w *lossyServers) settle(rng *rand.Rand, op ledger.Op) command.Answer {
	ctx, cancel := context.WithTimeout(w.t.Context(), 4*patience)
	defer cancel()
	for {
		w.sent.Add(1)
		a, err := w.services[rng.IntN(2)].Execute(ctx, keyed(op, uuid.NewString(), ""))
		switch {
		case err != nil && (!command.Undividable(err) || ctx.Err() != nil):
			w.t.Errorf("%#v: %v", op, err)
			return a
		case err != nil:
			w.unknown.Add(1)
		case rng.IntN(10) > 0: // Else the answer is lost on its way to the client.
			return a
		}
	}
}

// check compares the books with what was asked for, and has each request come once more, very late.
func (w *lossyServers) check(around *DB, requests int, accounts []string) {
	exec(w.t, around, `DELETE FROM idempotency_keys`)
	before := ask[int](w.t, around, `SELECT count(*) FROM transfers`)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		op, _ := askedFor(1+rng.IntN(requests), accounts)
		if a := w.settle(rng, op); a.Status != 200 {
			w.t.Errorf("%#v, late: %d %s", op, a.Status, a.Body)
		}
	}
	if after := ask[int](w.t, around, `SELECT count(*) FROM transfers`); after != before || after != requests+len(accounts) {
		w.t.Errorf("%d transfers, then %d, want %d", before, after, requests+len(accounts))
	}
	if n := ask[int](w.t, around, `SELECT count(*) FROM (SELECT reference FROM transfer_references WHERE completed GROUP BY 1 HAVING count(*) = 1) AS r`); n != requests {
		w.t.Errorf("%d references were taken once, want %d", n, requests)
	}
	want := map[string]int64{}
	for _, id := range accounts {
		want[id] = int64(requests)
	}
	for n := range requests {
		switch op, _ := askedFor(n+1, accounts); op := op.(type) {
		case ledger.Deposit:
			want[op.Account]++
		case ledger.Withdraw:
			want[op.Account]--
		case ledger.MakeTransfer:
			want[op.From]--
			want[op.To]++
		}
	}
	for id, amount := range want {
		if got := ask[int64](w.t, around, `SELECT available FROM accounts WHERE id = $1`, id); got != amount {
			w.t.Errorf("account %s has %d, want %d", id, got, amount)
		}
	}
}
