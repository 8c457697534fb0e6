package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/alias"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// TestBalancesAreProved holds the accounts of a closing, and the path of each, against the root in the log.
func TestBalancesAreProved(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	books := newLedgerService(t, db)
	var accounts []string
	for i := range 600 {
		accounts = append(accounts, fmt.Sprintf("acc-%03d", i))
	}
	fund(t, books, 7, accounts...)
	do(t, books, ledger.Withdraw{Account: "acc-005", Amount: 3})
	l := newKeptLog(t, db)
	l.keep(t, 1, nil)
	p := l.published(t, func() int64 { return 1 })
	r := NewLogReader(db)
	for _, account := range []string{"acc-000", "acc-005", "acc-255", "acc-256", "acc-511", "acc-512", "acc-599"} {
		b, err := r.Balance(t.Context(), account, time.Now().Add(time.Hour), p.Size)
		testwait.Check(t, err)
		if b == nil {
			t.Fatalf("%s has no balance", account)
		}
		want := int64(7)
		if account == "acc-005" {
			want = 4
		}
		if b.Available != want || b.Currency != "EUR" || b.Accounts != 600 || !alias.Check(logkeeper.Books, account, alias.Alias{Name: b.Alias, Salt: b.Salt}) {
			t.Errorf("%s: %+v", account, b)
		}
		if err := tlog.CheckRecord(b.Path, b.Accounts, b.Root, b.Index, b.Hash); err != nil {
			t.Errorf("%s at %d: %v", account, b.Index, err)
		}
		if !strings.Contains(string(b.Leaf.Data), fmt.Sprintf(`"accounts":600,"root":"%x"`, b.Root[:])) ||
			!strings.Contains(string(b.Leaf.Data), `{"currency":"EUR","available":4197,"held":0,"outside":4197,"transit":0}`) {
			t.Errorf("the leaf is %s", b.Leaf.Data)
		}
	}
	for _, nobody := range []string{"acc", "acc-0051", "zzz"} {
		if b, err := r.Balance(t.Context(), nobody, time.Now().Add(time.Hour), p.Size); b != nil || err != nil {
			t.Errorf("%s: %+v, %v", nobody, b, err)
		}
	}
	if b, err := r.Balance(t.Context(), "acc-000", time.Now().Add(-time.Hour), p.Size); b != nil || err != nil {
		t.Errorf("an hour ago: %+v, %v", b, err)
	}
}

// TestClosingsGoOn has the sums of the outside go on from one closing to the next, and notices an altered balance.
func TestClosingsGoOn(t *testing.T) {
	t.Parallel()
	db := tampered(t)
	books := newLedgerService(t, db)
	fund(t, books, 100, "ann", "bob")
	store, err := NewLog(db)
	testwait.Check(t, err)
	t.Cleanup(func() { closing(t, store.Shutdown) })
	name := func(account string) string { return account }
	closeAt := func(want string) *logkeeper.Closing {
		t.Helper()
		c, err := store.CloseBooks(t.Context(), name)
		testwait.Check(t, err)
		if got := fmt.Sprint(c.Sums); got != want {
			t.Errorf("closing %d: %s, not %s", c.Seq, got, want)
		}
		return c
	}
	c := closeAt("[{EUR 200 0 200 0}]")
	// As if it had been written long ago: all entries so far are settled.
	settled := uuidAt(time.Now().Add(time.Hour))
	_, err = db.pool.Exec(t.Context(), saveClosing, c.Seq, c.At, 0, c.Accounts, c.Root[:], []byte{}, settled, `{"EUR":{"Outside":200,"Transit":0}}`)
	testwait.Check(t, err)
	if c := closeAt("[{EUR 200 0 200 0}]"); c.Seq != 1 {
		t.Errorf("closing %d follows 0", c.Seq)
	}
	// A deposit under an id that was passed already: the sums alone would miss it.
	do(t, books, ledger.Deposit{Account: "ann", Amount: 5})
	closeAt("[{EUR 205 0 205 0}]")
	_, err = db.pool.Exec(t.Context(), `UPDATE accounts SET available = available + 1 WHERE id = 'bob'`)
	testwait.Check(t, err)
	closeAt("[{EUR 206 0 205 0}]")
}

// slowRounds lets a round that has a closing to append take longer than it is until the next closing.
type slowRounds struct {
	logkeeper.Store

	closed chan struct{} // has one for each closing that was made

	mu   sync.Mutex
	seqs []int64
}

func (s *slowRounds) CloseBooks(ctx context.Context, name logkeeper.Names) (*logkeeper.Closing, error) {
	c, err := s.Store.CloseBooks(ctx, name)
	if err == nil {
		s.mu.Lock()
		s.seqs = append(s.seqs, c.Seq)
		s.mu.Unlock()
		s.closed <- struct{}{}
	}
	return c, err
}

func (s *slowRounds) Look(ctx context.Context) ([]logkeeper.News, error) {
	if s.made() == 1 { // The closing is handed over to this round, or to the next one.
		wait.For(ctx, time.Second) // Were another one made meanwhile, it would have the same number. A shorter time would show that less often.
	}
	return s.Store.Look(ctx)
}

func (s *slowRounds) made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seqs)
}

// TestAClosingWaitsForTheOneBefore has the books closed more often than closings are appended.
func TestAClosingWaitsForTheOneBefore(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	fund(t, newLedgerService(t, db), 100, "ann")
	l := newKeptLog(t, db)
	l.every = time.Millisecond
	const closings = 4
	slow := &slowRounds{closed: make(chan struct{}, 1000)}
	_, end := l.keep(t, 1, func(s logkeeper.Store) logkeeper.Store { slow.Store = s; return slow })
	for range closings {
		<-slow.closed
	}
	end()
	for i, seq := range slow.seqs {
		if seq != int64(i) {
			t.Fatalf("the closings are numbered %v: one was made before that before it was in the log", slow.seqs)
		}
	}
}
