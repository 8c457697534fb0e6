package conform

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/checkpoint"
	checkpoints "github.com/fairlead-dev/fairlead/checkpoint/pgstore"
	checkpointtest "github.com/fairlead-dev/fairlead/checkpoint/storetest"
	"github.com/fairlead-dev/fairlead/claim/claimtest"
	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/idempotency"
	keys "github.com/fairlead-dev/fairlead/idempotency/pgstore"
	keytest "github.com/fairlead-dev/fairlead/idempotency/storetest"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/sagatest"
	"github.com/fairlead-dev/fairlead/internal/servicetest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
	"github.com/fairlead-dev/fairlead/lock/pglock"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

func (d *database) suites() []suite {
	return []suite{
		{"locks", locktest.Checks(), func(t *conformance.T) {
			d.installed(t, func(conn *pgx.Conn) error { return d.locks().Install(t.Context(), conn) })
			locktest.Run(t, d.lockHarness)
		}},
		{"claims", claimtest.Checks(), func(t *conformance.T) {
			claimtest.Run(t, func(t *conformance.T) claimtest.Harness { return claimtest.Harness{Pool: d.pool(t), Schema: d.schema} })
		}},
		{"idempotency", keytest.Checks(), func(t *conformance.T) {
			d.installed(t, func(conn *pgx.Conn) error { return keys.Install(t.Context(), conn, d.schema) })
			keytest.Run(t, d.keyHarness)
		}},
		{"checkpoints", checkpointtest.Checks(), func(t *conformance.T) {
			d.installed(t, func(conn *pgx.Conn) error { return checkpoints.Install(t.Context(), conn, d.schema) })
			checkpointtest.Run(t, d.checkpointHarness)
		}},
		{"sagas", sagatest.Checks(), func(t *conformance.T) {
			d.installed(t, func(conn *pgx.Conn) error { return sagatest.Install(t.Context(), conn, pgsaga.Schema(d.schema)) })
			sagatest.Run(t, d.sagaHarness)
		}},
		{"services", servicetest.Checks(), d.services},
	}
}

// installed ends the suite unless something can be installed.
func (d *database) installed(t *conformance.T, install func(conn *pgx.Conn) error) {
	conn, err := pgx.Connect(t.Context(), d.url)
	testwait.Must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	testwait.Must(t, install(conn))
}

// pool is that of one process.
func (d *database) pool(t *conformance.T) *pgxpool.Pool { return d.poolOn(t, perProcess, nil) }

// poolOn is a pool of one process that reaches the database by a line, if there is one.
func (d *database) poolOn(t *conformance.T, most int32, l *line) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(d.url)
	testwait.Must(t, err)
	config.MaxConns = most
	if l != nil {
		config.ConnConfig.DialFunc = l.dial
	}
	p, err := pgxpool.NewWithConfig(context.Background(), config)
	testwait.Must(t, err)
	t.Cleanup(p.Close)
	return p
}

func (d *database) locks() pglock.Schema { return pglock.Schema(d.schema) }

func (d *database) lockHarness(t *conformance.T) locktest.Harness {
	writes := d.pool(t)
	open := func() (*pgxpool.Pool, *pglock.Backend) {
		p := d.pool(t)
		b := pglock.New(p, pglock.Options{Schema: d.locks()})
		t.Cleanup(b.Close)
		return p, b
	}
	return locktest.Harness{
		BehindDeadWaiter: "lock-behind-dead-waiter",
		Open: func() (lock.Backend, func()) {
			_, b := open()
			return b, b.Close
		},
		OpenDoomed: func() (lock.Backend, func()) {
			p, b := open()
			return b, func() {
				p.Close() // Without a connection, nothing that it would still like to say is heard.
				b.Close()
			}
		},
		Fence: func(ctx context.Context, resource string, token int64) error {
			return pgx.BeginFunc(ctx, writes, func(tx pgx.Tx) error { return d.locks().Fence(ctx, tx, resource, token) })
		},
	}
}

func (d *database) keyHarness(t *conformance.T, _ bool) keytest.Harness {
	var next atomic.Int64
	pools := [2]*pgxpool.Pool{d.pool(t), d.pool(t)}
	return keytest.Harness{Open: func() idempotency.Store { return keys.New(pools[next.Add(1)%2], keys.Options{Schema: d.schema}) }}
}

func (d *database) checkpointHarness(t *conformance.T) checkpointtest.Harness {
	var l line
	around, through := d.pool(t), d.poolOn(t, perProcess, &l)
	prefix := newID() + ":"
	return checkpointtest.Harness{
		Prefix: prefix,
		Store:  checkpoints.New(through, d.schema),
		Plant: func(key checkpoint.Key, body []byte) {
			_, err := around.Exec(t.Context(), pgkit.In(d.schema, `INSERT INTO @checkpoint_states VALUES ($1, $2, 1, 0, '', $3, now(), NULL)
				ON CONFLICT (lock_key, operation_id) DO UPDATE SET state = excluded.state`), key.LockKey, key.ID, body)
			testwait.Must(t, err)
		},
		Forget: func() {
			_, err := around.Exec(t.Context(), pgkit.In(d.schema, `DELETE FROM @checkpoint_states WHERE starts_with(lock_key, $1)`), prefix)
			testwait.Must(t, err)
		},
		Break: l.cut,
	}
}

// sagaHarness has both branches of transactions in the one database that there is.
func (d *database) sagaHarness(t *conformance.T) sagatest.Harness {
	pool := d.poolOn(t, sagaConnections, nil)
	return sagatest.Harness{Pools: [2]*pgxpool.Pool{pool, pool}, Schema: pgsaga.Schema(d.schema), Prefix: d.prepared}
}
