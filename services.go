package fairlead

import (
	"context"
	"os"
	"time"
	_ "time/tzdata" // Automations have time zones, which not every machine knows.

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/recent"
	"github.com/fairlead-dev/fairlead/internal/server"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/lock/lockprom"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// userRateWindow is the time in which a user's spent quota grows back.
const userRateWindow = 10 * time.Second

// startServices makes the services and the HTTP edge above them.
func (s *Server) startServices(registry *prometheus.Registry) (err error) {
	s.registry, s.recent = registry, recent.New(time.Now())
	draws := telemetry.NewLottery(registry, lottery.Failures())
	s.ledger = ledger.NewService(postgres.NewLedger(s.db), groupcommit.Options{Observer: s.traces.Lanes("ledger", telemetry.NewLanes(registry, "ledger"))})
	s.onClose(s.ledger.Close)
	randomness, err := s.startBeacon()
	if err != nil {
		return err
	}
	s.lottery = lottery.NewService(postgres.NewLottery(s.db), lottery.Options{
		Lanes: groupcommit.Options{Observer: s.traces.Lanes("lottery", telemetry.NewLanes(registry, "lottery"))}, StuckAfter: s.o.DrawStuckAfter, Observer: draws, Logger: s.logger,
		Committed: func(campaign uuid.UUID, last int64) { s.hub.Committed(lottery.Topic(campaign), last, nil) }, Beacon: randomness, Witnesses: len(s.o.Witnesses),
	})
	s.onClose(s.lottery.Close)
	s.lockMetrics = lockprom.New(registry, postgres.LockClass)
	s.locks = postgres.NewLocks(s.db, s.lockMetrics)
	s.onClose(s.locks.Close)
	if err := s.startAuctions(registry); err != nil {
		return err
	}
	s.multidraw = multidraw.NewService(postgres.NewMultidraws(s.db), multidraw.Options{
		Observer: telemetry.NewMultidraws(registry), States: telemetry.NewCheckpoints(registry), Logger: s.logger,
		// A checkpoint's event is its row, so there is nothing to tell but its number.
		Committed: func(id uuid.UUID, checkpoint int64) { s.hub.Committed(multidraw.Topic(id), checkpoint, nil) },
	})
	s.onClose(s.multidraw.Close)
	if err := s.startPublishing(registry); err != nil {
		return err
	}
	keys := postgres.NewAPIKeys(s.db)
	secret, limiter, err := s.startAuth(keys)
	if err != nil {
		return err
	}
	s.edge, err = server.New(server.Options{
		Ledger: s.ledger, Lottery: s.lottery, Auction: s.auction, Multidraw: s.multidraw, Publish: s.publish, Cross: s.cross, Locks: s.locks, Keys: keys,
		Log: postgres.NewLogReader(s.db), Operator: postgres.NewOperator(s.db), Sessions: postgres.NewOperator(s.db), PublicPages: !s.o.NoPublicPages, Auth: s.auth, Limiter: limiter, Ready: s.db.Ready, Acknowledge: s.db.Acknowledge, Position: s.db.Position,
		Live:       server.LiveOptions{Hub: s.hub, AllowedOrigins: s.o.AllowedOrigins, MaxPerPrincipal: s.o.StreamsPerPrincipal},
		CheckHosts: true, AllowedHosts: s.o.allowedHosts(), MaxConnections: s.o.MaxConnections,
		Registry: registry, Recent: s.recent, Logger: s.logger, Version: Version(), Trace: s.traces.Requests(), Scratch: s.scratch(),
	})
	if err != nil {
		return err
	}
	return s.startClient(secret)
}

// startAuth makes the authenticator of keys and tokens, and the rate limiter of users. secret is the server's own key, for its
// client.
func (s *Server) startAuth(keys auth.KeyStore) (secret string, limiter *auth.Limiter, err error) {
	jwt := auth.JWTOptions{Secret: []byte(s.o.JWTSecret), JWKSURL: s.o.JWKSURL, Issuer: s.o.JWTIssuer, Audience: s.o.JWTAudience}
	if s.o.JWTPublicKey != "" {
		if jwt.PublicKeysPEM, err = os.ReadFile(s.o.JWTPublicKey); err != nil {
			return "", nil, wrong("JWTPublicKey", "%w", err)
		}
	}
	secret, hash, err := auth.GenerateKey(auth.RoleAdmin)
	if err != nil {
		return "", nil, err
	}
	own := auth.Key{ID: "embedded", Role: auth.RoleAdmin, Name: "embedding program", Hash: hash, CreatedAt: time.Now().UTC()}
	if s.auth, err = auth.New(auth.Options{Store: &keyStore{KeyStore: keys, own: own}, JWT: jwt}); err != nil {
		return "", nil, err
	}
	s.onClose(func(context.Context) error { s.auth.Close(); return nil })
	if s.o.UserRate > 0 {
		quota := s.o.UserRate * int(userRateWindow/time.Second)
		if limiter, err = auth.NewLimiter(auth.LimiterOptions{Quota: quota, Window: userRateWindow}); err != nil {
			return "", nil, wrong("UserRate", "%w", err)
		}
	}
	return secret, limiter, nil
}

// keyStore is the database's keys and one that lives as long as this server.
type keyStore struct {
	auth.KeyStore

	own auth.Key
}

// KeyByHash implements [auth.KeyStore].
func (k *keyStore) KeyByHash(ctx context.Context, hash [32]byte) (auth.Key, error) {
	if hash == k.own.Hash {
		return k.own, nil
	}
	return k.KeyStore.KeyByHash(ctx, hash)
}

// scratch is the data directory if it can be written to, since that is on a disk and not in memory. Otherwise it is empty, for
// the system's directory of temporary files.
func (s *Server) scratch() string {
	if os.MkdirAll(s.o.Data, 0o700) != nil {
		return ""
	}
	probe, err := os.CreateTemp(s.o.Data, "fairlead-probe-*")
	if err != nil {
		return ""
	}
	_, _ = probe.Close(), os.Remove(probe.Name())
	return s.o.Data
}
