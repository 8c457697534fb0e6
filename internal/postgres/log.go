package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/translog"
)

// logConns is how many connections the keeper of the log has: one for itself, one for a closing of the books.
const logConns = 2

// Log is the public log's tables. It is safe for concurrent use.
type Log struct {
	db       *DB // over the log's own connections
	lottery  *Lottery
	auctions *Auctions
	draws    *Multidraws
}

var _ logkeeper.Store = (*Log)(nil)

// NewLog returns the log of db's database, over connections of its own: a pool in which everything is taken delays no fact. The caller
// closes it before db.
func NewLog(db *DB) (*Log, error) {
	config := db.pool.Config() // A copy.
	config.MinConns, config.MinIdleConns, config.MaxConns = 0, 0, logConns
	config.ConnConfig.RuntimeParams["application_name"] = "fairlead log"
	db.pooler.settle(&config.ConnConfig.Config)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("postgres: log: %w", err)
	}
	own := &DB{
		pool: pool, logger: db.logger, presence: db.presence, spec: db.spec, reads: reads{pool: pool, presence: db.presence}, blocked: db.blocked,
		runner: pgkit.Runner{Pool: pool, Presence: db.presence, Logger: db.logger},
	}
	return &Log{db: own, lottery: &Lottery{db: own}, auctions: &Auctions{db: own}, draws: NewMultidraws(own)}, nil
}

// Shutdown closes the log's connections, and waits for those in use no longer than ctx lives.
func (l *Log) Shutdown(ctx context.Context) error { return closeWithin(ctx, l.db.pool.Close) }

const (
	logFields = `began_at, size, root, verifier, checkpoint`
	beginLog  = `UPDATE log_state SET term = $1 WHERE term <= $1 RETURNING ` + logFields
	lockLog   = `SELECT size, root, term FROM log_state FOR UPDATE`
	growLog   = `UPDATE log_state SET size = $1, root = $2`
	// Tiles that were partial are written anew as a whole; bundles are continued.
	saveTiles = `INSERT INTO log_tiles (level, number, hashes) SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bytea[])
		ON CONFLICT (level, number) DO UPDATE SET hashes = excluded.hashes`
	saveBundles = `INSERT INTO log_bundles (number, entries) SELECT b.number, substr($4::bytea, b.first, b.length)
		FROM unnest($1::bigint[], $2::integer[], $3::integer[]) AS b (number, first, length)
		ON CONFLICT (number) DO UPDATE SET entries = log_bundles.entries || excluded.entries`
	saveTopics = `INSERT INTO log_topics (kind, id, next, open) SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::bigint[], $4::boolean[])
		ON CONFLICT (kind, id) DO UPDATE SET next = excluded.next, open = excluded.open`
	saveRuns = `INSERT INTO log_runs (kind, id, seq, index, count, parts)
		SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[])`
	saveSeals  = `INSERT INTO log_seals (campaign, index, due_at) SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::timestamptz[])`
	publishLog = `UPDATE log_state SET checkpoint = $3, published = $4, verifier = $2
		WHERE term = $1 AND published <= $4 AND size >= $4 AND verifier IN ('', $2)`
	selectTile = `SELECT hashes FROM log_tiles WHERE level = $1 AND number = $2`
)

// errLogBroken is returned where the log's tables contradict each other: somebody has changed them.
var errLogBroken = errors.New("the log's tables contradict each other")

// Begin implements [logkeeper.Store].
func (l *Log) Begin(ctx context.Context, term int64) (*logkeeper.State, error) {
	type row struct {
		began                time.Time
		size                 int64
		root                 digest
		verifier, checkpoint string
	}
	var found []row
	err := l.db.run(ctx, "log.begin", func(ctx context.Context, tx pgx.Tx) error {
		found = nil
		var b pgx.Batch
		b.Queue(beginLog, term).Query(collect(&found, func(r pgx.CollectableRow) (s row, err error) {
			err = r.Scan(&s.began, &s.size, &s.root, &s.verifier, &s.checkpoint)
			return s, err
		}))
		return pgkit.Send(ctx, tx, &b)
	})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, logkeeper.ErrSuperseded
	}
	s := found[0]
	edge, err := translog.NewEdge(s.size, func(level int, number int64, width int) ([]tlog.Hash, error) {
		hashes, err := l.Tile(ctx, level, number)
		if err == nil && len(hashes) < width {
			err = fmt.Errorf("%w: tile %d of level %d has %d hashes", errLogBroken, number, level, len(hashes))
		}
		if err != nil {
			return nil, err
		}
		return hashes[:width], nil
	})
	if err != nil {
		return nil, err
	}
	if tree := edge.Tree(); tree.Hash != tlog.Hash(s.root) {
		return nil, fmt.Errorf("%w: the root of %d leaves is %s, and is kept as %s", errLogBroken, s.size, tree.Hash, tlog.Hash(s.root))
	}
	return &logkeeper.State{Edge: edge, Began: s.began, Verifier: s.verifier, Checkpoint: s.checkpoint}, nil
}

