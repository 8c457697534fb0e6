package server

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
)

// TestALedgerThatCannotBeReachedIsNamed asks for transfers with ledgers that are away, each in its own way.
func TestALedgerThatCannotBeReachedIsNamed(t *testing.T) {
	t.Parallel()
	refusing := listen(t)
	must(t, refusing.Close())
	other := newEnvWith(t, setup{proxied: true})
	e := newEnvWith(t, setup{ledgersAway: postgres.UnavailableAfter, ledgers: map[string]string{
		"refusing": "http://" + refusing.Addr().String() + " key",
		"silent":   "http://" + listen(t).Addr().String() + " key", // Connections are taken, and nobody reads from them.
		"locked":   other.url + " no-key-of-it",
		"database": other.through,
	}})
	e.account("alice", "EUR", 1000)
	other.account("bob", "EUR", 0)
	other.proxy.TakeAway(0, wire.Unsent)
	before := e.snapshot()
	for name := range map[string]bool{"refusing": true, "silent": true, "locked": true, "database": true} {
		for _, body := range []string{
			crossBody("local", "alice", name, "bob", 1, "saga"), crossBody(name, "bob", "local", "alice", 1, "saga"),
		} {
			r := e.post("/v1/cross-transfers", body).problem(http.StatusServiceUnavailable, "ledger_unreachable")
			r.equal(`{"retryable":true,"outcome":"unknown"}`)
			if text := r.str("title") + r.str("detail"); !strings.Contains(text, `"`+name+`"`) || strings.Contains(text, "database is unavailable") {
				t.Errorf("%s: %s", name, r.body)
			}
		}
	}
	e.unchanged(before)
	other.proxy.GiveBack()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}
