package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

// Auctions is the auctions' store.
type Auctions struct {
	db     *DB
	memory *speculation.Memory[*speculation.Known]
	locked *semaphore.Weighted // has room for the runs under locks, which need a connection each
}

var _ auction.Store = (*Auctions)(nil)

// lockedRuns bounds how many auctions are worked on under locks at a time, so that they leave connections to others.
const lockedRuns = 8

// NewAuctions returns the auctions' store on db.
func NewAuctions(db *DB) *Auctions {
	s := &Auctions{db: db, memory: speculation.NewMemory[*speculation.Known](speculation.MaxStanding), locked: semaphore.NewWeighted(lockedRuns)}
	db.OnLostHistory(s.memory.Forget)
	return s
}

// Create implements [auction.Store].
func (s *Auctions) Create(ctx context.Context, accounts []string, keys []idempotency.ID, decide func(*auction.Unit)) error {
	aside := setAside{rows: s.db.blocked}
	return s.db.run(ctx, "auction.create", func(ctx context.Context, tx pgx.Tx) error {
		book, known, err := lockBookAside(ctx, tx, &aside, slices.Clone(accounts), nil, keys)
		if err != nil {
			return aside.met(err)
		}
		noteUnrecorded(tx, known)
		u := &auction.Unit{Creation: &auction.Creation{Book: book}, Keys: idempotency.NewBatch(known)}
		decide(u)

		var b pgx.Batch
		saveBook(&b, book.Changes(), countedWrites)
		for i := range u.Creation.Auctions {
			saveNewAuction(&b, &u.Creation.Auctions[i])
		}
		return aside.met(sendDecided(ctx, tx, &b, u.Audit, u.Keys.Fresh(), book.Now()))
	})
}

// Await implements [auction.Store].
func (s *Auctions) Await(ctx context.Context, id uuid.UUID) (begun bool) {
	return s.db.turns.Await(ctx, auction.Topic(id), func(ctx context.Context) { s.refresh(ctx, id) })
}

// Commit implements [auction.Store].
//
// The first run of a batch of bids is speculative, where it can be, as the ledger's is (docs/adr/0010): it decides on the
// auction and the accounts as this process remembers them and writes only where all of them still are. Every other run
// locks the auction's row and brings what is remembered up to date first. It may be called while an earlier call for the
// same auction has not returned.
func (s *Auctions) Commit(ctx context.Context, id uuid.UUID, want auction.Want, decide func(*auction.Unit)) error {
	slices.Sort(want.Bidders)
	want.Bidders = slices.Compact(want.Bidders)
	t := s.memory.Enter(id)
	defer s.memory.Leave(id, t)
	refuse := func(reason error) error {
		return s.db.refuse(ctx, reason, want.Keys, func(blocked error, known *idempotency.Batch) {
			decide(&auction.Unit{Blocked: blocked, Keys: known})
		})
	}
	if reason := s.db.blocked.find(auctionRowKind, id.String()); reason != nil {
		return refuse(reason)
	}
	aside := setAside{rows: s.db.blocked}
	turn := s.db.turns.Take(ctx, auction.Topic(id))
	defer turn.Leave()
	speculative, err := s.db.spec.Run(auctionTransaction, func() error {
		return aside.met(s.commitSpeculative(ctx, id, t, want, turn, decide))
	}, func() error {
		return s.runLocked(ctx, id, t, want, &aside, decide)
	})
	if err != nil {
		return refuse(err)
	}
	crashpoint.Hit(crashpoint.AuctionAfterCommit)
	if speculative {
		s.db.spec.AskTime(ctx)
	}
	return nil
}

// auctionTransaction is the name of the transactions on an auction in logs and metrics.
const auctionTransaction = "auction"

