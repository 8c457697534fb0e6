package pglock

import "reflect"

// statements are the SQL texts, with the schema put in. Durations are microseconds.
type statements struct {
	InsertKeys, LockKeys, LockKeysOf, DropExpired, ReadHolders, ReadLine, ReadLineOf, ReadHeadOf, ReadLineFor              string
	MustDropWaiter, InsertGrant, TakeKey, DropWaiter, DropQueue, DropPlaces, InsertWaiter, DropDead, Take, Renew, EndGrant string
	ReadCycle, Withdraw, DropGrant, ReadGraph, OwnersHold, LockArbiter, MarkVictim, KeepAlive, FreeKeys, NextExpiry        string
	WaitedFor, ReadGrants, FindGrant, SweepWaiters, SweepQueue, ExpiredLines, Notify, Ask, Release, Settle, DropServed     string
	DropServedPlaces, Tombstone, EndAhead, FindAhead, SilenceWaiters, Share, Unlocked, DropOwn, AskOne, Free               string
}

// Statements name rows by "= ANY" of an array. Then the planner finds each row by the index, also in a table that it has no
// statistics of, and cannot begin a join at the other side.
//
// Parts that several statements have.
const (
	usec = ` * interval '1 microsecond'`
	// someIDs come as texts: without a prepared statement, as behind a pooler, the driver has no array of others to send.
	someIDs    = `ANY ($1::text[]::uuid[])`
	keysOf     = `(SELECT keys FROM @lock_grants WHERE id = $1)::text[]`
	several    = `(SELECT keys FROM @lock_grants WHERE id = $1 AND cardinality(keys) > 1)::text[]`
	only       = `(SELECT keys[1] FROM @lock_grants WHERE id = $1 AND cardinality(keys) = 1)`
	waiterCols = `w.id, w.ticket, w.owner, w.keys, w.ttl_us, w.hold_us, w.request`
	inQueue    = ` FROM @lock_queue q JOIN @lock_waiters w ON w.id = ANY (ARRAY[q.waiter]) WHERE q.key = `
	alive      = `w.cycle IS NULL AND ` + heard
	// heard is true of a request whose process has lately said that it is alive. Nobody is alive for longer than is said at once
	// (aliveFor): such a row was written by a clock that was ahead, and counts as dead until its process speaks again.
	heard = `w.alive_until > clock_timestamp() AND w.alive_until <= clock_timestamp() + interval '1200 milliseconds'`
	// ahead is true of a lease that ends later than if it were renewed now: it was written by a clock that was ahead.
	ahead = `g.expires_at > clock_timestamp() + least(g.ttl_us, nullif(g.hold_us, 0))` + usec
	// commitLater makes the transaction's commit wait for no disk. A later commit that does wait for the disk waits for both.
	commitLater = `set_config('synchronous_commit', 'off', true)`
	grantCols   = `id, owner, keys, tokens, ttl_us, granted_at, expires_at`
)

// inLine bounds a look at places in a key's line by the place at which it begins. PostgreSQL keeps dead entries of earlier places in the
// index while somebody holds a snapshot.
func inLine(key string) string {
	return ` AND q.ticket >= coalesce((` + keyRow(`queue_from`, key) + `), 0)`
}

// lines reads who stands in the lines of keys.
func lines(keys string) string {
	return `SELECT ` + waiterCols + ` FROM @lock_waiters w WHERE ` + alive + ` AND w.id = ANY (ARRAY(
		SELECT waiter FROM unnest(` + keys + `) AS u (name) CROSS JOIN LATERAL (SELECT waiter FROM @lock_queue q WHERE q.key = u.name` + inLine(`u.name`) + ` OFFSET 0) AS q))`
}

// keyRow reads columns of a key's row. It begins at the key's last chapter, and so passes over the dead versions of earlier ones.
func keyRow(columns, key string) string {
	return `SELECT ` + columns + ` FROM @lock_keys WHERE key = ` + key + ` ORDER BY chapter DESC LIMIT 1`
}

