// Command peer is what Fairlead is measured against: the same endpoints, the same tables and the same promises, kept in
// the usual way, with one PostgreSQL transaction a command.
//
// A purchase takes pg_advisory_xact_lock of its campaign, looks its idempotency key up, takes a free position with
// FOR UPDATE SKIP LOCKED, moves the money to escrow and, when it was the last, draws. A transfer locks its two accounts
// in order of their ids. Each answers after its commit, and stores its answer under its key in that transaction.
//
// A bid locks its bidder and then the auction, and writes the standing bid, the balances, the event and the key.
//
// The server runs in one of two variants with the same SQL. By default each statement is a round trip of its own, as in
// a program that is written against a database driver in the ordinary way. With --pipelined, statements that don't
// depend on each other's result share a round trip, and a purchase of a campaign that was sold out is refused without
// taking the lock: the most that can be had of one transaction a command.
//
// With --redis it is another peer altogether: auctions in the requirement's way, where one Redis script takes a bid and
// nothing is durable. It has no idempotency, no unique amounts, no cooldown and no log of events.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed schema.sql
var schema string

// gcPercent trades memory for processor time; services of this kind gain about a tenth by it.
const gcPercent = 400

// headerTimeout and idleTimeout bound how long a connection may keep the server waiting.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// drainTimeout bounds how long running requests may take after a signal to stop.
const drainTimeout = 5 * time.Second

func main() {
	if err := run(); err != nil {
		slog.Error("peer failed", "error", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve on")
	addrFile := flag.String("addr-file", "", "file that receives the bound address")
	databaseURL := flag.String("database-url", "", "PostgreSQL database; its tables are made if it is empty")
	purchasePool := flag.Int("purchase-pool", 10, "connections for purchases")
	transferPool := flag.Int("transfer-pool", 16, "connections for everything else")
	bidPool := flag.Int("bid-pool", 16, "connections for bids")
	pipelined := flag.Bool("pipelined", false, "send independent statements in one round trip")
	redisAddr := flag.String("redis", "", "Redis, as address and port or as the path of a socket, instead of PostgreSQL")
	redisPool := flag.Int("redis-pool", 16, "connections to Redis")
	flag.Parse()

	debug.SetGCPercent(gcPercent)
	uuid.EnableRandPool()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	adminKey := os.Getenv("FAIRLEAD_ADMIN_KEY")
	if adminKey == "" {
		return errors.New("FAIRLEAD_ADMIN_KEY is not set")
	}
	if *redisAddr != "" {
		s, err := openRedis(ctx, *redisAddr, *redisPool, adminKey)
		if err != nil {
			return err
		}
		defer s.close()
		return serve(ctx, *listen, *addrFile, s.routes())
	}
	s := &server{adminKey: adminKey, pipelined: *pipelined}
	for _, p := range []struct {
		pool **pgxpool.Pool
		size int
		mode string
	}{
		{&s.purchases, *purchasePool, planAuto},
		{&s.bids, *bidPool, planGeneric},
		{&s.transfers, *transferPool, planAuto},
	} {
		pool, err := openPool(ctx, *databaseURL, p.size, p.mode)
		if err != nil {
			return err
		}
		defer pool.Close()
		*p.pool = pool
	}
	if err := migrate(ctx, s.transfers); err != nil {
		return err
	}
	return serve(ctx, *listen, *addrFile, s.routes())
}

// serve answers requests until the context ends, and then lets the running ones finish.
func serve(ctx context.Context, listen, addrFile string, routes http.Handler) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", listen, err)
	}
	if addrFile != "" {
		if err := os.WriteFile(addrFile, []byte(listener.Addr().String()), 0o600); err != nil {
			return fmt.Errorf("write the address: %w", err)
		}
	}
	httpServer := &http.Server{Handler: routes, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout}
	failed := make(chan error, 1)
	go func() { failed <- httpServer.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	return httpServer.Shutdown(drain)
}

// How PostgreSQL plans prepared statements. It takes the count of higher bids for costly as long as it doesn't know the
// amount, and so plans that statement anew for each bid unless it is told not to; that would cost more than running it.
const (
	planAuto    = "auto"
	planGeneric = "force_generic_plan"
)

func openPool(ctx context.Context, url string, size int, planMode string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("parse the database URL: %w", err)
	}
	// All connections are opened beforehand and kept: neither side pays for connecting while it is measured.
	config.MaxConns, config.MinConns = int32(size), int32(size) //nolint:gosec // A pool's size is far below the limit.
	config.ConnConfig.RuntimeParams["plan_cache_mode"] = planMode
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the pool: %w", err)
	}
	return pool, nil
}

func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	var exists bool
	if err := pool.QueryRow(ctx, "SELECT to_regclass('accounts') IS NOT NULL").Scan(&exists); err != nil {
		return fmt.Errorf("look for the tables: %w", err)
	}
	if exists {
		return nil
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	return nil
}
