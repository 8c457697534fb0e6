package fairlead

import (
	"context"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/live/rediswire"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/server"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/lock"
)

// What processes are elected for: auctionLease is what the one holds that closes rounds and counts them down, deliveryLease the one that
// delivers the events of subscriptions.
const (
	auctionLease  = "auctions"
	deliveryLease = "subscriptions"
)

// startLive makes the hub that brings committed events to subscribers.
func (s *Server) startLive(ctx context.Context, registry *prometheus.Registry) error {
	s.events = postgres.NewEvents(s.db, postgres.EventViews{Purchase: server.PurchaseMade, Draw: server.DrawCompleted})
	wire := s.db.Wire()
	if s.o.RedisURL != "" {
		o, err := rediswire.ParseURL(s.o.RedisURL)
		if err != nil {
			return wrong("RedisURL", "%w", err)
		}
		client, err := rueidis.NewClient(o)
		if err != nil {
			return wrong("RedisURL", "%w", err)
		}
		s.onClose(func(context.Context) error { client.Close(); return nil })
		wire = rediswire.New(client, s.logger)
	}
	s.hub = live.New(live.Options{Log: s.events, Notices: s.events.Notices(), Wire: wire, Logger: s.logger, Grown: func(topic string, last int64) { s.deliverer.Grown(topic, last) }})
	s.onClose(func(context.Context) error { s.hub.Close(); return nil })
	telemetry.ObserveLive(registry, s.hub)
	return ctx.Err()
}

// startAuctions makes the service of auctions and the election of the leader that closes their rounds.
func (s *Server) startAuctions(registry *prometheus.Registry) (err error) {
	observer := telemetry.NewAuctions(registry, auction.Outcomes())
	s.auction = auction.NewService(postgres.NewAuctions(s.db), auction.Options{
		Lanes: groupcommit.Options{Observer: s.traces.Lanes("auction", telemetry.NewLanes(registry, "auction"))}, Observer: observer, Logger: s.logger,
		Committed: func(id uuid.UUID, events []auction.Event) {
			s.hub.Committed(auction.Topic(id), events[len(events)-1].Seq, func() []live.Event { return postgres.LiveEvents(events) })
		},
	})
	s.overdue = observer.RoundOverdue
	s.onClose(s.auction.Close)
	elections, err := postgres.NewElections(s.db)
	if err != nil {
		return err
	}
	s.onClose(elections.Close)
	locker := lock.New(elections, lock.LockerOptions{Logger: s.logger})
	if s.election, err = lock.NewElection(locker, auctionLease, lock.ElectionOptions{TTL: s.o.LeaderTTL, Logger: s.logger, Observe: observer.Leading}); err != nil {
		return err
	}
	if s.delivering, err = lock.NewElection(locker, deliveryLease, lock.ElectionOptions{TTL: s.o.LeaderTTL, Logger: s.logger}); err != nil {
		return err
	}
	return s.startLog(registry, locker)
}

// lead closes rounds and counts them down whenever this process is elected, until ctx ends.
func (s *Server) lead(ctx context.Context) {
	closer := &auction.Closer{
		Reader: s.auction, Execute: s.auction.Execute, Overdue: s.overdue, Logger: s.logger,
		Broadcast: func(id uuid.UUID, e auction.Event) { s.hub.Broadcast(auction.Topic(id), postgres.LiveEvent(e)) },
	}
	s.election.Run(ctx, s.barrier.lead("rounds", closer.Lead))
}
