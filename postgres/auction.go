package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/auction"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/ledger"
)

const (
	// maxAuctionStates is how many auctions a process remembers. One with ten thousand bidders takes some 3 MB.
	maxAuctionStates = 64
	// closingMargin is how long before a round's end bids are decided under the auction's lock, with the database's own
	// clock: far longer than the carried-on clock can be wrong.
	closingMargin = 250 * time.Millisecond
)

// Auctions is the auctions' store.
type Auctions struct {
	db *DB

	mu     sync.Mutex
	states map[uuid.UUID]*knownAuction
}

// knownAuction is an auction as this process last committed or read it. The revision tells whether it still is.
type knownAuction struct {
	*auction.State

	revision uuid.UUID
	last     auction.Bid // the latest that is remembered: with it, a process tells whether the database still has it
	wary     int         // how many more transactions read under the lock, because another process works on the auction
}

var _ auction.Store = (*Auctions)(nil)

// NewAuctions returns the auctions' store on db.
func NewAuctions(db *DB) *Auctions {
	return &Auctions{db: db, states: map[uuid.UUID]*knownAuction{}}
}

// Create implements [auction.Store].
func (s *Auctions) Create(ctx context.Context, accounts []string, keys []idempotency.ID, decide func(*auction.Unit)) error {
	return s.db.run(ctx, "auction.create", func(ctx context.Context, tx pgx.Tx) error {
		book, known, err := lockBook(ctx, tx, slices.Clone(accounts), nil, keys)
		if err != nil {
			return err
		}
		u := &auction.Unit{Creation: &auction.Creation{Book: book}, Keys: idempotency.NewBatch(known)}
		decide(u)

		var b pgx.Batch
		saveBook(&b, book.Changes(), countedWrites)
		for i := range u.Creation.Auctions {
			saveNewAuction(&b, &u.Creation.Auctions[i])
		}
		saveAudit(&b, u.Audit, book.Now())
		saveKeys(&b, u.Keys.Fresh(), book.Now(), countedWrites)
		return send(ctx, tx, &b)
	})
}

// Commit implements [auction.Store].
//
// The first run of a batch of bids is optimistic, where it can be, as the ledger's is (docs/adr/0010): it decides on the
// auction and the accounts as this process remembers them and writes only where all of them still are. Every other run
// locks the auction's row and brings what is remembered up to date first.
func (s *Auctions) Commit(ctx context.Context, id uuid.UUID, want auction.Want, decide func(*auction.Unit)) error {
	slices.Sort(want.Bidders)
	want.Bidders = slices.Compact(want.Bidders)
	// What is remembered leaves the memory for as long as it is worked on: should the outcome be unknown, nothing that was
	// changed in vain can come back.
	var (
		known    = s.take(id)
		first    = true
		used     *ledger.Book
		accounts = want.Bidders
	)
	err := s.db.run(ctx, "auction", func(ctx context.Context, tx pgx.Tx) (err error) {
		if !first {
			s.db.accounts.forget(accounts)
			if known != nil {
				known.Undo()
			}
		}
		optimistic := first && want.Settling == nil && known != nil && s.db.accounts.trusted()
		first = false
		if optimistic {
			if used, err = s.commitOptimistic(ctx, tx, known, want, decide); used != nil || err != nil {
				return err
			}
		}
		used, known, accounts, err = s.commitLocked(ctx, tx, id, known, want, decide)
		return err
	})
	if err != nil {
		s.db.accounts.forget(accounts)
		return err
	}
	crashpoint.Hit(crashpoint.AuctionAfterCommit)
	s.db.accounts.keep(used)
	s.keep(id, known)
	return nil
}

// commitOptimistic decides on what is remembered. It returns no book, and has written nothing, where the database's own
// clock must be asked: near the end of a round, or when it was not asked recently.
//
// Everything that a decision can rest on is checked by the statements that COMMIT follows: the auction with its rounds and
// standing bids by its version and revision; accounts that change by their version and balance; those that were only
// looked at, or were not there, by a look at them; the keys whose answers leave no record by a look at those.
func (s *Auctions) commitOptimistic(ctx context.Context, tx pgx.Tx, known *knownAuction, want auction.Want, decide func(*auction.Unit)) (*ledger.Book, error) {
	if known.wary > 0 {
		known.wary--
		return nil, nil
	}
	now, ok := s.db.accounts.now()
	if round := known.Auction.Open(); !ok || round == nil || !now.Before(round.EndsAt.Add(-closingMargin)) {
		return nil, nil
	}
	book := ledger.NewBook(now.UTC(), newID)
	absent, err := s.loadAccounts(ctx, tx, want.Bidders, book)
	if err != nil {
		return nil, err
	}
	was, revision := known.Auction.Version, newID()
	known.Begin(book)
	known.LoadHolds(want.Bidders)
	u := &auction.Unit{State: known.State, Keys: idempotency.NewBatch(nil)}
	decide(u)

	var b pgx.Batch
	b.Queue(joinInOrder)
	if known.Changed() {
		saveAuction(&b, known, was, revision, guardedWrites)
	} else {
		b.Queue(guardAuction, known.Auction.ID, was, known.revision)
	}
	guardUnchanged(&b, book, absent)
	guardMisses(&b, u.Keys.Misses())
	saveBook(&b, book.Changes(), guardedWrites)
	saveBids(&b, known.State, guardedWrites)
	saveKeys(&b, u.Keys.Fresh(), book.Now(), guardedWrites)
	err = finish(ctx, tx, &b, crashpoint.AuctionBeforeCommit)
	if isGuard(err) {
		known.wary = waryFor
		return nil, fmt.Errorf("%w: %w", errStale, err)
	}
	if err != nil {
		return nil, err
	}
	if known.Changed() {
		known.revision = revision
	}
	return book, nil
}

