package claim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// prismaMigration is what `prisma migrate` writes for a model with these columns:
//
//	id                  String    @id @default(cuid())
//	status              Status
//	executionLockId     String?
//	executionLockedAt   DateTime?
//	executionVersion    Int       @default(0)
const prismaMigration = `
-- CreateEnum
CREATE TYPE "Status" AS ENUM ('draft', 'scheduled', 'published', 'failed');

-- CreateTable
CREATE TABLE "Deviation" (
    "id" TEXT NOT NULL,
    "status" "Status" NOT NULL,
    "executionLockId" TEXT,
    "executionLockedAt" TIMESTAMP(3),
    "executionVersion" INTEGER NOT NULL DEFAULT 0,

    CONSTRAINT "Deviation_pkey" PRIMARY KEY ("id")
);`

func deviations() claim.Table {
	return claim.Table{
		Name: `"public"."Deviation"`, LockID: "executionLockId", LockedAt: "executionLockedAt", Version: "executionVersion",
		FinishedBy: claim.None, LockIDType: "text", TimeType: "timestamp(3)",
		Ready: `"status" = 'scheduled'`, OnFinish: `"status" = 'published'`, OnFail: `"status" = 'failed'`,
	}
}

// prisma is a database with a table of Prisma's.
type prisma struct {
	*testing.T

	pool   *pgxpool.Pool
	claims *claim.Claims[string]
}

// newPrisma makes one with n scheduled rows. Each of its connections has another TimeZone.
func newPrisma(t *testing.T, table claim.Table, n int) *prisma {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.NewDatabase(t, func(ctx context.Context, url string) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, prismaMigration)
		return errors.Join(err, conn.Close(ctx))
	}))
	testwait.Must(t, err)
	config.MaxConns = 8
	zones := make(chan string, 100)
	for i := range cap(zones) {
		zones <- []string{"America/St_Johns", "UTC", "Pacific/Kiritimati", "Asia/Kathmandu"}[i%4]
	}
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.RuntimeParams["timezone"] = <-zones
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	testwait.Must(t, err)
	t.Cleanup(pool.Close)
	claims, err := claim.New[string](table)
	testwait.Must(t, err)
	p := &prisma{T: t, pool: pool, claims: claims}
	p.exec(`INSERT INTO "Deviation" ("id", "status") SELECT 'cm' || i, 'scheduled' FROM generate_series(1, $1::int) AS i`, n)
	return p
}

func (p *prisma) exec(sql string, args ...any) {
	p.Helper()
	testwait.Must(p, testwait.Err(p.pool.Exec(p.Context(), sql, args...)))
}

func (p *prisma) want(id, row string) {
	p.Helper()
	var got string
	testwait.Must(p, p.pool.QueryRow(p.Context(),
		`SELECT concat_ws(' ', "status", "executionVersion", "executionLockId" IS NOT NULL, "executionLockedAt" IS NOT NULL) FROM "Deviation" WHERE "id" = $1`, id).Scan(&got))
	if got != row {
		p.Errorf("row %s is %s, want %s", id, got, row)
	}
}

// lost reports a mistake unless exactly these claims were lost.
func (p *prisma) lost(what string, got []claim.Claim[string], err error, want ...claim.Claim[string]) {
	p.Helper()
	if err != nil || len(got) != len(want) {
		p.Errorf("%s: lost %v, %v; want %v", what, got, err, want)
		return
	}
	for i := range want {
		if got[i] != want[i] {
			p.Errorf("%s: lost %v, want %v", what, got, want)
		}
	}
}

