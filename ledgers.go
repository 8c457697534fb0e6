package fairlead

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/remoteledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/saga"
)

// ledgerConnections is the most connections to the database of each further ledger, upkeepConnections of those to the
// server's own that only the upkeep of sagas takes.
const (
	ledgerConnections = 12
	upkeepConnections = 6
	// Each has its presence, too, and a further ledger has reads. They open no other connections.
	ledgerSessions = ledgerConnections*5/4 + 1
	upkeepSessions = upkeepConnections + 1
)

// remotePatience is how long one call to another server is tried; its saga tries further.
const remotePatience = 5 * time.Second

// startCross makes the service of transfers between ledgers. A ledger that can't be used keeps the server from starting.
func (s *Server) startCross(ctx context.Context, registry *prometheus.Registry) error {
	upkeep, err := postgres.Open(ctx, postgres.Options{
		URL: s.url, MaxConns: upkeepConnections, Logger: s.logger, UnavailableAfter: s.o.UnavailableAfter, Patience: startPatience,
	})
	if err != nil {
		return err
	}
	s.onClose(upkeep.Shutdown)
	log := postgres.NewSagasWithUpkeep(s.db, upkeep)
	coordinator, err := log.Coordinator(ctx)
	if err != nil {
		return err
	}
	own, err := s.db.Identity(ctx)
	if err != nil {
		return err
	}
	names := map[string]string{own: cross.Local} // by identity
	ledgers := map[string]cross.Ledger{cross.Local: postgres.NewCrossLedgerWithUpkeep(s.db, upkeep)}
	for _, name := range slices.Sorted(maps.Keys(s.o.Ledgers)) {
		address := s.o.Ledgers[name]
		if isServer(address) {
			if ledgers[name], err = remoteLedger(address, coordinator); err != nil {
				return wrong("Ledgers", "%s: %w", name, err)
			}
			continue
		}
		db, identity, err := s.openLedger(ctx, registry, name, address)
		if err != nil {
			return wrong("Ledgers", "%s: %w", name, err)
		}
		if other, taken := names[identity]; taken {
			return wrong("Ledgers", "%s: this is the database of ledger %q", name, other)
		}
		names[identity] = name
		ledgers[name] = postgres.NewCrossLedger(db)
	}
	s.sagaMetrics = telemetry.NewSagas(registry)
	s.cross = cross.NewService(log, ledgers, saga.Options{
		Coordinator: coordinator, Observer: s.sagaMetrics, Trace: s.traces.Steps(), Logger: s.logger, Hit: hitCross,
		Halted: s.historyLost,
	})
	s.onClose(s.cross.Close)
	return nil
}

// remoteLedger is the ledger of another server, whose books know this one's by the name of its log. An address that does not
// answer is found out by the first transfer.
func remoteLedger(address, coordinator string) (cross.Ledger, error) {
	base, key, err := parseServer(address)
	if err != nil {
		return nil, err
	}
	c, err := client.New(base, key, client.WithRetry(client.Retry{Limit: remotePatience}))
	if err != nil {
		return nil, err
	}
	return remoteledger.New(c, coordinator), nil
}

// openLedger opens a further ledger's database as the server's own: it refuses one that would not keep its word, and brings
// the schema up to date.
func (s *Server) openLedger(ctx context.Context, registry *prometheus.Registry, name, address string) (*postgres.DB, string, error) {
	db, err := postgres.Open(ctx, postgres.Options{
		URL: address, MaxConns: ledgerConnections, Logger: s.logger, UnavailableAfter: s.o.UnavailableAfter, Watch: s.watchOf(registry, name), Sessions: ledgerSessions,
		Patience: startPatience,
	})
	if err != nil {
		return nil, "", err
	}
	s.onClose(db.Shutdown)
	if err := s.prepare(ctx, db, "ledger", name); err != nil {
		return nil, "", err
	}
	switch err := postgres.NewCrossLedger(db).CanPrepare(ctx); {
	case errors.Is(err, cross.ErrTwoPhaseUnavailable):
		s.logger.WarnContext(ctx, "ledger: two-phase transfers will be refused", "ledger", name, "reason", err)
	case err != nil:
		return nil, "", err
	}
	identity, err := db.Identity(ctx)
	return db, identity, err
}

// hitCross is where a binary that is built to be killed may die.
func hitCross(p saga.Place, i int) {
	for _, at := range [...]struct {
		place         saga.Place
		first, second string
	}{
		{saga.AfterIntent, crashpoint.CrossIntent, crashpoint.CrossIntent},
		{saga.AfterStep, crashpoint.CrossDebited, crashpoint.CrossCredited},
		{saga.AfterUndo, crashpoint.CrossUndone, crashpoint.CrossUndone},
		{saga.AfterPrepare, crashpoint.CrossPrepared, crashpoint.CrossReady},
		{saga.AfterDecision, crashpoint.CrossDecided, crashpoint.CrossDecided},
		{saga.AfterCommit, crashpoint.CrossCommitted, crashpoint.CrossUnlogged},
	} {
		if at.place == p && i == 0 {
			crashpoint.Hit(at.first)
		} else if at.place == p {
			crashpoint.Hit(at.second)
		}
	}
}
