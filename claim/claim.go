package claim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// DB is where the statements run: a pgx connection, pool or transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Claim is the right to execute one row. Its ID, LockID and Version say which; compare claims by them.
type Claim[ID comparable] struct {
	ID      ID
	LockID  uuid.UUID // new with each claim; rows claimed by one call share it; zero where other code wrote no UUID
	Version int64     // grows by one with each claim of the row, from 1
	At      time.Time // when it was claimed, by the database's clock

	// since is when the claim was asked for, by this process's monotonic clock. It is zero where that is not known, as of a claim
	// that was made by hand or read from the database.
	since time.Time
}

// Claims works on one table. It is safe for concurrent use.
type Claims[ID comparable] struct {
	sql statements
	own []string // columns that nobody else may write

	place *place // of claims in bulk
}

// Changes are columns of yours and the values that they get when a claim ends. Those of the claim are refused with [ErrOwnColumn].
type Changes map[string]any

// Claim claims one row. It returns [ErrNotClaimable] when that can't be done now.
func (c *Claims[ID]) Claim(ctx context.Context, db DB, id ID) (Claim[ID], error) {
	got, err := c.ClaimSelected(ctx, db, uuid.New(), c.sql.oneSelection, param(id))
	if err != nil {
		return Claim[ID]{}, err
	}
	if len(got) == 0 {
		return Claim[ID]{}, ErrNotClaimable
	}
	return got[0], nil
}

// ClaimDue claims up to limit rows, those first that have been due for longest, and returns them in no order. Rows that
// another transaction has locked are passed over. None is no error; fewer than limit are all that there were.
//
// From a limit of 100 on, it looks behind the rows that it claimed before, and from the beginning each second, or less often where that takes long: beside a
// transaction that holds a snapshot for long, a look from the beginning goes through all that was claimed since. Meanwhile rows that are put back, or inserted
// with an earlier due time, come after those that are due later, of which there are enough.
func (c *Claims[ID]) ClaimDue(ctx context.Context, db DB, limit int) ([]Claim[ID], error) {
	if limit >= bulk && c.sql.bulkBehind != "" {
		return c.claimBulk(ctx, db, limit)
	}
	return c.ClaimSelected(ctx, db, uuid.New(), c.sql.dueSelection, limit)
}

// ClaimSelected claims the rows whose ids a query of yours selects, those of them that are free, ready and due, under the
// given lock id, which must be new. The query should lock what it selects (FOR UPDATE SKIP LOCKED), or two workers wait for
// each other; its parameters are numbered from $2.
func (c *Claims[ID]) ClaimSelected(ctx context.Context, db DB, lockID uuid.UUID, selection string, args ...any) ([]Claim[ID], error) {
	began := time.Now()
	rows, err := db.Query(ctx, c.sql.claimSelected.with(selection), append([]any{lockID}, args...)...)
	got, err := collect[ID](rows, err)
	if err != nil {
		return nil, fmt.Errorf("claim: claim rows: %w", err)
	}
	for i := range got {
		got[i].since = began
	}
	return got, nil
}

// SelectedSQL is the statement of [Claims.ClaimSelected] with this selection, to be part of a larger one of yours: as the
// query of a WITH, whose other parts then work on what it claims without a further round trip. Its first parameter is the
// lock id; it returns the columns of the id, the lock id, the version and the time.
func (c *Claims[ID]) SelectedSQL(selection string) string { return c.sql.claimSelected.with(selection) }

// Claimed returns the rows that are claimed under a lock id. It settles what became of a [Claims.ClaimSelected] whose
// commit was not answered.
func (c *Claims[ID]) Claimed(ctx context.Context, db DB, lockID uuid.UUID) ([]Claim[ID], error) {
	rows, err := db.Query(ctx, c.sql.recover, lockID)
	got, err := collect[ID](rows, err)
	if err != nil {
		return nil, fmt.Errorf("claim: look for claimed rows: %w", err)
	}
	return got, nil
}