// Tile reads the hashes of a tile, as far as it goes; none where it isn't there.
func (l *Log) Tile(ctx context.Context, level int, number int64) ([]tlog.Hash, error) {
	raw, err := query(ctx, l.db, pgx.RowTo[[]byte], selectTile, level, number)
	if err != nil || len(raw) == 0 {
		return nil, err
	}
	return hashesOf(raw[0]), nil
}

func hashesOf(raw []byte) []tlog.Hash {
	hashes := make([]tlog.Hash, len(raw)/tlog.HashSize)
	for i := range hashes {
		copy(hashes[i][:], raw[i*tlog.HashSize:])
	}
	return hashes
}

// Append implements [logkeeper.Store].
func (l *Log) Append(ctx context.Context, term int64, batch *logkeeper.Batch) error {
	writes := logWrites(batch)
	return l.db.run(ctx, "log.append", func(ctx context.Context, tx pgx.Tx) error {
		var (
			size, last int64
			root       digest
		)
		if err := tx.QueryRow(ctx, lockLog).Scan(&size, &root, &last); err != nil {
			return err
		}
		switch now := (tlog.Tree{N: size, Hash: tlog.Hash(root)}); {
		case now == batch.After && last == term: // An earlier run was committed, and its answer lost.
			return nil
		case last != term:
			return logkeeper.ErrSuperseded
		case now != batch.Before:
			return logkeeper.ErrMoved
		}
		var b pgx.Batch
		expectRows(b.Queue(growLog, batch.After.N, batch.After.Hash[:]), 1, errLostRow)
		for _, w := range writes {
			b.Queue(w.sql, w.args...)
		}
		return pgkit.Send(ctx, tx, &b)
	})
}

type logWrite struct {
	sql  string
	args []any
}

// logWrites are the statements that write a batch's rows.
func logWrites(batch *logkeeper.Batch) (writes []logWrite) {
	var (
		levels  []int16
		numbers []int64
		hashes  [][]byte
	)
	for _, t := range batch.Tiles {
		raw := make([]byte, 0, len(t.Hashes)*tlog.HashSize)
		for _, h := range t.Hashes {
			raw = append(raw, h[:]...)
		}
		levels = append(levels, int16(t.Level)) //nolint:gosec // It is under 8.
		numbers, hashes = append(numbers, t.Number), append(hashes, raw)
	}
	writes = append(writes, logWrite{saveTiles, []any{levels, numbers, hashes}})
	// All bundles go as one piece, because an array of them is copied many times on its way.
	var (
		bundles         []int64
		firsts, lengths []int
		at              = 1
	)
	for i, entry := range batch.Entries {
		number := (batch.Before.N + int64(i)) / translog.TileWidth
		if n := len(bundles); n == 0 || bundles[n-1] != number {
			bundles, firsts, lengths = append(bundles, number), append(firsts, at), append(lengths, 0)
		}
		lengths[len(lengths)-1] += 2 + len(entry)
		at += 2 + len(entry)
	}
	writes = append(writes, logWrite{saveBundles, []any{bundles, firsts, lengths, batch.Bundled}})
	var (
		kinds         []int16
		ids           [][16]byte
		seqs, indexes []int64
		counts, parts []int
	)
	// Of several runs of a topic, the last one says how far it has come.
	last := map[logkeeper.Topic]logkeeper.Run{}
	for _, r := range batch.Runs {
		kinds, ids, seqs, indexes = append(kinds, int16(r.Kind)), append(ids, r.ID), append(seqs, r.Seq), append(indexes, r.Index)
		counts, parts = append(counts, r.Count), append(parts, r.Parts)
		last[r.Topic] = r
	}
	writes = append(writes, logWrite{saveRuns, []any{kinds, ids, seqs, indexes, counts, parts}})
	kinds, ids, seqs = nil, nil, nil
	var open []bool
	for topic, r := range last {
		kinds, ids, seqs, open = append(kinds, int16(topic.Kind)), append(ids, topic.ID), append(seqs, r.Seq+int64(r.Count)), append(open, !r.Ended)
	}
	writes = append(writes, logWrite{saveTopics, []any{kinds, ids, seqs, open}})
	if n := len(batch.Seals); n > 0 {
		campaigns, indexes, due := make([][16]byte, n), make([]int64, n), make([]time.Time, n)
		for i, s := range batch.Seals {
			campaigns[i], indexes[i], due[i] = s.Campaign, s.Index, s.DueAt
		}
		writes = append(writes, logWrite{saveSeals, []any{campaigns, indexes, due}})
	}
	if batch.Closing != nil {
		writes = append(writes, closingWrites(batch.Closing)...)
	}
	return writes
}