// loadAccounts puts accounts into a book, from memory or else from the database, and returns the ids of those that do not
// exist.
func (s *Auctions) loadAccounts(ctx context.Context, tx pgx.Tx, ids []string, book *ledger.Book) (absent []string, err error) {
	absent = s.db.accounts.load(ids, book)
	if len(absent) == 0 {
		return nil, nil
	}
	var b pgx.Batch
	var found []ledger.Account
	b.Queue(selectAccounts, absent).Query(collect(&found, scanAccount))
	if err := send(ctx, tx, &b); err != nil {
		return nil, err
	}
	for _, a := range found {
		book.LoadAccount(a)
		absent = slices.DeleteFunc(absent, func(id string) bool { return id == a.ID })
	}
	return absent, nil
}

// commitLocked locks the auction, brings what is remembered of it up to date, locks the accounts, decides and writes. It
// also returns what is to be remembered, and the accounts that were locked.
func (s *Auctions) commitLocked(ctx context.Context, tx pgx.Tx, id uuid.UUID, known *knownAuction, want auction.Want, decide func(*auction.Unit),
) (*ledger.Book, *knownAuction, []string, error) {
	known, err := lockAuction(ctx, tx, id, known)
	if err != nil {
		return nil, known, want.Bidders, err
	}
	accounts := slices.Clone(want.Bidders)
	if want.Settling != nil {
		accounts = append(accounts, want.Settling(known.State)...)
	}
	book, keys, err := lockBook(ctx, tx, accounts, nil, want.Keys)
	if err != nil {
		return nil, known, accounts, err
	}
	s.db.accounts.asked(book.Now(), time.Now())
	was, revision := known.Auction.Version, newID()
	known.Begin(book)
	known.LoadHolds(accounts)
	u := &auction.Unit{State: known.State, Keys: idempotency.NewBatch(keys)}
	decide(u)

	var b pgx.Batch
	saveBook(&b, book.Changes(), countedWrites)
	if want.Settling != nil {
		if err := send(ctx, tx, &b); err != nil {
			return nil, known, accounts, err
		}
		b = pgx.Batch{}
		crashpoint.Hit(crashpoint.AuctionSettle)
	}
	if known.Changed() {
		saveAuction(&b, known, was, revision, countedWrites)
	}
	saveBids(&b, known.State, countedWrites)
	saveOutcome(&b, known.State)
	saveAudit(&b, u.Audit, book.Now())
	saveKeys(&b, u.Keys.Fresh(), book.Now(), countedWrites)
	if err := send(ctx, tx, &b); err != nil {
		return nil, known, accounts, err
	}
	crashpoint.Hit(crashpoint.AuctionBeforeCommit)
	if known.Changed() {
		// Should the transaction not commit after all, the revision is one that nobody ever sees, and everything is read again.
		known.revision = revision
	}
	return book, known, accounts, nil
}

const (
	auctionFields = `id, number, title, status, currency, seller, current_round, min_bid, min_increment, snipe_window,
		snipe_extension, snipe_max, cooldown, unique_amounts, total_bids, seq, leader_term, version, created_at, started_at, ended_at, revision`
	lockAuctionRow = `SELECT ` + auctionFields + ` FROM auctions WHERE id = $1 FOR NO KEY UPDATE`
	selectRounds   = `SELECT round, winners, duration, status, extensions, started_at, ends_at, ended_at
		FROM auction_rounds WHERE auction = $1 ORDER BY round`
	selectStanding = `SELECT account, amount, round, seq, at, hold FROM auction_standing WHERE auction = $1 AND active`
	selectNewBids  = `SELECT account, amount, round, seq, at, hold FROM auction_bids
		WHERE auction = $1 AND (seq = $2 OR seq > $3) ORDER BY seq`
)

