package claim

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Table describes the table whose rows are claimed. Only Name is required.
//
// Names are quoted. Ready, Due and the On… members are SQL that is put into the statements as it is, and must be constants
// of your program: never build them from input.
type Table struct {
	// Name is the table's name; its schema may stand before a dot. Each part may be in double quotes.
	Name string
	// ID is the column that identifies a row, "id" by default.
	ID string
	// IDType is the SQL type of that column. It is known for ids that are uuid.UUID, string, int32 and int64 in Go.
	IDType string
	// LockID (uuid, null), LockedAt (timestamptz, null) and Version (bigint) are the claim's columns: "execution_lock_id",
	// "execution_locked_at" and "execution_version" by default.
	LockID, LockedAt, Version string
	// FinishedBy (uuid, null), "execution_finished_by" by default, is the column for the lock id of the claim that finished the
	// row last, by which a repeated Finish is recognised. Only Finish and FinishAll use it. [None] says that the table has no such
	// column; a repeated Finish then returns [ErrLost].
	FinishedBy string
	// LockIDType is the SQL type of LockID and FinishedBy: "uuid", the default, or "text", as Prisma's String is.
	LockIDType string
	// TimeType is the SQL type of LockedAt and Due: "timestamptz", the default, or "timestamp" for times without a time zone that
	// are UTC, as Prisma's DateTime is. Either may have a precision, such as "timestamp(3)".
	TimeType string
	// Ready is the condition under which a free row may be claimed, such as "status = 'scheduled'"; empty: always.
	Ready string
	// Due is a column or expression of type TimeType before which a row must not be claimed; empty: at any time. Due rows
	// are claimed in its order, as far as [Claims.ClaimDue] says.
	Due string
	// OnClaim, OnFinish, OnFail and OnRelease are assignments made with each step, such as "status = 'publishing'".
	OnClaim, OnFinish, OnFail, OnRelease string
}

// None as [Table.FinishedBy] says that the table has no such column.
const None = "-"

// withDefaults fills in what is not said.
func (t Table) withDefaults() Table {
	t.ID, t.LockID, t.LockedAt = cmp.Or(t.ID, "id"), cmp.Or(t.LockID, "execution_lock_id"), cmp.Or(t.LockedAt, "execution_locked_at")
	t.Version, t.FinishedBy = cmp.Or(t.Version, "execution_version"), cmp.Or(t.FinishedBy, "execution_finished_by")
	t.LockIDType, t.TimeType = cmp.Or(t.LockIDType, "uuid"), cmp.Or(t.TimeType, "timestamptz")
	return t
}

// check finds what is wrong with the description.
func (t Table) check() error {
	if t.Name == "" {
		return fmt.Errorf("%w: it has no name", ErrBadTable)
	}
	if t.IDType == "" {
		return fmt.Errorf("%w: the SQL type of %s is not known from its Go type, so IDType must name it", ErrBadTable, t.ID)
	}
	if t.LockIDType != "uuid" && t.LockIDType != "text" {
		return fmt.Errorf("%w: LockIDType must be uuid or text", ErrBadTable)
	}
	if _, ok := clockOf(t.TimeType); !ok {
		return fmt.Errorf("%w: TimeType must be timestamptz or timestamp, with or without a precision", ErrBadTable)
	}
	seen := map[string]bool{}
	for _, name := range []string{t.ID, t.LockID, t.LockedAt, t.Version, t.FinishedBy} {
		if seen[name] {
			return fmt.Errorf("%w: two of its columns are named %s", ErrBadTable, name)
		}
		seen[name] = true
	}
	return nil
}

// DDL is a statement that adds the claim's columns to the table, where they are not there yet. It may be run again.
func (t Table) DDL() string {
	t = t.withDefaults()
	ddl := fmt.Sprintf(`ALTER TABLE %s
	ADD COLUMN IF NOT EXISTS %s %s,
	ADD COLUMN IF NOT EXISTS %s %s,
	ADD COLUMN IF NOT EXISTS %s bigint NOT NULL DEFAULT 0`, quoteTable(t.Name), quote(t.LockID), t.LockIDType, quote(t.LockedAt), t.TimeType, quote(t.Version))
	if t.FinishedBy != None {
		ddl += fmt.Sprintf(",\n\tADD COLUMN IF NOT EXISTS %s %s", quote(t.FinishedBy), t.LockIDType)
	}
	return ddl
}

