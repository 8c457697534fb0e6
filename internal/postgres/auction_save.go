package postgres

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

const (
	insertAuction = `INSERT INTO auctions (id, title, status, currency, seller, current_round, min_bid, min_increment, snipe_window,
			snipe_extension, snipe_max, cooldown, unique_amounts, total_bids, seq, version, revision, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)`
	insertRound = `INSERT INTO auction_rounds (auction, round, winners, duration, status, extensions) VALUES ($1, $2, $3, $4, 'pending', 0)`

	// The guard repeats, in SQL, what the core has decided: the row is the very one that was read, its state only goes
	// forward, and no leader of an older term writes after one of a newer. The concatenations keep the planner from reading
	// the index of statuses, which leads to the auctions of that status, and not to the one.
	updateAuction = `UPDATE auctions SET status = $4, current_round = $5, total_bids = $6, seq = $7, leader_term = $8, started_at = $9,
			ended_at = $10, version = $11, revision = $12, chapter = $11::bigint >> 4
		WHERE id = $1 AND chapter = (SELECT chapter FROM auctions WHERE id = $1 ORDER BY chapter DESC LIMIT 1) AND version = $2 AND revision = $3 AND leader_term <= $8 AND seq <= $7
			AND status || '' IN ('pending', 'active') AND ($4 <> 'pending' OR status || '' = 'pending') RETURNING 1`
	guardAuction = `SELECT 1 / (count(*) = $4::bigint)::integer FROM (SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::uuid[]) AS n (id, version, revision)` + newestAuction + `
		JOIN auctions AS a ON ` + sameAuction + ` AND a.version = n.version AND a.revision = n.revision`

	// A chapter of an auction's row is its version without the last four bits: few enough versions to be passed over, and so many that few enter
	// the indexes anew. newestAuction finds the chapter of an auction n.id: the highest, which is the first that a scan from the index's end meets. A scan for the id alone
	// goes through all dead versions while somebody holds a snapshot that may see them (docs/adr/0061). sameAuction looks the row up by both; where
	// another transaction has begun a chapter since, there is none. "FROM (SELECT * FROM" goes before, and OFFSET 0 behind: else the planner may look for the id
	// alone first, and compare the chapter then.
	newestAuction = newestBefore + `auctions WHERE id = n.id` + newestBehind
	newestBefore  = ` CROSS JOIN LATERAL (SELECT chapter FROM `
	newestBehind  = ` ORDER BY chapter DESC LIMIT 1) AS newest OFFSET 0) AS n`
	sameAuction   = `a.id = ANY (ARRAY[n.id]) AND a.chapter = n.chapter`

	// A round that was closed stays so.
	updateRound = `UPDATE auction_rounds SET status = $3, extensions = $4, started_at = $5, ends_at = $6, ended_at = $7
		WHERE auction = $1 AND round = $2 AND status <> 'completed'`

	// A bid never falls; one with another hold is the new bid of an account that has won in the same transaction. Where
	// amounts are unique, the one before is found by its amount, because there is no index by account to be kept then.
	//
	// Each row is looked up by itself, whatever the planner believes: it must not go through all bids of the auction instead.
	// Therefore the auction is a column of what is raised, which OFFSET 0 keeps, and equality is written in a form that an
	// index knows and a join from the other side does not; where the index is partial, the look-up is a subquery.
	//
	// Beside a snapshot, when $9 is 1, each raise begins a chapter of its bid, with its own number, which is the highest of the auction; the one before it is found by the highest
	// chapter (docs/adr/0061).
	raisedBids = `FROM (SELECT *, seq * $9::bigint AS chapter FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::integer[], $5::bigint[], $6::timestamptz[],
			$7::uuid[], $8::bigint[]) AS v (auction, account, amount, round, seq, at, hold, before) OFFSET 0) AS n`
	raised        = `s.account = n.account AND s.amount = n.before AND s.active AND (s.amount < n.amount OR s.hold <> n.hold) RETURNING 1`
	raiseStanding = `UPDATE auction_standing AS s SET amount = n.amount, round = n.round, seq = n.seq, at = n.at, hold = n.hold, chapter = greatest(s.chapter, n.chapter)
		` + raisedBids + ` CROSS JOIN LATERAL (
			SELECT ctid AS place FROM auction_standing
			WHERE auction::text = n.auction::text AND account = n.account AND coalesce(unique_amount, 0) = 0 ORDER BY chapter DESC LIMIT 1) AS found
		WHERE s.ctid = found.place AND ` + raised
	// Without ctid, the row is found by its key and no subquery.
	raiseStandingByKey = `UPDATE auction_standing AS s SET amount = n.amount, round = n.round, seq = n.seq, at = n.at, hold = n.hold
		` + raisedBids + ` WHERE s.auction::text = n.auction::text AND coalesce(s.unique_amount, 0) = 0 AND ` + raised
	raiseUnique = `UPDATE auction_standing AS s SET amount = n.amount, unique_amount = n.amount, round = n.round, seq = n.seq, at = n.at,
			hold = n.hold
		` + raisedBids + ` WHERE s.auction = ANY (ARRAY[n.auction]) AND s.unique_amount = n.before AND ` + raised
	guardedRaiseStanding = `WITH written AS (` + raiseStanding + `)
		SELECT 1 / (count(*) = $10::bigint)::integer FROM written`
	guardedRaiseStandingByKey = `WITH written AS (` + raiseStandingByKey + `)
		SELECT 1 / (count(*) = $10::bigint)::integer FROM written`
	guardedRaiseUnique = `WITH written AS (` + raiseUnique + `)
		SELECT 1 / (count(*) = $10::bigint)::integer FROM written`
	// A bid that comes after one that was deleted has a later chapter.
	insertStanding = `INSERT INTO auction_standing (auction, account, amount, unique_amount, round, seq, at, hold, active, chapter)
		SELECT auction, account, amount, CASE WHEN is_unique THEN amount END, round, seq, at, hold, true, seq
		FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::integer[], $5::bigint[], $6::timestamptz[], $7::uuid[], $8::boolean[])
			AS n (auction, account, amount, round, seq, at, hold, is_unique)`
	deleteStanding = `DELETE FROM auction_standing WHERE auction = $1 AND account = ANY($2) AND active`
	retireStanding = `UPDATE auction_standing SET active = false, unique_amount = NULL WHERE auction = $1 AND active`

	// The last two are 0 where nobody lost a place.
	insertBids = `INSERT INTO auction_bids (auction, seq, account, amount, previous_amount, round, rank, at, hold, nonce, outbid, floor)
		SELECT auction, seq, account, amount, previous, round, rank, at, hold, nonce, nullif(outbid, 0), nullif(floor, 0)
		FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::integer[], $7::integer[], $8::timestamptz[], $9::uuid[],
			$10::bigint[], $11::bigint[], $12::bigint[]) AS n (auction, seq, account, amount, previous, round, rank, at, hold, nonce, outbid, floor)`
	insertEvents = `INSERT INTO auction_events (auction, seq, type, at, data)
		SELECT $1, * FROM unnest($2::bigint[], $3::text[], $4::timestamptz[], $5::text[])`
	insertWinners = `INSERT INTO auction_winners (auction, round, rank, account, amount, transfer)
		SELECT $1, * FROM unnest($2::integer[], $3::integer[], $4::text[], $5::bigint[], $6::uuid[])`

	guardSameAccounts = `SELECT 1 / (count(*) = $6::bigint)::integer
		FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS n (id, available, held, version, chapter)
		JOIN accounts AS a ON a.id = ANY (ARRAY[n.id]) AND a.chapter = n.chapter AND a.version = n.version AND a.available = n.available AND a.held = n.held`
	guardAbsentAccounts = `SELECT 1 / (count(*) = 0)::integer FROM accounts WHERE id = ANY($1)`
	guardAbsentKeys     = `SELECT 1 / (count(*) = 0)::integer FROM stored_keys WHERE id = ANY($1)`
)

