package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/live/rediswire"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/server"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/lock"
)

// auctionLease is what the process holds that closes rounds and counts them down.
const auctionLease = "auctions"

// eventSweep is how often events that are too old are deleted.
const eventSweep = 10 * time.Minute

// startLive makes the hub that brings committed events to subscribers.
func (n *node) startLive(ctx context.Context, registry *prometheus.Registry) error {
	n.events = postgres.NewEvents(n.db, postgres.EventViews{Purchase: server.PurchaseMade, Draw: server.DrawCompleted})
	var wire live.Wire = postgres.NewNotifications(n.db)
	if n.o.redisURL != "" {
		o, err := rueidis.ParseURL(n.o.redisURL)
		if err != nil {
			return fmt.Errorf("--redis-url: %w", err)
		}
		client, err := rueidis.NewClient(o)
		if err != nil {
			return fmt.Errorf("--redis-url: %w", err)
		}
		n.onClose(func(context.Context) error { client.Close(); return nil })
		wire = rediswire.New(client, "", n.logger)
	}
	n.hub = live.New(live.Options{Log: n.events, Wire: wire, Logger: n.logger})
	n.onClose(func(context.Context) error { n.hub.Close(); return nil })
	telemetry.ObserveLive(registry, n.hub)
	return ctx.Err()
}

// startAuctions makes the service of auctions and the election of the leader that closes their rounds.
func (n *node) startAuctions(registry *prometheus.Registry, lanes *telemetry.LaneMetrics) (err error) {
	observer := telemetry.NewAuctions(registry)
	n.auction = auction.NewService(postgres.NewAuctions(n.db), auction.Options{
		Lanes: groupcommit.Options{Observer: n.traces.Lanes("auction", lanes.For("auction"))}, Observer: observer, Logger: n.logger,
		Committed: func(id uuid.UUID, events []auction.Event) {
			n.hub.Committed(auction.Topic(id), events[len(events)-1].Seq, func() []live.Event { return postgres.LiveEvents(events) })
		},
	})
	n.onClose(n.auction.Close)
	elections, err := postgres.NewElections(n.db)
	if err != nil {
		return err
	}
	n.onClose(elections.Close)
	n.election, err = lock.NewElection(lock.New(elections, lock.LockerOptions{Logger: n.logger}), auctionLease, lock.ElectionOptions{
		TTL: n.o.leaderTTL, Logger: n.logger, Observer: observer,
	})
	return err
}

// lead closes rounds and counts them down whenever this process is elected, until ctx ends.
func (n *node) lead(ctx context.Context) {
	closer := &auction.Closer{
		Reader: n.auction, Execute: n.auction.Execute, Logger: n.logger,
		Broadcast: func(id uuid.UUID, e auction.Event) { n.hub.Broadcast(auction.Topic(id), postgres.LiveEvent(e)) },
	}
	n.election.Run(ctx, closer.Lead)
}

// soldOrDrawn tells subscribers of a campaign.
func (n *node) soldOrDrawn(campaign uuid.UUID, last int64) {
	n.hub.Committed(lottery.Topic(campaign), last, nil)
}
