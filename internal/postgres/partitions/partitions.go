// Package partitions keeps the tables of the history in partitions by time, so that what is old can leave as a whole instead of row by row. A row's
// time is that in its id, or in its auction's or its campaign's, a UUIDv7 (RFC 9562): so a row is found in one partition.
//
// A table has these partitions: "first", with everything up to a bound; one for each month from there on, named after the day on which it begins; and
// "rest", for ids that no other one has, such as those of a clock that is far ahead.
package partitions

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// Tables are the tables in partitions.
func Tables() []string { return []string{Entries, Transfers, Bids, Events, AuditLog, Purchases} }

// The tables, by name.
const (
	Entries   = "entries"
	Transfers = "transfers"
	Bids      = "auction_bids"
	Events    = "auction_events"
	AuditLog  = "audit_log"
	Purchases = "purchases"
)

// Key is the column of a table that has its rows' time: the row's id, or that of its auction or its campaign, so that all rows of one are in one partition.
func Key(table string) string {
	switch table {
	case Bids, Events:
		return "auction"
	case Purchases:
		return "campaign"
	}
	return "id"
}

const (
	// ahead is how long before the last partition ends the next one is made.
	ahead = 7 * 24 * time.Hour
	// LockTimeout bounds the wait for a table's lock, behind which every command on that table waits.
	LockTimeout = `SET LOCAL lock_timeout = '150ms'`

	// selectKind is r for a table in one piece, p for one with partitions.
	selectKind = `SELECT relkind::text FROM pg_class WHERE oid = $1::regclass`
	// selectPartitions reads bounds as PostgreSQL writes them. The one without a bound is the rest.
	selectPartitions = `SELECT p.relname, c.oid::regclass::text, coalesce(b.bound[1], ''), coalesce(b.bound[2], ''),
			EXISTS (SELECT FROM pg_constraint WHERE conrelid = c.oid AND conname = 'sealed')
		FROM pg_inherits AS i JOIN pg_class AS p ON p.oid = i.inhparent JOIN pg_class AS c ON c.oid = i.inhrelid,
			regexp_match(pg_get_expr(c.relpartbound, c.oid), '^FOR VALUES FROM \(''?(.*?)''?\) TO \(''?(.*?)''?\)$') AS b (bound)
		WHERE i.inhparent = ANY (SELECT to_regclass(t) FROM unnest($1::text[]) AS t) AND p.relkind = 'p' AND NOT i.inhdetachpending`
	selectIndexes = `SELECT c.relname, pg_get_indexdef(i.indexrelid), coalesce(k.conname, ''), coalesce(pg_get_constraintdef(k.oid), '')
		FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid LEFT JOIN pg_constraint AS k ON k.conindid = i.indexrelid AND k.contype IN ('p', 'u')
		WHERE i.indrelid = $1::regclass ORDER BY 1`
	selectGrants = `SELECT format('GRANT %s ON %s TO %s', a.privilege_type, c.oid::regclass, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END)
		FROM pg_class AS c, aclexplode(c.relacl) AS a WHERE c.oid = $1::regclass AND a.grantee <> c.relowner ORDER BY 1`
)

// Partition is a part of a table: the ids from From on that are less than To.
type Partition struct {
	Table, Name string
	From, To    uuid.UUID // uuid.Nil: from the beginning; uuid.Max: without an end
	Rest        bool      // what no other one has
	Sealed      bool      // it takes no rows any more
}

// Querier is a connection, a transaction or a pool.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// List returns the partitions of tables, in the order of their ends. Those of tables that are in one piece are missing.
func List(ctx context.Context, q Querier, tables ...string) ([]Partition, error) {
	rows, err := q.Query(ctx, selectPartitions, tables)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, scanPartition)
	slices.SortFunc(all, func(a, b Partition) int {
		return cmp.Or(bytes.Compare(a.To[:], b.To[:]), strings.Compare(a.Table, b.Table))
	})
	return all, err
}

func scanPartition(row pgx.CollectableRow) (p Partition, err error) {
	var from, to string
	if err := row.Scan(&p.Table, &p.Name, &from, &to, &p.Sealed); err != nil {
		return p, err
	}
	if p.Rest = to == ""; p.Rest {
		p.To = uuid.Max
		return p, nil
	}
	if from != "MINVALUE" {
		p.From, err = uuid.Parse(from)
	}
	if err == nil {
		p.To, err = uuid.Parse(to)
	}
	return p, err
}

