package pgkit

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// trial is how a capability is looked for: by groups of statements, each of which ends with a Sync, so that an error skips the rest of its
// group alone. The first error decides. A query whose last column is false says that what came before it did nothing.
type trial struct {
	lack   Lack
	groups [][]string
}

const (
	begin    = `BEGIN`
	rollback = `ROLLBACK`

	probeChannel = "fairlead_probe"
	// notifySelf does not wait until the commit is on the disk, or on a standby.
	notifySelf = `SELECT pg_notify('` + probeChannel + `', '%s') FROM (SELECT set_config('synchronous_commit', 'off', true)) AS s (v) WHERE s.v = 'off'`
	// lockListed looks whether an advisory lock that was taken is there: an engine may have the functions for the sake of programs that call them.
	lockListed = `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted)`
	// probeTimeout bounds the wait for a notification that did not arrive with the answer to the statement that sent it.
	probeTimeout = 2 * time.Second
)

// trials leave nothing behind. The advisory lock's key is one that nobody else takes.
func trials(payload string, key int64) []trial {
	return []trial{
		{Lack{Capability: Notify, What: "LISTEN and NOTIFY", Instead: "processes poll"}, [][]string{
			{`LISTEN ` + probeChannel},
			{fmt.Sprintf(notifySelf, payload)},
			{`UNLISTEN ` + probeChannel},
		}},
		{Lack{Capability: AdvisoryLocks, What: "advisory locks", Instead: "rows are locked"}, [][]string{
			{begin, fmt.Sprintf(`SELECT pg_advisory_xact_lock('%d'::bigint)`, key), lockListed},
			{rollback},
		}},
		{Lack{Capability: RowPlaces, What: "ctid", Instead: "tables are swept by ranges of keys, closings look at all accounts, and the books are recounted in one snapshot"}, [][]string{
			{`SELECT count(*) >= 0 FROM pg_class WHERE ctid >= '(0,0)'::tid AND ctid < '(0,1)'::tid`},
		}},
		{Lack{Capability: RowVersions, What: "xmin", Instead: "closings look at all accounts, and the books are recounted in one snapshot"}, [][]string{
			{`SELECT coalesce(age(xmin) >= 0 AND pg_snapshot_xmin(pg_current_snapshot())::text::bigint > 0, false) FROM pg_class WHERE oid = 'pg_class'::regclass`},
		}},
		{Lack{Capability: Functions, What: "functions in PL/pgSQL", Instead: "each request for a lock is several statements"}, [][]string{
			{`DO LANGUAGE plpgsql 'BEGIN END'`},
		}},
		{Lack{Capability: Deferrable, What: "deferrable unique constraints", Instead: "the constraint is checked row by row"}, [][]string{
			{begin, `CREATE TEMPORARY TABLE fairlead_probe (a integer, UNIQUE (a) DEFERRABLE INITIALLY IMMEDIATE) ON COMMIT DROP`},
			{rollback},
		}},
		{Lack{Capability: Batches, What: "implicit transactions of several statements", Instead: "each has BEGIN and COMMIT"}, [][]string{
			// Is a setting that is local to a transaction still there in the next statement?
			{`SELECT set_config('fairlead.probe', 'here', true)`, `SELECT coalesce(current_setting('fairlead.probe', true), '') = 'here'`},
		}},
		{Lack{Capability: Partitions, What: "partitions by range, or inheritance", Instead: "history stays in one piece, and can't be archived"}, [][]string{
			{begin, `CREATE TEMPORARY TABLE fairlead_probe (a integer PRIMARY KEY) PARTITION BY RANGE (a) ON COMMIT DROP`},
			{`CREATE TEMPORARY TABLE fairlead_whole (a integer)`, `CREATE TEMPORARY TABLE fairlead_part () INHERITS (fairlead_whole)`},
			{rollback},
		}},
		{Lack{Capability: ReadCommitted, What: "READ COMMITTED", Instead: "nothing"}, [][]string{
			{`BEGIN ISOLATION LEVEL READ COMMITTED`, `SELECT current_setting('transaction_isolation') = 'read committed'`},
			{rollback},
		}},
	}
}

