package postgres

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// selectInstance identifies the run of a primary: its cluster, its timeline and when it was started. A standby has no timeline of
// its own.
const selectInstance = `SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE (SELECT system_identifier FROM pg_control_system())
	|| '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) || '/' || extract(epoch FROM pg_postmaster_start_time()) END`

// proveCommit waits as a commit does for the standbys that have to confirm it. It needs no table.
const proveCommit = `SELECT pg_logical_emit_message(true, 'fairlead', 'is this the primary')`

const (
	// proofTimeout is how long a primary on an old timeline may take to commit.
	proofTimeout = 2 * time.Second
	// refusedFor is for how long one that did not is refused at once.
	refusedFor = time.Second
)

// primaries keeps this process from an old primary: one that was frozen or cut off while another took its place, and that takes
// itself for the primary until it is told. With synchronous replication it can't confirm a commit any more, but what it shows is
// old. A promotion begins a new timeline with a higher number, see PostgreSQL's manual on timelines. So once a connection has led to
// one, those to lower timelines of the same cluster are closed, and new ones are refused unless a commit is confirmed there: then the
// promotion was given up, or an older state was restored. With several hosts in the URL, the next is tried. It is safe for
// concurrent use.
type primaries struct {
	logger   *slog.Logger
	observer Observer // may be nil

	mu        sync.Mutex
	cluster   string
	timeline  uint64 // of the last primary of the cluster that was believed
	refused   string // the instance that was refused last
	refusedAt time.Time
	conns     map[*trackedConn]struct{}
}

// trackedConn is a connection that can be closed from outside.
type trackedConn struct {
	net.Conn
	of *primaries

	instance, cluster string // guarded by of.mu
	timeline          uint64 // 0 while it is not known
}

// Close implements [net.Conn].
func (c *trackedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// onlyNewest has no connection of a configuration, and of its copies, lead to an old primary, as far as is known.
func onlyNewest(config *pgconn.Config, logger *slog.Logger, observer Observer) {
	p := &primaries{logger: logger, observer: observer, conns: map[*trackedConn]struct{}{}}
	hosts := newHosts(logger)
	dial, validate := config.DialFunc, config.ValidateConnect
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := hosts.dial(ctx, dial, network, address)
		if err != nil {
			return nil, err
		}
		tracked := &trackedConn{Conn: conn, of: p}
		p.mu.Lock()
		p.conns[tracked] = struct{}{}
		p.mu.Unlock()
		return tracked, nil
	}
	config.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if validate != nil {
			if err := validate(ctx, conn); err != nil {
				return err
			}
		}
		results, err := conn.Exec(ctx, selectInstance).ReadAll()
		switch {
		case pgkit.Code(err) != "": // It doesn't tell, for want of a privilege or behind a pooler.
			return nil
		case err != nil:
			return fmt.Errorf("ask for the timeline: %w", err)
		}
		return p.saw(ctx, conn, string(results[0].Rows[0][0]))
	}
}

// instanceOf returns the run of the primary that a guarded connection leads to, or "" where it isn't known.
func instanceOf(conn *pgconn.PgConn) string {
	c := tracked(conn)
	if c == nil {
		return ""
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.instance
}

func tracked(conn *pgconn.PgConn) *trackedConn {
	raw := conn.Conn()
	if t, is := raw.(*tls.Conn); is {
		raw = t.NetConn()
	}
	c, _ := raw.(*trackedConn)
	return c
}

// saw decides whether a connection may be used, and closes those that may no longer be.
func (p *primaries) saw(ctx context.Context, conn *pgconn.PgConn, instance string) error {
	c := tracked(conn)
	cluster, timeline, primary := parseInstance(instance)
	if c == nil || !primary {
		return nil
	}
	for proved := uint64(0); ; {
		newest := p.admit(c, instance, cluster, timeline, proved)
		if newest == 0 {
			return nil
		}
		err := p.prove(ctx, conn, instance)
		if p.observer != nil {
			p.observer.MetOldPrimary(err != nil)
		}
		if err != nil {
			return fmt.Errorf("an old primary: its timeline is %d, and there is one with %d: %w", timeline, newest, err)
		}
		proved = newest
	}
}

// parseInstance reads what the connection's instance says; of a standby it says no timeline.
func parseInstance(instance string) (cluster string, timeline uint64, primary bool) {
	cluster, rest, _ := strings.Cut(instance, "/")
	digits, _, _ := strings.Cut(rest, "/")
	timeline, err := strconv.ParseUint(digits, 16, 32)
	return cluster, timeline, err == nil
}

// admit registers a connection and closes those to other timelines of the cluster. It does neither where the last primary's
// timeline is higher, which it returns, unless that is the one in spite of which a commit was proved.
func (p *primaries) admit(c *trackedConn, instance, cluster string, timeline, proved uint64) (newest uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cluster == p.cluster && timeline < p.timeline && p.timeline != proved {
		return p.timeline
	}
	c.instance, c.cluster, c.timeline = instance, cluster, timeline
	if cluster == p.cluster && timeline == p.timeline {
		return 0
	}
	p.cluster, p.timeline = cluster, timeline
	for other := range p.conns {
		if other.cluster == cluster && other.timeline != timeline {
			_ = other.Conn.Close() // Whoever uses it gets an error, and closes it again.
		}
	}
	return 0
}

// prove has a primary on an old timeline commit something.
func (p *primaries) prove(ctx context.Context, conn *pgconn.PgConn, instance string) error {
	p.mu.Lock()
	again := instance == p.refused && time.Since(p.refusedAt) < refusedFor
	known := instance == p.refused
	p.mu.Unlock()
	if again {
		return errNoCommit
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, proveCommit).ReadAll()
	if err == nil && conn.CustomData()[pgkit.ReplicationWarning] == nil {
		p.logger.WarnContext(ctx, "the primary is on an older timeline than the last one, and commits", "instance", instance)
		return nil
	}
	p.mu.Lock()
	p.refused, p.refusedAt = instance, time.Now()
	p.mu.Unlock()
	if !known {
		p.logger.WarnContext(ctx, "connections to an old primary are refused", "instance", instance, "error", err)
	}
	return cmp.Or(err, errNoCommit)
}

var errNoCommit = errors.New("it did not confirm a commit a moment ago")
