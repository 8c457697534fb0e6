package postgres

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// maxPositions bounds the campaigns' inventories that a process remembers: 64 of the largest, whose positions take 12 bytes each. A campaign
// counts as emptyPositions more than it has.
const (
	maxPositions   = 64 * (lottery.MaxPositions + emptyPositions)
	emptyPositions = 100
)

// Lottery is the lottery's store.
type Lottery struct {
	db     *DB
	memory *speculation.Memory[*knownInventory]
	locked *semaphore.Weighted // has room for the runs under locks, which need a connection each
}

// knownInventory is a campaign's inventory as this process has left or read it.
type knownInventory struct {
	speculation.Kept
	*lottery.Inventory

	last     uuid.UUID         // the latest sale that it knows: where the database has another, the inventory is read again
	at       time.Time         // when that was made
	campaign *lottery.Campaign // as it was then
	shared   bool              // another process had sold, too, when this one locked the campaign last
}

// Weight implements [speculation.Remembered].
func (k *knownInventory) Weight() int { return emptyPositions + k.Positions() }

var _ lottery.Store = (*Lottery)(nil)

// NewLottery returns the lottery's store on db.
func NewLottery(db *DB) *Lottery {
	l := &Lottery{db: db, memory: speculation.NewMemory[*knownInventory](maxPositions), locked: semaphore.NewWeighted(lockedRuns)}
	db.OnLostHistory(l.memory.Forget)
	return l
}

// Create implements [lottery.Store].
func (l *Lottery) Create(ctx context.Context, accounts []string, keys []idempotency.ID, decide func(*lottery.Unit)) error {
	aside := setAside{rows: l.db.blocked}
	return l.db.run(ctx, "lottery.create", func(ctx context.Context, tx pgx.Tx) error {
		book, known, err := lockBookAside(ctx, tx, &aside, slices.Clone(accounts), nil, keys)
		if err != nil {
			return aside.met(err)
		}
		noteUnrecorded(tx, known)
		u := &lottery.Unit{Creation: &lottery.Creation{Book: book}, Keys: idempotency.NewBatch(known)}
		decide(u)

		var b pgx.Batch
		saveBook(&b, book.Changes(), countedWrites)
		for _, n := range u.Creation.Campaigns {
			saveNewCampaign(&b, n)
			if err := saveNewBeacon(&b, n.Campaign); err != nil {
				return err
			}
		}
		return aside.met(sendDecided(ctx, tx, &b, u.Audit, u.Keys.Fresh(), book.Now()))
	})
}

// Await implements [lottery.Store].
func (l *Lottery) Await(ctx context.Context, id uuid.UUID) (begun bool) {
	return l.db.turns.Await(ctx, lottery.Topic(id), func(ctx context.Context) { l.refresh(ctx, id) })
}

// Commit implements [lottery.Store].
//
// The first run of a batch that only sells is speculative, where it can be, as that of bids is (docs/adr/0055). Every other run locks the
// campaign's row and brings what is remembered up to date first.
func (l *Lottery) Commit(ctx context.Context, id uuid.UUID, want lottery.Want, decide func(*lottery.Unit)) error {
	random, err := newRandom()
	if err != nil {
		return err
	}
	t := l.memory.Enter(id)
	defer l.memory.Leave(id, t)
	refuse := func(reason error) error {
		return l.db.refuse(ctx, reason, want.Keys, func(blocked error, known *idempotency.Batch) {
			decide(&lottery.Unit{Blocked: blocked, Keys: known})
		})
	}
	if reason := l.db.blocked.find(campaignRow, id.String()); reason != nil {
		return refuse(reason)
	}
	aside := setAside{rows: l.db.blocked}
	turn := l.db.turns.Take(ctx, lottery.Topic(id))
	defer turn.Leave()
	speculative, err := l.db.spec.Run(lotteryTransaction, func() error {
		return aside.met(l.commitSpeculative(ctx, id, t, want, turn, random, decide))
	}, func() error {
		return l.runLocked(ctx, id, t, want, random, &aside, decide)
	})
	if err != nil {
		return refuse(err)
	}
	crashpoint.Hit(crashpoint.LotteryAfterCommit)
	if speculative {
		l.db.spec.AskTime(ctx)
	}
	return nil
}