// Probe finds out by trial which of some capabilities a database has, never by its version. It takes one round trip where notifications
// arrive at once, and leaves nothing behind. Only a refusal of the engine counts as a lack. What the role or a standby may not try counts as there;
// any other failure is returned.
func Probe(ctx context.Context, conn *pgx.Conn, which ...Capability) (out Capabilities, err error) {
	var key [8]byte
	_, _ = rand.Read(key[:]) // It never fails.
	payload := rand.Text()
	sought := slices.DeleteFunc(trials(payload, int64(binary.BigEndian.Uint64(key[:]))), //nolint:gosec // All 64 bits are meant.
		func(t trial) bool { return !slices.Contains(which, t.lack.Capability) })
	off, failures, err := tryAll(ctx, conn.PgConn(), sought)
	if err != nil {
		return out, fmt.Errorf("probe the database: %w", err)
	}
	for i, t := range sought {
		if slices.Contains(off, t.lack.Capability) {
			t.lack.Why, t.lack.Off = "the setting "+Without+" switches it off", true
			out.lacks = append(out.lacks, t.lack)
			continue
		}
		failed := failures[i]
		if t.lack.Capability == Notify && failed == nil && !heard(ctx, conn, payload) {
			failed = notifyPatiently(ctx, conn, payload)
		}
		switch {
		case failed == nil || Code(failed) == readOnly:
		case absent(failed):
			t.lack.Why = failed.Error()
			out.lacks = append(out.lacks, t.lack)
		case Code(failed) == notPrivileged:
			t.lack.Why = failed.Error()
			out.unsure = append(out.unsure, t.lack)
		default:
			return out, failed // What was tried has nothing to do with it.
		}
	}
	return out, nil
}

// tryAll sends all trials at once, and returns what is switched off and what came of each.
func tryAll(ctx context.Context, conn *pgconn.PgConn, all []trial) (off []Capability, failures []error, err error) {
	p := conn.StartPipeline(ctx)
	defer func() {
		if closed := p.Close(); closed != nil && Code(closed) == "" {
			err = errors.Join(err, closed)
		}
	}()
	send := func(group []string) {
		for _, sql := range group {
			p.SendQueryParams(sql, nil, nil, nil, nil)
		}
		p.SendPipelineSync()
	}
	send([]string{selectSwitchedOff})
	for _, t := range all {
		for _, group := range t.groups {
			send(group)
		}
	}
	if err := p.Flush(); err != nil {
		return nil, nil, err
	}
	last, failed, err := result(p)
	if err != nil {
		return nil, nil, err
	}
	if failed != nil && !Refused(failed) {
		return nil, nil, failed
	}
	failures = make([]error, len(all))
	for i, t := range all {
		for range t.groups {
			last, failed, err := result(p)
			if err != nil {
				return nil, nil, err
			}
			if failed == nil && last == "f" {
				failed = errIdle
			}
			if failures[i] == nil {
				failures[i] = failed
			}
		}
	}
	return listed(last), failures, nil
}

// result reads what came of a group: the last column of its last row, and the error of the server's that ended it. err is one of the connection.
func result(p *pgconn.Pipeline) (last string, failed, err error) {
	for {
		switch got, err := p.GetResults(); got := got.(type) {
		case *pgconn.PipelineSync:
			return last, failed, nil
		case *pgconn.ResultReader:
			for got.NextRow() {
				row := got.Values()
				last = string(row[len(row)-1])
			}
			if _, err := got.Close(); err != nil {
				failed = err
			}
		default:
			if err == nil {
				return "", nil, errors.New("a pipeline ended without an answer")
			}
			failed = err
		}
		if failed != nil && Code(failed) == "" {
			return "", nil, failed
		}
	}
}

// heard reports whether a notification has arrived already.
func heard(ctx context.Context, conn *pgx.Conn, payload string) bool {
	now, cancel := context.WithCancel(ctx)
	cancel()
	for {
		switch n, err := conn.WaitForNotification(now); {
		case err != nil:
			return false
		case n.Payload == payload:
			return true
		}
	}
}

// notifyPatiently gives the notification time. An engine may send it when it likes.
func notifyPatiently(ctx context.Context, conn *pgx.Conn, payload string) error {
	for _, sql := range []string{`LISTEN ` + probeChannel, fmt.Sprintf(notifySelf, payload)} {
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	waiting, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var err error
	for there := false; !there && err == nil; {
		var n *pgconn.Notification
		n, err = conn.WaitForNotification(waiting)
		there = err == nil && n.Payload == payload
	}
	// A connection that is silent because it is dead says nothing of the engine.
	if _, failed := conn.Exec(ctx, `UNLISTEN `+probeChannel); failed != nil {
		return failed
	}
	if err != nil && !heard(ctx, conn, payload) {
		return errIdle
	}
	return nil
}
