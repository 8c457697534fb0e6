package pglock

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// byHand is a database with functions, and a connection for statements of the test's own.
func byHand(t *testing.T) (*pgxpool.Pool, func(sql string, args ...any)) {
	t.Helper()
	pgtest.Needs(t, pgkit.Functions)
	p := pool(t, database(t))
	return p, func(sql string, args ...any) {
		t.Helper()
		testwait.Must(t, testwait.Err(p.Exec(t.Context(), testSchema.in(sql), args...)))
	}
}

// TestLocksBesideALongSnapshot: while somebody holds a snapshot, a key that is locked again and again, by one or by many in turn, is found past
// the versions and places that this leaves.
func TestLocksBesideALongSnapshot(t *testing.T) {
	t.Parallel()
	p, exec := byHand(t)
	reader, err := p.Acquire(t.Context())
	testwait.Must(t, err)
	defer reader.Release()
	for _, sql := range []string{`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM pg_class`} {
		testwait.Must(t, testwait.Err(reader.Exec(t.Context(), sql)))
	}
	// Each turn is a transaction, as each program's is.
	exec(`DO $$
		DECLARE a uuid; b uuid; process uuid := gen_random_uuid(); r record;
		BEGIN
			PERFORM set_config('synchronous_commit', 'off', false);
			FOR i IN 1 .. 6000 LOOP
				a := gen_random_uuid();
				IF @lock_take('alone', a, a::text, 60000000, 0, false, NULL, 1000000) IS NULL OR @lock_free('alone', a) IS NULL THEN
					RAISE 'turn % of one', i;
				END IF;
				COMMIT;
			END LOOP;
			a := gen_random_uuid();
			PERFORM @lock_take('wanted', a, a::text, 60000000, 0, false, NULL, 1000000);
			FOR i IN 1 .. 6000 LOOP
				b := gen_random_uuid();
				SELECT * INTO r FROM @lock_ask('wanted', ARRAY[b::text], ARRAY[b::text], ARRAY[60000000], ARRAY[0], ARRAY[true], process::text, 1000000);
				COMMIT;
				SELECT * INTO r FROM @lock_release('wanted', a::text, a::text, NULL, '{}', '{}', process::text, 8, 900000, 'cohort', NULL);
				IF r.outcome <> 'released' OR r.heirs <> ARRAY[b] THEN
					RAISE 'turn % of many: %', i, r;
				END IF;
				a := b;
				IF r.heirs IS NULL THEN -- Where a second has passed since it was heard, nobody stands in line, and it begins anew.
					DELETE FROM @lock_waiters;
					DELETE FROM @lock_queue;
					a := gen_random_uuid();
					PERFORM @lock_take('wanted', a, a::text, 60000000, 0, false, NULL, 1000000);
				END IF;
				COMMIT;
			END LOOP;
			PERFORM @lock_release('wanted', a::text, a::text, NULL, '{}', '{}', process::text, 8, 900000, 'cohort', NULL);
			COMMIT;
		END $$`)
	conn, err := p.Acquire(t.Context())
	testwait.Must(t, err)
	defer conn.Release()
	statements := func(alone, wanted string) map[string]int {
		id, other := uuid.NewString(), uuid.NewString()
		pages := map[string]int{}
		for _, statement := range []struct {
			what, sql string
			args      []any
		}{
			{"lock_take", `@lock_take($1, $2::text::uuid, $2, 60000000, 0, false, NULL, 1000000)`, []any{alone, id}},
			{"lock_free", `@lock_free($1, $2::text::uuid)`, []any{alone, id}},
			{"lock_share", `@lock_share(ARRAY[$1, $2], ARRAY[$3, $4], ARRAY[$3, $4], ARRAY[60000000, 60000000], ARRAY[0, 0], '{}', '{}')`, []any{alone, wanted, id, other}},
			{"lock_share, to end one", `@lock_share('{}', '{}', '{}', '{}', '{}', ARRAY[$1], ARRAY[$2])`, []any{alone, id}},
			{"lock_ask", `@lock_ask($1, ARRAY[$2], ARRAY[$2], ARRAY[60000000], ARRAY[0], ARRAY[true], $2, 1000000)`, []any{wanted, uuid.NewString()}},
			{"lock_release", `@lock_release($1, $2, $2, NULL, ARRAY[$3], ARRAY[9223372036854775807], $3, 8, 900000, 'cohort', NULL)`, []any{wanted, other, id}},
		} {
			pages[statement.what] = touched(t, conn, testSchema.in(`SELECT `+statement.sql), statement.args...)
		}
		return pages
	}
	statements("another", "one more") // A session's first plans read the catalogs.
	byFunctions := statements("alone", "wanted")
	bySQL := touchedBySQL(t, conn, exec, "alone", "wanted")
	maps.Copy(bySQL, byFunctions)
	for what, pages := range bySQL {
		t.Logf("%s: %d pages", what, pages)
		if pages > 80 { // The versions of 6,000 turns, and their entries, are on more.
			t.Errorf("%s touches %d pages", what, pages)
		}
	}
}

