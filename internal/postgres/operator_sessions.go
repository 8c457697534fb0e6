package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// Operator keeps the sessions of the console and reads the lists of its operators. It is safe for concurrent use.
type Operator struct{ db *DB }

// NewOperator returns the operator's store on db.
func NewOperator(db *DB) *Operator { return &Operator{db: db} }

const (
	insertSession = `INSERT INTO console_sessions (hash, key, created_at, expires_at)
		SELECT $1, id, clock_timestamp(), clock_timestamp() + $3 * interval '1 microsecond' FROM api_keys
		WHERE id = $2 AND role IN ('admin', 'reader') AND revoked_at IS NULL`
	selectSession = `SELECT k.id, k.role, k.name, k.hash, k.created_at, k.revoked_at, s.created_at, s.expires_at
		FROM console_sessions AS s JOIN api_keys AS k ON k.id = s.key
		WHERE s.hash = $1 AND s.expires_at > clock_timestamp() AND k.revoked_at IS NULL`
	deleteSession = `DELETE FROM console_sessions WHERE hash = $1`
	// Few expire at a time: whoever signs in sweeps. What another session of the database has locked is left to the next.
	sweepSessions = `DELETE FROM console_sessions WHERE hash IN (
		SELECT hash FROM console_sessions WHERE expires_at < clock_timestamp() FOR UPDATE SKIP LOCKED)`

	insertLink = `INSERT INTO console_links (hash, key, created_at, expires_at)
		SELECT $1, id, clock_timestamp(), clock_timestamp() + $2 * interval '1 microsecond' FROM api_keys
		WHERE role = 'admin' AND revoked_at IS NULL
			AND NOT ($3::boolean AND (EXISTS (SELECT FROM console_links) OR EXISTS (SELECT FROM console_sessions)))
		ORDER BY created_at, id LIMIT 1`
	insertLinkOf = `INSERT INTO console_links (hash, key, created_at, expires_at)
		SELECT $1, id, clock_timestamp(), clock_timestamp() + $3 * interval '1 microsecond' FROM api_keys
		WHERE id = $2 AND role = 'admin' AND revoked_at IS NULL
		ON CONFLICT (hash) DO UPDATE SET key = excluded.key WHERE console_links.key = excluded.key`
	useLink = `UPDATE console_links SET used_at = clock_timestamp()
		WHERE hash = $1 AND used_at IS NULL AND expires_at > clock_timestamp() RETURNING key`
)

// Begin makes a session of the admin or reader key with that id, and writes down what is to be audited of it. It returns
// [operator.ErrNoSession] when there is no such key in force.
func (d *Operator) Begin(ctx context.Context, hash operator.Hash, key string, life time.Duration, audit ...command.Audit) (operator.Session, error) {
	err := d.db.runWaiting(ctx, "sign in", rowOfSession(hash), func(ctx context.Context, tx pgx.Tx) error {
		return beginSession(ctx, tx, hash, key, life, audit)
	})
	if err != nil {
		return operator.Session{}, err
	}
	return d.Session(ctx, hash)
}

// rowOfSession is the row of a session or of a link, for which others may make a transaction wait.
func rowOfSession(hash operator.Hash) blockedRow {
	return blockedRow{otherRow, fmt.Sprintf("a session, %x", hash[:4])}
}

func beginSession(ctx context.Context, tx pgx.Tx, hash operator.Hash, key string, life time.Duration, audit []command.Audit) error {
	if _, err := tx.Exec(ctx, sweepSessions); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, insertSession, hash[:], key, life.Microseconds())
	if err == nil && tag.RowsAffected() == 0 {
		err = operator.ErrNoSession
	}
	if err != nil {
		return err
	}
	return auditByKey(ctx, tx, key, audit)
}

// SignInRefused writes down that somebody was not signed in.
func (d *Operator) SignInRefused(ctx context.Context, a command.Audit) error {
	_, err := d.db.pool.Exec(ctx, insertAudit, newID(), nil, a.Principal, a.Action, a.Object, a.RequestID)
	return readError(err)
}

// UseLink uses a link up and makes a session of it, in one transaction: of those who use a link at once, one signs in. The
// others get [operator.ErrLinkUsed].
func (d *Operator) UseLink(ctx context.Context, link, hash operator.Hash, life time.Duration, audit ...command.Audit) (operator.Session, error) {
	err := d.db.runWaiting(ctx, "use link", rowOfSession(link), func(ctx context.Context, tx pgx.Tx) error {
		keys, err := pgkit.Rows(ctx, tx, pgx.RowTo[string], useLink, link[:])
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			return operator.ErrLinkUsed
		}
		return beginSession(ctx, tx, hash, keys[0], life, audit)
	})
	if err != nil {
		return operator.Session{}, err
	}
	return d.Session(ctx, hash)
}

// Session finds the session of a secret's hash, or [operator.ErrNoSession].
func (d *Operator) Session(ctx context.Context, hash operator.Hash) (operator.Session, error) {
	return queryOne(ctx, d.db, operator.ErrNoSession, func(row pgx.CollectableRow) (s operator.Session, err error) {
		err = row.Scan(&s.Key.ID, &s.Key.Role, &s.Key.Name, (*digest)(&s.Key.Hash), &s.Key.CreatedAt, &s.Key.RevokedAt, &s.CreatedAt, &s.ExpiresAt)
		return s, err
	}, selectSession, hash[:])
}

// End signs a session out. There may be none.
func (d *Operator) End(ctx context.Context, hash operator.Hash) error {
	return d.db.runWaiting(ctx, "sign out", rowOfSession(hash), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, deleteSession, hash[:])
		return err
	})
}

// Secret reads a secret that all servers share.
func (d *Operator) Secret(ctx context.Context, name string) ([]byte, error) {
	return queryOne(ctx, d.db, operator.ErrNoSecret, pgx.RowTo[[]byte], `SELECT value FROM secrets WHERE name = $1`, name)
}

// MakeLink makes a link that signs in with the rights of the oldest admin key in force. With first it does so only where
// nobody has ever signed in and no link was made; made reports whether it did.
func (d *Operator) MakeLink(ctx context.Context, hash operator.Hash, life time.Duration, first bool) (made bool, err error) {
	tag, err := d.db.pool.Exec(ctx, insertLink, hash[:], life.Microseconds(), first)
	return tag.RowsAffected() == 1, readError(err)
}

// MakeLinkOf makes a link that signs in with the rights of the admin key with that id, and writes down what is to be audited of it. Made
// again by that key, it is the same link. It returns [operator.ErrNoSession] when there is no such key in force.
func (d *Operator) MakeLinkOf(ctx context.Context, hash operator.Hash, key string, life time.Duration, audit ...command.Audit) error {
	return d.db.runWaiting(ctx, "make a link", rowOfSession(hash), func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, insertLinkOf, hash[:], key, life.Microseconds())
		if err == nil && tag.RowsAffected() == 0 {
			err = operator.ErrNoSession
		}
		if err != nil {
			return err
		}
		return auditByKey(ctx, tx, key, audit)
	})
}

func auditByKey(ctx context.Context, tx pgx.Tx, key string, audit []command.Audit) error {
	for _, a := range audit {
		if _, err := tx.Exec(ctx, insertAudit, newID(), nil, "key:"+key, a.Action, a.Object, a.RequestID); err != nil {
			return err
		}
	}
	return nil
}
