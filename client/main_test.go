package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/server"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// shared is the real server that tests and examples share. Examples have no test to ask for one, so it is started before
// them all; names of accounts are each test's own.
var shared struct {
	url, key string
	handler  http.Handler
}

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) (code int) {
	stop, err := startServer()
	if errors.Is(err, localpg.ErrNoBinaries) && os.Getenv("CI") != "true" {
		fmt.Fprintln(os.Stderr, "skipped:", err)
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := errors.Join(stop(), goleak.Find()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// startServer runs PostgreSQL and everything above it up to HTTP.
func startServer() (stop func() error, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "client-test-")
	if err != nil {
		return nil, err
	}
	closers := []func() error{func() error { return os.RemoveAll(dir) }}
	stop = func() error {
		var failures []error
		for _, c := range slices.Backward(closers) {
			failures = append(failures, c())
		}
		return errors.Join(failures...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	local, err := localpg.Start(ctx, localpg.Options{Dir: dir, NonDurable: true, DieWithParent: true})
	if err != nil {
		return nil, err
	}
	closers = append(closers, func() error { return local.Stop(context.Background()) })
	if _, err := postgres.Migrate(ctx, local.URL()); err != nil {
		return nil, err
	}
	db, err := postgres.Open(ctx, postgres.Options{URL: local.URL(), MaxConns: 8})
	if err != nil {
		return nil, err
	}
	closers = append(closers, func() error { db.Close(); return nil })
	money := ledger.NewService(postgres.NewLedger(db), groupcommit.Options{})
	closers = append(closers, func() error { return money.Close(context.Background()) })
	draws := lottery.NewService(postgres.NewLottery(db, nil), lottery.Options{})
	closers = append(closers, func() error { return draws.Close(context.Background()) })
	auctions := auction.NewService(postgres.NewAuctions(db), auction.Options{})
	closers = append(closers, func() error { return auctions.Close(context.Background()) })
	many := multidraw.NewService(postgres.NewMultidraws(db), multidraw.Options{})
	closers = append(closers, func() error { return many.Close(context.Background()) })
	vault, err := publish.NewVault(make([]byte, publish.VaultKeySize))
	if err != nil {
		return nil, err
	}
	posts := publish.NewService(postgres.NewPublications(db), publish.Options{Vault: vault})
	closers = append(closers, func() error { return posts.Close(context.Background()) })
	locks := postgres.NewLocks(db, nil)
	closers = append(closers, func() error { return locks.Close(context.Background()) })
	keys := postgres.NewAPIKeys(db)
	authenticator, err := auth.New(auth.Options{Store: keys})
	if err != nil {
		return nil, err
	}
	closers = append(closers, func() error { authenticator.Close(); return nil })
	secret, _, err := auth.GenerateKey(auth.RoleAdmin)
	if err != nil {
		return nil, err
	}
	if _, err := auth.EnsureAdminKey(ctx, keys, secret, "0190a5e4-0000-7000-8000-000000000001", time.Now()); err != nil {
		return nil, err
	}
	s, err := server.New(server.Options{Ledger: money, Lottery: draws, Auction: auctions, Multidraw: many, Publish: posts, Locks: locks, Keys: keys, Auth: authenticator, Ready: db.Ping, Version: "test"})
	if err != nil {
		return nil, err
	}
	listener := httptest.NewServer(s.Handler())
	closers = append(closers, func() error { listener.Close(); return nil })
	shared.url, shared.key, shared.handler = listener.URL, secret, s.Handler()
	return stop, nil
}
