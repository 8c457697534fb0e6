package server

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
)

// keepLog has the public log kept until the test ends, with the witnesses of which there is one at most, and returns once its first
// checkpoint is published.
func (e *env) keepLog(witnesses ...logkeeper.Witnesses) {
	e.t.Helper()
	db, err := postgres.Open(e.t.Context(), postgres.Options{URL: e.dbURL, MaxConns: 4})
	must(e.t, err)
	store, err := postgres.NewLog(db)
	must(e.t, err)
	key, err := translog.GenerateKey("fairlead.test/log")
	must(e.t, err)
	o := logkeeper.PublisherOptions{Store: store, Tiles: store.Tile, Key: key, Guard: logkeeper.NewGuard(filepath.Join(e.t.TempDir(), "log.signed"))}
	for _, w := range witnesses {
		o.Witnesses = w
	}
	k := logkeeper.New(logkeeper.Options{Store: store, Publisher: logkeeper.NewPublisher(o)})
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { k.Lead(ctx, 1) })
	e.t.Cleanup(func() {
		cancel()
		running.Wait()
		closing, end := context.WithTimeout(context.Background(), 10*time.Second)
		defer end()
		must(e.t, store.Shutdown(closing))
		db.Close()
	})
	e.logged(1)
}

// logged waits until so many leaves are under the published checkpoint, and no leaf isn't.
func (e *env) logged(leaves int64) (p logkeeper.Published) {
	e.t.Helper()
	testwait.Eventually(e.t, 30*time.Second, "the log's checkpoint", func() bool {
		var err error
		p, err = e.server.Log.Published(e.t.Context())
		must(e.t, err)
		return p.Size >= leaves && p.Size == p.Leaves
	})
	return p
}