// Begin is anything that begins transactions.
type Begin interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// DB is a pool, or a connection.
type DB interface {
	Querier
	Begin
}

// Convert puts the tables into partitions that are in one piece. Rows stay where they are: a table becomes the first partition of a new one with its
// name. Rows are read once, without keeping commands from theirs; what does keep them takes no longer than some milliseconds, or gives up.
// Any number of processes may do this at once, and one that was interrupted is done again.
//
// Errors: PostgreSQL's lock_not_available (55P03) where somebody uses a table for long; call it again.
func Convert(ctx context.Context, db DB, now time.Time) error {
	there, err := List(ctx, db, Tables()...)
	if err != nil {
		return err
	}
	bound := Bound(now)
	for _, p := range there {
		if p.From == uuid.Nil && !p.Rest && Time(p.To).After(now) {
			bound = p.To // of a table that was converted before an interruption
		}
	}
	for _, table := range Tables() {
		// Nothing is locked where there is nothing to do.
		converted := slices.ContainsFunc(there, func(p Partition) bool { return p.Table == table })
		for !converted {
			if converted, err = convert(ctx, db, table, bound); err != nil {
				return fmt.Errorf("put %s into partitions: %w", table, err)
			}
		}
	}
	return nil
}

// Bound is where the first partition ends that is made now: at the end of this month or, where that is near, of the next one.
func Bound(now time.Time) uuid.UUID { return At(month(now.Add(ahead), 1)) }

// month returns the beginning of the month that is so many months after that of a time.
func month(t time.Time, after int) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month()+time.Month(after), 1, 0, 0, 0, 0, time.UTC)
}

// At is the least id of a time.
func At(t time.Time) (id uuid.UUID) {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(t.UnixMilli(), 0)))
	copy(id[:6], ms[2:])
	return id
}

// Time is the time of an id, to the millisecond.
func Time(id uuid.UUID) time.Time {
	var ms [8]byte
	copy(ms[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:]))).UTC() //nolint:gosec // 48 bits.
}

// convert puts one table into partitions. It returns false where another process was in between.
func convert(ctx context.Context, db DB, table string, bound uuid.UUID) (done bool, err error) {
	// A constraint that is known to hold saves PostgreSQL from reading the table under the lock.
	until := table + "_until"
	if err := inOnePiece(ctx, db, table, func(tx pgx.Tx) error {
		return run(ctx, tx, fmt.Sprintf(`ALTER TABLE %s DROP CONSTRAINT IF EXISTS %s`, table, until),
			fmt.Sprintf(`ALTER TABLE %s ADD CONSTRAINT %s CHECK (%s < '%s') NOT VALID`, table, until, Key(table), bound))
	}); err != nil {
		return errors.Is(err, errPartitioned), ignore(err, errPartitioned)
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		return run(ctx, tx, `SET LOCAL statement_timeout = 0`, fmt.Sprintf(`ALTER TABLE %s VALIDATE CONSTRAINT %s`, table, until))
	})
	strays := pgkit.Code(err) == checkViolation
	if err != nil && !strays && pgkit.Code(err) != undefinedObject {
		return false, err
	}
	err = inOnePiece(ctx, db, table, func(tx pgx.Tx) error {
		const selectUntil = `SELECT convalidated FROM pg_constraint WHERE conrelid = $1::regclass AND conname = $2 AND strpos(pg_get_constraintdef(oid), $3) > 0`
		valid, err := pgkit.Rows(ctx, tx, pgx.RowTo[bool], selectUntil, table, until, bound.String())
		if err != nil || len(valid) == 0 || valid[0] == strays {
			return err
		}
		done = true
		return swap(ctx, tx, table, until, bound, strays)
	})
	return done || errors.Is(err, errPartitioned), ignore(err, errPartitioned)
}

var errPartitioned = errors.New("the table has partitions")

func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

// inOnePiece changes a table that nobody can use meanwhile. It returns errPartitioned where that is in partitions.
func inOnePiece(ctx context.Context, db Begin, table string, change func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := run(ctx, tx, LockTimeout, `LOCK TABLE `+table); err != nil {
			return err
		}
		kind, err := pgkit.Rows(ctx, tx, pgx.RowTo[string], selectKind, table)
		if err == nil && kind[0] != "r" {
			err = errPartitioned
		}
		if err != nil {
			return err
		}
		return change(tx)
	})
}

