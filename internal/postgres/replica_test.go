package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/standby"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// counted opens a database whose lost commits are watched, so that its server's row is counted in.
func counted(t *testing.T, o Options) *DB {
	t.Helper()
	o.Watch = &Watch{Version: "test", KeysKept: time.Hour}
	db := open(t, o)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var watch sync.WaitGroup
	watch.Go(func() { db.WatchHistory(ctx) })
	t.Cleanup(func() { stop(); watch.Wait() })
	return db
}

func replicaIs(t *testing.T, db *DB, usable bool) {
	t.Helper()
	testwait.Eventually(t, patience, fmt.Sprint("a replica that is usable: ", usable), func() bool {
		s, ok := db.Replica()
		return ok && s.Usable == usable
	})
}

func allow(t *testing.T, after standby.Position) context.Context {
	t.Helper()
	ctx, _ := standby.Allow(t.Context(), after)
	return ctx
}

// accountsSeen lists the accounts that a read sees which a standby may answer, and reports whether it did.
func accountsSeen(t *testing.T, db *DB, after standby.Position) (ids []string, byStandby bool) {
	t.Helper()
	before, _ := db.Replica()
	found, err := NewOperator(db).Accounts(allow(t, after), "", "", 100)
	testwait.Must(t, err)
	now, _ := db.Replica()
	for _, a := range found {
		ids = append(ids, a.ID)
	}
	return ids, now.Served > before.Served
}

func sqlOn(t *testing.T, i *localpg.Instance, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), i.URL())
	testwait.Must(t, err)
	_, err = conn.Exec(t.Context(), sql)
	testwait.Must(t, err)
	testwait.Must(t, conn.Close(t.Context()))
}

func TestReplica(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	testwait.Must(t, migrated(t.Context(), primary.URL()))
	replica := pgtest.StandbyOf(t, primary, "replica")
	db := counted(t, Options{URL: primary.URL(), ReplicaURL: replica.URL(), ReplicaLag: MinReplicaLag})
	money := newLedgerService(t, db)
	replicaIs(t, db, true)
	position := func() standby.Position {
		at, known := db.Position(t.Context())
		if !known {
			t.Fatal("the database does not tell its position")
		}
		return at
	}

	fund(t, money, 100, "ann")
	at := position()
	testwait.Eventually(t, patience, "the standby has the account", func() bool {
		ids, byStandby := accountsSeen(t, db, at)
		if !slices.Contains(ids, "ann") {
			t.Fatalf("a client does not see what it has written: %v", ids)
		}
		return byStandby
	})
	if _, byStandby := accountsSeen(t, db, position()+1<<40); byStandby {
		t.Error("the standby answers what it does not have yet")
	}
	before, _ := db.Replica()
	testwait.Check(t, testwait.Err(NewOperator(db).Accounts(t.Context(), "", "", 100)))
	if now, _ := db.Replica(); now != before && now.Served != before.Served {
		t.Error("a read went to the standby that must not")
	}

	sqlOn(t, replica, `SELECT pg_wal_replay_pause()`)
	fund(t, money, 100, "bo")
	at = position()
	if ids, byStandby := accountsSeen(t, db, at); byStandby || !slices.Contains(ids, "bo") {
		t.Errorf("by the standby: %v, accounts %v", byStandby, ids)
	}
	// It is not believed for long.
	replicaIs(t, db, false)
	if ids, byStandby := accountsSeen(t, db, 0); byStandby || !slices.Contains(ids, "bo") {
		t.Errorf("by the standby: %v, accounts %v", byStandby, ids)
	}
	sqlOn(t, replica, `SELECT pg_wal_replay_resume()`)
	replicaIs(t, db, true)
	testwait.Eventually(t, patience, "the standby has the second account", func() bool {
		ids, byStandby := accountsSeen(t, db, at)
		if !slices.Contains(ids, "bo") {
			t.Fatalf("a client does not see what it has written: %v", ids)
		}
		return byStandby
	})

	// One that goes its own way is no standby any more.
	sqlOn(t, replica, `SELECT pg_promote()`)
	replicaIs(t, db, false)
	fund(t, money, 100, "cy")
	if ids, byStandby := accountsSeen(t, db, 0); byStandby || !slices.Contains(ids, "cy") {
		t.Errorf("by the standby: %v, accounts %v", byStandby, ids)
	}
}

// TestReplicaOfAnotherDatabase: what is no standby of the database, or a standby that is away, is not read from.
func TestReplicaOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	testwait.Must(t, migrated(t.Context(), primary.URL()))
	for name, url := range map[string]string{
		"a primary":                     pgtest.NewDatabase(t, migrated),
		"the primary":                   primary.URL(),
		"nobody":                        "postgres://127.0.0.1:1/nobody",
		"a standby of another database": pgtest.StandbyOf(t, primary, "other").URL(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := primary.URL()
			if name == "a standby of another database" {
				own = pgtest.NewDatabase(t, migrated)
			}
			db := counted(t, Options{URL: own, ReplicaURL: url, ReplicaLag: MinReplicaLag})
			fund(t, newLedgerService(t, db), 100, fmt.Sprint("ann-", len(name)))
			testwait.Eventually(t, patience, "a warning", func() bool {
				db.reads.replica.mu.Lock()
				defer db.reads.replica.mu.Unlock()
				return db.reads.replica.told
			})
			if ids, byStandby := accountsSeen(t, db, 0); byStandby || len(ids) == 0 {
				t.Errorf("by the standby: %v, accounts %v", byStandby, ids)
			}
			if s, _ := db.Replica(); s.Usable || s.Behind == 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}
