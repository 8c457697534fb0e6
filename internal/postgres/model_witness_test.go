package postgres

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// witness has the database itself write down what no server says: for every accepted bid and every transfer, when its
// transaction began by the database's clock, and whether it came by the fast path. A session of that path has statements
// that refuse by themselves, prepared; no other session has any. It can also let commits fail, see failCommits.
const witness = `
	CREATE SCHEMA model;
	CREATE TABLE model.bids (auction uuid, seq bigint, began timestamptz, ahead boolean, PRIMARY KEY (auction, seq));
	CREATE TABLE model.transfers (id uuid PRIMARY KEY, ahead boolean);
	CREATE FUNCTION model.ahead() RETURNS boolean LANGUAGE sql AS
		$$ SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE statement LIKE '%1 / (count(%') $$;
	CREATE FUNCTION model.see_bids() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO model.bids SELECT auction, seq, transaction_timestamp(), model.ahead() FROM fresh;
		RETURN NULL;
	END $$;
	CREATE FUNCTION model.see_transfers() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO model.transfers SELECT id, model.ahead() FROM fresh;
		RETURN NULL;
	END $$;
	CREATE TRIGGER see AFTER INSERT ON auction_bids REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION model.see_bids();
	CREATE TRIGGER see AFTER INSERT ON transfers REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION model.see_transfers();

	CREATE TABLE model.faults (one_in integer NOT NULL);
	INSERT INTO model.faults VALUES (0);
	CREATE SEQUENCE model.commits;
	CREATE FUNCTION model.fail() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE n integer; BEGIN
		SELECT one_in INTO n FROM model.faults;
		IF n > 0 AND nextval('model.commits') % n = 0 THEN
			RAISE EXCEPTION 'this commit fails' USING ERRCODE = '40001';
		END IF;
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON idempotency_keys DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION model.fail();`

// witnessed returns the URL of a migrated database with a witness.
func witnessed(t *testing.T) string {
	t.Helper()
	at := database(t)
	conn := pgtest.Connect(t, at)
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), witness, pgx.QueryExecModeSimpleProtocol)))
	return at
}

// seeded returns the seed of a test, which FAIRLEAD_SEED sets, and tells it when the test has failed.
func seeded(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv("FAIRLEAD_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("FAIRLEAD_SEED=%d", seed)
		}
	})
	return seed
}

// torture gives the size of a test: few for every change, many when FAIRLEAD_TORTURE is set.
func torture(few, many int) int {
	if on, err := strconv.ParseBool(os.Getenv("FAIRLEAD_TORTURE")); err == nil && on {
		return many
	}
	return few
}

// bidID names an accepted bid.
type bidID struct {
	auction uuid.UUID
	seq     int64
}

// span is the database's clock before a command was sent, and after it was answered.
type span struct{ before, after time.Time }

// spans are those of the accepted bids. It is safe for concurrent use.
type spans struct {
	mu sync.Mutex
	of map[bidID]span
}

func (s *spans) add(id bidID, of span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[bidID]span{}
	}
	s.of[id] = of
}

// clockedBid is an accepted bid with what the database's clock has to say of it.
type clockedBid struct {
	ID          uuid.UUID
	Seq         int64
	Account     string
	Round       int
	At, Began   time.Time
	Ahead       bool
	EndsAt      time.Time // just before the bid
	Extensions  int64     // likewise
	Extended    bool      // by this bid
	Window      int64     // microseconds
	Cooldown    int64
	Most        int64 // extensions
	LastSeq     *int64
	LastAt      *time.Time
	LastRound   *int
	WonSince    bool
	DecidedLate string // why it must have been decided too late; empty when it need not
}

