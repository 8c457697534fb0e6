package pglock

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/lock"
)

// LostGrants is a number that is greater than how often any key can have been granted since the state that was restored: a
// busy key is granted 20,000 times a second, which would take 39 days. Some 130,000 restores fit into the integers that every
// language's floating-point numbers hold exactly.
const LostGrants = 1 << 36

// maxAdvance leaves room for later jumps. PostgreSQL refuses one that would make numbers too large.
const maxAdvance = 1 << 60

const (
	// Whoever asks for a lock, or releases one, waits for the end of the transaction: it has looked at no token yet.
	lockKeyTable = `LOCK TABLE @lock_keys IN EXCLUSIVE MODE`
	// Everybody waits behind this one, so it does not wait long for somebody who keeps a row locked.
	advanceTimeout = `SELECT set_config('lock_timeout', '10s', true)`
	raiseFloor     = `UPDATE @lock_arbiter SET token_floor = greatest(token_floor, (SELECT max(token) FROM @lock_keys)) + $1::bigint RETURNING token_floor`
	raiseTokens    = `UPDATE @lock_keys SET token = $1 WHERE token < $1`
)

// AdvanceTokens makes the tokens of all keys jump ahead, also of keys that have no row, and returns the number above which all
// later ones are. It is for a database that has forgotten grants (an older state was restored, or a failover lost commits):
// without it, tokens that were given since then are given again, and resources that remember them elsewhere refuse the new
// holders, or take an old holder for one of them. by is how many grants of one key may be forgotten, see [LostGrants].
//
// Locks that are held stay as they are, with their tokens. Requests and releases wait while it runs, some 10 s for a million
// keys. It fails, and nothing has changed, if a session keeps a row of lock_keys locked for 10 s. It may be called again, and jumps
// again then. Programs of versions without it must not use the tables afterwards: they begin new keys below the floor.
func (s Schema) AdvanceTokens(ctx context.Context, conn Beginner, by int64) (floor int64, err error) {
	if by < 1 || by > maxAdvance {
		return 0, fmt.Errorf("pglock: advance tokens: %w: by %d", lock.ErrInvalid, by)
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, sql := range []string{advanceTimeout, s.in(lockKeyTable)} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if err := tx.QueryRow(ctx, s.in(raiseFloor), by).Scan(&floor); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.in(raiseTokens), floor)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("pglock: advance tokens: %w", err)
	}
	return floor, nil
}