func saveNewAuction(b *pgx.Batch, a *auction.Auction) {
	expectRows(b.Queue(insertAuction, a.ID, a.Title, a.Status, a.Currency, a.Seller, a.CurrentRound, a.MinBid, a.MinIncrement,
		a.AntiSnipe.Window.Microseconds(), a.AntiSnipe.Extension.Microseconds(), a.AntiSnipe.MaxExtensions, a.Cooldown.Microseconds(),
		a.UniqueAmounts, a.TotalBids, a.Seq, a.Version, newID(), a.CreatedAt), 1, errLostRow)
	for _, r := range a.Rounds {
		expectRows(b.Queue(insertRound, a.ID, r.Number, r.Winners, r.Duration.Microseconds()), 1, errLostRow)
	}
}

// saveAuction writes the auction's row over the very one that was read, and its changed rounds.
func saveAuction(b *pgx.Batch, known *speculation.Known, was int64, revision uuid.UUID) {
	a := known.Auction
	expectRows(b.Queue(updateAuction, a.ID, was, known.Revision, a.Status, a.CurrentRound, a.TotalBids, a.Seq, a.LeaderTerm, a.StartedAt,
		a.EndedAt, a.Version, revision), 1, errStale)
	// The round that ends makes room, in the index of open rounds, for the one that starts.
	for _, ended := range []bool{true, false} {
		for _, r := range known.ChangedRounds() {
			if ended == (r.Status == auction.RoundCompleted) {
				expectRows(b.Queue(updateRound, a.ID, r.Number, r.Status, r.Extensions, r.StartedAt, r.EndsAt, r.EndedAt), 1, errLostRow)
			}
		}
	}
}

