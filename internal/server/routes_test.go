package server

import (
	"strings"
	"testing"
)

// TestHotPaths wants the hot routes, and no others, to be served lean. A path that is not would be as right, only slower.
func TestHotPaths(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	want := map[string]bool{"/v1/deposits": true, "/v1/withdrawals": true, "/v1/transfers": true, "/v1/auctions/{id}/bids": true, "/v1/campaigns/{id}/purchases": true}
	found := 0
	for _, r := range e.server.routes() {
		path := strings.ReplaceAll(r.path, "{id}", newUUID())
		if e.server.hot(path) != want[r.path] {
			t.Errorf("%s is hot: %v", r.path, !want[r.path])
		}
		if r.hot {
			found++
		}
	}
	if found != len(want) {
		t.Errorf("%d routes are hot", found)
	}
	for _, other := range []string{"/v1/transfers/x", "/v1/transfers2", "/v1/auctions//bid", "/v1", ""} {
		if e.server.hot(other) {
			t.Errorf("%q is hot", other)
		}
	}
}