// lotteryTransaction is the name of the transactions on a campaign in logs and metrics.
const lotteryTransaction = "lottery"

// runLocked locks, reads, decides and writes. One such run at a time works on a campaign in this process, so that each begins with
// what the one before has left.
func (l *Lottery) runLocked(ctx context.Context, id uuid.UUID, t *speculation.Entry[*knownInventory], want lottery.Want, random func(int) int,
	aside *setAside, decide func(*lottery.Unit),
) error {
	// What is remembered leaves the memory for as long as it is worked on: should the transaction fail or its outcome be unknown,
	// nothing that was changed in vain can come back.
	var (
		remembered = l.memory.Lock(ctx, t, l.db.spec.Accounts.Patience)
		inv, left  *knownInventory
		wrong      = false // what a run guessed that it needs
	)
	defer func() { l.memory.Unlock(t, left) }()
	if err := l.locked.Acquire(ctx, 1); err != nil {
		return command.Unavailable(err) // Of what was sent before it, the outcome may be unknown: see [speculation.Speculator.Run].
	}
	defer l.locked.Release(1)
	err := l.db.run(ctx, lotteryTransaction, func(ctx context.Context, tx pgx.Tx) (err error) {
		inv, remembered = remembered, nil
		inv, err = l.commitLocked(ctx, tx, id, inv, want, random, aside, &wrong, decide)
		return aside.met(err)
	})
	switch {
	case err != nil:
	case inv.Free(0) > 0 && !inv.campaign.Ended():
		left = inv
	default: // Nothing more can be sold.
		l.db.spec.Keys.Note([]idempotency.Record{{Request: idempotency.Request{ID: soldOutKey(id)}}})
	}
	return err
}

// commitLocked locks the campaign and the accounts, brings what is remembered of the campaign up to date, decides and writes. It also
// returns what is to be remembered. Where somebody else has locked the campaign it returns a [command.BlockedError]. wrong says that an
// earlier run has guessed wrong what it needs.
func (l *Lottery) commitLocked(ctx context.Context, tx pgx.Tx, id uuid.UUID, inv *knownInventory, want lottery.Want, random func(int) int,
	aside *setAside, wrong *bool, decide func(*lottery.Unit),
) (*knownInventory, error) {
	locks := &bookLock{aside: aside, keys: want.Keys}
	along := locks
	if guessed := guess(inv, want.Plan); guessed == nil || *wrong {
		along = nil
	} else {
		locks.accounts = guessed
	}
	began := time.Now()
	asked := began
	campaign, news, err := l.db.lockCampaign(ctx, tx, id, &inv, along)
	waited := time.Since(began)
	if campaign == nil && isLockTimeout(err) {
		return nil, l.db.blocked.add(campaignRow, id.String())
	}
	if err != nil {
		return nil, err
	}
	if err := loadBeacon(ctx, tx, campaign); err != nil {
		return nil, err
	}
	if inv != nil && inv.Sold() != campaign.SoldPositions && !campaign.Ended() {
		inv.shared = true
		l.db.metAnother(lottery.Topic(id))
	}
	if inv, err = bringUpToDate(ctx, tx, campaign, inv, news); err != nil {
		return nil, err
	}
	need := want.Plan(campaign, inv.Inventory)
	if need.Reread {
		if inv, err = bringUpToDate(ctx, tx, campaign, nil, nil); err != nil {
			return nil, err
		}
		need = want.Plan(campaign, inv.Inventory)
	}
	if along != nil && (need.Result || need.Reread || !locks.covers(need.Accounts)) {
		*wrong = true // Others must be locked, and all of them in order: the next run asks for what it needs when it knows that.
		return nil, errStale
	}
	u := &lottery.Unit{State: inv.state(campaign, random), Waited: waited}
	if need.Result {
		if u.State.Seed, u.State.Draw, err = loadResult(ctx, tx, id); err != nil {
			return nil, err
		}
	}
	if along == nil {
		var b pgx.Batch
		locks.accounts = need.Accounts
		asked = time.Now()
		locks.queue(ctx, tx, &b)
		if err := pgkit.Send(ctx, tx, &b); err != nil {
			return nil, err
		}
	}
	book, known, err := locks.book(ctx, tx)
	if err != nil {
		return nil, err
	}
	noteUnrecorded(tx, known)
	l.db.spec.Clock.Learned(book.Now(), asked, time.Now())
	u.State.Book, u.Keys = book, idempotency.NewBatch(known)
	decide(u)
	inv.sold(u.State)
	inv.campaign = copyOf(campaign) // Later sales change it, and the answers may have this one.
	l.db.spec.Keys.Note(u.Keys.Fresh())
	return inv, save(ctx, tx, u)
}

