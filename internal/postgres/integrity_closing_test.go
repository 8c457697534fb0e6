package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestClosingsRest cancels a closing while it pauses after its first part. The part stays closed, and the next closing closes the other accounts.
func TestClosingsRest(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowVersions)
	const (
		accounts = 3 * closeAtFirst
		forever  = 1 << 20 // times a millisecond are a quarter of an hour
	)
	db := open(t, Options{URL: database(t), MaxConns: 4})
	books := large(db)
	fund(t, newLedgerService(t, db), 1000, "ann")
	recounted(t, books, true)
	exec(t, db, `INSERT INTO accounts SELECT 'new-' || i, 'EUR', 0, 0, 0, now() FROM generate_series(1, $1::integer) AS i`, accounts)
	closed := func() int {
		return ask[int](t, db, `SELECT count(*)::integer FROM closed_accounts WHERE account LIKE 'new-%'`)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	over := make(chan error, 1)
	go func() { over <- testwait.Err(books.CloseAccounts(ctx, forever)) }()
	testwait.Eventually(t, time.Minute, "the first part is closed", func() bool { return closed() > 0 })
	if n := closed(); n > closeAtFirst {
		t.Errorf("closed %d accounts before the first pause", n)
	}
	stop()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("a closing that was cancelled ends with %v", err)
	}
	left := int64(accounts - closed())
	if closing, err := books.CloseAccounts(t.Context(), 0); err != nil || *closing != (Closing{Closed: left, Balanced: true}) {
		t.Errorf("the next closing, of %d accounts: %+v, %v", left, closing, err)
	}
}

func TestClosingsTakeParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n    int64
		took time.Duration
		next int64
	}{
		{128, closeFor, 128},
		{128, 3 * closeFor, 64},
		{128, closeFor / 4, 256},
		{closeAtLeast, time.Minute, closeAtLeast},
		{closeAtMost, 0, closeAtMost},
	} {
		if next := closeNext(c.n, c.took); next != c.next {
			t.Errorf("after %d in %v: %d, want %d", c.n, c.took, next, c.next)
		}
	}
}

func TestRecountsTakeParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ most, least, accounts, want int64 }{
		{8192, 512, 0, 512},
		{8192, 512, 1000, 2000},
		{8192, 512, 100_000, 8192},
		{32768, 0, 10, 32768},
		{0, 0, 10, 1},
	} {
		r := newRecount()
		r.Beside = c.accounts
		if n := r.atOnce(RecountOptions{Blocks: c.most, Least: c.least}); n != c.want {
			t.Errorf("%d to %d blocks beside %d of accounts: %d, want %d", c.least, c.most, c.accounts, n, c.want)
		}
	}
}