// runLocked locks, reads, decides and writes. One such run at a time works on an auction in this process, so that each
// begins with what the one before has left.
func (s *Auctions) runLocked(ctx context.Context, id uuid.UUID, t *speculation.Entry[*speculation.Known], want auction.Want, aside *setAside,
	decide func(*auction.Unit),
) error {
	// What is remembered leaves the memory for as long as it is worked on: should the outcome be unknown, nothing that was
	// changed in vain can come back.
	var (
		known = s.memory.Lock(ctx, t, s.db.spec.Accounts.Patience)
		left  *speculation.Known
		first = true
		nonce = speculation.NewNonce()
	)
	defer func() { s.memory.Unlock(t, left) }()
	if err := s.locked.Acquire(ctx, 1); err != nil {
		return command.Unavailable(err) // Of what was sent before it, the outcome may be unknown: see [speculation.Speculator.Run].
	}
	defer s.locked.Release(1)
	err := s.db.run(ctx, auctionTransaction, func(ctx context.Context, tx pgx.Tx) (err error) {
		if !first && known != nil {
			known.Undo()
		}
		first = false
		known, err = s.commitLocked(ctx, tx, id, known, want, aside, nonce, decide)
		return aside.met(err)
	})
	if err != nil {
		return err
	}
	if known.Auction.Status == auction.StatusActive { // Nothing is bid before the start or after the end.
		known.Settle(nonce)
		left = known
	}
	return nil
}

// commitLocked locks the auction and the accounts, brings what is remembered of the auction up to date, decides and writes. It
// also returns what is to be remembered. Where somebody else has locked the auction it returns a [command.BlockedError].
//
// Bids take two round trips: one for all locks and what is read under them, and one for what is written, with COMMIT. Who is to be
// settled with is known only from what was read.
func (s *Auctions) commitLocked(ctx context.Context, tx pgx.Tx, id uuid.UUID, known *speculation.Known, want auction.Want, aside *setAside,
	nonce int64, decide func(*auction.Unit),
) (*speculation.Known, error) {
	accounts := slices.Clone(want.Bidders)
	locks := &bookLock{aside: aside, accounts: slices.Clone(accounts), keys: want.Keys}
	asked, along := time.Now(), locks
	if want.Settling != nil {
		along = nil
	}
	known, err := s.lock(ctx, tx, id, known, along)
	if err != nil {
		return known, err
	}
	if want.Settling != nil {
		accounts = append(accounts, want.Settling(known.State)...)
		locks.accounts = slices.Clone(accounts)
		asked = time.Now()
		var b pgx.Batch
		locks.queue(ctx, tx, &b)
		if err := pgkit.Send(ctx, tx, &b); err != nil {
			return known, err
		}
	}
	book, keys, err := locks.book(ctx, tx)
	if err != nil {
		return known, err
	}
	if want.Settling == nil {
		if err := aside.standing(ctx, tx, book, id, want.Bidders); err != nil {
			return known, err
		}
	}
	noteUnrecorded(tx, keys)
	s.db.spec.Clock.Learned(book.Now(), asked, time.Now())
	w := auctionWrite{was: known.Auction.Version, revision: newID(), nonce: nonce, round: known.Auction.CurrentRound, end: known.End()}
	known.Begin(book)
	known.LoadHolds(accounts)
	u := &auction.Unit{State: known.State, Keys: idempotency.NewBatch(keys)}
	decide(u)

	if want.Settling == nil && len(known.ChangedRounds()) == 0 {
		err = s.saveRaises(ctx, tx, known, u, w)
	} else {
		err = s.saveRounds(ctx, tx, known, u, want.Settling != nil, w)
	}
	s.db.spec.Keys.Note(u.Keys.Fresh())
	if err == nil && known.Changed() {
		// Should the transaction not commit after all, the revision is one that nobody ever sees, and everything is read again.
		known.Revision = w.revision
	}
	return known, err
}

// auctionWrite is what the guards of a write compare, and what it writes beside what was decided.
type auctionWrite struct {
	was      int64 // the version that was read
	revision uuid.UUID
	nonce    int64
	round    int       // the number of the round that was read
	end      time.Time // of that round
}

// saveRaises writes bids that changed no round, and commits. The database's clock has the last word: this process may have been stopped
// since it read that.
func (s *Auctions) saveRaises(ctx context.Context, tx pgx.Tx, known *speculation.Known, u *auction.Unit, w auctionWrite) error {
	var b pgx.Batch
	saveBook(&b, known.Book.Changes(), guardedWrites)
	if a := known.Auction; known.Changed() {
		queueRaise(&b, a, w.was, known.Revision, w.revision, w.end)
	}
	saveBids(&b, known.State, w.nonce, guardedWrites, s.db.raising())
	saveAudit(&b, u.Audit, known.Book.Now())
	saveKeys(&b, u.Keys.Fresh(), known.Book.Now(), guardedWrites)
	return finish(ctx, tx, &b, crashpoint.AuctionBeforeCommit, errStale) // By the clock, for example.
}