// lockAuction waits for its turn and returns the auction as it then stands. Each statement of a round trip has its own
// snapshot, so those after the lock see what the lock's earlier holder committed.
func lockAuction(ctx context.Context, tx pgx.Tx, id uuid.UUID, known *knownAuction) (*knownAuction, error) {
	var (
		b     pgx.Batch
		found []auctionRow
		row   auctionRow
	)
	b.Queue(lockAuctionRow, id).Query(collect(&found, scanAuction))
	b.Queue(selectRounds, id).Query(collect(&row.Rounds, scanRound))
	if err := send(ctx, tx, &b); err != nil {
		return known, err
	}
	if len(found) == 0 {
		return nil, &auction.NotFoundError{ID: id}
	}
	found[0].Rounds = row.Rounds
	row = found[0]
	if known != nil && known.revision == row.revision && known.Auction.Version == row.Version {
		return known, nil
	}
	if known != nil {
		caught, err := catchUp(ctx, tx, known, &row)
		if caught || err != nil {
			return known, err
		}
	}
	rows, err := tx.Query(ctx, selectStanding, id)
	if err != nil {
		return known, err
	}
	bids, err := pgx.CollectRows(rows, scanStanding)
	if err != nil {
		return known, err
	}
	if known == nil {
		known = &knownAuction{}
	}
	known.State, known.revision, known.last = auction.NewState(&row.Auction, bids), row.revision, auction.Bid{}
	for _, b := range bids {
		if b.Seq > known.last.Seq {
			known.last = b
		}
	}
	return known, nil
}

// catchUp applies the bids that another process placed since, which is all that can have happened within one open round.
// It reports false, and has changed nothing, where more happened, or where the last bid that is remembered is not the
// database's: then a failover lost it.
func catchUp(ctx context.Context, tx pgx.Tx, known *knownAuction, row *auctionRow) (bool, error) {
	last := known.last
	if last.Seq == 0 || known.Auction.Status != row.Status || known.Auction.CurrentRound != row.CurrentRound || row.Version < known.Auction.Version {
		return false, nil
	}
	rows, err := tx.Query(ctx, selectNewBids, row.ID, last.Seq, known.Auction.Seq)
	if err != nil {
		return false, err
	}
	bids, err := pgx.CollectRows(rows, scanStanding)
	if err != nil {
		return false, err
	}
	if len(bids) == 0 || bids[0].Seq != last.Seq || bids[0].Hold != last.Hold || bids[0].Amount != last.Amount {
		return false, nil
	}
	known.CatchUp(&row.Auction, bids[1:])
	known.revision, known.last = row.revision, bids[len(bids)-1]
	return true, nil
}

func (s *Auctions) take(id uuid.UUID) *knownAuction {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.states[id]
	delete(s.states, id)
	return known
}

func (s *Auctions) keep(id uuid.UUID, known *knownAuction) {
	if known.Auction.Status != auction.StatusActive {
		return // Nothing is bid before the start or after the end.
	}
	if n := len(known.Placed); n > 0 {
		p := &known.Placed[n-1]
		known.last = auction.Bid{Account: p.Account, Amount: p.Amount, Round: p.Round, Seq: p.Seq, At: p.At, Hold: p.Hold}
	}
	known.Keep()
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.states {
		if len(s.states) < maxAuctionStates {
			break
		}
		delete(s.states, other) // Any one: it is read again when it is needed.
	}
	s.states[id] = known
}

// auctionRow is an auction as it lies in its table.
type auctionRow struct {
	auction.Auction

	revision uuid.UUID
}

func scanAuction(row pgx.CollectableRow) (a auctionRow, err error) {
	var window, extension, cooldown int64
	err = row.Scan(&a.ID, &a.Number, &a.Title, &a.Status, &a.Currency, &a.Seller, &a.CurrentRound, &a.MinBid, &a.MinIncrement,
		&window, &extension, &a.AntiSnipe.MaxExtensions, &cooldown, &a.UniqueAmounts, &a.TotalBids, &a.Seq, &a.LeaderTerm,
		&a.Version, &a.CreatedAt, &a.StartedAt, &a.EndedAt, &a.revision)
	a.AntiSnipe.Window, a.AntiSnipe.Extension, a.Cooldown = micros(window), micros(extension), micros(cooldown)
	a.CreatedAt, a.StartedAt, a.EndedAt = a.CreatedAt.UTC(), utc(a.StartedAt), utc(a.EndedAt)
	return a, err
}

func scanRound(row pgx.CollectableRow) (r auction.Round, err error) {
	var duration int64
	err = row.Scan(&r.Number, &r.Winners, &duration, &r.Status, &r.Extensions, &r.StartedAt, &r.EndsAt, &r.EndedAt)
	r.Duration, r.StartedAt, r.EndsAt, r.EndedAt = micros(duration), utc(r.StartedAt), utc(r.EndsAt), utc(r.EndedAt)
	return r, err
}

func scanStanding(row pgx.CollectableRow) (b auction.Bid, err error) {
	err = row.Scan(&b.Account, &b.Amount, &b.Round, &b.Seq, &b.At, &b.Hold)
	b.At = b.At.UTC()
	return b, err
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
