package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// fewSessions is how many sessions a search for a pooler opens at least. Two poolers behind one address serve two of them
	// each with a session of its own whatever their mode is; the third gives them away.
	fewSessions = 3
	// sessionTimeout is how long a pooler may take to give a further session. One whose pool is exhausted lets it wait.
	sessionTimeout = 10 * time.Second
	// otherSessions is how many connections a [DB] opens beside its pools, at most: those of elections, speculative transactions,
	// the public log, the three listeners (elections, locks, live events), readiness and presence.
	otherSessions = electionConns + logConns + maxPipelines + 3 + 1 + 1

	setAll = `SELECT set_config(name, value, false) FROM unnest($1::text[], $2::text[]) AS s (name, value)`

	sqlProtocolViolation = "08P01" // what PgBouncer reports its own errors as
)

// Sessions returns how many connections to its database a server opens at most. pooled are those of its pools.
func Sessions(pooled int32) int { return int(pooled) + otherSessions }

// pooler says how a connection pooler between this process and PostgreSQL assigns its connections, in the words of PgBouncer's
// setting pool_mode. It is empty where there is none.
type pooler string

const (
	sessionPooler     pooler = "session"     // to a client until it disconnects, which is as good as a connection of its own
	transactionPooler pooler = "transaction" // for a transaction
	statementPooler   pooler = "statement"   // for a statement
)

// PoolerError is returned by [Open] for a database behind a connection pooler that a server can't work with.
type PoolerError struct {
	Mode string // as in PgBouncer's pool_mode
	// Needed is how many connections a server opens at most, 0 where that is not known. Given is how many of them a pooler in
	// session mode gave, and Err why it gave no more.
	Needed, Given int
	Err           error
}

// Error implements [error].
func (e *PoolerError) Error() string {
	if e.Mode == string(sessionPooler) {
		return fmt.Sprintf("the connection pooler gave only %d of the %d connections that a server may need: "+
			"raise its default_pool_size (and max_db_connections, max_user_connections and max_client_conn, where they are lower), "+
			"or give PostgreSQL's own address: %v", e.Given, e.Needed, e.Err)
	}
	needed := ""
	if e.Needed > 0 {
		needed = fmt.Sprintf("; a server opens at most %d connections", e.Needed)
	}
	return fmt.Sprintf("there is a connection pooler with pool_mode = %s, behind which the settings of a session, its prepared statements "+
		"and LISTEN do not last: give PostgreSQL's own address (several hosts, if it fails over), or one with pool_mode = session%s", e.Mode, needed)
}

// Unwrap returns Err.
func (e *PoolerError) Unwrap() error { return e.Err }

// findPooler finds out whether config leads to a pooler, and how that behaves. It returns a [PoolerError] for one that a server
// can't work with. Behind a pooler it opens as many sessions as the caller is going to need; a direct connection costs one.
func findPooler(ctx context.Context, config *pgconn.Config, needed int) (pooler, error) {
	config = config.Copy()
	config.AfterConnect = nil // That is for connections which do some work.
	maps.DeleteFunc(config.RuntimeParams, func(name, _ string) bool { return !atStart(name) })
	var sessions []*pgconn.PgConn
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionTimeout)
		defer cancel()
		for _, s := range sessions {
			_ = s.Close(closing)
		}
	}()
	backends := map[string]bool{} // that sessions have
	sought := max(needed, fewSessions)
	for i := range sought {
		s, backend, again, err := openSession(ctx, config)
		switch {
		case err != nil && i > 0 && ctx.Err() == nil:
			return "", &PoolerError{Mode: string(sessionPooler), Needed: sought, Given: i, Err: err}
		case err != nil:
			return "", err
		}
		sessions = append(sessions, s)
		switch {
		case backend == strconv.FormatUint(uint64(s.PID()), 10):
			return "", nil // PostgreSQL said so itself when the connection was made. A pooler makes a number up.
		case backends[backend], again != backend:
			return "", &PoolerError{Mode: string(sharing(ctx, s)), Needed: needed}
		}
		backends[backend] = true
	}
	return sessionPooler, nil
}

// openSession connects, and asks twice which of PostgreSQL's processes executes the session's statements. The second answer tells
// of a pooler that takes its connections in turn. A pooler accepts clients for which it has no connection yet.
func openSession(ctx context.Context, config *pgconn.Config) (s *pgconn.PgConn, backend, again string, err error) {
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	if s, err = pgconn.ConnectConfig(ctx, config); err != nil {
		return nil, "", "", err
	}
	if backend, err = backendOf(ctx, s); err == nil {
		again, err = backendOf(ctx, s)
	}
	if err != nil {
		return nil, "", "", errors.Join(err, s.Close(ctx))
	}
	return s, backend, again, nil
}

// backendOf returns the number of the process that executes a session's statement.
func backendOf(ctx context.Context, s *pgconn.PgConn) (string, error) {
	// By the simple protocol, which every pooler passes on.
	results, err := s.Exec(ctx, "SELECT pg_backend_pid()").ReadAll()
	if err != nil {
		return "", err
	}
	return string(results[0].Rows[0][0]), nil
}

// sharing says how a pooler lets sessions share connections.
func sharing(ctx context.Context, s *pgconn.PgConn) pooler {
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	_, err := s.Exec(ctx, "BEGIN").ReadAll()
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == sqlProtocolViolation {
		return statementPooler // It forbids transactions.
	}
	return transactionPooler
}

// atStart says which settings a pooler takes with the start of a connection. It refuses or forgets all others.
func atStart(name string) bool { return name == "application_name" || name == "options" }

// settle makes the connections of a configuration have its settings: behind a pooler, a statement sets them once the connection is
// there. A configuration that was made from one that was settled, and has further settings, is settled again. A direct connection
// has them from its start, without a round trip.
func (p pooler) settle(config *pgconn.Config) {
	if p == "" {
		return
	}
	var names, values []string
	for _, name := range slices.Sorted(maps.Keys(config.RuntimeParams)) {
		if !atStart(name) {
			names, values = append(names, name), append(values, config.RuntimeParams[name])
			delete(config.RuntimeParams, name)
		}
	}
	if len(names) == 0 {
		return
	}
	before := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		types := pgtype.NewMap()
		var arguments [2][]byte
		for i, list := range [][]string{names, values} {
			var err error
			if arguments[i], err = types.Encode(pgtype.TextArrayOID, pgx.TextFormatCode, list, nil); err != nil {
				return fmt.Errorf("settings of the session: %w", err)
			}
		}
		if err := conn.ExecParams(ctx, setAll, arguments[:], nil, nil, nil).Read().Err; err != nil {
			return fmt.Errorf("settings of the session: %w", err)
		}
		return nil
	}
}
