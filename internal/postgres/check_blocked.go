package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// blockedFor is for how long a transaction may have stood in the way of others before [DB.Blocked] calls that wrong: Fairlead's own
// are done sooner, but for the refunds of the largest campaigns.
const blockedFor = 5 * time.Second

// selectBlockers finds transactions that have lasted for a while, that others on this database wait for now, and that wait for
// nobody themselves.
const selectBlockers = `SELECT a.pid, a.application_name, a.state, extract(epoch FROM clock_timestamp() - a.xact_start)::bigint, count(*)
	FROM (SELECT unnest(pg_blocking_pids(pid)) AS pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()) AS b
	JOIN pg_stat_activity AS a USING (pid)
	WHERE clock_timestamp() - a.xact_start > $1 AND a.wait_event_type IS DISTINCT FROM 'Lock'
	GROUP BY 1, 2, 3, 4 ORDER BY 4 DESC LIMIT 10`

const (
	// selectLockers finds transactions that have locked rows of tables which commands need, or any of Fairlead's tables against writers, for a while or for a
	// time that this role may not see. Commands that meet them don't wait on a connection, so that most often nobody is seen to wait. Vacuums are none of
	// these. The tables are those in the schema of accounts; the look at them waits for nobody's lock.
	selectLockers = `SELECT l.virtualtransaction, l.pid, coalesce(nullif(a.application_name, ''), 'session'), coalesce(a.state, 'its state is not shown'), p.gid,
			extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared))::bigint,
			coalesce(array_agg(DISTINCT c.relname::text) FILTER (WHERE l.mode <> ALL($3)), '{}'),
			coalesce(array_agg(DISTINCT c.relname::text) FILTER (WHERE l.mode = ANY($3)), '{}'),
			coalesce(array_agg(DISTINCT l.mode) FILTER (WHERE l.mode = ANY($3)), '{}')
		FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
			LEFT JOIN pg_stat_activity AS a USING (pid)
			LEFT JOIN pg_locks AS x ON l.pid IS NULL AND x.pid IS NULL AND x.virtualtransaction = l.virtualtransaction AND x.locktype = 'transactionid'
			LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
		WHERE l.locktype = 'relation' AND l.granted AND l.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock')
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.pid IS DISTINCT FROM pg_backend_pid()
			AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
			AND (c.oid IN (SELECT to_regclass(name) FROM unnest($2::text[]) AS name) OR l.mode = ANY($3) AND c.relkind IN ('r', 'p')
				AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('accounts')))
			AND coalesce(clock_timestamp() - coalesce(a.xact_start, p.prepared) > $1, true)
		GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 6 DESC NULLS LAST LIMIT 10`
	// lockerLook is how far apart two looks are at transactions whose age is not shown: longer than Fairlead's own take.
	lockerLook = time.Second
	// namedTables is how many tables of a transaction are named: with a table, LOCK TABLE locks its partitions.
	namedTables = 5
)

// needed are tables in which commands lock rows.
func needed() []string {
	return []string{
		"accounts", "hold_rows", "idempotency_keys", "auctions", "auction_rounds", "auction_standing", "campaigns", "campaign_layers", "lock_keys", "lock_grants",
		"log_state", "multidraws", "sagas", "publications", "targets", "subscriptions", "subscription_topics",
	}
}

// tableModes are the modes of a lock that keep writers off a whole table, the weakest first.
func tableModes() []string {
	return []string{"ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"}
}

// locker is a transaction that has locked something.
type locker struct {
	Transaction        string
	PID                *int32
	Application, State string
	Prepared           *string  // under this name
	Seconds            *int64   // nil where this role may not see it
	RowsOf, Tables     []string // of which it has locked rows, or all
	Modes              []string // of tableModes
}

// what is what the transaction has locked, and how.
func (l *locker) what() string {
	if len(l.Tables) == 0 {
		return someNames(l.RowsOf) + ", or rows there,"
	}
	strongest := slices.MaxFunc(l.Modes, func(a, b string) int { return slices.Index(tableModes(), a) - slices.Index(tableModes(), b) })
	return fmt.Sprintf("the whole of %s in %s mode", someNames(l.Tables), sqlModes[strongest])
}

