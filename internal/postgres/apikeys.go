package postgres

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// APIKeys keeps the keys of administrators and services.
type APIKeys struct{ db *DB }

var _ auth.KeyStore = (*APIKeys)(nil)

// NewAPIKeys returns the key store on db.
func NewAPIKeys(db *DB) *APIKeys { return &APIKeys{db: db} }

const (
	keyFields = `id, role, name, hash, created_at, revoked_at`
	keyValues = `(` + keyFields + `) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT`
	insertKey = `INSERT INTO api_keys ` + keyValues + ` DO NOTHING`
	upsertKey = `INSERT INTO api_keys ` + keyValues + ` (id) DO UPDATE SET revoked_at = excluded.revoked_at`
	listKeys  = `SELECT ` + keyFields + ` FROM api_keys ORDER BY created_at, id`
)

// KeyByHash implements [auth.KeyStore].
func (k *APIKeys) KeyByHash(ctx context.Context, hash [sha256.Size]byte) (auth.Key, error) {
	return queryOne(ctx, k.db, auth.ErrUnknownKey, scanKey, `SELECT `+keyFields+` FROM api_keys WHERE hash = $1`, hash[:])
}

// InsertKey implements [auth.KeyStore].
func (k *APIKeys) InsertKey(ctx context.Context, key auth.Key) error {
	tag, err := k.db.pool.Exec(ctx, insertKey, key.ID, key.Role, key.Name, key.Hash[:], key.CreatedAt, nil)
	if err == nil && tag.RowsAffected() == 0 {
		return auth.ErrKeyExists
	}
	return readError(err)
}

// Keys returns all keys, revoked ones too, oldest first.
func (k *APIKeys) Keys(ctx context.Context) ([]auth.Key, error) {
	return query(ctx, k.db.reads, scanKey, listKeys)
}

// RevokeKey revokes a key for the command line, as Execute does.
func (k *APIKeys) RevokeKey(ctx context.Context, id string) error {
	a, err := k.Execute(ctx, command.Command[auth.KeyOp]{Op: auth.KeyOp{Revoke: id}, Principal: "command line"})
	if err != nil {
		return err
	}
	return a.Err
}

// Execute makes or revokes a key and writes that down, in one transaction and once per idempotency key.
func (k *APIKeys) Execute(ctx context.Context, c command.Command[auth.KeyOp]) (command.Answer, error) {
	return executeOn(ctx, k.db, c, func() (command.Answer, error) { return k.execute(ctx, c) })
}

func (k *APIKeys) execute(ctx context.Context, c command.Command[auth.KeyOp]) (answer command.Answer, err error) {
	err = k.db.runOn(ctx, "keys", []blockedRow{{otherRow, "the keys"}}, func(ctx context.Context, tx pgx.Tx) error {
		// Keys are few and change seldom: they are locked, and read, all together.
		if _, err := tx.Exec(ctx, `LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		batch := []command.Command[auth.KeyOp]{c}
		book, known, err := lockBook(ctx, tx, nil, command.Keys(batch))
		if err != nil {
			return err
		}
		noteUnrecorded(tx, known)
		all, err := pgkit.Rows(ctx, tx, scanKey, listKeys)
		if err != nil {
			return err
		}
		var (
			b     pgx.Batch
			audit []command.Audit
		)
		keys := idempotency.NewBatch(known)
		answer = command.Decide(batch, keys, func(c command.Command[auth.KeyOp]) (any, error) {
			key, err := decideKey(all, c.Op, book.Now())
			if err == nil {
				expectRows(b.Queue(upsertKey, key.ID, key.Role, key.Name, key.Hash[:], key.CreatedAt, key.RevokedAt), 1, errLostRow)
				audit = append(audit, auditOf(c))
			}
			return key, err
		})[0]
		return sendDecided(ctx, tx, &b, audit, keys.Fresh(), book.Now())
	})
	return answer, err
}

// decideKey makes a key, or revokes one of all the keys.
func decideKey(all []auth.Key, op auth.KeyOp, now time.Time) (auth.Key, error) {
	if op.Create != nil {
		made := *op.Create
		if slices.ContainsFunc(all, func(k auth.Key) bool { return k.ID == made.ID || k.Hash == made.Hash }) {
			return made, auth.ErrKeyExists
		}
		made.CreatedAt = made.CreatedAt.UTC().Truncate(time.Microsecond)
		return made, nil
	}
	at := slices.IndexFunc(all, func(k auth.Key) bool { return k.ID == op.Revoke })
	if at < 0 {
		return auth.Key{}, auth.ErrUnknownKey
	}
	key := all[at]
	if key.RevokedAt != nil {
		return key, nil // Revoking twice keeps the first time.
	}
	if key.Role == auth.RoleAdmin && !slices.ContainsFunc(all, func(k auth.Key) bool {
		return k.Role == auth.RoleAdmin && k.RevokedAt == nil && k.ID != key.ID
	}) {
		return key, auth.ErrLastAdmin
	}
	key.RevokedAt = &now
	return key, nil
}

func auditOf(c command.Command[auth.KeyOp]) command.Audit {
	a := command.Audited(c, "key.revoke", c.Op.Revoke)
	if c.Op.Create != nil {
		a.Action, a.Object = "key.create", c.Op.Create.ID
	}
	return a
}

func scanKey(row pgx.CollectableRow) (k auth.Key, err error) {
	err = row.Scan(&k.ID, &k.Role, &k.Name, (*digest)(&k.Hash), &k.CreatedAt, &k.RevokedAt)
	return k, err
}