// errNotPublished is returned for a checkpoint that is not the log's next.
var errNotPublished = errors.New("the checkpoint is older than the published one, or signed with another key")

// Publish implements [logkeeper.Store].
func (l *Log) Publish(ctx context.Context, term int64, verifier, checkpoint string, size int64) error {
	return l.db.run(ctx, "log.publish", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, publishLog, term, verifier, checkpoint, size)
		if err == nil && tag.RowsAffected() != 1 {
			err = errNotPublished
		}
		return err
	})
}

// seenSeals counts, for each seal under a checkpoint, the cosignatures that were certainly made before its round was due: a second is added to
// their times, which have whole seconds. Later checkpoints have later ones, so those of rounds that were due long ago need no look.
const seenSeals = `UPDATE log_seals AS l SET verifier = $4, checkpoint = $1, witnesses = n.count, seen_at = n.last
	FROM (SELECT s.campaign, count(*) AS count, max(t.at) AS last FROM log_seals AS s, unnest($3::timestamptz[]) AS t (at)
		WHERE s.due_at > clock_timestamp() - interval '5 minutes' AND s.index < $2 AND t.at + interval '1 second' <= s.due_at GROUP BY s.campaign) AS n
	WHERE l.campaign = n.campaign AND n.count > l.witnesses`

// Seen implements [logkeeper.Store].
func (l *Log) Seen(ctx context.Context, verifier, checkpoint string, size int64, at []time.Time) error {
	return l.db.run(ctx, "log.seen", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, seenSeals, checkpoint, size, at, verifier)
		return err
	})
}

// Refuse implements [logkeeper.Store].
func (l *Log) Refuse(ctx context.Context, term int64, why string) error {
	return l.db.run(ctx, "log.refuse", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE log_state SET refused = $2 WHERE term = $1 AND refused <> $2`, term, why)
		return err
	})
}

// RenewLog has the log be signed with another key from now on.
func (db *DB) RenewLog(ctx context.Context, verifier string) error {
	return db.run(ctx, "log.renew", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE log_state SET verifier = $1, checkpoint = '', published = 0, refused = ''`, verifier)
		return err
	})
}

// Secret implements [logkeeper.Store].
func (l *Log) Secret(ctx context.Context) ([]byte, error) {
	return queryOne(ctx, l.db, errEmpty, pgx.RowTo[[]byte], `SELECT value FROM secrets WHERE name = $1`, operator.SecretOfAliases)
}

const (
	// The facts of a campaign: created, published, sealed, and drawn or cancelled.
	campaignEnd = `1 + (c.published_at IS NOT NULL)::integer + (coalesce((SELECT round FROM campaign_beacons WHERE campaign = c.id) IS NOT NULL, false)
			OR c.status = 'completed')::integer + (c.status IN ('completed', 'cancelled'))::integer`
	auctionEnd   = `a.seq + 1`
	multidrawEnd = `1 + (m.completed_at IS NOT NULL OR m.rolled_back_at IS NOT NULL)::integer`
	// lookLimit is how many new topics of a kind one look finds.
	lookLimit = 1000

	lookCampaigns = `SELECT t.id, t.next, ` + campaignEnd + ` FROM log_topics AS t JOIN campaigns AS c ON c.id = t.id
		WHERE t.kind = 1 AND t.open AND t.next < ` + campaignEnd
	lookAuctions = `SELECT t.id, t.next, ` + auctionEnd + ` FROM log_topics AS t JOIN auctions AS a ON a.id = t.id
		WHERE t.kind = 2 AND t.open AND t.next < ` + auctionEnd
	lookMultidraws = `SELECT t.id, t.next, ` + multidrawEnd + ` FROM log_topics AS t JOIN multidraws AS m ON m.id = t.id
		WHERE t.kind = 3 AND t.open AND t.next < ` + multidrawEnd
	// What was made since the log began, and has no topic there. Numbers are given before commits, so what is younger than newTopics is looked
	// at again each time; no transaction takes that long.
	addedCampaigns = `SELECT c.id, 0::bigint, ` + campaignEnd + ` FROM log_state AS s JOIN campaigns AS c ON c.number > s.seen_campaigns
		WHERE NOT EXISTS (SELECT FROM log_topics WHERE kind = 1 AND id = c.id) ORDER BY c.number LIMIT $1`
	addedAuctions = `SELECT a.id, 0::bigint, ` + auctionEnd + ` FROM log_state AS s JOIN auctions AS a ON a.number > s.seen_auctions
		WHERE NOT EXISTS (SELECT FROM log_topics WHERE kind = 2 AND id = a.id) ORDER BY a.number LIMIT $1`
	addedMultidraws = `SELECT m.id, 0::bigint, ` + multidrawEnd + ` FROM log_state AS s JOIN multidraws AS m ON m.number > s.seen_multidraws
		WHERE NOT EXISTS (SELECT FROM log_topics WHERE kind = 3 AND id = m.id) ORDER BY m.number LIMIT $1`
)

