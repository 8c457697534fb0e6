package pgkit

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Capability is something that PostgreSQL does, and that an engine which speaks its protocol may refuse, or may accept and not do.
type Capability string

// The capabilities, by the names that the setting fairlead.without has for them.
const (
	Notify        Capability = "notify"                // LISTEN, NOTIFY, and that what is sent arrives
	AdvisoryLocks Capability = "advisory-locks"        // and that they are held
	RowPlaces     Capability = "ctid"                  // rows by their place in the table
	Functions     Capability = "functions"             // in PL/pgSQL
	Deferrable    Capability = "deferrable"            // unique constraints that are checked at the end of a statement
	Batches       Capability = "implicit-transactions" // statements up to a Sync are one transaction
	// Prepare is PREPARE TRANSACTION. It is not probed: a probe that dies midway would leave a transaction that nobody ends. The first
	// two-phase transaction finds out.
	Prepare       Capability = "prepare-transaction"
	ReadCommitted Capability = "read-committed" // each statement sees what was committed before it
)

// Without is the setting of a session that switches capabilities off, by a list of their names with commas. Set it on a database
// (ALTER DATABASE … SET), for all programs that use it: they have to agree on how they exclude each other.
const Without = "fairlead.without"

// Lack is a capability that a database does not have.
type Lack struct {
	Capability Capability
	What       string // it is, in words
	Why        string // it is known to be missing
	Instead    string // of it
}

// Capabilities are what a database was found to have. The zero value has everything, as PostgreSQL does.
type Capabilities struct{ lacks []Lack }

// Has reports whether the database has a capability, as far as was probed.
func (c Capabilities) Has(x Capability) bool {
	return !slices.ContainsFunc(c.lacks, func(l Lack) bool { return l.Capability == x })
}

// Lacks lists what is missing of what was probed.
func (c Capabilities) Lacks() []Lack { return slices.Clone(c.lacks) }

// errIdle is returned by a probe whose statements were accepted and did nothing.
var errIdle = errors.New("it is accepted, and does nothing")

// probe is how a capability is looked for.
type probe struct {
	lack Lack
	try  func(ctx context.Context, conn *pgx.Conn) error
}

// within makes a probe of what is done in a transaction, which is rolled back.
func within(try func(ctx context.Context, tx pgx.Tx) error) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		return errors.Join(try(ctx, tx), tx.Rollback(ctx))
	}
}

// holds is a probe of a query that is true where the capability is there.
func holds(sql string) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		var there bool
		err := tx.QueryRow(ctx, sql, pgx.QueryExecModeSimpleProtocol).Scan(&there)
		if err == nil && !there {
			err = errIdle
		}
		return err
	}
}

func probes() []probe {
	return []probe{
		{Lack{Notify, "LISTEN and NOTIFY", "", "processes poll"}, tryNotify},
		{Lack{AdvisoryLocks, "advisory locks", "", "rows are locked"}, within(tryAdvisoryLock)},
		{Lack{RowPlaces, "ctid", "", "tables are swept by ranges of keys"}, within(holds(`SELECT count(*) >= 0 FROM pg_class WHERE ctid >= '(0,0)'::tid AND ctid < '(0,1)'::tid`))},
		{Lack{Functions, "functions in PL/pgSQL", "", "each request for a lock is several statements"}, within(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `DO LANGUAGE plpgsql 'BEGIN END'`)
			return err
		})},
		{Lack{Deferrable, "deferrable unique constraints", "", "the constraint is checked row by row"}, within(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `CREATE TEMPORARY TABLE fairlead_probe (a integer, UNIQUE (a) DEFERRABLE INITIALLY IMMEDIATE) ON COMMIT DROP`)
			return err
		})},
		{Lack{Batches, "implicit transactions of several statements", "", "each has BEGIN and COMMIT"}, tryBatch},
		{Lack{ReadCommitted, "READ COMMITTED", "", "nothing"}, tryReadCommitted},
	}
}

// probeTimeout bounds the wait for a notification, which arrives with the answer to the statement that sends it where it does.
const probeTimeout = 2 * time.Second

