package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions/partitionstest"
)

// fillLogEvery is how often a filling tells how far it has come.
const fillLogEvery = 10 * time.Second

// piece is a table, or a partition, and the rows of it.
type piece struct {
	table, columns string
	from, end      int64
	rows           int64 // for each number
	row            func(tuples, int64) tuples
	of             *partitions.Partition // nil: it is a table of its own
}

// write fills a migrated database in which nothing has happened. Each table's rows are copied without its indexes, which are made afterwards, and are
// marked as frozen, as autovacuum leaves old ones. What is there in the end is what commands, in the order of the times, and autovacuum would have left.
func (p *past) write(ctx context.Context, url string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if err := partitionstest.Begin(ctx, conn, p.begin.AddDate(0, 0, 10), p.end); err != nil {
		return err
	}
	pieces, err := p.pieces(ctx, conn)
	if err != nil {
		return err
	}
	var done atomic.Int64
	ended := make(chan struct{})
	total := int64(0)
	for _, one := range pieces {
		total += one.rows * (one.end - one.from)
		if one.of != nil {
			if _, err := conn.Exec(ctx, fmt.Sprintf(`ALTER TABLE %s DETACH PARTITION %s`, one.of.Table, one.table)); err != nil {
				return err
			}
		}
	}
	go tellProgress(ended, &done, total)
	sessions, inSessions := errgroup.WithContext(ctx)
	sessions.SetLimit(runtime.NumCPU())
	for _, one := range pieces {
		sessions.Go(func() error {
			if err := one.write(inSessions, url, &done); err != nil {
				return fmt.Errorf("fill %s: %w", one.table, err)
			}
			return nil
		})
	}
	err = sessions.Wait()
	close(ended)
	if err != nil {
		return err
	}
	for _, one := range pieces {
		if one.of != nil {
			if _, err := conn.Exec(ctx, fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES %s; ALTER TABLE %[2]s DROP CONSTRAINT its_own`,
				one.of.Table, one.table, bounds(one.of))); err != nil {
				return err
			}
		}
	}
	if err := p.writeTargets(ctx, conn); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `VACUUM (FREEZE, ANALYZE)`)
	return err
}

func tellProgress(ended <-chan struct{}, done *atomic.Int64, total int64) {
	began := time.Now()
	tick := time.NewTicker(fillLogEvery)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			rate := float64(done.Load()) / time.Since(began).Seconds()
			slog.Info("filling", "rows", done.Load(), "of", total, "per_second", math.Round(rate), "left_s", math.Round(float64(total-done.Load())/max(rate, 1)))
		}
	}
}

func bounds(p *partitions.Partition) string {
	from := "MINVALUE"
	if p.From != uuid.Nil {
		from = "'" + p.From.String() + "'"
	}
	return fmt.Sprintf(`FROM (%s) TO ('%s')`, from, p.To)
}

// pieces are all tables that are copied, the last partitions first: those before the last are about as large as one another.
func (p *past) pieces(ctx context.Context, conn *pgx.Conn) ([]piece, error) {
	all := []piece{
		{table: "accounts", columns: "id, currency, available, held, version, created_at", end: p.accounts, rows: 1, row: p.accountRow},
	}
	parts, err := partitions.List(ctx, conn, partitions.Entries, partitions.Transfers, partitions.Bids, partitions.Purchases)
	if err != nil {
		return nil, err
	}
	for i := range parts {
		part := &parts[i]
		if part.Rest {
			continue
		}
		one := piece{table: part.Name, of: part, rows: 1}
		number := p.until
		switch part.Table {
		case partitions.Entries:
			one.columns, one.row, one.rows = "account, id, version, transfer, amount, currency, at", p.entryRows, 2
		case partitions.Transfers:
			one.columns, one.row = "id, kind, source, destination, amount, currency, status, created_at", p.transferRow
		case partitions.Bids:
			one.columns, one.row = "auction, seq, account, amount, previous_amount, round, rank, at, hold, nonce, began_at, outbid, floor", p.bidRow
			number = func(t time.Time) int64 { return p.auctionsUntil(t) * pastBids }
		case partitions.Purchases:
			one.columns, one.row = "campaign, seq, id, account, layer, number, ordinal, price, transfer, at", p.purchaseRow
			number = p.salesUntil
		}
		if part.From != uuid.Nil {
			one.from = number(partitions.Time(part.From))
		}
		if one.end = number(partitions.Time(part.To)); one.end > one.from {
			all = append(all, one)
		}
	}
	return all, nil
}

// write copies the rows of a piece into its table, which is empty.
func (one *piece) write(ctx context.Context, url string, done *atomic.Int64) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	const selectIndexes = `SELECT coalesce('ALTER TABLE ' || i.indrelid::regclass || ' DROP CONSTRAINT ' || k.conname, 'DROP INDEX ' || i.indexrelid::regclass),
			coalesce('ALTER TABLE ' || i.indrelid::regclass || ' ADD CONSTRAINT ' || k.conname || ' ' || pg_get_constraintdef(k.oid), pg_get_indexdef(i.indexrelid))
		FROM pg_index AS i LEFT JOIN pg_constraint AS k ON k.conindid = i.indexrelid AND k.contype IN ('p', 'u') WHERE i.indrelid = $1::regclass`
	rows, err := conn.Query(ctx, selectIndexes, one.table)
	if err != nil {
		return err
	}
	var drops, makes []string
	var dropped, made string
	if _, err := pgx.ForEachRow(rows, []any{&dropped, &made}, func() error {
		drops, makes = append(drops, dropped), append(makes, made)
		return nil
	}); err != nil {
		return err
	}
	if one.of != nil {
		// With it, PostgreSQL need not read the table to attach it.
		key := partitions.Key(one.of.Table)
		own := fmt.Sprintf(`%s IS NOT NULL AND %[1]s < '%[2]s'`, key, one.of.To)
		if one.of.From != uuid.Nil {
			own += fmt.Sprintf(` AND %s >= '%s'`, key, one.of.From)
		}
		drops = append(drops, fmt.Sprintf(`ALTER TABLE %s ADD CONSTRAINT its_own CHECK (%s)`, one.table, own))
	}
	// Rows are frozen at once if their table is emptied in the same transaction.
	begin := append([]string{`SET maintenance_work_mem = '512MB'`, `BEGIN`}, drops...)
	begin = append(begin, `TRUNCATE `+one.table)
	if _, err := conn.Exec(ctx, strings.Join(begin, "; ")); err != nil {
		return err
	}
	rowsOf := &copied{next: one.from, end: one.end, row: one.row, written: func(n int64) { done.Add(n * one.rows) }}
	tag, err := conn.PgConn().CopyFrom(ctx, rowsOf, fmt.Sprintf(`COPY %s (%s) FROM STDIN (FORMAT binary, FREEZE)`, one.table, one.columns))
	if err != nil {
		return err
	}
	if want := (one.end - one.from) * one.rows; tag.RowsAffected() != want {
		return fmt.Errorf("%d rows were copied, not %d", tag.RowsAffected(), want)
	}
	_, err = conn.Exec(ctx, strings.Join(append(append([]string{`COMMIT`}, makes...), ""), "; "))
	return err
}

func (p *past) accountRow(t tuples, place int64) tuples {
	return t.row(6).account(p, place).text(currency).bigint(p.finish[place]).bigint(0).bigint(p.version(place)).time(p.begin)
}

func (p *past) transferRow(t tuples, i int64) tuples {
	m, at := p.move(i), p.at(i)
	kind := "transfer"
	switch {
	case m.seq > 0:
		kind = "purchase"
	case m.payer < 0:
		kind = "deposit"
	}
	return t.row(8).uuid(pastID(at, idTransfer, i)).text(kind).payer(p, &m).payee(p, &m).bigint(m.amount).text(currency).text("completed").time(at)
}

func (p *past) entryRows(t tuples, i int64) tuples {
	m, at := p.move(i), p.at(i)
	transfer := pastID(at, idTransfer, i)
	t = t.row(7).payer(p, &m).uuid(pastID(at, idOfPayer, i)).bigint(m.payerVersion).uuid(transfer).bigint(-m.amount).text(currency).time(at)
	return t.row(7).payee(p, &m).uuid(pastID(at, idOfPayee, i)).bigint(m.payeeVersion).uuid(transfer).bigint(m.amount).text(currency).time(at)
}

func (p *past) purchaseRow(t tuples, q int64) tuples {
	i := p.purchase(q)
	m, at := p.move(i), p.at(i)
	return t.row(10).uuid(p.campaign(m.campaign)).integer(m.seq).uuid(p.saleID(q)).account(p, m.payer).integer(1).integer(m.seq).integer(m.seq - 1).
		bigint(m.amount).uuid(pastID(at, idTransfer, i)).time(at)
}

// bidRow is a bid of an auction, one more than the one before. Its seq comes behind auction.started and round.started.
func (p *past) bidRow(t tuples, number int64) tuples {
	auction, bid := number/pastBids, number%pastBids
	at, previous := p.bidAt(auction, bid), int64(0)
	if bid >= pastBidders {
		previous = pastAmount + bid - pastBidders
	}
	place := bid % pastBidders
	t = t.row(13).uuid(p.auction(auction)).bigint(bid+3).account(p, p.bidder(auction, place)).bigint(pastAmount + bid).bigint(previous).integer(1).integer(1).time(at)
	t = t.uuid(p.hold(auction, place)).bigint(int64(scatter(number) >> 1)).time(at)
	return append(t, "\xff\xff\xff\xff\xff\xff\xff\xff"...) // Nobody lost a place that anybody recorded.
}

// writeTargets writes the campaigns, the auctions and what belongs to them, as servers would have written them before there was a public log: it has
// nothing of them.
func (p *past) writeTargets(ctx context.Context, conn *pgx.Conn) error {
	var b pgx.Batch
	b.Queue(`INSERT INTO accounts (id, currency, available, held, version, created_at) VALUES ($1, $2, 0, 0, 1, $3)`, beneficiary, currency, p.begin)
	p.queueCampaigns(&b)
	if err := p.queueAuctions(&b); err != nil {
		return err
	}
	b.Queue(`UPDATE log_state SET seen_campaigns = (SELECT coalesce(max(number), 0) FROM campaigns), seen_auctions = (SELECT coalesce(max(number), 0) FROM auctions)`)
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return tx.SendBatch(ctx, &b).Close() })
}

func (p *past) queueCampaigns(b *pgx.Batch) {
	var (
		ids, last []uuid.UUID
		sold      []int64
		at        []time.Time
	)
	for k := range p.campaigns() {
		ids, sold, at, last = append(ids, p.campaign(k)), append(sold, p.sold(k)), append(at, p.opened(k)), append(last, p.saleID(p.firstSale(k)+p.sold(k)-1))
	}
	const from = ` FROM unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::uuid[]) AS c (id, sold, at, last)`
	for _, sql := range []string{
		fmt.Sprintf(`INSERT INTO accounts (id, currency, available, held, version, created_at) SELECT 'escrow/' || id, '%s', sold * %d, 0, sold + 1, at`, currency, pastPrice),
		fmt.Sprintf(`INSERT INTO campaigns (id, name, status, draw_mode, currency, beneficiary, escrow, total_positions, sold_positions, commitment, version, created_at, published_at, last_sale)
			SELECT id, 'of the past', 'active', 'instant', '%s', '%s', 'escrow/' || id, sold + 1, sold, sha256(sha256(id::text::bytea)), sold + 2, at, at, last`, currency, beneficiary),
		fmt.Sprintf(`INSERT INTO campaign_layers (campaign, layer, positions, price, sold) SELECT id, 1, sold + 1, %d, sold`, pastPrice),
		`INSERT INTO campaign_prizes (campaign, ordinal, name, quantity) SELECT id, 0, 'first', 1`,
		`INSERT INTO campaign_seeds (campaign, seed) SELECT id, sha256(id::text::bytea)`,
	} {
		b.Queue(sql+from, ids, sold, at, last)
	}
}

func (p *past) queueAuctions(b *pgx.Batch) error {
	const day = 24 * time.Hour
	var (
		ids, holds  []uuid.UUID
		began       []time.Time
		bidders     []string
		said        [3][]string
		bidAt, last []time.Time
	)
	for k := range p.auctions {
		start, end := p.started(k), p.bidAt(k, pastBids)
		ids, began = append(ids, p.auction(k)), append(began, start)
		round := map[string]any{"round": 1, "winners": 1, "status": "active", "duration": day.String(), "started_at": start, "ends_at": start.Add(day), "extensions": 0}
		ended := map[string]any{"round": 1, "winners": 1, "status": "completed", "duration": day.String(), "started_at": start, "ends_at": start.Add(day), "extensions": 0}
		for i, data := range []any{
			map[string]any{"rounds": []any{round}}, map[string]any{"round": 1, "ends_at": start.Add(day), "winners": 1}, map[string]any{"rounds": []any{ended}},
		} {
			text, err := json.Marshal(data)
			if err != nil {
				return err
			}
			said[i] = append(said[i], string(text))
		}
		for place := range int64(pastBidders) {
			holds, bidders = append(holds, p.hold(k, place)), append(bidders, accountID(p.name(p.bidder(k, place))))
			bidAt, last = append(bidAt, p.bidAt(k, place)), append(last, end)
		}
	}
	const auctions = ` FROM unnest($1::uuid[], $2::timestamptz[]) AS a (id, at)`
	end := fmt.Sprintf(`at + %d * interval '1 second'`, pastBids+1)
	b.Queue(fmt.Sprintf(`INSERT INTO auctions (id, title, status, currency, seller, current_round, min_bid, min_increment, snipe_window, snipe_extension, snipe_max, cooldown,
			unique_amounts, total_bids, seq, version, revision, created_at, started_at, ended_at)
		SELECT id, 'of the past', 'cancelled', '%s', '%s', 1, 1, 1, 0, 0, 0, 0, true, %d, %d, %[4]d, id, at, at, %[5]s`, currency, beneficiary, pastBids, pastBids+3, end)+auctions, ids, began)
	b.Queue(fmt.Sprintf(`INSERT INTO auction_rounds (auction, round, winners, duration, status, extensions, started_at, ends_at, ended_at)
		SELECT id, 1, 1, 86400000000, 'completed', 0, at, at + interval '1 day', %s`, end)+auctions, ids, began)
	b.Queue(fmt.Sprintf(`INSERT INTO auction_events (auction, seq, type, at, data)
		SELECT a.id, e.seq, e.type, CASE WHEN e.seq > 2 THEN %s ELSE at END, e.data FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::text[]) AS a (id, at, began, round, ended),
			LATERAL (VALUES (1, 'auction.started', began), (2, 'round.started', round), (%d, 'auction.cancelled', ended)) AS e (seq, type, data)`, end, pastBids+3),
		ids, began, said[0], said[1], said[2])
	const held = ` FROM (SELECT *, $1::uuid[] AS auctions FROM unnest($2::uuid[], $3::text[], $4::timestamptz[], $5::timestamptz[]) WITH ORDINALITY AS h (id, account, at, ended, n)) AS h`
	owner := fmt.Sprintf(`auctions[1 + (n - 1) / %d]`, pastBidders)
	place := fmt.Sprintf(`%d - %d + (n - 1) %% %[2]d`, pastBids, pastBidders)
	b.Queue(fmt.Sprintf(`INSERT INTO hold_rows (id, account, amount, captured, status, created_at, closed_at, owner)
		SELECT id, account, %d + %s, 0, 'released', at, ended, 'auction:' || %s`, pastAmount, place, owner)+held, ids, holds, bidders, bidAt, last)
	b.Queue(fmt.Sprintf(`INSERT INTO auction_standing (auction, account, amount, round, seq, at, hold, active)
		SELECT %s, account, %d + %s, 1, 3 + %[3]s, ended - (%d - (%[3]s)) * interval '1 second', id, false`, owner, pastAmount, place, pastBids)+held, ids, holds, bidders, bidAt, last)
	return nil
}
