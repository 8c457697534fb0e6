package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

// Auctions is the auctions' store.
type Auctions struct {
	db     *DB
	memory *speculation.Memory
}

var _ auction.Store = (*Auctions)(nil)

// NewAuctions returns the auctions' store on db.
func NewAuctions(db *DB) *Auctions {
	s := &Auctions{db: db, memory: speculation.NewMemory()}
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
	speculative, err := s.db.spec.Run(auctionTransaction, func() error {
		return aside.met(s.commitSpeculative(ctx, id, t, want, decide))
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
func (s *Auctions) runLocked(ctx context.Context, id uuid.UUID, t *speculation.Entry, want auction.Want, aside *setAside,
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

// commitLocked locks the auction, brings what is remembered of it up to date, locks the accounts, decides and writes. It
// also returns what is to be remembered. Where somebody else has locked the auction it returns a [command.BlockedError].
func (s *Auctions) commitLocked(ctx context.Context, tx pgx.Tx, id uuid.UUID, known *speculation.Known, want auction.Want, aside *setAside,
	nonce int64, decide func(*auction.Unit),
) (*speculation.Known, error) {
	known, err := s.lock(ctx, tx, id, known)
	if isLockTimeout(err) {
		return known, s.db.blocked.add(auctionRowKind, id.String())
	}
	if err != nil {
		return known, err
	}
	accounts := slices.Clone(want.Bidders)
	if want.Settling != nil {
		accounts = append(accounts, want.Settling(known.State)...)
	}
	asked := time.Now()
	book, keys, err := lockBookAside(ctx, tx, aside, accounts, nil, want.Keys)
	if err != nil {
		return known, err
	}
	noteUnrecorded(tx, keys)
	s.db.spec.Clock.Learned(book.Now(), asked, time.Now())
	was, revision, round, end := known.Auction.Version, newID(), known.Auction.CurrentRound, known.End()
	known.Begin(book)
	known.LoadHolds(accounts)
	u := &auction.Unit{State: known.State, Keys: idempotency.NewBatch(keys)}
	decide(u)

	var b pgx.Batch
	saveBook(&b, book.Changes(), countedWrites)
	if want.Settling != nil {
		if err := pgkit.Send(ctx, tx, &b); err != nil {
			return known, err
		}
		b = pgx.Batch{}
		crashpoint.Hit(crashpoint.AuctionSettle)
	}
	if len(known.Placed) > 0 {
		// This process may have been stopped since it read the clock.
		if known.Auction.CurrentRound != round {
			end = known.End() // The batch has opened the round that it bids in.
		}
		expectRows(b.Queue(beforeEnd, end), 1, errStale)
	}
	if known.Changed() {
		saveAuction(&b, known, was, revision)
	}
	saveBids(&b, known.State, nonce, countedWrites, s.db.raising())
	saveOutcome(&b, known.State)
	saveAudit(&b, u.Audit, book.Now())
	saveKeys(&b, u.Keys.Fresh(), book.Now(), countedWrites)
	s.db.spec.Keys.Note(u.Keys.Fresh())
	if err := pgkit.Send(ctx, tx, &b); err != nil {
		return known, err
	}
	crashpoint.Hit(crashpoint.AuctionBeforeCommit)
	if known.Changed() {
		// Should the transaction not commit after all, the revision is one that nobody ever sees, and everything is read again.
		known.Revision = revision
	}
	return known, nil
}

// beforeEnd has a row as long as the database's clock does not show the given time.
const beforeEnd = `SELECT 1 WHERE clock_timestamp() < $1::timestamptz`

const (
	auctionFields = `id, number, title, status, currency, seller, current_round, min_bid, min_increment, snipe_window,
		snipe_extension, snipe_max, cooldown, unique_amounts, total_bids, seq, leader_term, version, created_at, started_at, ended_at, revision`
	lockAuctionRow = `SELECT ` + auctionFields + ` FROM auctions WHERE id = $1 FOR NO KEY UPDATE`
	selectRounds   = `SELECT round, winners, duration, status, extensions, started_at, ends_at, ended_at
		FROM auction_rounds WHERE auction = $1 ORDER BY round`
	selectStanding = `SELECT account, amount, round, seq, at, hold FROM auction_standing WHERE auction = $1 AND active`
	selectLastBid  = `SELECT account, amount, round, seq, at, hold, coalesce(nonce, 0) FROM auction_bids
		WHERE auction = $1 AND seq <= $2 ORDER BY seq DESC LIMIT 1`
	selectNewBids = `SELECT account, amount, round, seq, at, hold, coalesce(nonce, 0) FROM auction_bids
		WHERE auction = $1 AND seq >= $2 AND (seq = $2 OR seq > $3) ORDER BY seq`
)

// lock is lockAuction that notes where another process has changed what this one remembers.
func (s *Auctions) lock(ctx context.Context, tx pgx.Tx, id uuid.UUID, known *speculation.Known) (*speculation.Known, error) {
	if known == nil || !known.Settled {
		return lockAuction(ctx, tx, id, known)
	}
	was := known.Revision
	known, err := lockAuction(ctx, tx, id, known)
	if err == nil && known.Revision != was {
		s.db.shared.met(known.Auction.Topic())
	}
	return known, err
}

// lockAuction waits for its turn and returns the auction as it then stands. Each statement of a round trip has its own
// snapshot, so those after the lock see what the lock's earlier holder committed.
func lockAuction(ctx context.Context, tx pgx.Tx, id uuid.UUID, known *speculation.Known) (*speculation.Known, error) {
	var b pgx.Batch
	b.Queue(waitBriefly)
	row, err := readAuction(ctx, tx, &b, lockAuctionRow, id)
	if err != nil {
		return known, err
	}
	if known != nil && known.Revision == row.revision && known.Auction.Version == row.Version {
		known.Settled = true // All that it rests on is committed.
		return known, nil
	}
	if known != nil && known.Settled {
		caught, err := catchUp(ctx, tx, known, row)
		if caught || err != nil {
			return known, err
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
		return known, err
	}
	known = &speculation.Known{State: auction.NewState(&row.Auction, bids), Revision: row.revision, Settled: true}
	if len(last) > 0 {
		known.Last = last[0]
	}
	return known, nil
}

// catchUp applies the bids that another process placed since, which is all that can have happened within one open round.
// It reports false, and has changed nothing, where more happened, or where the last bid that is remembered is not the
// database's: then a failover lost it.
func catchUp(ctx context.Context, tx pgx.Tx, known *speculation.Known, row *auctionRow) (bool, error) {
	last := known.Last
	if last.Seq == 0 || known.Auction.Status != row.Status || known.Auction.CurrentRound != row.CurrentRound || row.Version < known.Auction.Version {
		return false, nil
	}
	placed, err := pgkit.Rows(ctx, tx, pgx.RowToStructByPos[speculation.LastBid], selectNewBids, row.ID, last.Seq, known.Auction.Seq)
	if err != nil {
		return false, err
	}
	if len(placed) == 0 || !placed[0].Is(&last) {
		return false, nil
	}
	bids := make([]auction.Bid, len(placed)-1)
	for i := range bids {
		bids[i] = placed[i+1].Bid
	}
	known.CatchUp(&row.Auction, bids)
	known.Revision, known.Last = row.revision, placed[len(placed)-1]
	return true, nil
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