// saveRounds writes what changes more than bids do: rounds, their winners, the auction's status. It leaves COMMIT to the caller.
func (s *Auctions) saveRounds(ctx context.Context, tx pgx.Tx, known *speculation.Known, u *auction.Unit, settles bool, w auctionWrite) error {
	var b pgx.Batch
	saveBook(&b, known.Book.Changes(), countedWrites)
	if settles {
		if err := pgkit.Send(ctx, tx, &b); err != nil {
			return err
		}
		b = pgx.Batch{}
		crashpoint.Hit(crashpoint.AuctionSettle)
	}
	if len(known.Placed) > 0 {
		// This process may have been stopped since it read the clock.
		end := w.end
		if known.Auction.CurrentRound != w.round {
			end = known.End() // The batch has opened the round that it bids in.
		}
		expectRows(b.Queue(beforeEnd, end), 1, errStale)
	}
	if known.Changed() {
		saveAuction(&b, known, w.was, w.revision)
	}
	saveBids(&b, known.State, w.nonce, countedWrites, s.db.raising())
	saveOutcome(&b, known.State)
	saveAudit(&b, u.Audit, known.Book.Now())
	saveKeys(&b, u.Keys.Fresh(), known.Book.Now(), countedWrites)
	if err := pgkit.Send(ctx, tx, &b); err != nil {
		return err
	}
	crashpoint.Hit(crashpoint.AuctionBeforeCommit)
	return nil
}

// beforeEnd has a row as long as the database's clock does not show the given time.
const beforeEnd = `SELECT 1 WHERE clock_timestamp() < $1::timestamptz`

const (
	auctionFields = `id, number, title, status, currency, seller, current_round, min_bid, min_increment, snipe_window,
		snipe_extension, snipe_max, cooldown, unique_amounts, total_bids, seq, leader_term, version, created_at, started_at, ended_at, revision`
	lockAuctionRow = `SELECT ` + auctionFields + ` FROM auctions WHERE id = $1 ORDER BY chapter DESC LIMIT 1 FOR NO KEY UPDATE`
	selectRounds   = `SELECT round, winners, duration, status, extensions, started_at, ends_at, ended_at
		FROM auction_rounds WHERE auction = $1 ORDER BY round`
	selectStanding = `SELECT account, amount, round, seq, at, hold FROM auction_standing WHERE auction = $1 AND active`
	selectLastBid  = `SELECT account, amount, round, seq, at, hold, coalesce(nonce, 0) FROM auction_bids
		WHERE auction = $1 AND seq <= $2 ORDER BY seq DESC LIMIT 1`
	selectNewBids = `SELECT account, amount, round, seq, at, hold, coalesce(nonce, 0) FROM auction_bids
		WHERE auction = $1 AND seq >= $2 AND (seq = $2 OR seq > $3) ORDER BY seq`
)

// lock is lockAuction that notes where another process has changed what this one remembers, or has locked the auction.
func (s *Auctions) lock(ctx context.Context, tx pgx.Tx, id uuid.UUID, known *speculation.Known, along *bookLock) (*speculation.Known, error) {
	var was uuid.UUID
	settled := known != nil && known.Settled
	if settled {
		was = known.Revision
	}
	known, locked, err := lockAuction(ctx, tx, id, known, along)
	switch {
	case !locked && isLockTimeout(err):
		return known, s.db.blocked.add(auctionRowKind, id.String())
	case err == nil && settled:
		if known.Shared = known.Revision != was; known.Shared {
			s.db.metAnother(known.Auction.Topic())
		}
	}
	return known, err
}

