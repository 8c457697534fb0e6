package postgres

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestOpenTriesAgain opens a database that takes connections and says nothing at first, as a machine does that is busy with starting it.
func TestOpenTriesAgain(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, nil)
	config, err := pgx.ParseConfig(url)
	testwait.Must(t, err)
	front := listenSilently(t, config.Host, config.Port)
	proxy, through := wire.Through(t, url, wire.Options{})
	proxy.Lead("tcp", front.Addr().String())

	log := &testwait.Buffer{}
	o := Options{URL: through, UnavailableAfter: 2 * time.Second, Logger: slog.New(slog.NewTextHandler(log, nil))}
	db, err := Open(t.Context(), o)
	if err == nil {
		db.Close()
	}
	if !unreadyFor(err, operator.UnreadyDatabase) || strings.Contains(log.String(), "trying again") {
		t.Errorf("without patience: %v\n%s", err, log.String())
	}

	o.Patience = patience
	opened := make(chan error, 1)
	go func() {
		db, err := Open(t.Context(), o)
		if err == nil {
			db.Close()
		}
		opened <- err
	}()
	testwait.Eventually(t, patience, "a try in vain", func() bool { return strings.Contains(log.String(), "trying again") })
	front.open.Store(true)
	if err := <-opened; err != nil {
		t.Errorf("with patience: %v", err)
	}

	// A refusal is an answer.
	tries := strings.Count(log.String(), "trying again")
	testwait.Must(t, proxy.Close())
	if _, err := Open(t.Context(), o); err == nil || strings.Count(log.String(), "trying again") != tries {
		t.Errorf("nobody listens: %v\n%s", err, log.String())
	}
}
