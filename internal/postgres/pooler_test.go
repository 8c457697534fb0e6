package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// forgetful makes PgBouncer accept what a connection asks for at its start, and do nothing of it.
const forgetful = "ignore_startup_parameters = extra_float_digits,default_transaction_isolation,statement_timeout,lock_timeout," +
	"idle_in_transaction_session_timeout,enable_seqscan,enable_bitmapscan,enable_hashjoin,enable_mergejoin,jit,plan_cache_mode"

// TestSharedConnectionsAreRefused: behind a pooler that lets sessions share connections, whatever it is told to ignore and in whatever
// order it hands them out.
func TestSharedConnectionsAreRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, nil)
	for name, c := range map[string]struct {
		mode, line string
		idle       int // connections that the pooler has already
	}{
		"transaction":                     {"transaction", "", 0},
		"transaction, ignoring settings":  {"transaction", forgetful, 3},
		"transaction, in turn":            {"transaction", "server_round_robin = 1", 2},
		"transaction, in turn among many": {"transaction", "server_round_robin = 1", 8},
		"transaction, one connection":     {"transaction", "default_pool_size = 1", 1},
		"statement":                       {"statement", forgetful, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := pgtest.PgBouncer(t, url, "pool_mode = "+c.mode, c.line)
			var busy []*pgx.Conn
			for range c.idle {
				conn, err := pgx.Connect(t.Context(), b.Through(t, url))
				testwait.Must(t, err)
				_, err = conn.Exec(t.Context(), "BEGIN")
				testwait.Must(t, err)
				busy = append(busy, conn)
			}
			for _, conn := range busy {
				_, err := conn.Exec(t.Context(), "COMMIT")
				testwait.Must(t, err)
				testwait.Must(t, conn.Close(t.Context()))
			}
			for _, sessions := range []int{0, 20} {
				db, err := Open(t.Context(), Options{URL: b.Through(t, url), Sessions: sessions})
				refused, ok := errors.AsType[*PoolerError](err)
				if !ok {
					if err == nil {
						db.Close()
					}
					t.Fatalf("%v", err)
				}
				if refused.Mode != c.mode || !strings.Contains(err.Error(), "pool_mode = "+c.mode) || !strings.Contains(err.Error(), "PostgreSQL's own address") {
					t.Errorf("%v", err)
				}
				if told := strings.Contains(err.Error(), "20 connections"); told != (sessions > 0) {
					t.Errorf("how many connections a server opens: %v", err)
				}
			}
		})
	}
}

// TestTooFewConnections: a server would wait for connections that are its own.
func TestTooFewConnections(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, nil)
	for name, line := range map[string]string{"they wait": "default_pool_size = 4\nquery_wait_timeout = 5", "they are refused": "max_client_conn = 4"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := pgtest.PgBouncer(t, url, "pool_mode = session", line)
			_, err := Open(t.Context(), Options{URL: b.Through(t, url), Sessions: 12})
			refused, ok := errors.AsType[*PoolerError](err)
			if !ok || refused.Given != 4 || refused.Needed != 12 || refused.Err == nil || !strings.Contains(err.Error(), "default_pool_size") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestSettingsOfEachConnection: they are the same whether a connection is direct or goes through a pooler in session mode that
// refuses or forgets them.
func TestSettingsOfEachConnection(t *testing.T) {
	t.Parallel()
	url := database(t)
	direct := settingsOf(t, open(t, Options{URL: url, MaxConns: 4}))
	for of, settings := range direct {
		for _, want := range []string{"application_name", "default_transaction_isolation", "enable_seqscan", "lock_timeout", "statement_timeout"} {
			if settings[want] == "" {
				t.Errorf("%s: no %s is set: %v", of, want, settings)
			}
		}
	}
	if a, b := direct["pipelines"]["lock_timeout"], direct["commands"]["lock_timeout"]; a == b {
		t.Errorf("speculative transactions wait for a lock for as long as others: %s", a)
	}
	for name, lines := range map[string][]string{"refusing": nil, "forgetting": {forgetful}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := pgtest.PgBouncer(t, url, append(lines, "pool_mode = session")...)
			db := open(t, Options{URL: b.Through(t, url), MaxConns: 4})
			if findings, err := db.Check(t.Context()); err != nil || len(findings) == 0 || findings[len(findings)-1].Check != "pooler" || findings[len(findings)-1].Fatal {
				t.Errorf("%+v, %v", findings, err)
			}
			through := settingsOf(t, db)
			for of, settings := range direct {
				if fmt.Sprint(through[of]) != fmt.Sprint(settings) {
					t.Errorf("%s: through PgBouncer\n%v, and direct\n%v", of, through[of], settings)
				}
			}
		})
	}
}

// settingsOf returns what the sessions of each of a DB's kinds of connections have set.
func settingsOf(t *testing.T, db *DB) map[string]map[string]string {
	t.Helper()
	elections, err := NewElections(db)
	testwait.Must(t, err)
	t.Cleanup(func() { testwait.Check(t, elections.Close(context.Background())) })
	settings := map[string]map[string]string{}
	for of, config := range map[string]*pgx.ConnConfig{
		"commands": db.pool.Config().ConnConfig, "reads": db.reads.pool.Config().ConnConfig, "elections": elections.db.pool.Config().ConnConfig,
		"listener": NewNotifications(db).config, "pipelines": db.spec.Pipeline(0).Config, "readiness": db.ready.config,
	} {
		conn, err := pgx.ConnectConfig(t.Context(), config)
		testwait.Must(t, err)
		// A session's own, however it came by them.
		rows, err := conn.Query(t.Context(), `SELECT name, setting FROM pg_settings WHERE source IN ('client', 'session')`)
		testwait.Must(t, err)
		settings[of] = map[string]string{}
		var name, value string
		_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error { settings[of][name] = value; return nil })
		testwait.Must(t, err)
		testwait.Check(t, conn.Close(t.Context()))
		for _, own := range []string{"client_encoding", "DateStyle", "extra_float_digits", "IntervalStyle", "standard_conforming_strings"} {
			delete(settings[of], own) // PgBouncer's, with the same values.
		}
	}
	return settings
}

// TestNotificationsThroughSessions: a session that listens keeps its connection.
func TestNotificationsThroughSessions(t *testing.T) {
	t.Parallel()
	url := database(t)
	through := pgtest.PgBouncer(t, url, "pool_mode = session").Through(t, url)
	a, b := open(t, Options{URL: through, MaxConns: 4}), open(t, Options{URL: url, MaxConns: 4})
	becomes(t, a, operator.Unreadiness(""))
	heard := make(chan live.Hint, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	listening.Go(func() {
		testwait.Check(t, NewNotifications(a).Receive(ctx, func(h live.Hint) {
			select {
			case heard <- h:
			default:
			}
		}))
	})
	testwait.Eventually(t, patience, "a notification arrives", func() bool {
		testwait.Check(t, NewNotifications(b).Publish(t.Context(), []live.Hint{{Topic: "x"}}))
		return len(heard) > 0
	})
	cancel()
	listening.Wait()
}

// TestDirectConnectionsPayNothing: their settings travel with the start of the connection, and nothing is sent after it.
func TestDirectConnectionsPayNothing(t *testing.T) {
	t.Parallel()
	config, err := pgconn.ParseConfig("postgres://h/d?lock_timeout=1")
	testwait.Must(t, err)
	pooler("").settle(config)
	if config.AfterConnect != nil || config.RuntimeParams["lock_timeout"] != "1" {
		t.Errorf("%+v", config)
	}
}
