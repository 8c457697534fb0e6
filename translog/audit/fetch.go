package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"
)

// Limits of requests.
const (
	// DefaultTimeout is how long the server may take for one answer, to its last byte.
	DefaultTimeout = 30 * time.Second
	// tries is how often a request is made that fails for a reason that may pass, and pause is before the second one; it doubles.
	tries = 3
	pause = 500 * time.Millisecond
	// maxCheckpoint is more than a checkpoint with a hundred cosignatures has.
	maxCheckpoint = 64 << 10
	// maxTile is what a full tile of hashes has.
	maxTile = torchwood.TileWidth * tlog.HashSize
	// maxBundle is what a bundle of entries has at most: each has up to 65,535 bytes, behind its length.
	maxBundle = torchwood.TileWidth * (2 + 65_535)
	// atOnce is how many requests are under way at once.
	atOnce = 8
	// keptTiles is how many tiles of a level are kept: more than one batch needs.
	keptTiles = 2 * atOnce
)

// ReadError is returned when the log can't be read: the server can't be reached, refuses, is too slow, or answers with too much.
type ReadError struct {
	Path string // under the log's address
	Err  error
}

func (e *ReadError) Error() string { return fmt.Sprintf("read %s: %v", e.Path, e.Err) }

func (e *ReadError) Unwrap() error { return e.Err }

// errTooLong is returned when an answer is longer than any true one.
var errTooLong = errors.New("the answer is longer than any true one")

// statusError is an answer other than 200.
type statusError int

func (e statusError) Error() string {
	return fmt.Sprintf("the server answers %d %s", int(e), http.StatusText(int(e)))
}

// fetcher reads tiles over HTTP. It keeps a few tiles of each level: those at the tree's edge, and those that the audit walks along. What it returns is not verified; torchwood's hash reader does that. Unlike torchwood's own fetcher
// it bounds the bytes of an answer, gives up after seconds, and says why.
type fetcher struct {
	base   string // ends with "/log/"
	http   *http.Client
	recent map[int][]cached
}

type cached struct {
	tile tlog.Tile
	data []byte
}

var _ torchwood.TileReader = (*fetcher)(nil)

// newFetcher takes the server's address, or that of its log, which ends in /log.
func newFetcher(address string, timeout time.Duration) (*fetcher, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is not the address of a server, such as https://tickets.example.com", address)
	}
	base := strings.TrimRight(address, "/")
	if !strings.HasSuffix(base, "/log") {
		base += "/log"
	}
	return &fetcher{
		base: base + "/",
		http: &http.Client{
			Timeout: timeout,
			// A transport of its own, so that closing it ends its connections and no others.
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: atOnce, IdleConnTimeout: time.Minute,
				TLSHandshakeTimeout: timeout,
			},
		},
		recent: map[int][]cached{},
	}, nil
}

// ReadTiles implements [torchwood.TileReader]. It must not be called concurrently.
func (f *fetcher) ReadTiles(ctx context.Context, tiles []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(tiles))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, tile := range tiles {
		for _, c := range f.recent[tile.L] {
			if c.tile == tile {
				data[i] = c.data
			}
		}
		if data[i] != nil {
			continue
		}
		group.Go(func() (err error) {
			limit := maxTile
			if tile.L < 0 {
				limit = maxBundle
			}
			data[i], err = f.get(ctx, torchwood.TilePath(tile), limit)
			return err
		})
	}
	return data, group.Wait()
}

// SaveTiles implements [torchwood.TileReader]: it gets what was verified.
func (f *fetcher) SaveTiles(tiles []tlog.Tile, data [][]byte) {
	for i, tile := range tiles {
		kept := []cached{{tile, data[i]}}
		for _, c := range f.recent[tile.L] {
			if c.tile != tile && len(kept) < keptTiles {
				kept = append(kept, c)
			}
		}
		f.recent[tile.L] = kept
	}
}

// ReadEndpoint implements [torchwood.TileReader], for the checkpoint.
func (f *fetcher) ReadEndpoint(ctx context.Context, path string) ([]byte, error) {
	return f.get(ctx, path, maxCheckpoint)
}

// get reads one resource, and tries again where that may help.
func (f *fetcher) get(ctx context.Context, path string, limit int) (data []byte, err error) {
	wait := pause
	for try := range tries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(wait):
			}
			wait *= 2
		}
		data, err = f.once(ctx, path, limit)
		if err == nil {
			return data, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var status statusError
		if errors.Is(err, errTooLong) || errors.As(err, &status) && status < 500 && status != http.StatusTooManyRequests {
			break
		}
	}
	return nil, &ReadError{path, err}
}

func (f *fetcher) once(ctx context.Context, path string, limit int) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := f.http.Do(req)
	if err != nil {
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err // The address is known.
		}
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, statusError(res.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = errTooLong
	}
	return data, err
}

// close ends idle connections.
func (f *fetcher) close() { f.http.CloseIdleConnections() }
