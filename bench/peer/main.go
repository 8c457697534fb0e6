// Command peer is what Fairlead is measured against: the same endpoints, the same tables and the same promises, kept in
// the usual way, with one PostgreSQL transaction a command.
//
// A purchase takes pg_advisory_xact_lock of its campaign, looks its idempotency key up, takes a free position with
// FOR UPDATE SKIP LOCKED, moves the money to escrow and, when it was the last, draws. A transfer locks its two accounts
// in order of their ids. Each answers after its commit, and stores its answer under its key in that transaction.
//
// The server runs in one of two variants with the same SQL. By default each statement is a round trip of its own, as in
// a program that is written against a database driver in the ordinary way. With --pipelined, statements that don't
// depend on each other's result share a round trip, and a purchase of a campaign that was sold out is refused without
// taking the lock: the most that can be had of one transaction a command.
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
	pipelined := flag.Bool("pipelined", false, "send independent statements in one round trip")
	flag.Parse()

	debug.SetGCPercent(gcPercent)
	uuid.EnableRandPool()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	purchases, err := openPool(ctx, *databaseURL, *purchasePool)
	if err != nil {
		return err
	}
	defer purchases.Close()
	transfers, err := openPool(ctx, *databaseURL, *transferPool)
	if err != nil {
		return err
	}
	defer transfers.Close()
	if err := migrate(ctx, transfers); err != nil {
		return err
	}

	s := &server{
		purchases: purchases,
		transfers: transfers,
		adminKey:  os.Getenv("FAIRLEAD_ADMIN_KEY"),
		pipelined: *pipelined,
	}
	if s.adminKey == "" {
		return errors.New("FAIRLEAD_ADMIN_KEY is not set")
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", *listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", *listen, err)
	}
	if *addrFile != "" {
		if err := os.WriteFile(*addrFile, []byte(listener.Addr().String()), 0o600); err != nil {
			return fmt.Errorf("write the address: %w", err)
		}
	}
	httpServer := &http.Server{Handler: s.routes(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout}
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

func openPool(ctx context.Context, url string, size int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("parse the database URL: %w", err)
	}
	// All connections are opened beforehand and kept: neither side pays for connecting while it is measured.
	config.MaxConns, config.MinConns = int32(size), int32(size) //nolint:gosec // A pool's size is far below the limit.
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