// Look implements [logkeeper.Store].
func (l *Log) Look(ctx context.Context) (news []logkeeper.News, err error) {
	err = l.db.reads.snapshot(ctx, "topics of the log", readTimeout, func(ctx context.Context, tx pgx.Tx) error {
		news = nil
		var b pgx.Batch
		for _, look := range []struct {
			kind logkeeper.Kind
			sql  string
			args []any
		}{
			{logkeeper.KindCampaign, lookCampaigns, nil},
			{logkeeper.KindCampaign, addedCampaigns, []any{lookLimit}},
			{logkeeper.KindAuction, lookAuctions, nil},
			{logkeeper.KindAuction, addedAuctions, []any{lookLimit}},
			{logkeeper.KindMultidraw, lookMultidraws, nil},
			{logkeeper.KindMultidraw, addedMultidraws, []any{lookLimit}},
		} {
			b.Queue(look.sql, look.args...).Query(extend(&news, func(row pgx.CollectableRow) (n logkeeper.News, err error) {
				n.Kind = look.kind
				err = row.Scan(&n.ID, &n.Next, &n.End)
				return n, err
			}))
		}
		return pgkit.Send(ctx, tx, &b)
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: what is not in the log: %w", err)
	}
	return news, nil
}

// settleSeen moves on up to where everything has its topic in the log. What is younger than that may have been given its number, and not be
// committed yet.
const settleSeen = `UPDATE log_state SET seen_campaigns = greatest(seen_campaigns, least(
		(SELECT number FROM campaigns WHERE created_at < clock_timestamp() - interval '3 minutes' ORDER BY number DESC LIMIT 1),
		(SELECT c.number - 1 FROM campaigns AS c WHERE c.number > seen_campaigns
			AND NOT EXISTS (SELECT FROM log_topics WHERE kind = 1 AND id = c.id) ORDER BY c.number LIMIT 1))),
	seen_auctions = greatest(seen_auctions, least(
		(SELECT number FROM auctions WHERE created_at < clock_timestamp() - interval '3 minutes' ORDER BY number DESC LIMIT 1),
		(SELECT a.number - 1 FROM auctions AS a WHERE a.number > seen_auctions
			AND NOT EXISTS (SELECT FROM log_topics WHERE kind = 2 AND id = a.id) ORDER BY a.number LIMIT 1))),
	seen_multidraws = greatest(seen_multidraws, least(
		(SELECT number FROM multidraws WHERE started_at < clock_timestamp() - interval '3 minutes' ORDER BY number DESC LIMIT 1),
		(SELECT m.number - 1 FROM multidraws AS m WHERE m.number > seen_multidraws
			AND NOT EXISTS (SELECT FROM log_topics WHERE kind = 3 AND id = m.id) ORDER BY m.number LIMIT 1)))`

// Settle implements [logkeeper.Store].
func (l *Log) Settle(ctx context.Context) error {
	return l.db.run(ctx, "log.settle", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, settleSeen)
		return err
	})
}

// Facts implements [logkeeper.Store].
func (l *Log) Facts(ctx context.Context, news []logkeeper.News, most int) ([][]logkeeper.Fact, error) {
	out := make([][]logkeeper.Fact, len(news))
	var failures []error
	for i, n := range news {
		var err error
		switch n.Kind {
		case logkeeper.KindCampaign:
			out[i], err = l.campaignFacts(ctx, n)
		case logkeeper.KindAuction:
			out[i], err = l.auctionFacts(ctx, n, most)
		case logkeeper.KindMultidraw:
			out[i], err = l.multidrawFacts(ctx, n)
		case logkeeper.KindBooks:
			err = errors.New("the books have no rows")
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("postgres: facts of %s from %d: %w", n.Topic, n.Next, err))
		}
		if errors.Is(err, command.ErrUnavailable) {
			break // Each of the others would be waited for as long.
		}
	}
	return out, errors.Join(failures...)
}

