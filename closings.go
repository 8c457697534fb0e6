package fairlead

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// recountLook is how often the bookkeeper looks whether a recount is due.
	recountLook = time.Minute
	// A recount reads recountBlocks, and all accounts, in one snapshot and in about a second. With few accounts it reads recountLeast in some
	// 10 ms. Then it pauses for recountRest times as long, so that it takes a twentieth of one processor.
	recountBlocks = 8192
	recountLeast  = 64
	recountRest   = 19
	// A closing takes a tenth of one processor at first, or half of it where a busy ledger had it begin before its time: it has as much to do
	// whenever it does it, and checks take longer until then. The longer it takes, the more, and after closeWithin it no longer rests: else
	// it might never catch up.
	closeRest     = 9
	closeRestBusy = 1
	closeWithin   = time.Minute
	// The next closing begins sooner than asked for when the entries have grown by closeGrowth, some 230,000, which bookkeepers look for every
	// growthLook. A check counts them in one or two seconds.
	closeGrowth = 32 << 20
	growthLook  = 5 * time.Second
)

// bookkeeper closes and recounts the books for the integrity check, in the process that keeps the public log. Two that believe to be elected
// do the same work twice, and no harm.
type bookkeeper struct {
	ledger   *postgres.Ledger
	every    map[telemetry.BooksWork]time.Duration
	observer *telemetry.Books
	barrier  barrier

	mu      sync.Mutex
	due     map[telemetry.BooksWork]time.Time // when the next is to begin; absent where none is to be done, or another process does it
	invalid map[telemetry.BooksWork]bool
}

func newBookkeeper(o *Options, db *postgres.DB, registry prometheus.Registerer, alone barrier) *bookkeeper {
	b := &bookkeeper{
		ledger: postgres.NewLedger(db), observer: telemetry.NewBooks(registry), barrier: alone,
		every: map[telemetry.BooksWork]time.Duration{telemetry.BooksClose: o.CloseBooksEvery, telemetry.BooksRecount: o.RecountEvery},
	}
	b.forget()
	b.observer.Observe(b.state)
	return b
}

// keep closes and recounts the books until ctx ends.
func (b *bookkeeper) keep(ctx context.Context) {
	defer b.forget()
	var both sync.WaitGroup
	both.Go(func() { b.closeAll(ctx) })
	both.Go(func() { b.recountAll(ctx) })
	both.Wait()
}

// forget leaves it to another process.
func (b *bookkeeper) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due, b.invalid = map[telemetry.BooksWork]time.Time{}, map[telemetry.BooksWork]bool{}
}

func (b *bookkeeper) state(work telemetry.BooksWork) (s telemetry.BooksState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if due, ok := b.due[work]; ok {
		s.Late = max(0, time.Since(due))
	}
	s.Invalid = b.invalid[work]
	return s
}

// closeAll closes the books again and again.
func (b *bookkeeper) closeAll(ctx context.Context) {
	pace := postgres.Pace{Rest: closeRest, Within: closeWithin}
	for {
		began := time.Now()
		var closing *postgres.Closing
		before, err := b.look(ctx)
		if err == nil {
			err = b.barrier.do(ctx, "closing of the books", func() (err error) {
				closing, err = b.ledger.CloseBooks(ctx, pace)
				return err
			})
		}
		took := time.Since(began)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			b.fails(ctx, telemetry.BooksClose, err)
		case closing != nil:
			b.observer.Done(telemetry.BooksClose, took)
			if b.finds(telemetry.BooksClose, closing.Valid) {
				b.wrong(ctx, closing.Integrity)
			}
			b.barrier.logger.DebugContext(ctx, "the books are closed for the integrity check", "entries", closing.Entries, "took", took)
		}
		pace.Rest = closeRest
		if !b.untilDue(ctx, max(b.every[telemetry.BooksClose]-took, minCloseBooks), func(now postgres.Books) bool {
			if err != nil || !sooner(closing != nil, before, now) {
				return false
			}
			pace.Rest = closeRestBusy
			return true
		}) {
			return
		}
	}
}