// saveBids writes the standing bids that changed, the history, and the events other than bids. Winners leave before raises
// are written, and raises are written before new bids: each may take an amount that the one before gave up. find says how bids are
// found whose amounts may repeat.
func saveBids(b *pgx.Batch, st *auction.State, nonce int64, how writes, find raising) {
	a := st.Auction
	added, raised, removed := st.StandingChanges()
	turns := [][]auction.Raise{raised}
	if a.UniqueAmounts {
		turns, raised = inTurns(raised)
		for i := range raised {
			added, removed = append(added, raised[i].Bid), append(removed, raised[i].Account)
		}
	}
	if n := len(removed); n > 0 {
		expectRows(b.Queue(deleteStanding, a.ID, removed), n, errLostRow)
	}
	for _, turn := range turns {
		queueRaises(b, a, turn, how, find)
	}
	if n := len(added); n > 0 {
		expectRows(b.Queue(insertStanding, append(standingColumns(a, added), slices.Repeat([]bool{a.UniqueAmounts}, n))...), n, errLostRow)
	}
	if n := len(st.Placed); n > 0 {
		seqs, accounts, amounts, previous := make([]int64, n), make([]string, n), make([]int64, n), make([]int64, n)
		rounds, ranks, at, holds := make([]int, n), make([]int, n), make([]time.Time, n), make([][16]byte, n)
		outbid, floors := make([]int64, n), make([]int64, n)
		for i := range st.Placed {
			p := &st.Placed[i]
			if p.Outbid > 0 {
				outbid[i], floors[i] = p.Outbid, p.Floor
			}
			seqs[i], accounts[i], amounts[i], previous[i] = p.Seq, p.Account, p.Amount, p.PreviousAmount
			rounds[i], ranks[i], at[i], holds[i] = p.Round, p.Rank, p.At, p.Hold
		}
		expectRows(b.Queue(insertBids, repeat(a.ID, n), seqs, accounts, amounts, previous, rounds, ranks, at, holds,
			slices.Repeat([]int64{nonce}, n), outbid, floors), n, errLostRow)
	}
	saveEvents(b, st)
}

func queueRaises(b *pgx.Batch, a *auction.Auction, raised []auction.Raise, how writes, find raising) {
	n := len(raised)
	if n == 0 {
		return
	}
	statement, guarded := find.counted, find.guarded
	if a.UniqueAmounts {
		statement, guarded = raiseUnique, guardedRaiseUnique
	}
	bids, before := make([]auction.Bid, n), make([]int64, n)
	for i := range raised {
		bids[i], before[i] = raised[i].Bid, raised[i].Before
	}
	how.queue(b, statement, guarded, n, errLostRow, append(standingColumns(a, bids), before, find.chapters)...)
}

// inTurns splits raises of unique amounts, so that an index which is checked row by row never has an amount twice: none takes an
// amount that another one of its turn or of a later one gives up. fallen are the bids of accounts that have won and bid anew, and
// not more: they are written anew.
func inTurns(raised []auction.Raise) (turns [][]auction.Raise, fallen []auction.Raise) {
	givesUp := make(map[int64]int, len(raised)) // which one, by the amount
	for i := range raised {
		if r := &raised[i]; r.Amount > r.Before {
			givesUp[r.Before] = i
		}
	}
	turnOf := make([]int, len(raised)) // counted from 1; 0: not known yet
	var turn func(i int) int
	turn = func(i int) int {
		if turnOf[i] == 0 {
			turnOf[i] = 1
			if before, ok := givesUp[raised[i].Amount]; ok { // Which is raised to more, so this ends.
				turnOf[i] = turn(before) + 1
			}
		}
		return turnOf[i]
	}
	for i := range raised {
		if raised[i].Amount <= raised[i].Before {
			fallen = append(fallen, raised[i])
			continue
		}
		for n := turn(i); len(turns) < n; {
			turns = append(turns, nil)
		}
		turns[turnOf[i]-1] = append(turns[turnOf[i]-1], raised[i])
	}
	return turns, fallen
}