// Heartbeat keeps claims from going stale, and returns those that are lost. An error leaves it open which are.
func (c *Claims[ID]) Heartbeat(ctx context.Context, db DB, claims ...Claim[ID]) (lost []Claim[ID], err error) {
	if lost, err = c.all(ctx, db, c.sql.heartbeat, claims); err != nil {
		return nil, fmt.Errorf("claim: heartbeat: %w", err)
	}
	return lost, nil
}

// Finish ends a claim whose work is done, with [Table.OnFinish] and the changes. It returns [ErrLost], and has changed
// nothing, when the row is not under the claim any more. The names of columns are quoted.
//
// A finish whose answer was lost may be repeated: it returns nil, and changes nothing, as long as nobody has claimed the row
// again. In a transaction it returns [ErrFinished] instead, because a transaction that is run again would write a second time
// whatever else the first run has committed.
func (c *Claims[ID]) Finish(ctx context.Context, db DB, claim Claim[ID], changes Changes) error {
	ended, err := c.end(ctx, db, c.sql.finish, claim, changes)
	if err != nil || ended {
		return err
	}
	unknown, err := c.unfinished(ctx, db, []Claim[ID]{claim})
	switch {
	case err != nil:
		return fmt.Errorf("claim: look for a finished claim: %w", err)
	case len(unknown) > 0:
		return notHeld(ErrLost, claim)
	case transaction(db):
		return notHeld(ErrFinished, claim)
	}
	return nil
}

// transaction reports whether what runs in db is committed together, later.
func transaction(db DB) bool {
	_, ok := db.(interface {
		Commit(ctx context.Context) error
	})
	return ok
}

// Fail ends a claim whose work failed, with [Table.OnFail] and the changes. It returns [ErrLost], and has changed nothing, when
// the row is not under the claim any more, and so, too, when it is repeated.
func (c *Claims[ID]) Fail(ctx context.Context, db DB, claim Claim[ID], changes Changes) error {
	ended, err := c.end(ctx, db, c.sql.fail, claim, changes)
	if err == nil && !ended {
		err = notHeld(ErrLost, claim)
	}
	return err
}

func notHeld[ID comparable](err error, claim Claim[ID]) error {
	return fmt.Errorf("%w: row %v, version %d", err, claim.ID, claim.Version)
}