// state is what a transaction on the campaign begins with.
func (k *knownInventory) state(c *lottery.Campaign, random func(int) int) *lottery.State {
	return &lottery.State{Campaign: c, Inventory: k.Inventory, Random: random, Since: k.at}
}

// sell applies a sale that is in the database.
func (k *knownInventory) sell(s *sale) {
	k.Sell(s.Layer, s.Ordinal, s.Account)
	k.last, k.at = s.ID, s.At
}

// sold notes what a transaction leaves.
func (k *knownInventory) sold(s *lottery.State) {
	if n := len(s.Purchases); n > 0 {
		k.last, k.at = s.Purchases[n-1].ID, s.Purchases[n-1].At
	}
}

func copyOf(c *lottery.Campaign) *lottery.Campaign {
	same := *c
	same.Layers = slices.Clone(c.Layers)
	return &same
}

// guess returns the accounts that a batch needs if it only sells, nil where it may do more or nothing is known.
func guess(inv *knownInventory, plan func(*lottery.Campaign, *lottery.Inventory) lottery.Need) []string {
	if inv == nil || inv.campaign == nil {
		return nil
	}
	need := plan(inv.campaign, inv.Inventory)
	if need.Result || need.Reread {
		return nil
	}
	return need.Accounts
}

// save writes what was decided. The order follows the defences: money and sales first, the guarded transition of the
// campaign after them, the one result row, and the records of the keys last.
func save(ctx context.Context, tx pgx.Tx, u *lottery.Unit) error {
	st := u.State
	var b pgx.Batch
	if !st.Refunded && !st.Sealed && st.Drawn == nil { // It sells, or publishes: nothing is read between its writes and COMMIT.
		saveBook(&b, st.Book.Changes(), guardedWrites)
		savePurchases(&b, st, guardedWrites)
		if st.Changed {
			saveCampaign(&b, st, guardedWrites)
		}
		saveAudit(&b, u.Audit, st.Book.Now())
		saveKeys(&b, u.Keys.Fresh(), st.Book.Now(), guardedWrites)
		return finish(ctx, tx, &b, crashpoint.LotteryBeforeCommit, errLostRow)
	}
	saveBook(&b, st.Book.Changes(), countedWrites)
	savePurchases(&b, st, countedWrites)
	if st.Refunded {
		if err := pgkit.Send(ctx, tx, &b); err != nil {
			return err
		}
		b = pgx.Batch{}
		crashpoint.Hit(crashpoint.LotteryCancelRefunds)
	}
	if st.Changed {
		saveCampaign(&b, st, countedWrites)
	}
	if st.Sealed {
		saveSeal(&b, st.Campaign)
	}
	if st.Refunded && st.Campaign.Beacon != nil && st.Campaign.Beacon.Seal != nil {
		expectRows(b.Queue(endWaiting, st.Campaign.ID), 1, errLostRow)
	}
	if st.Drawn != nil {
		crashpoint.Hit(crashpoint.LotteryDraw)
		if err := saveDraw(&b, st.Drawn); err != nil {
			return err
		}
	}
	saveAudit(&b, u.Audit, st.Book.Now())
	saveKeys(&b, u.Keys.Fresh(), st.Book.Now(), countedWrites)
	if err := pgkit.Send(ctx, tx, &b); err != nil {
		return err
	}
	crashpoint.Hit(crashpoint.LotteryBeforeCommit)
	return nil
}

// campaignLockClass is the first half of the advisory locks' key space that campaigns use.
const campaignLockClass = 0x4641 // "FA"