// swap makes a table the first partition of a new one. Strays are rows of ids that are not in that partition; where there are some, PostgreSQL reads
// the table under the lock.
func swap(ctx context.Context, tx pgx.Tx, table, until string, bound uuid.UUID, strays bool) error {
	first, rest := table+"_first", table+"_rest"
	grants, err := pgkit.Rows(ctx, tx, pgx.RowTo[string], selectGrants, table)
	if err != nil {
		return err
	}
	indexes, err := pgkit.Rows(ctx, tx, pgx.RowToStructByPos[index], selectIndexes, table)
	if err != nil {
		return err
	}
	statements := []string{fmt.Sprintf(`ALTER TABLE %s RENAME TO %s`, table, first)}
	for _, i := range indexes {
		statements = append(statements, fmt.Sprintf(`ALTER INDEX %s RENAME TO %s_first`, i.Name, i.Name))
	}
	statements = append(statements,
		fmt.Sprintf(`CREATE TABLE %s (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE INCLUDING COMPRESSION INCLUDING COMMENTS) PARTITION BY RANGE (%s)`, table, first, Key(table)),
		fmt.Sprintf(`ALTER TABLE %s DROP CONSTRAINT %s`, table, until))
	for _, i := range indexes {
		statements = append(statements, i.on(table))
	}
	statements = append(statements, fmt.Sprintf(`CREATE TABLE %s PARTITION OF %s DEFAULT`, rest, table))
	if strays {
		statements = append(statements, `SET LOCAL statement_timeout = 0`, move(first, rest, fmt.Sprintf(`%s >= '%s'`, Key(table), bound)))
	}
	statements = append(statements,
		fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (MINVALUE) TO ('%s')`, table, first, bound),
		fmt.Sprintf(`ALTER TABLE %s DROP CONSTRAINT %s`, first, until))
	return run(ctx, tx, append(statements, grants...)...)
}

// index is one of a table, and what made it.
type index struct{ Name, Definition, Constraint, Constrains string }

// on is the statement that makes it on a new table of the same name.
func (i index) on(table string) string {
	if i.Constraint != "" {
		return fmt.Sprintf(`ALTER TABLE %s ADD CONSTRAINT %s %s`, table, i.Constraint, i.Constrains)
	}
	return i.Definition
}

// Extend makes the next partition of each table whose last one ends soon, until none does. It returns how many it has made. Any number of
// processes may do this at once. Tables in one piece stay so.
//
// Errors: those of [Convert].
func Extend(ctx context.Context, db DB, now time.Time) (made int, err error) {
	for {
		all, err := List(ctx, db, Tables()...)
		if err != nil {
			return made, err
		}
		last := map[string]Partition{}
		for _, p := range all {
			if !p.Rest {
				last[p.Table] = p
			}
		}
		more := false
		for _, p := range last {
			begin := Time(p.To)
			if begin.After(now.Add(ahead)) {
				continue
			}
			more = true
			switch err := Add(ctx, db, p.Table, p.To, At(month(begin, 1))); {
			case pgkit.Code(err) == duplicateTable: // Another process makes it.
			case err != nil:
				return made, fmt.Errorf("add a partition to %s: %w", p.Table, err)
			default:
				made++
			}
		}
		if !more {
			return made, nil
		}
	}
}

const (
	checkViolation  = "23514"
	duplicateObject = "42710"
	duplicateTable  = "42P07"
	undefinedObject = "42704"
)

// Add adds a partition to a table, and moves to it what the rest has of its rows.
func Add(ctx context.Context, db DB, table string, from, to uuid.UUID) error {
	name := fmt.Sprintf("%s_%s", table, Time(from).Format("20060102"))
	if begin := Time(from); !begin.Equal(begin.Truncate(24 * time.Hour)) {
		name += begin.Format("150405000")
	}
	return inTx(ctx, db, LockTimeout,
		fmt.Sprintf(`CREATE TABLE %s (LIKE %s INCLUDING ALL)`, name, table),
		move(table+"_rest", name, fmt.Sprintf(`%s >= '%s' AND %[1]s < '%[3]s'`, Key(table), from, to)),
		fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')`, table, name, from, to))
}

// move moves rows from one table to another.
func move(from, to, which string) string {
	return fmt.Sprintf(`WITH moved AS (DELETE FROM %s WHERE %s RETURNING *) INSERT INTO %s SELECT * FROM moved`, from, which, to)
}

// inTx executes statements in one transaction.
func inTx(ctx context.Context, db Begin, statements ...string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return run(ctx, tx, statements...) })
}

func run(ctx context.Context, tx pgx.Tx, statements ...string) error {
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
