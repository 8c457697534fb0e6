package server

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"

	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
)

// keepLog has the public log kept until the test ends, with the witnesses of which there is one at most, and returns once its first
// checkpoint is published.
func (e *env) keepLog(witnesses ...logkeeper.Witnesses) {
	e.t.Helper()
	db, err := postgres.Open(e.t.Context(), postgres.Options{URL: e.dbURL, MaxConns: 4, Patience: patience, UnavailableAfter: patience})
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
		closing, end := context.WithTimeout(context.Background(), patience)
		defer end()
		must(e.t, store.Shutdown(closing))
		db.Close()
	})
	e.logged(1)
}

// logged waits until so many leaves are under the published checkpoint, and no leaf isn't.
func (e *env) logged(leaves int64) (p logkeeper.Published) {
	e.t.Helper()
	testwait.Eventually(e.t, patience, "the log's checkpoint", func() bool {
		var err error
		p, err = e.server.Log.Published(e.t.Context())
		must(e.t, err)
		return p.Size >= leaves && p.Size == p.Leaves
	})
	return p
}

// TestOtherClientsReadTheLog reads a log of several bundles by torchwood's client, which knows nothing of Fairlead: it fetches tiles and bundles and
// verifies every entry against the checkpoint.
func TestOtherClientsReadTheLog(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.keepLog()
	e.bidders(1, 1000)
	lot := e.started(`[{"winners":1,"duration":"1h"}]`, `"cooldown":"0s"`)
	for i := range 600 {
		e.bid(lot, "bidder-000", int64(10+i)).want(http.StatusCreated)
	}
	p := e.logged(600)
	key := strings.TrimSpace(string(e.by("").get("/log/key").body))
	verifier, err := note.NewVerifier(key)
	must(t, err)
	n, err := note.Open(e.by("").get("/log/checkpoint").body, note.VerifierList(verifier))
	must(t, err)
	c, err := torchwood.ParseCheckpoint(n.Text)
	must(t, err)
	if c.N < p.Size || c.Extension != "" {
		t.Fatalf("%+v is older than %+v", c, p)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	fetcher, err := torchwood.NewTileFetcher(e.url+"/log/", torchwood.WithHTTPClient(&http.Client{Transport: transport}))
	must(t, err)
	reader, err := torchwood.NewClient(fetcher)
	must(t, err)
	read := int64(0)
	for i, entry := range reader.Entries(t.Context(), c.Tree, 0) {
		if i != read || len(entry) == 0 || entry[0] != '{' {
			t.Fatalf("entry %d is %q", i, entry)
		}
		read++
	}
	must(t, reader.Err())
	if whole := c.N / torchwood.TileWidth * torchwood.TileWidth; read < whole {
		t.Errorf("%d entries of %d were read", read, c.N)
	}
	for _, path := range []string{"/log/tile/0/999", "/log/tile/0/000.p/0", "/log/tile/0/000.p/256", "/log/tile/64/000", "/log/tile/entries/x001/999", "/log/tile/0/00", "/log/tile/-1/000", "/log/tile/0/000.p/", "/log/nothing"} {
		e.by("").get(path).problem(http.StatusNotFound, "not_found")
	}
	etag := e.by("").get("/log/tile/0/000")
	if len(etag.body) != 256*32 || !strings.Contains(etag.header.Get("Cache-Control"), "immutable") {
		t.Errorf("a tile of %d bytes, %v", len(etag.body), etag.header)
	}
}
