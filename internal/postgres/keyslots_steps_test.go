package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// oldInsert and oldInsertOrNothing are what servers write keys with that know of no slots.
const (
	oldInsert = `INSERT INTO idempotency_keys (id, fingerprint, execution, status, body, created_at)
		SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::uuid[], $4::smallint[], $5::bytea[], $6::timestamptz[])`
	oldInsertOrNothing = oldInsert + ` ON CONFLICT (id) DO NOTHING`
)

// slotsStep is the step that made the slots.
const slotsStep = 40

// TestOlderServersAndSlots: what a server of before the slots writes, which was stopped while the schema was changed and wakes up before the
// first turn, is found by the others. One that wakes up after it writes nothing.
func TestOlderServersAndSlots(t *testing.T) {
	t.Parallel()
	s := newSlots(t)
	old := func(sql, key string) (written int64, code string) {
		id := keyed[ledger.Op](nil, key, "").Key.ID
		tag, err := s.db.pool.Exec(t.Context(), sql, [][]byte{id[:]}, [][]byte{id[:]}, []uuid.UUID{uuid.New()}, []int16{402}, [][]byte{[]byte(`{"code":"refused"}`)}, []time.Time{time.Now()})
		return tag.RowsAffected(), pgkit.Code(err)
	}
	s.deposit(0, "ann", "new")
	if n, code := old(oldInsert, "old"); n != 1 || code != "" {
		t.Fatalf("an older server: %d, %s", n, code)
	}
	if _, code := old(oldInsert, "new"); code != pgkit.UniqueViolation {
		t.Errorf("an older server, with a newer one's key: %s", code)
	}
	if a, err := s.services[0].Execute(t.Context(), keyed[ledger.Op](ledger.Deposit{Account: "ann", Amount: 1}, "old", "")); err != nil || string(a.Body) == "" || a.Status == 201 {
		t.Errorf("a newer server, with an older one's key: %+v, %v", a, err)
	}
	s.age(day)
	if n, code := old(oldInsertOrNothing, "old too"); n != 1 || code != "" {
		t.Errorf("an older server: %d, %s", n, code)
	}
	s.sweep(0)
	s.written(1)
	for _, sql := range []string{oldInsert, oldInsertOrNothing} {
		if n, code := old(sql, "woken"); n != 0 || code != "23502" {
			t.Errorf("an older server that wakes up: %d, %q", n, code)
		}
	}
}

// TestSlotsOfAFullTable: what the step finds is answered afterwards.
func TestSlotsOfAFullTable(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces)
	url := pgtest.NewDatabase(t, nil)
	all, ok := laterSteps(t, nil).(fstest.MapFS)
	if !ok {
		t.Fatal("not files")
	}
	before := maps.Clone(all)
	maps.DeleteFunc(before, func(name string, _ *fstest.MapFile) bool { return name >= fmt.Sprintf("migrations/%05d", slotsStep) })
	testwait.Must(t, testwait.Err(migrateWith(t.Context(), url, electionSchema, fs.FS(before), nil)))
	conn := pgtest.Connect(t, url)
	c := keyed[ledger.Op](ledger.Deposit{Account: "ann", Amount: 1}, "kept", "")
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `INSERT INTO idempotency_keys SELECT sha256(n::text::bytea), sha256(''), gen_random_uuid(), 402, '{}'::bytea, now()
		FROM generate_series(1, 10000) AS n UNION ALL SELECT $1, $2, gen_random_uuid(), 409, '{"code":"kept"}'::bytea, now()`, c.Key.ID[:], c.Key.Fingerprint[:])))
	node := func() (node uint32) {
		testwait.Must(t, conn.QueryRow(t.Context(), `SELECT relfilenode FROM pg_class WHERE oid = 'idempotency_keys'::regclass`).Scan(&node))
		return node
	}
	was := node()
	testwait.Must(t, testwait.Err(Migrate(t.Context(), url)))
	if node() != was {
		t.Error("the table was written anew")
	}
	db := open(t, Options{URL: url})
	if n := ask[int](t, db, `SELECT count(*) FROM stored_keys`); n != 10_001 {
		t.Errorf("%d keys", n)
	}
	money := newLedgerService(t, db)
	a, err := money.Execute(t.Context(), c)
	if err != nil || !a.Replayed || string(a.Body) != `{"code":"kept"}` {
		t.Errorf("%+v, %v", a, err)
	}
	s := &slots{T: t, db: db, other: db, services: []*ledger.Service{money}}
	s.turn()
	if a, err = money.Execute(t.Context(), c); err != nil || !a.Replayed {
		t.Errorf("after a turn: %+v, %v", a, err)
	}
}

// TestSlotsOfAnotherOwner: a role that may not change the tables deletes old keys one by one, and answers the others.
func TestSlotsOfAnotherOwner(t *testing.T) {
	t.Parallel()
	s := newSlots(t)
	role := "limited_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	for _, sql := range []string{`CREATE ROLE ` + role, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ` + role} {
		exec(t, s.db, sql)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, s.db.url)
		testwait.Must(t, err)
		_, err = conn.Exec(ctx, `DROP OWNED BY `+role+`; DROP ROLE `+role)
		testwait.Check(t, errors.Join(err, conn.Close(ctx)))
	})
	s.deposit(0, "ann", "young")
	exec(t, s.db, `INSERT INTO idempotency_keys SELECT sha256(n::text::bytea), sha256(''), gen_random_uuid(), 402, '{}', clock_timestamp() - interval '25 hours'
		FROM generate_series(1, 100) AS n`)
	s.age(day)
	limited := open(t, Options{URL: s.db.url + "&role=" + role})
	if n, err := limited.SweepKeys(t.Context(), day); n != 100 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	s.written(0)
	if !s.deposit(1, "ann", "young") {
		t.Error("a key was forgotten")
	}
}