// The advisory lock, or the row of a [pgkit.Gate], stands in front of the campaign's row: it is an extra gate, held to the end of the transaction. Its key
// is a hash, so unrelated campaigns may now and then wait for each other; none can pass that should not.
const (
	gateCampaign   = `SELECT pg_advisory_xact_lock($1, hashtext($2))`
	campaignFields = `id, number, name, status, draw_mode, base_length, currency, price, beneficiary, escrow, purchase_limit,
		total_positions, sold_positions, commitment, version, created_at, published_at, draw_started_at, completed_at, cancelled_at, witnesses`
	selectCampaign  = `SELECT ` + campaignFields + ` FROM campaigns WHERE id = $1 ORDER BY chapter DESC LIMIT 1`
	lockCampaignRow = selectCampaign + ` FOR NO KEY UPDATE`
	// The layers are numbered from 1. Each is looked for by its highest chapter, as the last one is, which says how many there are.
	selectLayers = `SELECT l.positions, l.sold, l.price, 0 FROM generate_series(1, (
			SELECT layer FROM campaign_layers WHERE campaign = $1 ORDER BY layer DESC, chapter DESC LIMIT 1)) AS n (layer)
		CROSS JOIN LATERAL (SELECT positions, sold, price FROM campaign_layers WHERE campaign = $1 AND layer = n.layer ORDER BY chapter DESC LIMIT 1) AS l
		ORDER BY n.layer`
	// A plan that is made while the table is small stays for as long as nobody analyzes it. The order keeps it from going through all sales of
	// the campaign in the order of their positions; of an equality the planner would drop the order.
	selectLastSale = `SELECT id FROM purchases WHERE campaign = $1 AND seq >= $2 AND seq <= $2 ORDER BY seq LIMIT 1`
	selectNewSales = `SELECT id, layer, ordinal, account, at FROM purchases WHERE campaign = $1 AND seq > $2 ORDER BY seq`
	selectResult   = `SELECT campaign, root, winners, completed_at, beacon, beacon_previous, beacon_round FROM draws WHERE campaign = $1`
	selectPrizes   = `SELECT name, coalesce(layer, 0), quantity FROM campaign_prizes WHERE campaign = $1 ORDER BY ordinal`
)

// lockCampaign waits for its turn and reads the campaign as it then stands. Each statement of the round trip has its
// own snapshot, so those after the lock see what the lock's earlier holder committed. It sets known to nil where the latest
// sale that it knows of is not the database's: a failover has lost it, and others may have been made since. Behind them travel the
// statements of along; nil: none. Where another process was found to sell, too, its sales since are asked for along. After an error the
// campaign is nil where its row was not had.
func (db *DB) lockCampaign(ctx context.Context, tx pgx.Tx, id uuid.UUID, known **knownInventory, along *bookLock) (*lottery.Campaign, []sale, error) {
	var (
		b    pgx.Batch
		last []uuid.UUID
		news []sale
	)
	rows, err := db.gate.Rows(ctx, tx)
	if err != nil {
		return nil, nil, err
	}
	b.Queue(waitBriefly)
	if rows {
		b.Queue(pgkit.In("", pgkit.GateRow), pgkit.GateOf(id[14], id[15]))
	} else {
		b.Queue(gateCampaign, campaignLockClass, id.String())
	}
	read := queueCampaign(&b, lockCampaignRow, id)
	remembers := *known != nil && (*known).Sold() > 0
	if remembers {
		b.Queue(selectLastSale, id, (*known).Sold()).Query(collect(&last, pgx.RowTo[uuid.UUID]))
	}
	if *known != nil && (*known).shared {
		b.Queue(selectNewSales, id, (*known).Sold()).Query(collect(&news, pgx.RowToStructByPos[sale]))
	}
	if along != nil {
		along.queue(ctx, tx, &b)
	}
	err = pgkit.Send(ctx, tx, &b)
	campaign, missing := read()
	switch {
	case err != nil:
		return campaign, nil, err
	case missing != nil:
		return nil, nil, missing
	case remembers && !slices.Equal(last, []uuid.UUID{(*known).last}):
		*known, news = nil, nil
	}
	return campaign, news, nil
}