func tryNotify(ctx context.Context, conn *pgx.Conn) (err error) {
	const channel = "fairlead_probe"
	if _, err := conn.Exec(ctx, `LISTEN `+channel); err != nil {
		return err
	}
	defer func() {
		_, failed := conn.Exec(ctx, `UNLISTEN `+channel)
		err = errors.Join(err, failed)
	}()
	me := rand.Text()
	if _, err := conn.Exec(ctx, `SELECT pg_notify($1, $2) FROM (SELECT set_config('synchronous_commit', 'off', true)) AS s (v) WHERE s.v = 'off'`, channel, me); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(waiting)
		switch {
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			return errIdle
		case err != nil:
			return err
		case n.Payload == me:
			return nil
		}
	}
}

// tryAdvisoryLock takes a lock of a number that nobody else takes.
func tryAdvisoryLock(ctx context.Context, tx pgx.Tx) error {
	var key [8]byte
	_, _ = rand.Read(key[:])                                             // It never fails.
	return lockAdvisory(ctx, tx, int64(binary.BigEndian.Uint64(key[:]))) //nolint:gosec // All 64 bits are meant.
}

// lockAdvisory takes a lock, and looks whether it is listed: an engine may have the functions for the sake of programs that call them.
func lockAdvisory(ctx context.Context, tx pgx.Tx, key int64) error {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, key); err != nil {
		return err
	}
	return holds(`SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted)`)(ctx, tx)
}

// tryBatch looks whether a setting that is local to a transaction is still there in the next statement.
func tryBatch(ctx context.Context, conn *pgx.Conn) error {
	var b pgx.Batch
	var there bool
	b.Queue(`SELECT set_config('fairlead.probe', 'here', true)`)
	b.Queue(`SELECT coalesce(current_setting('fairlead.probe', true), '') = 'here'`).QueryRow(func(row pgx.Row) error { return row.Scan(&there) })
	err := conn.SendBatch(ctx, &b).Close()
	if err == nil && !there {
		err = errIdle
	}
	return err
}

func tryReadCommitted(ctx context.Context, conn *pgx.Conn) error {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	return errors.Join(holds(`SELECT current_setting('transaction_isolation') = 'read committed'`)(ctx, tx), tx.Rollback(ctx))
}

// Probe finds out by trial which of some capabilities a database has, never by its version. What it tries is rolled back. Where a trial
// fails for a reason that says nothing of the engine, as on a standby, the capability counts as there.
func Probe(ctx context.Context, conn *pgx.Conn, which ...Capability) (Capabilities, error) {
	off, err := SwitchedOff(ctx, conn)
	if err != nil {
		return Capabilities{}, err
	}
	var out Capabilities
	for _, p := range probes() {
		if !slices.Contains(which, p.lack.Capability) {
			continue
		}
		if slices.Contains(off, p.lack.Capability) {
			p.lack.Why = "the setting " + Without + " switches it off"
			out.lacks = append(out.lacks, p.lack)
			continue
		}
		err := p.try(ctx, conn)
		if err == nil {
			continue
		}
		switch v, _ := Classify(err); {
		case absent(err):
			p.lack.Why = err.Error()
			out.lacks = append(out.lacks, p.lack)
		case conn.IsClosed() || ctx.Err() != nil || v == Lost && Code(err) != readOnly:
			return out, fmt.Errorf("probe for %s: %w", p.lack.What, err)
		}
	}
	return out, nil
}

// absent reports whether an error says that the database lacks what was tried.
func absent(err error) bool { return errors.Is(err, errIdle) || Refused(err) }

// readOnly is the SQLSTATE of what a standby refuses.
const readOnly = "25006"

// Refused reports whether an error says that the engine does not know a statement, or does not carry it out. A missing privilege says
// nothing of the engine.
func Refused(err error) bool {
	const notPrivileged = "42501"
	code := Code(err)
	return code != notPrivileged && (strings.HasPrefix(code, "0A") || strings.HasPrefix(code, "42"))
}

// Querier is a connection, a pool, or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SwitchedOff reads the setting [Without]. An engine that knows no settings of others has none.
func SwitchedOff(ctx context.Context, q Querier) (off []Capability, err error) {
	var list string
	err = q.QueryRow(ctx, `SELECT coalesce(current_setting('`+Without+`', true), '')`, pgx.QueryExecModeSimpleProtocol).Scan(&list)
	if err != nil && !Refused(err) {
		return nil, err
	}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			off = append(off, Capability(name))
		}
	}
	return off, nil
}