// someNames are the first of some names of tables.
func someNames(tables []string) string {
	names := strings.Join(tables[:min(len(tables), namedTables)], ", ")
	if more := len(tables) - namedTables; more > 0 {
		names += fmt.Sprintf(" and %d more tables", more)
	}
	return names
}

// sqlModes are the tableModes as LOCK TABLE has them.
var sqlModes = map[string]string{ //nolint:gochecknoglobals // A constant, but for the type.
	"ShareLock": "SHARE", "ShareRowExclusiveLock": "SHARE ROW EXCLUSIVE", "ExclusiveLock": "EXCLUSIVE", "AccessExclusiveLock": "ACCESS EXCLUSIVE",
}

// Blocked names the sessions that others wait for, and prepared transactions and sessions that keep rows or tables locked which commands need. They
// keep no server from starting.
func (db *DB) Blocked(ctx context.Context) ([]Finding, error) {
	blockers, err := query(ctx, db, pgx.RowToStructByPos[blocker], selectBlockers, blockedFor)
	if err != nil {
		return nil, fmt.Errorf("postgres: look for sessions that block others: %w", err)
	}
	lockers, err := db.lockers(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres: look for sessions that lock rows: %w", err)
	}
	var findings []Finding
	for _, b := range blockers {
		locked := fmt.Sprintf("what %d others wait for", b.Waiting)
		if at := slices.IndexFunc(lockers, func(l locker) bool { return l.PID != nil && *l.PID == b.PID }); at >= 0 {
			locked = strings.TrimSuffix(lockers[at].what(), ",") + fmt.Sprintf(", and %d others wait", b.Waiting)
			lockers = slices.Delete(lockers, at, at+1)
		}
		findings = append(findings, Finding{
			Check: "blocked", Fatal: true, Message: fmt.Sprintf("session %d (%s, %s) has been in a transaction for %d s and has locked %s", b.PID, b.Application, b.State,
				b.Seconds, locked),
			Remedy: fmt.Sprintf("let it end, or run SELECT pg_terminate_backend(%d)", b.PID),
		})
	}
	for i := range lockers {
		l := &lockers[i]
		who, remedy := "a prepared transaction", "end it by COMMIT PREPARED or ROLLBACK PREPARED, as its coordinator decided"
		switch {
		case l.PID != nil:
			who = fmt.Sprintf("session %d (%s, %s)", *l.PID, l.Application, l.State)
			remedy = fmt.Sprintf("let it end, or run SELECT pg_terminate_backend(%d)", *l.PID)
		case l.Prepared != nil:
			who = fmt.Sprintf("the prepared transaction %.80q", *l.Prepared)
		}
		since := "longer than Fairlead's own do; this role can't see since when (GRANT pg_read_all_stats)"
		if l.Seconds != nil {
			since = fmt.Sprintf("for %d s", *l.Seconds)
		}
		findings = append(findings, Finding{
			Check: "blocked", Fatal: true, Message: fmt.Sprintf("%s has locked %s %s: commands that need them get row_locked", who, l.what(), since), Remedy: remedy,
		})
	}
	return findings, nil
}

// lockers are the transactions of selectLockers. Those of an unknown age are looked at twice.
func (db *DB) lockers(ctx context.Context) ([]locker, error) {
	look := func() ([]locker, error) {
		return query(ctx, db, pgx.RowToStructByPos[locker], selectLockers, blockedFor, needed(), tableModes())
	}
	first, err := look()
	if err != nil || !slices.ContainsFunc(first, func(l locker) bool { return l.Seconds == nil }) {
		return first, err
	}
	if !wait.For(ctx, lockerLook) {
		return nil, ctx.Err()
	}
	second, err := look()
	return slices.DeleteFunc(second, func(l locker) bool {
		return l.Seconds == nil && !slices.ContainsFunc(first, func(was locker) bool { return was.Transaction == l.Transaction })
	}), err
}

// blocker is a session that others wait for.
type blocker struct {
	PID                int32
	Application, State string
	Seconds, Waiting   int64
}