// lockAuction waits for its turn and returns the auction as it then stands. Each statement of a round trip has its own
// snapshot, so those after the lock see what the lock's earlier holder committed. Behind them travel those that lock accounts; nil: none.
// Where another process was found to work on the auction, too, what that has done since is asked for along. locked says whether the
// auction's row was had.
func lockAuction(ctx context.Context, tx pgx.Tx, id uuid.UUID, known *speculation.Known, along *bookLock) (_ *speculation.Known, locked bool, _ error) {
	var (
		b    pgx.Batch
		read auctionReading
		news []speculation.LastBid
	)
	b.Queue(waitBriefly)
	read.queue(&b, lockAuctionRow, id)
	asked := known != nil && known.Settled && known.Shared && known.Last.Seq > 0
	if asked {
		b.Queue(selectNewBids, id, known.Last.Seq, known.Auction.Seq).Query(collect(&news, pgx.RowToStructByPos[speculation.LastBid]))
	}
	if along != nil {
		along.queue(ctx, tx, &b)
	}
	if err := pgkit.Send(ctx, tx, &b); err != nil {
		return known, len(read.found) > 0, err
	}
	row, err := read.auction(id)
	if err != nil {
		return known, false, err
	}
	if known != nil && known.Revision == row.revision && known.Auction.Version == row.Version {
		known.Settled = true // All that it rests on is committed.
		return known, true, nil
	}
	if known != nil && known.Settled && canCatchUp(known, row) {
		if !asked {
			if news, err = pgkit.Rows(ctx, tx, pgx.RowToStructByPos[speculation.LastBid], selectNewBids, id, known.Last.Seq, known.Auction.Seq); err != nil {
				return known, true, err
			}
		}
		if catchUp(known, row, news) {
			return known, true, nil
		}
	}
	var (
		bids []auction.Bid
		last []speculation.LastBid
	)
	b = pgx.Batch{}
	b.Queue(selectStanding, id).Query(collect(&bids, pgx.RowToStructByPos[auction.Bid]))
	b.Queue(selectLastBid, id, row.Seq).Query(collect(&last, pgx.RowToStructByPos[speculation.LastBid]))
	if err := pgkit.Send(ctx, tx, &b); err != nil {
		return known, true, err
	}
	known = &speculation.Known{State: auction.NewState(&row.Auction, bids), Revision: row.revision}
	known.Settled = true
	if len(last) > 0 {
		known.Last = last[0]
	}
	return known, true, nil
}

// canCatchUp reports whether bids are all that can have happened since: nothing else does within one open round.
func canCatchUp(known *speculation.Known, row *auctionRow) bool {
	return known.Last.Seq > 0 && known.Auction.Status == row.Status && known.Auction.CurrentRound == row.CurrentRound && row.Version >= known.Auction.Version
}

// catchUp applies the bids that another process placed since. They begin with the last one that is remembered; where that is not the
// database's, a failover lost it, and nothing is changed.
func catchUp(known *speculation.Known, row *auctionRow, placed []speculation.LastBid) bool {
	if len(placed) == 0 || !placed[0].Is(&known.Last) {
		return false
	}
	bids := make([]auction.Bid, len(placed)-1)
	for i := range bids {
		bids[i] = placed[i+1].Bid
	}
	known.CatchUp(&row.Auction, bids)
	known.Revision, known.Last = row.revision, placed[len(placed)-1]
	return true
}

// auctionRow is an auction as it lies in its table.
type auctionRow struct {
	auction.Auction

	revision uuid.UUID
}

func scanAuction(row pgx.CollectableRow) (a auctionRow, err error) {
	err = row.Scan(&a.ID, &a.Number, &a.Title, &a.Status, &a.Currency, &a.Seller, &a.CurrentRound, &a.MinBid, &a.MinIncrement,
		(*micros)(&a.AntiSnipe.Window), (*micros)(&a.AntiSnipe.Extension), &a.AntiSnipe.MaxExtensions, (*micros)(&a.Cooldown), &a.UniqueAmounts,
		&a.TotalBids, &a.Seq, &a.LeaderTerm, &a.Version, &a.CreatedAt, &a.StartedAt, &a.EndedAt, &a.revision)
	return a, err
}

func scanRound(row pgx.CollectableRow) (r auction.Round, err error) {
	err = row.Scan(&r.Number, &r.Winners, (*micros)(&r.Duration), &r.Status, &r.Extensions, &r.StartedAt, &r.EndsAt, &r.EndedAt)
	return r, err
}