// TestPrismaTable runs every operation on a table as Prisma's migration creates it.
func TestPrismaTable(t *testing.T) {
	t.Parallel()
	p := newPrisma(t, deviations(), 6)
	ctx := t.Context()
	one, err := p.claims.Claim(ctx, p.pool, "cm1")
	if err != nil || one.ID != "cm1" || one.Version != 1 || one.LockID == uuid.Nil || time.Since(one.At).Abs() > time.Minute {
		t.Fatalf("%+v, %v", one, err)
	}
	if _, err := p.claims.Claim(ctx, p.pool, "cm1"); !errors.Is(err, claim.ErrNotClaimable) {
		t.Errorf("a second claim: %v", err)
	}
	rest, err := p.claims.ClaimDue(ctx, p.pool, 10)
	if err != nil || len(rest) != 5 {
		t.Fatalf("%d, %v", len(rest), err)
	}
	found, err := p.claims.Claimed(ctx, p.pool, rest[0].LockID)
	if err != nil || len(found) != 5 {
		t.Errorf("found %d, %v", len(found), err)
	}
	p.want("cm1", "scheduled 1 t t")
	forged := one
	forged.LockID = uuid.New()

	lost, err := p.claims.Heartbeat(ctx, p.pool, one, rest[0])
	p.lost("heartbeat", lost, err)
	lost, err = p.claims.Heartbeat(ctx, p.pool, forged, rest[0])
	p.lost("heartbeat under a claim that is not", lost, err, forged)
	working, stop := p.claims.Keep(ctx, p.pool, time.Minute, found[0]) // Its age is not known, so that it is confirmed first.
	if working.Err() != nil {
		t.Errorf("keep: %v", context.Cause(working))
	}
	stop()
	if err := p.claims.Finish(ctx, p.pool, forged, nil); !errors.Is(err, claim.ErrLost) {
		t.Errorf("finish under a claim that is not: %v", err)
	}
	testwait.Check(t, p.claims.Finish(ctx, p.pool, one, nil))
	p.want("cm1", "published 1 f f")
	if err := p.claims.Finish(ctx, p.pool, one, nil); !errors.Is(err, claim.ErrLost) {
		t.Errorf("repeated, without a column that tells: %v", err)
	}
	testwait.Check(t, p.claims.Fail(ctx, p.pool, rest[0], nil))
	p.want(rest[0].ID, "failed 1 f f")
}

// TestPrismaTableEndsMany ends many claims at once, and those that went stale.
func TestPrismaTableEndsMany(t *testing.T) {
	t.Parallel()
	p := newPrisma(t, deviations(), 6)
	ctx := t.Context()
	got, err := p.claims.ClaimDue(ctx, p.pool, 6)
	if err != nil || len(got) != 6 {
		t.Fatalf("%d, %v", len(got), err)
	}
	forged := got[0]
	forged.Version++
	lost, err := p.claims.FinishAll(ctx, p.pool, forged, got[1], got[2])
	p.lost("finish", lost, err, forged)
	lost, err = p.claims.FailAll(ctx, p.pool, forged, got[3], got[1])
	p.lost("fail", lost, err, forged, got[1])
	p.want(got[1].ID, "published 1 f f")
	p.want(got[3].ID, "failed 1 f f")

	if stale, err := p.claims.ReleaseStale(ctx, p.pool, time.Minute, 10); err != nil || len(stale) != 0 {
		t.Errorf("released %v, %v", stale, err)
	}
	p.exec(`UPDATE "Deviation" SET "executionLockedAt" = "executionLockedAt" - interval '2 minutes' WHERE "id" IN ($1, $2)`, got[0].ID, got[4].ID)
	p.exec(`UPDATE "Deviation" SET "executionLockId" = 'worker 7, no UUID' WHERE "id" = $1`, got[4].ID)
	stale, err := p.claims.ReleaseStale(ctx, p.pool, time.Minute, 10)
	if err != nil || len(stale) != 2 || stale[0].LockID == uuid.Nil == (stale[1].LockID == uuid.Nil) {
		t.Fatalf("released %v, %v", stale, err)
	}
	p.want(got[0].ID, "scheduled 1 f f")
	p.want(got[4].ID, "scheduled 1 f f")
	p.want(got[5].ID, "scheduled 1 t t")
}

// TestPrismaTableWithFinishedBy has a column that tells which claim finished a row.
func TestPrismaTableWithFinishedBy(t *testing.T) {
	t.Parallel()
	table := deviations()
	table.FinishedBy = "executionFinishedBy"
	p := newPrisma(t, table, 2)
	for range 2 {
		p.exec(table.DDL())
		for _, index := range table.Indexes() {
			p.exec(index)
		}
	}
	got, err := p.claims.ClaimDue(t.Context(), p.pool, 2)
	if err != nil || len(got) != 2 {
		t.Fatalf("%d, %v", len(got), err)
	}
	for range 2 {
		testwait.Check(t, p.claims.Finish(t.Context(), p.pool, got[0], nil))
		lost, err := p.claims.FinishAll(t.Context(), p.pool, got...)
		p.lost("repeated", lost, err)
	}
}