// end ends a claim, and reports whether the row was under it.
func (c *Claims[ID]) end(ctx context.Context, db DB, sql open, claim Claim[ID], changes Changes) (bool, error) {
	args := []any{param(claim.ID), claim.LockID, claim.Version}
	var set strings.Builder
	for _, column := range slices.Sorted(maps.Keys(changes)) {
		if slices.Contains(c.own, column) {
			return false, fmt.Errorf("%w: %s", ErrOwnColumn, column)
		}
		args = append(args, changes[column])
		set.WriteString(", " + quote(column) + " = $" + strconv.Itoa(len(args)))
	}
	tag, err := db.Exec(ctx, sql.with(set.String()), args...)
	if err != nil {
		return false, fmt.Errorf("claim: end a claim: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

// FinishAll is [Claims.Finish] for many claims in one statement. It returns those that are lost, which it left alone; in a
// transaction also those that were finished before.
func (c *Claims[ID]) FinishAll(ctx context.Context, db DB, claims ...Claim[ID]) (lost []Claim[ID], err error) {
	lost, err = c.all(ctx, db, c.sql.finishAll, claims)
	if err == nil && !transaction(db) {
		lost, err = c.unfinished(ctx, db, lost)
	}
	if err != nil {
		return nil, fmt.Errorf("claim: end claims: %w", err)
	}
	return lost, nil
}

// unfinished returns those of the claims that did not finish their rows last, as far as the table tells.
func (c *Claims[ID]) unfinished(ctx context.Context, db DB, claims []Claim[ID]) ([]Claim[ID], error) {
	if c.sql.finished == "" {
		return claims, nil
	}
	return c.all(ctx, db, c.sql.finished, claims)
}

// FailAll is [Claims.Fail] for many claims in one statement. It returns those that are lost, which it left alone.
func (c *Claims[ID]) FailAll(ctx context.Context, db DB, claims ...Claim[ID]) (lost []Claim[ID], err error) {
	if lost, err = c.all(ctx, db, c.sql.failAll, claims); err != nil {
		return nil, fmt.Errorf("claim: end claims: %w", err)
	}
	return lost, nil
}

// all runs a statement on many claims and returns those that it did not find.
func (c *Claims[ID]) all(ctx context.Context, db DB, sql string, claims []Claim[ID]) ([]Claim[ID], error) {
	if len(claims) == 0 {
		return nil, nil
	}
	ids, locks, versions := make([]ID, len(claims)), make([]string, len(claims)), make([]int64, len(claims))
	for i, claim := range claims {
		ids[i], locks[i], versions[i] = claim.ID, claim.LockID.String(), claim.Version
	}
	rows, err := db.Query(ctx, sql, params(ids), locks, versions)
	if err != nil {
		return nil, err
	}
	type key struct {
		id      ID
		version int64
	}
	var (
		one  key
		held = make(map[key]struct{}, len(claims))
		lost []Claim[ID]
	)
	if _, err := pgx.ForEachRow(rows, []any{&one.id, &one.version}, func() error { held[one] = struct{}{}; return nil }); err != nil {
		return nil, err
	}
	for _, claim := range claims {
		if _, ok := held[key{claim.ID, claim.Version}]; !ok {
			lost = append(lost, claim)
		}
	}
	return lost, nil
}

// param is an id as a parameter that pgx can encode without knowing its SQL type, as it must in mode exec.
func param[ID comparable](id ID) any {
	if b, ok := any(id).([16]byte); ok {
		return uuid.UUID(b)
	}
	return id
}

// params is [param] for a list. The statements cast the list to the type of the table's ids, from text[] where [textual] says so.
func params[ID comparable](ids []ID) any {
	var zero ID
	if !textual(zero) {
		return ids
	}
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = fmt.Sprint(param(id))
	}
	return texts
}

// ReleaseStale frees up to limit rows whose claim is older than age and had no heartbeat since, the oldest first, with
// [Table.OnRelease]. A claim that was made by a clock of the database that was ahead is as old as the first sweep that meets it. It
// returns the claims that were released. Any number of sweepers may run at once. An age that is not
// positive is refused with [ErrBadAge].
func (c *Claims[ID]) ReleaseStale(ctx context.Context, db DB, age time.Duration, limit int) ([]Claim[ID], error) {
	if age < minAge {
		return nil, fmt.Errorf("%w: %s", ErrBadAge, age)
	}
	rows, err := db.Query(ctx, c.sql.release, age, limit)
	got, err := collect[ID](rows, err)
	if err != nil {
		return nil, fmt.Errorf("claim: release stale claims: %w", err)
	}
	return got, nil
}

func collect[ID comparable](rows pgx.Rows, err error, further ...any) ([]Claim[ID], error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Claim[ID], err error) {
		err = row.Scan(append([]any{&c.ID, (*lockColumn)(&c.LockID), &c.Version, &c.At}, further...)...)
		c.At = c.At.UTC()
		return c, err
	})
}

// lockColumn reads a lock id from a column of either type.
type lockColumn uuid.UUID

// ScanUUID implements [pgtype.UUIDScanner].
func (l *lockColumn) ScanUUID(v pgtype.UUID) error {
	*l = v.Bytes
	return nil
}

// ScanText implements [pgtype.TextScanner]. Other code may have written something that is no UUID into a text
// column, and a sweep must release such a claim, too.
func (l *lockColumn) ScanText(v pgtype.Text) error {
	id, err := uuid.Parse(v.String)
	if err != nil {
		id = uuid.Nil
	}
	*l = lockColumn(id)
	return nil
}