func standingColumns(a *auction.Auction, bids []auction.Bid) []any {
	n := len(bids)
	accounts, amounts, rounds := make([]string, n), make([]int64, n), make([]int, n)
	seqs, at, holds := make([]int64, n), make([]time.Time, n), make([][16]byte, n)
	for i := range bids {
		accounts[i], amounts[i], rounds[i] = bids[i].Account, bids[i].Amount, bids[i].Round
		seqs[i], at[i], holds[i] = bids[i].Seq, bids[i].At, bids[i].Hold
	}
	return []any{repeat(a.ID, n), accounts, amounts, rounds, seqs, at, holds}
}

// repeat returns a column that has an auction in each row.
func repeat(id uuid.UUID, n int) [][16]byte { return slices.Repeat([][16]byte{id}, n) }

// saveEvents writes all events but bid.placed, whose row in the history is the event. The close of a round has one for each
// bidder who lost, so they are one statement.
func saveEvents(b *pgx.Batch, st *auction.State) {
	n := len(st.Events) - len(st.Placed)
	if n == 0 {
		return
	}
	seqs, types, at, data := make([]int64, 0, n), make([]string, 0, n), make([]time.Time, 0, n), make([]string, 0, n)
	for i := range st.Events {
		e := &st.Events[i]
		if e.Type == auction.EventBidPlaced {
			continue
		}
		raw, err := json.Marshal(e.Data)
		if err != nil {
			panic("postgres: an event that is no JSON: " + err.Error()) // Its types are ours, and all of them are.
		}
		seqs, types, at, data = append(seqs, e.Seq), append(types, string(e.Type)), append(at, e.At), append(data, string(raw))
	}
	expectRows(b.Queue(insertEvents, st.Auction.ID, seqs, types, at, data), len(seqs), errLostRow)
}

// saveOutcome writes who won, and takes the standing bids out of the running when the auction has ended.
func saveOutcome(b *pgx.Batch, st *auction.State) {
	if n := len(st.Winners); n > 0 {
		rounds, ranks, accounts := make([]int, n), make([]int, n), make([]string, n)
		amounts, transfers := make([]int64, n), make([][16]byte, n)
		for i, w := range st.Winners {
			rounds[i], ranks[i], accounts[i], amounts[i], transfers[i] = w.Round, w.Rank, w.Account, w.Amount, w.Transfer
		}
		expectRows(b.Queue(insertWinners, st.Auction.ID, rounds, ranks, accounts, amounts, transfers), n, errLostRow)
	}
	if st.Changed() && (st.Auction.Status == auction.StatusCompleted || st.Auction.Status == auction.StatusCancelled) {
		b.Queue(retireStanding, st.Auction.ID)
	}
}

// guardUnchanged refuses the transaction when an account that a decision looked at without changing it is not as it was
// remembered, or one that was absent is there. Those that the transaction creates are checked by their insertion.
func guardUnchanged(b *pgx.Batch, book *ledger.Book, absent []string) {
	absent = slices.DeleteFunc(absent, func(id string) bool {
		_, err := book.Account(id)
		return err == nil
	})
	if len(absent) > 0 {
		b.Queue(guardAbsentAccounts, absent)
	}
	same := slices.Collect(book.Unchanged())
	n := len(same)
	if n == 0 {
		return
	}
	ids, available, held, versions, chapters := make([]string, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i, a := range same {
		ids[i], available[i], held[i], versions[i], chapters[i] = a.ID, a.Available, a.Held, a.Version, a.Chapter
	}
	b.Queue(guardSameAccounts, ids, available, held, versions, chapters, n)
}

// guardMisses refuses the transaction when a key that was answered without leaving a record has one: a replay was due.
func guardMisses(b *pgx.Batch, misses []idempotency.ID) {
	if len(misses) == 0 {
		return
	}
	b.Queue(guardAbsentKeys, rawKeys(misses))
}
