package postgres

import (
	"context"
	"time"
)

const (
	// stalledAfter is for how long a session may wait for the rest of a transaction that its server has begun to send: as long as one may be idle
	// in a transaction.
	stalledAfter = 5 * time.Second
	// stalledEvery is how often such sessions are looked for while a row is blocked.
	stalledEvery = time.Second

	// endStalled ends the sessions of servers of this role that were stopped amid the statements of a transaction, as a machine that is paused
	// stops them. PostgreSQL calls such a session active, and has no timeout for it before version 17: it keeps its locks for as long as its server
	// is stopped. The server finds the connection lost when it goes on. Sessions that wait for the rest of a COPY look the same; servers have none.
	endStalled = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user
		AND application_name = 'fairlead' AND state = 'active' AND wait_event_type = 'Client' AND wait_event = 'ClientRead'
		AND pid <> pg_backend_pid() AND state_change < clock_timestamp() - $1::interval`
)

// sessions names sessions of stopped servers in metrics.
const sessions = "sessions"

// endStalled ends the sessions of stopped servers, which may be why rows are blocked.
func (b *blockedRows) endStalled() {
	ctx, cancel := context.WithTimeout(b.ctx, probeTimeout)
	defer cancel()
	var ended int
	if err := b.db.pool.QueryRow(ctx, endStalled, stalledAfter).Scan(&ended); err != nil || ended == 0 {
		return // It is tried again. An engine that shows no sessions has its own ways.
	}
	b.db.logger.WarnContext(ctx, "ended sessions that kept rows locked amid a transaction: their server was stopped", "sessions", ended)
	if b.db.observer != nil {
		b.db.observer.Fallback(sessions, "stalled")
	}
}