// The end of a round before a bid is that of its start with the extensions that were told before.
const clockedBids = `
	WITH extensions AS (
		SELECT auction, seq, (data::json->>'round')::integer AS round FROM auction_events WHERE type = 'round.extended'
	), bids AS (
		SELECT *, lag(seq) OVER w AS last_seq, lag(at) OVER w AS last_at, lag(round) OVER w AS last_round
		FROM auction_bids WINDOW w AS (PARTITION BY auction, account ORDER BY seq)
	)
	SELECT b.auction, b.seq, b.account, b.round, b.at, s.began, s.ahead,
		r.started_at + (r.duration + x.n * a.snipe_extension) * interval '1 microsecond', x.n,
		EXISTS (SELECT FROM extensions AS e WHERE e.auction = b.auction AND e.seq = b.seq + 1),
		a.snipe_window, a.cooldown, CASE WHEN a.snipe_extension > 0 THEN a.snipe_max ELSE 0 END, b.last_seq, b.last_at, b.last_round,
		EXISTS (SELECT FROM auction_winners AS w WHERE w.auction = b.auction AND w.account = b.account
			AND w.round >= b.last_round AND w.round < b.round), ''
	FROM bids AS b
	JOIN auctions AS a ON a.id = b.auction
	JOIN auction_rounds AS r ON r.auction = b.auction AND r.round = b.round
	JOIN model.bids AS s ON s.auction = b.auction AND s.seq = b.seq
	CROSS JOIN LATERAL (SELECT count(*) AS n FROM extensions AS e
		WHERE e.auction = b.auction AND e.round = b.round AND e.seq < b.seq) AS x
	ORDER BY b.auction, b.seq`

// decidedLate reports the accepted bids that were decided too late by the database's clock. What it says is certain, on a
// machine of any speed: a command is decided after it was sent and before it was answered.
func decidedLate(t *testing.T, conn *pgx.Conn, sent *spans) (late []clockedBid, all int) {
	t.Helper()
	rows, err := conn.Query(t.Context(), clockedBids)
	testwait.Must(t, err)
	bids, err := pgx.CollectRows(rows, pgx.RowToStructByPos[clockedBid])
	testwait.Must(t, err)
	for _, b := range bids {
		of, known := sent.of[bidID{b.ID, b.Seq}]
		window := b.EndsAt.Add(-time.Duration(b.Window) * time.Microsecond)
		switch {
		case !b.Began.Before(b.EndsAt):
			b.DecidedLate = fmt.Sprintf("its transaction began %v after the round's end", b.Began.Sub(b.EndsAt))
		case known && !of.before.Before(b.EndsAt):
			b.DecidedLate = fmt.Sprintf("it was sent %v after the round's end", of.before.Sub(b.EndsAt))
		case known && b.Window > 0 && b.Extensions < b.Most && !b.Extended && !of.before.Before(window):
			b.DecidedLate = fmt.Sprintf("it was sent %v within the window and has not extended the round", of.before.Sub(window))
		case known && b.LastSeq != nil && !b.WonSince:
			if last, ok := sent.of[bidID{b.ID, *b.LastSeq}]; ok && of.after.Sub(last.before) < time.Duration(b.Cooldown)*time.Microsecond {
				b.DecidedLate = fmt.Sprintf("it was answered %v after the account's last bid was sent, within the cooldown of %v",
					of.after.Sub(last.before), time.Duration(b.Cooldown)*time.Microsecond)
			}
		}
		if b.DecidedLate != "" {
			late = append(late, b)
		}
	}
	return late, len(bids)
}

// complainOfLateBids fails the test with the first of them.
func complainOfLateBids(t *testing.T, conn *pgx.Conn, sent *spans) {
	t.Helper()
	late, all := decidedLate(t, conn, sent)
	if len(late) == 0 {
		return
	}
	slices.SortStableFunc(late, func(a, b clockedBid) int { return a.Began.Compare(b.Began) })
	t.Errorf("%d of %d accepted bids were decided too late by the database's clock", len(late), all)
	for _, b := range late[:min(len(late), 10)] {
		t.Errorf("auction %s, bid %d of %s in round %d (fast path: %t), at %v: %s", b.ID, b.Seq, b.Account, b.Round, b.Ahead,
			b.At.Format(time.RFC3339Nano), b.DecidedLate)
	}
}