// TestTimesAreUTC claims and releases under sessions in many time zones, where a due time and a claim's age are hours off unless both
// are compared as UTC.
func TestTimesAreUTC(t *testing.T) {
	t.Parallel()
	table := deviations()
	table.Due = `"scheduledAt"`
	p := newPrisma(t, table, 8)
	p.exec(`ALTER TABLE "Deviation" ADD COLUMN "scheduledAt" TIMESTAMP(3)`)
	p.exec(`UPDATE "Deviation" SET "scheduledAt" = now() AT TIME ZONE 'UTC' + CASE WHEN "id" <= 'cm4' THEN -1 ELSE 1 END * interval '1 minute'`)
	var held *pgxpool.Conn
	for i := range 8 { // One connection each: as many zones as there are.
		conn, err := p.pool.Acquire(t.Context())
		testwait.Must(t, err)
		defer conn.Release()
		held = conn
		_, err = p.claims.Claim(t.Context(), conn, fmt.Sprint("cm", i+1))
		if due := i < 4; (err == nil) != due {
			t.Errorf("row %d, due %v: %v", i, due, err)
		}
		if stale, err := p.claims.ReleaseStale(t.Context(), conn, time.Minute, 10); err != nil || len(stale) != 0 {
			t.Errorf("released %v, %v", stale, err)
		}
	} // Claims that were made while the database's clock was ahead go stale, too.
	_, err := held.Exec(t.Context(), `UPDATE "Deviation" SET "executionLockedAt" = "executionLockedAt" + interval '1 day' WHERE "executionLockId" IS NOT NULL`)
	testwait.Must(t, err)
	released := 0
	testwait.Eventually(t, patience, "all are released", func() bool {
		stale, err := p.claims.ReleaseStale(t.Context(), held, 100*time.Millisecond, 10)
		testwait.Must(t, err)
		released += len(stale)
		return released == 4
	})
}

// TestTimesAreCut makes claims in every part of a second, in a column that has whole seconds: none is made in the future, and none is
// stale before its time.
func TestTimesAreCut(t *testing.T) {
	t.Parallel()
	const rows, age = 300, time.Second
	table := deviations()
	table.TimeType = "timestamp(0)"
	p := newPrisma(t, table, rows)
	p.exec(`ALTER TABLE "Deviation" ALTER "executionLockedAt" TYPE timestamp(0)`)
	began := map[string]time.Time{} // before the claim, so that an age by this clock is never too small
	released := 0
	for i := range rows {
		id := fmt.Sprint("cm", i+1)
		began[id] = time.Now()
		_, err := p.claims.Claim(t.Context(), p.pool, id)
		testwait.Must(t, err)
		var future bool
		testwait.Must(t, p.pool.QueryRow(t.Context(),
			`SELECT bool_or("executionLockedAt" > clock_timestamp() AT TIME ZONE 'UTC') FROM "Deviation"`).Scan(&future))
		if future {
			t.Fatal("claimed in the future")
		}
		stale, err := p.claims.ReleaseStale(t.Context(), p.pool, age, rows)
		testwait.Must(t, err)
		for _, c := range stale {
			if past := time.Since(began[c.ID]); past < age {
				t.Fatalf("released after %v", past)
			}
		}
		released += len(stale)
		time.Sleep(10 * time.Millisecond) // So that the claims are spread over three seconds.
	}
	if released == 0 {
		t.Error("no claim went stale")
	}
}

func TestTableNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"posts": `"posts"`, "app.Posts": `"app"."Posts"`, `"Deviation"`: `"Deviation"`, `public."Deviation"`: `"public"."Deviation"`,
		`"my.schema"."a ""table"""`: `"my.schema"."a ""table"""`,
	} {
		if ddl := (claim.Table{Name: name}).DDL(); !strings.HasPrefix(ddl, "ALTER TABLE "+want+"\n") {
			t.Errorf("%s: %s", name, ddl)
		}
	}
}
