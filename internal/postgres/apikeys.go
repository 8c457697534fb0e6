package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
	keyFields  = `id, role, name, hash, created_at, revoked_at`
	insertKey  = `INSERT INTO api_keys (` + keyFields + `) VALUES ($1, $2, $3, $4, $5, NULL) ON CONFLICT DO NOTHING`
	selectKey  = `SELECT ` + keyFields + ` FROM api_keys WHERE id = $1 FOR NO KEY UPDATE`
	revokeKey  = `UPDATE api_keys SET revoked_at = clock_timestamp() WHERE id = $1 AND revoked_at IS NULL`
	listKeys   = `SELECT ` + keyFields + ` FROM api_keys ORDER BY created_at, id`
	otherAdmin = `SELECT count(*) FROM api_keys WHERE role = 'admin' AND revoked_at IS NULL AND id <> $1`
)

// KeyByHash implements [auth.KeyStore].
func (k *APIKeys) KeyByHash(ctx context.Context, hash [sha256.Size]byte) (auth.Key, error) {
	return queryOne(ctx, k.db, auth.ErrUnknownKey, scanKey, `SELECT `+keyFields+` FROM api_keys WHERE hash = $1`, hash[:])
}

// InsertKey implements [auth.KeyStore].
func (k *APIKeys) InsertKey(ctx context.Context, key auth.Key) error {
	tag, err := k.db.pool.Exec(ctx, insertKey, key.ID, key.Role, key.Name, key.Hash[:], key.CreatedAt)
	return inserted(tag, err)
}

func inserted(tag pgconn.CommandTag, err error) error {
	switch {
	case err != nil:
		return readError(err)
	case tag.RowsAffected() == 0:
		return auth.ErrKeyExists
	}
	return nil
}

// Keys returns all keys, revoked ones too, oldest first.
func (k *APIKeys) Keys(ctx context.Context) ([]auth.Key, error) {
	return query(ctx, k.db.reads, scanKey, listKeys)
}

// RevokeKey revokes a key for good. Revoking twice keeps the first time. It returns [auth.ErrUnknownKey] when no key has that id.
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
		// Keys are few and change seldom: one lock for all of them keeps the count of admins true.
		if _, err := tx.Exec(ctx, `LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		batch := []command.Command[auth.KeyOp]{c}
		book, known, err := lockBook(ctx, tx, nil, nil, command.Keys(batch))
		if err != nil {
			return err
		}
		keys := idempotency.NewBatch(known)
		var failed error
		changed := false
		answer = command.Decide(batch, keys, func(c command.Command[auth.KeyOp]) (any, error) {
			key, err := decideKey(ctx, tx, c.Op)
			if isDatabase(err) {
				failed = err
			}
			changed = err == nil
			return key, err
		})[0]
		if failed != nil {
			return failed
		}
		var b pgx.Batch
		if changed {
			saveAudit(&b, []command.Audit{auditOf(c)}, book.Now())
		}
		saveKeys(&b, keys.Fresh(), book.Now(), countedWrites)
		return pgkit.Send(ctx, tx, &b)
	})
	return answer, err
}

// isDatabase reports whether an error is a failure of the database, and not a refusal.
func isDatabase(err error) bool {
	return err != nil && !errors.Is(err, auth.ErrUnknownKey) && !errors.Is(err, auth.ErrKeyExists) && !errors.Is(err, auth.ErrLastAdmin)
}

func decideKey(ctx context.Context, tx pgx.Tx, op auth.KeyOp) (auth.Key, error) {
	if op.Create != nil {
		key := *op.Create
		key.CreatedAt = key.CreatedAt.UTC().Truncate(time.Microsecond)
		tag, err := tx.Exec(ctx, insertKey, key.ID, key.Role, key.Name, key.Hash[:], key.CreatedAt)
		if err != nil {
			return key, err
		}
		return key, inserted(tag, nil)
	}
	key, err := oneKey(ctx, tx, op.Revoke)
	if err != nil || key.RevokedAt != nil {
		return key, err // Revoking twice keeps the first time.
	}
	if key.Role == auth.RoleAdmin {
		var others int
		if err := tx.QueryRow(ctx, otherAdmin, key.ID).Scan(&others); err != nil {
			return key, err
		}
		if others == 0 {
			return key, auth.ErrLastAdmin
		}
	}
	if _, err := tx.Exec(ctx, revokeKey, key.ID); err != nil {
		return key, err
	}
	return oneKey(ctx, tx, key.ID)
}

func oneKey(ctx context.Context, tx pgx.Tx, id string) (auth.Key, error) {
	keys, err := pgkit.Rows(ctx, tx, scanKey, selectKey, id)
	if err != nil {
		return auth.Key{}, err
	}
	if len(keys) == 0 {
		return auth.Key{}, auth.ErrUnknownKey
	}
	return keys[0], nil
}

func auditOf(c command.Command[auth.KeyOp]) command.Audit {
	a := command.Audited(c, "key.revoke", c.Op.Revoke)
	if c.Op.Create != nil {
		a.Action, a.Object = "key.create", c.Op.Create.ID
	}
	return a
}

func scanKey(row pgx.CollectableRow) (k auth.Key, err error) {
	var hash []byte
	if err := row.Scan(&k.ID, &k.Role, &k.Name, &hash, &k.CreatedAt, &k.RevokedAt); err != nil {
		return k, err
	}
	k.Hash = [sha256.Size]byte(hash)
	return k, nil
}