// keyRows reads the rows of the keys u.name, as k.
func keyRows(columns, locking string) string {
	return ` CROSS JOIN LATERAL (` + keyRow(columns, `u.name`) + locking + `) AS k`
}

// lockRows locks the rows of keys in the order of the keys.
func lockRows(keys string) string {
	return `SELECT k.key, k.token, k.chapter FROM (SELECT name FROM unnest(` + keys + `) AS n (name) ORDER BY name COLLATE "C") AS u` +
		keyRows(`key, token, chapter`, ` FOR NO KEY UPDATE`)
}

func newStatements(s Schema) *statements {
	st := &statements{ //nolint:gosec // Tokens of locks are no credentials.
		// Rows of new keys are inserted in the order in which they are locked, so that two that make the same rows wait for
		// each other in one direction only.
		InsertKeys: `INSERT INTO @lock_keys (key, token) SELECT name, token_floor FROM unnest($1::text[]) AS u (name), @lock_arbiter
			WHERE (` + keyRow(`true`, `u.name`) + `) IS NULL ORDER BY name COLLATE "C" ON CONFLICT DO NOTHING`,
		LockKeys:   lockRows(`$1::text[]`),
		LockKeysOf: lockRows(keysOf),
		// A renewal that is under way is waited for, and the expiry looked at again.
		DropExpired: `DELETE FROM @lock_grants WHERE expires_at <= clock_timestamp()
			AND id = ANY (ARRAY(SELECT (` + keyRow(`holder`, `u.name`) + `) FROM unnest($1::text[]) AS u (name)))`,
		ReadHolders: `SELECT k.key, g.id, g.owner, g.request, ` + ahead + ` FROM unnest($1::text[]) AS u (name)` + keyRows(`key, holder`, ``) + `
			JOIN @lock_grants g ON g.id = ANY (ARRAY[k.holder])`,
		ReadLine: lines(`$1::text[]`) + ` ORDER BY ticket`,
		// Of several keys the whole lines matter; of one, only who is first, however long the line is.
		ReadLineOf: lines(several) + `
			AND (SELECT cardinality(keys) > 1 FROM @lock_grants WHERE id = $1) ORDER BY ticket`, // The planner looks at that first, and at most at that.
		ReadHeadOf: `SELECT ` + waiterCols + inQueue + only + inLine(only) + `
			AND ` + alive + ` ORDER BY q.ticket LIMIT 1`,
		// Behind a holder nobody in line for the one key can be granted, so that only the requests themselves are looked for, and
		// others that stand for the same.
		ReadLineFor: `SELECT DISTINCT ON (w.ticket) w.* FROM (
				SELECT ` + waiterCols + ` FROM @lock_waiters w WHERE w.id = ANY ($2::text[]::uuid[]) AND $1 = ANY (w.keys) AND ` + alive + ` UNION ALL
				SELECT ` + waiterCols + ` FROM @lock_waiters w WHERE w.request = ANY (ARRAY(SELECT decode(f, 'hex') FROM unnest($3::text[]) AS u (f) WHERE f <> '')) AND $1 = ANY (w.keys) AND ` + alive + ` UNION ALL
				SELECT ` + waiterCols + inQueue + `$1` + inLine(`$1`) + ` AND ` + alive + ` AND NOT EXISTS (
					SELECT FROM @lock_grants g WHERE g.expires_at > clock_timestamp() AND g.id = (` + keyRow(`holder`, `$1`) + `))
				OFFSET 0) AS w ORDER BY w.ticket`, // UNION would have the planner of PostgreSQL 17 read waiters in the order of their ids.
		InsertGrant: `INSERT INTO @lock_grants (id, owner, keys, tokens, ttl_us, hold_us, request, granted_at, expires_at)
			SELECT $1, $2, $3, $4, $5, $6, $7, now, now + $8::bigint` + usec + ` FROM (SELECT clock_timestamp()) AS c (now)
			RETURNING expires_at, CASE WHEN $9::boolean THEN ` + commitLater + ` END`,
		TakeKey:    `UPDATE @lock_keys SET token = token + 1, holder = $1, chapter = (token + 1) >> 7 WHERE key = $2 AND chapter = $3`,
		DropWaiter: `DELETE FROM @lock_waiters WHERE id = $1 AND cycle IS NULL`,
		// It fails, and with it the transaction, where nobody is waiting any more under that id, so that COMMIT may follow at
		// once. Division by zero is the one failure that plain SQL can choose to have.
		MustDropWaiter: `WITH gone AS (DELETE FROM @lock_waiters WHERE id = $1 AND cycle IS NULL RETURNING id) SELECT 1 / count(*) FROM gone`,
		DropQueue:      `DELETE FROM @lock_queue q WHERE waiter = $1 AND key = $2` + inLine(`$2`),
		// Where the ticket is known, the index leads to the one row, past the places of all who were in line before.
		DropPlaces: `DELETE FROM @lock_queue WHERE ticket = $1 AND key = ANY ($2)`,
		InsertWaiter: `WITH w AS (
				INSERT INTO @lock_waiters (id, owner, keys, ttl_us, hold_us, request, since, alive_until, process)
				VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), clock_timestamp() + $7::bigint` + usec + `, nullif($9::text, '')::uuid) RETURNING ticket, keys
			), q AS (
				INSERT INTO @lock_queue (key, ticket, waiter) SELECT u.key, w.ticket, $1 FROM w, unnest(w.keys) AS u (key)
			) SELECT ticket, CASE WHEN $8::boolean THEN ` + commitLater + ` END FROM w`,
		DropDead: `DELETE FROM @lock_waiters w WHERE w.request = $1 AND NOT (` + heard + `)`,
		DropOwn:  `DELETE FROM @lock_waiters w WHERE w.id = $1 AND NOT (` + alive + `)`,
		Take: `UPDATE @lock_grants SET owner = $2, granted_at = clock_timestamp(), request = NULL,
			expires_at = clock_timestamp() + CASE WHEN hold_us > 0 THEN least(ttl_us, hold_us) ELSE ttl_us END` + usec + `
			WHERE id = $1 AND expires_at > clock_timestamp() RETURNING ` + grantCols,
		// A grant can't be from the future: its maximum hold is counted from now on at the latest.
		Renew: `UPDATE @lock_grants SET ttl_us = CASE WHEN $2::bigint > 0 THEN $2::bigint ELSE ttl_us END, granted_at = least(granted_at, clock_timestamp()),
			expires_at = least(clock_timestamp() + CASE WHEN $2::bigint > 0 THEN $2::bigint ELSE ttl_us END` + usec + `,
				CASE WHEN hold_us > 0 THEN least(granted_at, clock_timestamp()) + hold_us` + usec + ` ELSE 'infinity' END)
			WHERE id = $1 AND expires_at > clock_timestamp() AND (hold_us = 0 OR granted_at + hold_us` + usec + ` > clock_timestamp())
			RETURNING ` + grantCols,
		EndGrant:  `DELETE FROM @lock_grants WHERE id = $1 RETURNING expires_at > clock_timestamp(), owner, keys, extract(epoch FROM clock_timestamp() - granted_at)::double precision`,
		ReadCycle: `SELECT cycle FROM @lock_waiters WHERE id = $1`,
		Withdraw:  `DELETE FROM @lock_waiters WHERE id = $1 RETURNING cycle`,
		DropGrant: `DELETE FROM @lock_grants WHERE id = $1`,
		// One statement, so that it is the truth of one instant.
		ReadGraph: `SELECT w.id, w.ticket, w.owner, w.keys, w.since, h.keys, h.owners FROM @lock_waiters w LEFT JOIN LATERAL (
				SELECT array_agg(k.key) AS keys, array_agg(g.owner) AS owners FROM unnest(w.keys) AS u (name)
				` + keyRows(`key, holder`, ``) + ` JOIN @lock_grants g ON g.id = ANY (ARRAY[k.holder]) WHERE g.expires_at > clock_timestamp()
			) h ON true WHERE ` + alive + ` ORDER BY w.ticket`,
		OwnersHold:  `SELECT EXISTS (SELECT FROM @lock_grants WHERE owner = ANY ($1) AND expires_at > clock_timestamp())`,
		LockArbiter: `SELECT one FROM @lock_arbiter FOR UPDATE`,
		MarkVictim:  `UPDATE @lock_waiters SET cycle = $2 WHERE id = $1 AND cycle IS NULL`,
		// Rows that somebody else is just deciding on are passed over: waiting for them could be mutual.
		KeepAlive: `UPDATE @lock_waiters SET alive_until = clock_timestamp() + $2::bigint` + usec + ` WHERE id = ANY (ARRAY(
			SELECT id FROM @lock_waiters WHERE id = ` + someIDs + ` AND cycle IS NULL FOR UPDATE SKIP LOCKED)) RETURNING id`,
		FreeKeys: `SELECT DISTINCT u.name FROM @lock_waiters w, unnest(w.keys) AS u (name)
			WHERE w.id = ` + someIDs + ` AND w.cycle IS NULL
			AND NOT EXISTS (SELECT FROM @lock_grants g WHERE g.id = (` + keyRow(`holder`, `u.name`) + `) AND g.expires_at > clock_timestamp() OFFSET 0)`,
		// Of these keys the ones whose own row, and whose holder's, no other session has locked.
		Unlocked: `WITH k AS (SELECT k.key, k.holder FROM unnest($1::text[]) AS u (name)` + keyRows(`key, holder`, ` FOR NO KEY UPDATE SKIP LOCKED`) + `),
			g AS (SELECT id FROM @lock_grants WHERE id = ANY (ARRAY(SELECT holder FROM k)) FOR UPDATE SKIP LOCKED)
			SELECT key FROM k WHERE holder IN (SELECT id FROM g) OR NOT EXISTS (SELECT FROM @lock_grants WHERE id = k.holder OFFSET 0)`,
		NextExpiry: `SELECT coalesce(extract(epoch FROM min(g.expires_at) - clock_timestamp()), 3600)::double precision,
				array_agg(g.id) FILTER (WHERE ` + ahead + `)
			FROM @lock_waiters w, unnest(w.keys) AS u (name)` + keyRows(`holder`, ``) + ` JOIN @lock_grants g ON g.id = ANY (ARRAY[k.holder])
			WHERE w.id = ` + someIDs + ``,
		// Whether somebody waits for what owners of these waiters hold: without that they are in no cycle.
		WaitedFor: `SELECT EXISTS (SELECT FROM @lock_waiters w JOIN @lock_grants g ON g.owner = ANY (ARRAY[w.owner]) JOIN @lock_queue q ON q.key = ANY (g.keys)
			WHERE w.id = ` + someIDs + ` AND w.cycle IS NULL AND q.waiter <> w.id AND g.expires_at > clock_timestamp())`,
		// Ids begin with a time, so that of very many the first by id are the oldest, or nearly, and have an index.
		ReadGrants: `SELECT ` + grantCols + ` FROM (SELECT * FROM @lock_grants WHERE expires_at > clock_timestamp() ORDER BY id LIMIT $1) AS g
			ORDER BY granted_at, id`,
		FindGrant: `SELECT ` + grantCols + ` FROM @lock_grants WHERE id = (` + keyRow(`holder`, `$1`) + `) AND expires_at > clock_timestamp()`,
		// Rows that somebody else has locked are passed over: they are just being renewed, or are looked at again.
		EndAhead: `UPDATE @lock_grants SET granted_at = least(granted_at, clock_timestamp()),
			expires_at = clock_timestamp() + least(ttl_us, nullif(hold_us, 0))` + usec + ` WHERE id = ANY (ARRAY(
			SELECT g.id FROM @lock_grants g WHERE g.id = ` + someIDs + ` AND ` + ahead + ` FOR NO KEY UPDATE SKIP LOCKED))`,
		FindAhead: `SELECT g.id FROM @lock_grants g WHERE ` + ahead,
		SilenceWaiters: `UPDATE @lock_waiters SET alive_until = clock_timestamp() WHERE id = ANY (ARRAY(
			SELECT w.id FROM @lock_waiters w WHERE w.alive_until > clock_timestamp() AND NOT (` + heard + `) FOR UPDATE SKIP LOCKED))`,
		// Rows that another session has locked are left to a later sweep.
		ExpiredLines: `DELETE FROM @lock_grants WHERE id = ANY (ARRAY(
			SELECT id FROM @lock_grants WHERE expires_at <= clock_timestamp() - $1::bigint` + usec + ` FOR UPDATE SKIP LOCKED))`,
		SweepWaiters: `DELETE FROM @lock_waiters WHERE id = ANY (ARRAY(
			SELECT id FROM @lock_waiters WHERE alive_until <= clock_timestamp() - $1::bigint` + usec + ` FOR UPDATE SKIP LOCKED))`,
		SweepQueue: `DELETE FROM @lock_queue WHERE (key, ticket) IN (
			SELECT q.key, q.ticket FROM @lock_queue q WHERE NOT EXISTS (SELECT FROM @lock_waiters w WHERE w.id = q.waiter) FOR UPDATE SKIP LOCKED)`,
		// NOTIFY makes the commits that have it take turns, so this one waits for no disk. It is one statement, and so one round
		// trip.
		Notify:     `SELECT pg_notify($1, $2) FROM (SELECT set_config('synchronous_commit', 'off', true)) AS s (v) WHERE s.v = 'off'`,
		Ask:        `SELECT outcome, new_token, lease_end, tickets FROM @lock_ask($1, $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::boolean[], $7, $8::bigint)`,
		Release:    `SELECT outcome, heirs, heir_tickets, ours, new_token, lease_end FROM @lock_release($1, $2, $3, $4::bigint, $5::text[], $6::bigint[], $7, $8::bigint, $9::bigint, $10, $11)`,
		AskOne:     `SELECT @lock_take($1, $2::text::uuid, $3, $4::bigint, $5::bigint, $6::boolean, $7, $8::bigint)`,
		Free:       `SELECT @lock_free($1, $2::text::uuid)`,
		Settle:     `SELECT @lock_settle($1, $2, $3::text[], $4::bigint[], $5, $6, $7::bigint, $8::bigint)`,
		Share:      `SELECT ended, in_time, ages, granted, new_tokens, lease_ends FROM @lock_share($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::text[])`,
		DropServed: `DELETE FROM @lock_waiters WHERE id = ` + someIDs,
		// A request whose caller has gone, or which was made in another way, while it may still be on its way.
		Tombstone: `INSERT INTO @lock_waiters (id, owner, keys, ttl_us, hold_us, since, alive_until, cycle)
			VALUES ($1, $2, $3, 1, 0, clock_timestamp(), clock_timestamp(), '{}') ON CONFLICT DO NOTHING`,
		DropServedPlaces: `DELETE FROM @lock_queue WHERE key = $1 AND ticket = ANY ($2::bigint[])`,
	}
	for _, text := range st.all() {
		*text = s.in(*text)
	}
	return st
}

// all lists the texts. Fields have capitals so that reflection may write them.
func (st *statements) all() (texts []*string) {
	for _, field := range reflect.ValueOf(st).Elem().Fields() {
		texts = append(texts, field.Addr().Interface().(*string)) //nolint:errcheck // All are.
	}
	return texts
}
