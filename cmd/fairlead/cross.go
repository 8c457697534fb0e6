package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/saga"
)

// ledgerConnections is the most connections to the database of each further ledger, upkeepConnections of those to the
// server's own that only the upkeep of sagas takes.
const (
	ledgerConnections = 12
	upkeepConnections = 6
)

// What has ended is deleted after a retention. The shortest is longer than any process may stand still in the middle of a
// step and go on: its mark is what tells the step from one that was never executed.
const (
	defaultSagaRetention = 90 * 24 * time.Hour
	minSagaRetention     = 24 * time.Hour
)

// sagaSweep is how often sagas that ended long ago are deleted, doubtSweep how often what is in doubt is counted.
const (
	sagaSweep  = 10 * time.Minute
	doubtSweep = 10 * time.Second
)

// remotePatience is how long one call to another server is tried; its saga tries further.
const remotePatience = 5 * time.Second

// ledgerFlag is one --ledger NAME=URL.
type ledgerFlag struct{ name, url string }

// parseLedgers reads the flags, each of which may hold several, separated by white space, as the environment gives them.
func parseLedgers(flags []string) ([]ledgerFlag, error) {
	valid := regexp.MustCompile(`^[A-Za-z0-9._:@-]{1,64}$`)
	var out []ledgerFlag
	seen := map[string]bool{cross.Local: true}
	for _, flag := range flags {
		for one := range strings.FieldsSeq(flag) {
			name, address, ok := strings.Cut(one, "=")
			switch {
			case !ok || address == "":
				return nil, errors.New("--ledger must be NAME=URL, such as eu=postgres://host/database or us=https://:KEY@host")
			case !valid.MatchString(name) || name == "." || name == "..":
				return nil, fmt.Errorf("--ledger: %q is no name: 1 to 64 characters of A-Z a-z 0-9 . _ : @ -", name)
			case name == cross.Local:
				return nil, fmt.Errorf("--ledger: %q is the name of the server's own ledger", cross.Local)
			case seen[name]:
				return nil, fmt.Errorf("--ledger: %q is given twice", name)
			}
			seen[name] = true
			out = append(out, ledgerFlag{name, address})
		}
	}
	return out, nil
}

// startCross makes the service of transfers between ledgers. A ledger that can't be used keeps the server from starting.
func (n *node) startCross(ctx context.Context, registry *prometheus.Registry) error {
	flags, err := parseLedgers(n.o.ledgers)
	if err != nil {
		return err
	}
	upkeep, err := postgres.Open(ctx, postgres.Options{URL: n.url, MaxConns: upkeepConnections, Logger: n.logger, UnavailableAfter: n.o.unavailable})
	if err != nil {
		return err
	}
	n.onClose(upkeep.Shutdown)
	log := postgres.NewTendedSagas(n.db, upkeep)
	coordinator, err := log.Coordinator(ctx)
	if err != nil {
		return err
	}
	own, err := n.db.Identity(ctx)
	if err != nil {
		return err
	}
	names := map[string]string{own: cross.Local} // by identity
	ledgers := map[string]cross.Ledger{cross.Local: postgres.NewTendedCrossLedger(n.db, upkeep)}
	for _, f := range flags {
		if strings.HasPrefix(f.url, "http://") || strings.HasPrefix(f.url, "https://") {
			if ledgers[f.name], err = remoteLedger(f, coordinator); err != nil {
				return err
			}
			continue
		}
		db, identity, err := n.openLedger(ctx, f)
		if err != nil {
			return fmt.Errorf("--ledger %s: %w", f.name, err)
		}
		if other, taken := names[identity]; taken {
			return fmt.Errorf("--ledger %s: this is the database of ledger %q", f.name, other)
		}
		names[identity] = f.name
		ledgers[f.name] = postgres.NewCrossLedger(db)
	}
	n.sagaMetrics = telemetry.NewSagas(registry)
	n.cross = cross.NewService(log, ledgers, saga.Options{
		Coordinator: coordinator, Observer: n.sagaMetrics, Trace: n.traces.Steps(), Logger: n.logger, Hit: hitCross,
	})
	n.onClose(n.cross.Close)
	return nil
}

