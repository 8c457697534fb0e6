package pgsaga

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/saga"
)

// keptTokens is how many of the tokens for each participant a log remembers: a participant that fails over without its last
// commits shows an older one. A token follows another only when that was seen at the participant.
const keptTokens = 100

const (
	// The cluster and the oid identify the database; a physical copy has the same. The timeline and the start time identify the run
	// of its server. A role that may not read the cluster's identifier gets 'unknown' for it.
	instance        = `(SELECT %s || '/' || d.oid FROM pg_database d WHERE d.datname = current_database()) || ` + serverRun
	serverRun       = `'/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) || '/' || extract(epoch FROM pg_postmaster_start_time())`
	clusterID       = `(SELECT system_identifier FROM pg_control_system())`
	unknownCluster  = `'unknown'`
	readCoordinator = `SELECT incarnation, instance FROM @saga_coordinator`
	makeCoordinator = `INSERT INTO @saga_coordinator (id, incarnation, instance, began_at) VALUES ($1, $2, $3, clock_timestamp())
		ON CONFLICT DO NOTHING`
	beginIncarnation = `UPDATE @saga_coordinator SET incarnation = $1, instance = $2, began_at = clock_timestamp() WHERE instance = $3`
	knowsToken       = `SELECT EXISTS (SELECT FROM @saga_tokens WHERE $1 = ANY (tokens))` //nolint:gosec // The tokens of fences are no credentials.
	nextToken        = `INSERT INTO @saga_tokens AS t (participant, tokens, at) VALUES ($1, ARRAY[$3::uuid], clock_timestamp())
		ON CONFLICT (participant) DO UPDATE SET at = excluded.at,
			tokens = CASE WHEN t.tokens[1] = $2 THEN (excluded.tokens || t.tokens)[1:$4] ELSE t.tokens END
		RETURNING tokens[1]`
	adoptToken = `INSERT INTO @saga_tokens AS t (participant, tokens, at) VALUES ($1, ARRAY[$2::uuid], clock_timestamp())
		ON CONFLICT (participant) DO UPDATE SET at = excluded.at, tokens = (excluded.tokens || t.tokens)[1:$3]`
	adoptLog = `UPDATE @saga_coordinator SET incarnation = $1, instance = $2, began_at = clock_timestamp()`
)

// Coordinator begins the identifiers of the transactions that this log prepares. It was drawn at random when the log was
// first used, and is in the log: it is the same in each process, survives a failover, and is the same in a copy, which its
// participants tell from the original by their fences.
func (l *Log) Coordinator(ctx context.Context) (id string, err error) {
	err = l.upkeep(ctx, "saga.coordinator", func(ctx context.Context, tx pgx.Tx) error {
		here, err := l.instance(ctx, tx)
		if err != nil {
			return err
		}
		if err := l.enroll(ctx, tx, here); err != nil {
			return err
		}
		return tx.QueryRow(ctx, l.schema.in(`SELECT id FROM @saga_coordinator`)).Scan(&id)
	})
	if err != nil {
		return "", fmt.Errorf("pgsaga: the log's coordinator: %w", err)
	}
	return id, nil
}

// enroll gives the log its coordinator's identifier, unless it has one.
func (l *Log) enroll(ctx context.Context, tx pgx.Tx, here string) error {
	var random [8]byte
	_, _ = rand.Read(random[:]) // It never fails.
	_, err := tx.Exec(ctx, l.schema.in(makeCoordinator), l.prefix+hex.EncodeToString(random[:]), uuid.New(), here)
	return err
}

// instance names the run of the database's server.
func (l *Log) instance(ctx context.Context, tx pgx.Tx) (here string, err error) {
	var allowed bool
	if err := tx.QueryRow(ctx, `SELECT has_function_privilege('pg_control_system()', 'execute')`).Scan(&allowed); err != nil {
		return "", err
	}
	cluster := unknownCluster
	if allowed {
		cluster = clusterID
	}
	err = tx.QueryRow(ctx, `SELECT `+fmt.Sprintf(instance, cluster)).Scan(&here)
	return here, err
}

// sameDatabase compares what two instances say of the database, as far as both know.
func sameDatabase(a, b string) bool {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	const unknown = "unknown"
	return len(x) > 1 && len(y) > 1 && x[1] == y[1] && (x[0] == y[0] || x[0] == unknown || y[0] == unknown)
}

// Incarnation implements [saga.Lineage].
func (l *Log) Incarnation(ctx context.Context) (life saga.Incarnation, err error) {
	err = l.upkeep(ctx, "saga.incarnation", func(ctx context.Context, tx pgx.Tx) error {
		here, err := l.instance(ctx, tx)
		if err != nil {
			return err
		}
		for {
			var last string
			life = saga.Incarnation{}
			err := tx.QueryRow(ctx, l.schema.in(readCoordinator)).Scan(&life.ID, &last)
			if errors.Is(err, pgx.ErrNoRows) { // The service was given an identifier of its own.
				err = l.enroll(ctx, tx, here)
				last = ""
			}
			switch {
			case err != nil:
				return err
			case last == here:
				return nil
			case last == "":
				continue
			}
			if !sameDatabase(last, here) {
				life = saga.Incarnation{Copied: true}
				return nil
			}
			if _, err := tx.Exec(ctx, l.schema.in(beginIncarnation), uuid.New(), here, last); err != nil {
				return err
			}
		}
	})
	return life, err
}

// Knows implements [saga.Lineage].
func (l *Log) Knows(ctx context.Context, token uuid.UUID) (known bool, err error) {
	err = l.upkeep(ctx, "saga.token", func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, l.schema.in(knowsToken), token).Scan(&known)
	})
	return known, err
}

// NextToken implements [saga.Lineage].
func (l *Log) NextToken(ctx context.Context, participant string, seen uuid.UUID) (token uuid.UUID, err error) {
	err = l.upkeep(ctx, "saga.next_token", func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, l.schema.in(nextToken), participant, seen, uuid.New(), keptTokens).Scan(&token)
	})
	return token, err
}

// Adopt implements [saga.Lineage].
func (l *Log) Adopt(ctx context.Context, seen map[string]uuid.UUID, keys []idempotency.ID, decide func(*saga.Unit)) error {
	return l.run(ctx, "saga.adopt", func(ctx context.Context, tx pgx.Tx) error {
		var u saga.Unit
		return l.decide(ctx, tx, keys, &u, decide, func(b *pgx.Batch) error {
			if !u.Changed {
				return nil
			}
			here, err := l.instance(ctx, tx)
			b.Queue(l.schema.in(adoptLog), uuid.New(), here)
			for participant, token := range seen {
				b.Queue(l.schema.in(adoptToken), participant, token, keptTokens)
			}
			return err
		})
	})
}