// touchedBySQL is how many pages the statements touch that find keys without functions. Both keys are held by one grant then, and one request waits.
func touchedBySQL(t *testing.T, conn *pgxpool.Conn, exec func(sql string, args ...any), alone, wanted string) map[string]int {
	t.Helper()
	grant, waiter, keys := uuid.NewString(), uuid.NewString(), []string{alone, wanted}
	exec(`INSERT INTO @lock_grants (id, owner, keys, tokens, ttl_us, hold_us, granted_at, expires_at)
		VALUES ($1, 'both', $2, '{1, 1}', 60000000, 0, clock_timestamp(), clock_timestamp() + interval '1 min')`, grant, keys)
	exec(`UPDATE @lock_keys SET holder = $1 WHERE key = ANY ($2)`, grant, keys)
	exec(`WITH w AS (INSERT INTO @lock_waiters (id, owner, keys, ttl_us, hold_us, since, alive_until) VALUES ($1::text::uuid, $1::text, $2::text[], 60000000, 0, clock_timestamp(), clock_timestamp()) RETURNING ticket)
		INSERT INTO @lock_queue (key, ticket, waiter) SELECT key, ticket, $1::text::uuid FROM w, unnest($2::text[]) AS u (key)`, waiter, keys)
	var chapter int64
	testwait.Must(t, conn.QueryRow(t.Context(), testSchema.in(`SELECT chapter FROM @lock_keys WHERE key = $1`), wanted).Scan(&chapter))
	st, pages := newStatements(testSchema), map[string]int{}
	for _, s := range []struct {
		what, sql string
		args      []any
	}{
		{"InsertKeys", st.InsertKeys, []any{keys}},
		{"LockKeys", st.LockKeys, []any{keys}},
		{"LockKeysOf", st.LockKeysOf, []any{grant}},
		{"DropExpired", st.DropExpired, []any{keys}},
		{"ReadHolders", st.ReadHolders, []any{keys}},
		{"ReadLine", st.ReadLine, []any{keys}},
		{"ReadLineOf", st.ReadLineOf, []any{grant}},
		{"ReadHeadOf", st.ReadHeadOf, []any{grant}},
		{"ReadLineFor", st.ReadLineFor, []any{wanted, []string{waiter}, []string{"aa"}}},
		{"FindGrant", st.FindGrant, []any{wanted}},
		{"Unlocked", st.Unlocked, []any{keys}},
		{"FreeKeys", st.FreeKeys, []any{[]string{waiter}}},
		{"NextExpiry", st.NextExpiry, []any{[]string{waiter}}},
		{"DropQueue", st.DropQueue, []any{waiter, wanted}},
		{"TakeKey", st.TakeKey, []any{grant, wanted, chapter}},
	} {
		pages[s.what] = touched(t, conn, s.sql, s.args...)
	}
	return pages
}

// touched is how many pages a statement touches, its functions' statements included.
func touched(t *testing.T, conn *pgxpool.Conn, sql string, args ...any) int {
	t.Helper()
	var out []byte
	testwait.Must(t, conn.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, append([]any{pgx.QueryExecModeExec}, args...)...).Scan(&out))
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	testwait.Must(t, json.Unmarshal(out, &plans))
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// TestKeysAreMadeOnce has many ask for a new key at once, where its first grant already leaves the first chapter.
func TestKeysAreMadeOnce(t *testing.T) {
	t.Parallel()
	url := database(t)
	p := pool(t, url)
	testwait.Must(t, testwait.Err(testSchema.AdvanceTokens(t.Context(), p, 1000)))
	var lockers []*lock.Locker
	for range 3 {
		lockers = append(lockers, lock.New(open(t, url, Options{}), lock.LockerOptions{}))
	}
	for round := range testwait.Count(20, 500) {
		var asking sync.WaitGroup
		for i := range 12 {
			asking.Go(func() {
				keys := []string{fmt.Sprint("key ", round)}
				if i%4 == 3 { // By statements, in place of functions.
					keys = append(keys, fmt.Sprint("more ", round))
				}
				h, err := lockers[i%len(lockers)].Acquire(t.Context(), keys, lock.Options{Wait: lock.Forever})
				if testwait.Check(t, err); err == nil {
					testwait.Check(t, h.Release(t.Context()))
				}
			})
		}
		asking.Wait()
	}
	if n := count(t, p, testSchema.in(`SELECT count(*) - count(DISTINCT key) FROM @lock_keys`)); n != 0 {
		t.Errorf("%d keys have two rows", n)
	}
	// A cohort that ends early leaves tokens unused that it was given for those behind one another.
	if n := count(t, p, testSchema.in(`SELECT count(*) FROM @lock_keys WHERE key LIKE 'key %' AND token < (SELECT token_floor FROM @lock_arbiter) + 12`)); n != 0 {
		t.Errorf("%d keys have fewer than 12 tokens", n)
	}
}