// sweepSagas deletes the sagas that ended longer ago than they are kept.
func (n *node) sweepSagas(ctx context.Context) (int, error) {
	if n.o.sagasKept == 0 {
		return 0, nil
	}
	return n.cross.Sagas().Prune(ctx, n.o.sagasKept)
}

// sampleDoubts sets the gauges of what is in doubt. A ledger that can't be asked has one of its own.
func (n *node) sampleDoubts(ctx context.Context) (int, error) {
	sagas := n.cross.Sagas()
	found, failures := sagas.InDoubt(ctx)
	n.sagaMetrics.Sample(sagas.Participants(), found, failures, time.Now())
	return 0, ctx.Err()
}

// remoteLedger is the ledger of another server, whose books know this one's by the name of its log. An address that is wrong,
// or does not answer, is found out by the first transfer.
func remoteLedger(f ledgerFlag, coordinator string) (cross.Ledger, error) {
	u, err := url.Parse(f.url)
	if err != nil {
		// The error would show the key.
		return nil, fmt.Errorf("--ledger %s: this is no URL", f.name)
	}
	key, _ := u.User.Password()
	if key == "" {
		return nil, fmt.Errorf("--ledger %s: the URL of another server needs its API key: https://:KEY@HOST", f.name)
	}
	u.User = nil
	c, err := client.New(strings.TrimSuffix(u.String(), "/"), key, client.WithRetry(client.Retry{Limit: remotePatience}))
	if err != nil {
		return nil, fmt.Errorf("--ledger %s: %w", f.name, err)
	}
	return c.Ledger(coordinator), nil
}

// openLedger opens a further ledger's database as the server's own: it refuses one that would not keep its word, and brings
// the schema up to date.
func (n *node) openLedger(ctx context.Context, f ledgerFlag) (*postgres.DB, string, error) {
	db, err := postgres.Open(ctx, postgres.Options{URL: f.url, MaxConns: ledgerConnections, Logger: n.logger, UnavailableAfter: n.o.unavailable})
	if err != nil {
		return nil, "", err
	}
	n.onClose(db.Shutdown)
	findings, err := db.Check(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, finding := range findings {
		if finding.Fatal {
			return nil, "", fmt.Errorf("refusing to use it: %s", finding.Message)
		}
		n.logger.WarnContext(ctx, "ledger", "ledger", f.name, "check", finding.Check, "finding", finding.Message)
	}
	applied, err := postgres.Migrate(ctx, f.url)
	if err != nil {
		return nil, "", err
	}
	for _, m := range applied {
		n.logger.InfoContext(ctx, "migration applied", "ledger", f.name, "version", m.Version, "name", m.Name)
	}
	switch err := postgres.NewCrossLedger(db).CanPrepare(ctx); {
	case errors.Is(err, cross.ErrTwoPhaseUnavailable):
		n.logger.WarnContext(ctx, "ledger: two-phase transfers will be refused", "ledger", f.name, "reason", err)
	case err != nil:
		return nil, "", err
	}
	identity, err := db.Identity(ctx)
	return db, identity, err
}

// hitCross is where a binary that is built to be killed may die.
func hitCross(p saga.Place, i int) {
	switch {
	case p == saga.AfterIntent:
		crashpoint.Hit(crashpoint.CrossIntent)
	case p == saga.AfterStep && i == 0:
		crashpoint.Hit(crashpoint.CrossDebited)
	case p == saga.AfterStep:
		crashpoint.Hit(crashpoint.CrossCredited)
	case p == saga.AfterUndo:
		crashpoint.Hit(crashpoint.CrossUndone)
	case p == saga.AfterPrepare && i == 0:
		crashpoint.Hit(crashpoint.CrossPrepared)
	case p == saga.AfterPrepare:
		crashpoint.Hit(crashpoint.CrossReady)
	case p == saga.AfterDecision:
		crashpoint.Hit(crashpoint.CrossDecided)
	case p == saga.AfterCommit && i == 0:
		crashpoint.Hit(crashpoint.CrossCommitted)
	case p == saga.AfterCommit:
		crashpoint.Hit(crashpoint.CrossUnlogged)
	}
}