// untilDue waits until the next closing is due, after a time or sooner, and reports whether that is before ctx ends.
func (b *bookkeeper) untilDue(ctx context.Context, limit time.Duration, sooner func(postgres.Books) bool) bool {
	for due := time.Now().Add(limit); ; {
		books, err := b.look(ctx) // An error comes again with the next closing, which tells.
		left := time.Until(due)
		if left <= 0 || err == nil && sooner(books) {
			return ctx.Err() == nil
		}
		if !wait.For(ctx, min(left, growthLook)) {
			return false
		}
	}
}

// sooner reports whether the next closing is due before its time: since the last one began the entries have grown much; or that found nothing to go
// on from, and now the first recount has ended.
func sooner(closed bool, before, now postgres.Books) bool {
	if !closed {
		return before.Closed == nil && now.Closed != nil
	}
	return now.Size-before.Size >= closeGrowth
}

// recountAll counts everything whenever that is due.
func (b *bookkeeper) recountAll(ctx context.Context) {
	o := postgres.RecountOptions{Runner: postgres.RunnerServer, Blocks: recountBlocks, Least: recountLeast, AtOnce: 1, Rest: recountRest}
	for {
		books, err := b.look(ctx)
		if err == nil && b.recountDue(books) {
			began := time.Now()
			var in ledger.Integrity
			err = b.barrier.do(ctx, "recount of the books", func() (err error) {
				in, err = b.ledger.Recount(ctx, o)
				return err
			})
			switch {
			case err == nil && !in.Valid:
				b.wrong(ctx, in)
			case err == nil:
				b.barrier.logger.InfoContext(ctx, "the books are recounted", "took", time.Since(began))
			}
			if err == nil {
				b.observer.Done(telemetry.BooksRecount, time.Since(began))
				_, err = b.look(ctx)
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			b.fails(ctx, telemetry.BooksRecount, err)
		}
		if !wait.For(ctx, min(recountLook, b.every[telemetry.BooksRecount])) {
			return
		}
	}
}

// look reads what was done last, and notes when the next is due.
func (b *bookkeeper) look(ctx context.Context) (books postgres.Books, err error) {
	books, err = b.ledger.Books(ctx, postgres.RunnerServer)
	if err != nil {
		return books, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dueAfter(telemetry.BooksClose, books.Large && books.Closed != nil, books.Closed)
	b.dueAfter(telemetry.BooksRecount, books.Large, books.Recounted)
	b.invalid[telemetry.BooksRecount] = books.Large && !books.Valid
	return books, nil
}

// recountDue reports whether a recount is due, after a look. One is, too, where there is no closing any more to go on from.
func (b *bookkeeper) recountDue(books postgres.Books) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return books.Large && (books.UnderWay || books.Closed == nil && books.Valid || !b.due[telemetry.BooksRecount].After(time.Now()))
}

// dueAfter notes when the next is due, if one is: so long after the last one, and now if there was none.
func (b *bookkeeper) dueAfter(work telemetry.BooksWork, needed bool, ago *time.Duration) {
	switch _, known := b.due[work]; {
	case !needed:
		delete(b.due, work)
	case ago != nil:
		b.due[work] = time.Now().Add(b.every[work] - *ago)
	case !known:
		b.due[work] = time.Now()
	}
}

// finds notes whether the books add up, and reports whether it is news that they do not: closings may follow each other by seconds.
func (b *bookkeeper) finds(work telemetry.BooksWork, valid bool) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	news = !valid && !b.invalid[work]
	b.invalid[work] = !valid
	return news
}

// wrong tells that the books don't add up.
func (b *bookkeeper) wrong(ctx context.Context, in ledger.Integrity) {
	b.barrier.logger.ErrorContext(ctx, "the books don't add up: run fairlead integrity", "first_bad_account", in.FirstBadAccount, "bad_transfers", in.BadTransfers,
		"difference", in.Difference)
}

func (b *bookkeeper) fails(ctx context.Context, work telemetry.BooksWork, err error) {
	if ctx.Err() != nil {
		return
	}
	b.observer.Failed(work)
	b.barrier.logger.WarnContext(ctx, "the books can't be kept for the integrity check: trying again", "work", string(work), "error", err)
}