// sale is what an inventory needs to know of a purchase.
type sale struct {
	ID             uuid.UUID
	Layer, Ordinal int
	Account        string
	At             time.Time
}

// queueCampaign queues the reads of a campaign's row, by a statement, and of its parts. The function that it returns makes the campaign of what was read.
func queueCampaign(b *pgx.Batch, statement string, id uuid.UUID) func() (*lottery.Campaign, error) {
	var (
		found  []lottery.Campaign
		layers []lottery.Layer
		prizes []lottery.Prize
	)
	b.Queue(statement, id).Query(collect(&found, scanCampaign))
	b.Queue(selectLayers, id).Query(collect(&layers, pgx.RowToStructByPos[lottery.Layer]))
	b.Queue(selectPrizes, id).Query(collect(&prizes, pgx.RowToStructByPos[lottery.Prize]))
	return func() (*lottery.Campaign, error) {
		if len(found) == 0 {
			return nil, &lottery.CampaignNotFoundError{ID: id}
		}
		for i := 1; i < len(layers); i++ {
			layers[i].First = layers[i-1].First + layers[i-1].Positions
		}
		found[0].Layers, found[0].Prizes = layers, prizes
		return &found[0], nil
	}
}

// bringUpToDate applies the sales that an inventory has not seen, as long as the campaign has not ended; news are those that were read along with the
// campaign. known is nil for a campaign that this process does not remember.
func bringUpToDate(ctx context.Context, tx pgx.Tx, c *lottery.Campaign, known *knownInventory, news []sale) (*knownInventory, error) {
	if known == nil {
		known = &knownInventory{Inventory: lottery.NewInventory(c.Layers)}
	}
	// Nothing rests on the sales of a campaign that has ended, and they may be archived.
	if known.Sold() == c.SoldPositions || c.Ended() {
		known.shared = false
		return known, nil
	}
	if len(news) == c.SoldPositions-known.Sold() {
		for i := range news {
			known.sell(&news[i])
		}
		return known, nil
	}
	rows, err := tx.Query(ctx, selectNewSales, c.ID, known.Sold())
	if err != nil {
		return nil, err
	}
	var s sale
	if _, err := pgx.ForEachRow(rows, []any{&s.ID, &s.Layer, &s.Ordinal, &s.Account, &s.At}, func() error {
		known.sell(&s)
		return nil
	}); err != nil {
		return nil, err
	}
	if known.Sold() != c.SoldPositions {
		return nil, errors.New("a campaign's counter disagrees with its purchases")
	}
	return known, nil
}

// loadResult reads the seed, and the draw where there is one.
func loadResult(ctx context.Context, tx pgx.Tx, id uuid.UUID) (seed fairdraw.Seed, draw *lottery.Draw, err error) {
	if err := tx.QueryRow(ctx, `SELECT seed FROM campaign_seeds WHERE campaign = $1`, id).Scan((*digest)(&seed)); err != nil {
		return seed, nil, err
	}
	draws, err := pgkit.Rows(ctx, tx, scanResult, selectResult, id)
	return seed, firstOf(draws), err
}

// newRandom returns a source of uniform integers that nobody can foretell: ChaCha8 with a seed from the system.
func newRandom() (func(n int) int, error) {
	var seed [32]byte
	if _, err := cryptorand.Read(seed[:]); err != nil {
		return nil, err
	}
	return rand.New(rand.NewChaCha8(seed)).IntN, nil //nolint:gosec // A cryptographic generator, seeded by the system.
}

func scanCampaign(row pgx.CollectableRow) (c lottery.Campaign, err error) {
	err = row.Scan(&c.ID, &c.Number, &c.Name, &c.Status, &c.DrawMode, &c.BaseLength, &c.Currency, &c.Price, &c.Beneficiary,
		&c.Escrow, &c.PurchaseLimit, &c.TotalPositions, &c.SoldPositions, (*digest)(&c.Commitment), &c.Version,
		&c.CreatedAt, &c.PublishedAt, &c.DrawStartedAt, &c.CompletedAt, &c.CancelledAt, &c.Witnesses)
	return c, err
}