// TestKeyThatIsMadeLate makes a key that has left its first chapter meanwhile, as somebody does who was stopped behind the look whether it is there.
func TestKeyThatIsMadeLate(t *testing.T) {
	t.Parallel()
	p, exec := byHand(t)
	exec(`INSERT INTO @lock_keys (key, token, chapter) VALUES ('key', 300, 2)`)
	late := testSchema.in(`INSERT INTO @lock_keys (key, token) SELECT 'key', token_floor FROM @lock_arbiter ON CONFLICT DO NOTHING`)
	if _, err := p.Exec(t.Context(), late); pgkit.Code(err) != "40001" {
		t.Errorf("a second row: %v", err)
	}
	for level, code := range map[pgx.TxIsoLevel]string{pgx.RepeatableRead: "25000", pgx.Serializable: "25000"} {
		err := pgx.BeginTxFunc(t.Context(), p, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error { return testwait.Err(tx.Exec(t.Context(), late)) })
		if pgkit.Code(err) != code {
			t.Errorf("%s: %v", level, err)
		}
	}
	if n := count(t, p, testSchema.in(`SELECT count(*) FROM @lock_keys`)); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// TestSilentAtTheHandOver: a request whose process was silent when the lock was handed over past it is next when it is heard again.
func TestSilentAtTheHandOver(t *testing.T) {
	t.Parallel()
	p, exec := byHand(t)
	testwait.Eventually(t, testwait.Patience, "nothing takes a second", func() bool {
		return handsOverPastTheSilent(t, p, exec)
	})
}

// handsOverPastTheSilent returns false where the machine took so long that others were silent as well.
func handsOverPastTheSilent(t *testing.T, p *pgxpool.Pool, exec func(sql string, args ...any)) (told bool) {
	t.Helper()
	key, process := uuid.NewString(), uuid.NewString()
	holder, first, second, third := uuid.NewString(), uuid.NewString(), uuid.NewString(), uuid.NewString()
	exec(`SELECT @lock_take($1, $2::text::uuid, $2, 60000000, 0, false, NULL, 1000000)`, key, holder)
	for _, id := range []string{first, second, third} {
		exec(`SELECT @lock_ask($1, ARRAY[$2], ARRAY[$2], ARRAY[60000000], ARRAY[0], ARRAY[true], $3, 1000000)`, key, id, process)
	}
	hear := func(heard ...string) {
		t.Helper()
		exec(`UPDATE @lock_waiters SET alive_until = clock_timestamp() + CASE WHEN id = ANY ($1::text[]::uuid[]) THEN 1 ELSE -1 END * interval '1 s' WHERE keys = ARRAY[$2]`,
			heard, key)
	}
	release := func(id string, heard ...string) (heir string, inTime bool) {
		t.Helper()
		start := time.Now()
		hear(heard...)
		var next *string
		testwait.Must(t, p.QueryRow(t.Context(), testSchema.in(`SELECT heirs[1]::text FROM @lock_release($1, $2, $2, NULL, '{}', '{}', NULL, 1, 900000, 'cohort', NULL)`), key, id).Scan(&next))
		if time.Since(start) > 900*time.Millisecond || next == nil {
			return "", false
		}
		return *next, true
	}
	for _, turn := range []struct {
		of, next string
		heard    []string
	}{
		{holder, second, []string{second, third}},
		{second, first, []string{first, third}},
		{first, third, []string{third}},
	} {
		heir, inTime := release(turn.of, turn.heard...)
		if !inTime {
			return false
		}
		if heir != turn.next {
			t.Errorf("%s was next of %s, %s and %s", heir, first, second, third)
			return true
		}
		if turn.next != second {
			continue
		}
		// Statements find it, too.
		st, start := newStatements(testSchema), time.Now()
		hear(first, third)
		var line []string
		var head string
		testwait.Must(t, p.QueryRow(t.Context(), `SELECT array_agg(id::text ORDER BY ticket) FROM (`+st.ReadLine+`) AS l`, []string{key}).Scan(&line))
		testwait.Must(t, p.QueryRow(t.Context(), `SELECT coalesce(min(id::text), '') FROM (`+st.ReadHeadOf+`) AS l`, uuid.MustParse(second)).Scan(&head))
		if time.Since(start) > 900*time.Millisecond {
			return false
		}
		if !slices.Equal(line, []string{first, third}) || head != first {
			t.Errorf("statements find %s, and %s as the first; in line are %s and %s", line, head, first, third)
			return true
		}
	}
	return true
}