func (l *Log) campaignFacts(ctx context.Context, n logkeeper.News) ([]logkeeper.Fact, error) {
	c, err := l.lottery.Campaign(ctx, n.ID)
	if err != nil {
		return nil, err
	}
	if c.Status != lottery.StatusCompleted {
		return logkeeper.Campaign(c, nil, nil, n.Next)
	}
	draw, seed, err := l.lottery.Result(ctx, n.ID)
	if err != nil {
		return nil, err
	}
	return logkeeper.Campaign(c, draw, &seed, n.Next)
}

func (l *Log) multidrawFacts(ctx context.Context, n logkeeper.News) ([]logkeeper.Fact, error) {
	o, err := l.draws.Operation(ctx, n.ID)
	if err != nil {
		return nil, err
	}
	return logkeeper.Multidraw(o, n.Next), nil
}

func (l *Log) auctionFacts(ctx context.Context, n logkeeper.News, most int) ([]logkeeper.Fact, error) {
	facts := make([]logkeeper.Fact, 0, max(min(n.End-n.Next, int64(most)+1), 0))
	if n.Next == 0 {
		a, err := l.auctions.Auction(ctx, n.ID)
		if err != nil {
			return nil, err
		}
		facts, n.Next = append(facts, logkeeper.AuctionCreated(a)), 1
	}
	limit := min(n.End-n.Next, int64(most))
	if limit <= 0 {
		return facts, nil
	}
	return l.auctionEvents(ctx, n.ID, n.Next, limit, facts)
}

const (
	// Bids and other events are read apart, because bids are most of them: together they have the numbers without a gap.
	loggedBids = `SELECT seq, at, account, amount, previous_amount, round, rank FROM auction_bids
		WHERE auction = $1 AND seq >= $2 AND seq < $3 ORDER BY seq`
	loggedEvents = `SELECT seq, at, type, data FROM auction_events WHERE auction = $1 AND seq >= $2 AND seq < $3 ORDER BY seq`
	firstKept    = `SELECT first_seq FROM auctions WHERE id = $1 ORDER BY chapter DESC LIMIT 1`
)

// auctionEvents reads so many events of an auction from a number on, and appends them to what stands before.
func (l *Log) auctionEvents(ctx context.Context, id uuid.UUID, from, limit int64, before []logkeeper.Fact) (all []logkeeper.Fact, err error) {
	facts := before
	var first int64
	var others []logkeeper.Fact
	err = l.db.read(ctx, "events of an auction", readTimeout, func(ctx context.Context, pool *pgxpool.Pool) error {
		facts, others = before, nil
		var b pgx.Batch
		b.Queue(firstKept, id).QueryRow(func(row pgx.Row) error { return row.Scan(&first) })
		b.Queue(loggedBids, id, from, from+limit).Query(func(rows pgx.Rows) error {
			f := logkeeper.Fact{Type: logkeeper.TypeBidPlaced}
			_, err := pgx.ForEachRow(rows, []any{&f.Seq, &f.At, &f.Bid.Account, &f.Bid.Amount, &f.Bid.PreviousAmount, &f.Bid.Round, &f.Bid.Rank}, func() error {
				facts = append(facts, f)
				return nil
			})
			return err
		})
		b.Queue(loggedEvents, id, from, from+limit).Query(func(rows pgx.Rows) error {
			var (
				seq  int64
				at   time.Time
				kind string
				data []byte
			)
			_, err := pgx.ForEachRow(rows, []any{&seq, &at, &kind, &data}, func() error {
				others = append(others, logkeeper.AuctionEvent(seq, at, kind, bytes.Clone(data)))
				return nil
			})
			return err
		})
		return pool.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return nil, err
	}
	if from < first {
		return nil, &live.ExpiredError{First: first}
	}
	facts = append(facts, others...)
	read := facts[len(before):]
	if len(others) > 0 {
		slices.SortFunc(read, func(a, b logkeeper.Fact) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	for i := range read {
		if want := from + int64(i); read[i].Seq != want {
			return nil, fmt.Errorf("event %d is missing", want)
		}
	}
	return facts, nil
}
