package pgkit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// Beginner is a connection, a pool, or a transaction.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Part is a part of a package's tables that one version of it added.
type Part struct {
	Has string // an SQL expression that is true where the part is there
	SQL string // what makes it
	// Needs is what the part is left out without; empty: nothing.
	Needs Capability
}

// installFor bounds the time in which parts are tried again that met a locked table. What needs such a table queues behind a part
// that waits for it, for 150 ms at most.
const (
	installFor   = time.Minute
	installPause = 250 * time.Millisecond
	installWait  = `SET LOCAL lock_timeout = '150ms'`
)

// Install makes the parts that are missing in a schema, and the schema itself. The empty schema is the first of the search
// path. Any number of processes may do so at once: they take turns by the advisory lock, or by a row of a [Gate]. Programs that use the tables go on meanwhile.
// Where somebody has locked a table that a part changes, it is tried again for a minute, unless db is a transaction.
func Install(ctx context.Context, db Beginner, lock int64, schema string, parts ...Part) error {
	_, inside := db.(pgx.Tx)
	start := time.Now()
	for try := 1; ; try++ {
		err := install(ctx, db, lock, schema, parts)
		code := Code(err)
		again := code == LockTimeout || try < installRaces && slices.Contains(races(), code)
		if !again || inside || time.Since(start) > installFor {
			return err
		}
		if code == LockTimeout {
			AskVacuum(ctx, db, schema)
		}
		if !wait.For(ctx, installPause) {
			return err
		}
	}
}

// installRaces bounds the tries after another session made the same just now. It is done with that before the third.
const installRaces = 5

// races are the SQLSTATEs of having met such a session: a unique violation, a duplicate schema or table, a serialization failure.
func races() []string { return []string{UniqueViolation, "42P06", "42P07", "40001", "40P01"} }

// errComplete rolls a transaction back that has made nothing. A row that it has locked would make its commit wait for standbys.
var errComplete = errors.New("nothing is missing")

func install(ctx context.Context, db Beginner, lock int64, schema string, parts []Part) error {
	made := false
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		off, err := SwitchedOff(ctx, tx)
		if err != nil {
			return err
		}
		turn := false
		if !slices.Contains(off, AdvisoryLocks) {
			if turn, err = takeAdvisory(ctx, tx, lock); err != nil {
				return err
			}
		}
		if schema != "" {
			name := pgx.Identifier{schema}.Sanitize()
			if _, err := tx.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS `+name); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `SET LOCAL search_path TO `+name); err != nil {
				return err
			}
		}
		if !turn {
			if made, err = takeGate(ctx, tx, lock); err != nil {
				return err
			}
		}
		for _, p := range parts {
			var there bool
			if err := tx.QueryRow(ctx, `SELECT `+p.Has).Scan(&there); err != nil {
				return err
			}
			if there || slices.Contains(off, p.Needs) {
				continue
			}
			if _, err := tx.Exec(ctx, installWait); err != nil {
				return err
			}
			done, err := p.make(ctx, tx)
			if err != nil {
				return err
			}
			made = made || done
		}
		if !made && !turn {
			return errComplete
		}
		return nil
	})
	if errors.Is(err, errComplete) {
		return nil
	}
	return err
}

// make makes a part, and reports whether it did. One that needs a capability is undone and left out where the database refuses it.
func (p *Part) make(ctx context.Context, tx pgx.Tx) (bool, error) {
	// Several statements in one text need the simple protocol.
	if p.Needs == "" {
		_, err := tx.Exec(ctx, p.SQL, pgx.QueryExecModeSimpleProtocol)
		return true, err
	}
	err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
		_, err := inner.Exec(ctx, p.SQL, pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if Refused(err) {
		return false, nil
	}
	return true, err
}

// In puts a schema into an SQL text, in which the names of tables begin with @.
func In(schema, sql string) string {
	prefix := ""
	if schema != "" {
		prefix = pgx.Identifier{schema}.Sanitize() + "."
	}
	return strings.ReplaceAll(sql, "@", prefix)
}