// Indexes are statements that create the indexes which claiming and sweeping want: on the due time of the rows that are
// ready, and on the time of those that are claimed. They may be run again; on a table in use, put CONCURRENTLY into them. A
// partial index needs a Ready and a Due that depend on the row alone, and so on no clock.
func (t Table) Indexes() []string {
	t = t.withDefaults()
	names := tableNames(t.Name)
	base := names[len(names)-1]
	columns, ready := quote(t.ID), ""
	if t.Due != "" {
		columns = "(" + t.Due + "), " + columns
	}
	if t.Ready != "" {
		ready = " AND (" + t.Ready + ")"
	}
	return []string{
		fmt.Sprintf("CREATE INDEX IF NOT EXISTS %s ON %s (%s) WHERE %s IS NULL%s", quote(base+"_claimable"), quoteTable(t.Name), columns, quote(t.LockID), ready),
		fmt.Sprintf("CREATE INDEX IF NOT EXISTS %s ON %s (%s) WHERE %s IS NOT NULL", quote(base+"_claimed"), quoteTable(t.Name), quote(t.LockedAt), quote(t.LockID)),
	}
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func quoteTable(name string) string { return pgx.Identifier(tableNames(name)).Sanitize() }

// tableNames splits the name of a table at its dots, and takes the quotes off.
func tableNames(name string) []string {
	quoted := false
	names := strings.FieldsFunc(name, func(c rune) bool {
		quoted = quoted != (c == '"')
		return c == '.' && !quoted
	})
	for i, n := range names {
		if len(n) > 2 && n[0] == '"' && n[len(n)-1] == '"' {
			names[i] = strings.ReplaceAll(n[1:len(n)-1], `""`, `"`)
		}
	}
	if len(names) == 0 {
		return []string{name}
	}
	return names
}

// clock is how times are written and compared in the columns of a type, whatever the session's TimeZone is. PostgreSQL rounds a time
// to the column's precision, and so half of the claims would be made in the future. Times are cut to that precision instead. A claim
// then seems to be older than it is, by up to the grain, which is added to the age after which it is stale.
type clock struct{ now, statement, grain string }

func clockOf(timeType string) (c clock, ok bool) {
	base, precision, precise := strings.Cut(timeType, "(")
	c = clock{now: "clock_timestamp()", statement: "statement_timestamp()"}
	switch base {
	case "timestamptz":
	case "timestamp":
		c.now, c.statement = "clock_timestamp() AT TIME ZONE 'UTC'", "statement_timestamp() AT TIME ZONE 'UTC'"
	default:
		return c, false
	}
	unit := ""
	switch precision {
	case "0)", "1)", "2)":
		unit = "second"
	case "3)", "4)", "5)":
		unit = "millisecond"
	case "6)":
	default:
		return c, !precise
	}
	if unit != "" {
		c.now, c.grain = fmt.Sprintf("date_trunc('%s', %s)", unit, c.now), fmt.Sprintf(" - interval '1 %s'", unit)
	}
	return c, true
}

// sqlType is the SQL type of a Go type of ids, empty where it is not known.
func sqlType(id any) string {
	switch id.(type) {
	case uuid.UUID, [16]byte:
		return "uuid"
	case string:
		return "text"
	case int32:
		return "integer"
	case int64, int:
		return "bigint"
	}
	return ""
}

// textual reports whether lists of such ids are sent as text[]: in mode exec pgx can't encode others of UUIDs.
func textual(id any) bool { return sqlType(id) == "uuid" }

// statements are a table's SQL.
type statements struct {
	claimSelected open // the selection
	dueSelection  string
	// They claim many due rows at once, the second those from a time on; both return besides when the last of them was due. Empty where rows have no such time.
	bulkSelected, bulkBehind string
	oneSelection             string
	recover                  string
	heartbeat                string
	finish, fail             open // one claim; further assignments
	finishAll                string
	failAll                  string
	finished                 string // those of many claims that have finished their rows; empty where the table doesn't tell
	release                  string
}

// open is a statement with one place that each call fills. It is no format, because the caller's SQL may hold a percent sign.
type open struct{ before, after string }

func (o open) with(text string) string { return o.before + text + o.after }

// list appends assignments to a SET clause.
func list(assignments string) string {
	if strings.TrimSpace(assignments) == "" {
		return ""
	}
	return ", " + assignments
}

func build(t Table, textual bool) statements {
	var (
		table, id              = quoteTable(t.Name), quote(t.ID)
		lock, lockedAt, number = quote(t.LockID), quote(t.LockedAt), quote(t.Version)
		returning              = fmt.Sprintf("t.%s, t.%s, t.%s, t.%s", id, lock, number, lockedAt)
		free                   = lock + " IS NULL"
		due                    = ""
		order                  = id
		times, _               = clockOf(t.TimeType)
		idCast                 = "::" + t.IDType
	)
	if textual {
		idCast = "::text[]" + idCast
	}
	// Lock ids are parameters of type uuid. A text column holds them as PostgreSQL writes them.
	lockID := func(value string) string {
		if t.LockIDType == "text" {
			value += "::uuid::text"
		}
		return value
	}
	if t.Ready != "" {
		free += " AND (" + t.Ready + ")"
	}
	if t.Due != "" {
		due = " AND (" + t.Due + ") <= " + times.statement
		order = t.Due + ", " + id
	}
	// Rows are found by their ids. CASE keeps the planner from looking for them in an index of all rows that are claimable, or
	// claimed: it takes that for cheaper where its statistics know of few rows.
	is := func(condition string) string { return "CASE WHEN " + condition + " THEN true END" }
	unlocked := fmt.Sprintf("%s = NULL, %s = NULL", lock, lockedAt)
	finish, finished := unlocked+list(t.OnFinish), ""
	if t.FinishedBy != None {
		finish = fmt.Sprintf("%s, %s = %s%s", unlocked, quote(t.FinishedBy), lock, list(t.OnFinish)) // Of what the row was before.
		finished = fmt.Sprintf("SELECT h.%[1]s, h.%[2]s FROM %[3]s AS h "+
			"JOIN unnest($1%[4]s[], $2::text[]::uuid[], $3::bigint[]) AS mine (claimed_id, claimed_by, claimed_version) "+
			"ON h.%[1]s = mine.claimed_id AND h.%[5]s = %[6]s AND h.%[2]s = mine.claimed_version",
			id, number, table, idCast, quote(t.FinishedBy), lockID("mine.claimed_by"))
	}
	single := func(set string) open {
		return open{
			before: fmt.Sprintf("UPDATE %s SET %s", table, set),
			after:  fmt.Sprintf(" WHERE %s = $1 AND %s", id, is(fmt.Sprintf("%s = %s AND %s = $3", lock, lockID("$2"), number))),
		}
	}
	// The rows are locked in the order of their ids first: a heartbeat and an end of the same claims may meet.
	mine := fmt.Sprintf("FROM (SELECT h.%[1]s AS held_id, h.%[2]s AS held_by, h.%[3]s AS held_version FROM %[4]s AS h "+
		"JOIN unnest($1%[5]s[], $2::text[]::uuid[], $3::bigint[]) AS mine (claimed_id, claimed_by, claimed_version) "+
		"ON h.%[1]s = ANY (ARRAY[mine.claimed_id]) AND %[6]s ORDER BY h.%[1]s FOR NO KEY UPDATE OF h) AS held "+
		"WHERE t.%[1]s = ANY (ARRAY[held_id]) AND %[7]s RETURNING t.%[1]s, t.%[3]s",
		id, lock, number, table, idCast,
		is(fmt.Sprintf("h.%s = %s AND h.%s = mine.claimed_version", lock, lockID("mine.claimed_by"), number)),
		is(fmt.Sprintf("t.%s = held_by AND t.%s = held_version", lock, number)))
	// The guard is repeated outside of the selection, which may be the caller's. As an array, the selection is evaluated
	// once; a plan that goes into it again for each row would pass over what it has locked itself, and claim more than its
	// limit.
	claimSelected := open{
		before: fmt.Sprintf("UPDATE %s AS t SET %s = %s, %s = %s, %s = t.%s + 1%s WHERE t.%s = ANY (ARRAY(",
			table, lock, lockID("$1"), lockedAt, times.now, number, number, list(t.OnClaim), id),
		after: fmt.Sprintf(")) AND %s RETURNING %s", is(free+due), returning),
	}
	many := func(from string) string {
		if t.Due == "" {
			return ""
		}
		return fmt.Sprintf("WITH picked AS MATERIALIZED (SELECT %s AS picked_id, (%s) AS picked_due FROM %s WHERE %s%s ORDER BY %s LIMIT $2 FOR UPDATE SKIP LOCKED) ",
			id, t.Due, table, free+due, from, order) +
			claimSelected.with("SELECT picked_id FROM picked") + ", (SELECT max(picked_due) FROM picked WHERE isfinite(picked_due))"
	}
	return statements{
		claimSelected: claimSelected,
		bulkSelected:  many(""),
		bulkBehind:    many(fmt.Sprintf(" AND (%s) >= $3::%s", t.Due, cmp.Or(t.TimeType, "timestamptz"))),
		dueSelection:  fmt.Sprintf("SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT $2 FOR UPDATE SKIP LOCKED", id, table, free+due, order),
		oneSelection:  fmt.Sprintf("SELECT %s FROM %s WHERE %s = $2 AND %s FOR UPDATE SKIP LOCKED", id, table, id, is(free+due)),
		recover:       fmt.Sprintf("SELECT %s FROM %s AS t WHERE %s = %s", returning, table, lock, lockID("$1")),
		heartbeat:     fmt.Sprintf("UPDATE %s AS t SET %s = %s %s", table, lockedAt, times.now, mine),
		finish:        single(finish),
		fail:          single(unlocked + list(t.OnFail)),
		finishAll:     fmt.Sprintf("UPDATE %s AS t SET %s %s", table, finish, mine),
		failAll:       fmt.Sprintf("UPDATE %s AS t SET %s%s %s", table, unlocked, list(t.OnFail), mine),
		finished:      finished,
		// A claim from later than now was made by a clock that was ahead. From now on it ages like any other.
		release: fmt.Sprintf("WITH ahead AS (UPDATE %[1]s SET %[5]s = %[10]s WHERE %[2]s = ANY (ARRAY(SELECT %[2]s FROM %[1]s "+
			"WHERE %[3]s IS NOT NULL AND %[5]s > %[8]s ORDER BY %[5]s DESC LIMIT $2 FOR UPDATE SKIP LOCKED))), "+
			"stale AS MATERIALIZED (SELECT %[2]s AS stale_id, %[3]s AS stale_lock, %[4]s AS stale_version, %[5]s AS stale_at FROM %[1]s "+
			"WHERE %[3]s IS NOT NULL AND %[5]s < %[8]s - $1::interval%[9]s ORDER BY %[5]s LIMIT $2 FOR UPDATE SKIP LOCKED) "+
			"UPDATE %[1]s AS t SET %[6]s%[7]s FROM stale WHERE t.%[2]s = ANY (ARRAY[stale_id]) AND t.%[3]s = stale_lock AND t.%[4]s = stale_version "+
			"RETURNING stale_id, stale_lock, stale_version, stale_at",
			table, id, lock, number, lockedAt, unlocked, list(t.OnRelease), times.statement, times.grain, times.now),
	}
}

// New prepares claims on a table whose ids are of type ID. It returns an error that wraps [ErrBadTable] when the
// description is not usable; whether the table is there is not looked at.
func New[ID comparable](t Table) (*Claims[ID], error) {
	t = t.withDefaults()
	var zero ID
	if t.IDType == "" {
		t.IDType = sqlType(zero)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	return &Claims[ID]{place: new(place), sql: build(t, textual(zero)), own: []string{t.LockID, t.LockedAt, t.Version, t.FinishedBy}}, nil
}

// Must is New for descriptions that are constants of the program; it panics where New returns an error.
func Must[ID comparable](t Table) *Claims[ID] {
	c, err := New[ID](t)
	if err != nil {
		panic(err)
	}
	return c
}
