package fairlead

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead-dev/fairlead/internal/recent"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// How often the sweepers look. Each looks once at the start, too. What is not due costs a look at an index.
const (
	holdSweep    = time.Second
	lotterySweep = 15 * time.Second
	beaconSweep  = time.Second
	keySweep     = 10 * time.Minute
	eventSweep   = 10 * time.Minute
	historySweep = time.Hour // partitions are made a week before they are needed
	sagaSweep    = 10 * time.Minute
	// lockSweep is how often rows of locks are deleted that ended by themselves, doubtSweep how often what is in doubt is
	// counted. Both set gauges.
	lockSweep  = 10 * time.Second
	doubtSweep = 10 * time.Second
	keySample  = 10 * time.Second // it costs no look at the keys themselves
	// snapshotSample is how often old snapshots are looked for: a query of PostgreSQL's lists of sessions.
	snapshotSample = 10 * time.Second
)

// work starts what runs beside the requests.
func (s *Server) work() {
	for _, sweeper := range []struct {
		name  string
		every time.Duration
		sweep func(context.Context) (int, error)
	}{
		{"holds", holdSweep, func(ctx context.Context) (int, error) { return s.ledger.Sweep(ctx) }},
		{"lottery", lotterySweep, s.lottery.Sweep},
		{"beacon rounds", beaconSweep, s.lottery.SweepRounds},
		{"locks", lockSweep, s.sweepLocks},
		{"idempotency keys", keySweep, func(ctx context.Context) (int, error) {
			deleted, err := s.db.SweepKeys(ctx, s.o.IdempotencyRetention)
			return int(deleted), err
		}},
		{"events", eventSweep, func(ctx context.Context) (int, error) {
			deleted, err := s.events.Prune(ctx, s.o.EventRetention)
			return int(deleted), err
		}},
		{"history partitions", historySweep, s.extendHistory},
		{"sagas", sagaSweep, s.sweepSagas},
		{"what is in doubt", doubtSweep, s.sampleDoubts},
		{"stored keys", keySample, s.sampleKeys},
		{"old snapshots", snapshotSample, s.sampleSnapshots},
		{"measurements", recent.Every, s.sampleMeasurements},
	} {
		s.background.Go(func() { s.sweep(s.working, sweeper.name, sweeper.every, sweeper.sweep) })
	}
	s.background.Go(func() { s.lead(s.working) })
	s.background.Go(func() { s.publisher.Run(s.working) })
	s.background.Go(func() { s.delivering.Run(s.working, s.barrier.lead("subscriptions", s.deliverer.Lead)) })
	s.background.Go(func() { s.keeping.Run(s.working, s.barrier.lead("public log", s.keepLog)) })
	// Other processes hear of the last commands too, so the hub runs until those are answered. Running operations are looked after
	// until the end interrupts them.
	s.background.Go(func() { s.hub.Run(s.answering) })
	s.background.Go(func() { s.multidraw.Reconcile(s.answering) })
	s.background.Go(func() { s.cross.Reconcile(s.answering) })
	for _, db := range s.watched {
		s.background.Go(func() { db.WatchHistory(s.answering) })
	}
	if s.local != nil {
		s.background.Go(func() {
			select {
			case <-s.local.Done():
				s.stop(errors.Join(errors.New("the private PostgreSQL ended"), s.local.Err()))
			case <-s.working.Done():
			}
		})
	}
}

// sweep calls f at once, and again every period until ctx ends. A failure is logged where it is news; the next round tries again.
func (s *Server) sweep(ctx context.Context, name string, every time.Duration, f func(context.Context) (int, error)) {
	var failures wait.News
	wait.Every(ctx, every, nil, func() {
		var done int
		switch err := s.barrier.do(ctx, name, func() (err error) {
			done, err = f(ctx)
			return err
		}); {
		case ctx.Err() == nil && failures.Is(err):
			s.logger.WarnContext(ctx, "sweep failed", "sweeper", name, "error", err)
		case done > 0:
			s.logger.InfoContext(ctx, "swept", "sweeper", name, "count", done)
		}
	})
}

// sweepLocks looks after the lock service's tables.
func (s *Server) sweepLocks(ctx context.Context) (int, error) {
	snapshot, err := s.locks.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	s.lockMetrics.Sample(snapshot)
	_, err = s.locks.Sweep(ctx)
	return 0, err // Leases that expire are the holders' business, and no news.
}

// extendHistory makes the partitions of the coming month, in all databases.
func (s *Server) extendHistory(ctx context.Context) (made int, err error) {
	for _, db := range s.watched {
		n, failed := db.ExtendHistory(ctx)
		made += n
		err = errors.Join(err, failed)
	}
	return made, err
}

// sweepSagas deletes the sagas that ended longer ago than they are kept.
func (s *Server) sweepSagas(ctx context.Context) (int, error) {
	if s.o.SagaRetention == 0 {
		return 0, nil
	}
	return s.cross.Prune(ctx, s.o.SagaRetention)
}

// sampleKeys sets the gauge of the stored idempotency keys.
func (s *Server) sampleKeys(ctx context.Context) (int, error) {
	n, err := s.db.StoredKeys(ctx)
	if err == nil {
		s.storedKeys(n)
	}
	return 0, err
}

// sampleSnapshots sets the gauges of the oldest snapshot, and has the database know of it.
func (s *Server) sampleSnapshots(ctx context.Context) (int, error) {
	holders, err := s.db.SampleSnapshots(ctx)
	if err != nil {
		return 0, err
	}
	var seconds float64
	var transactions int64
	for i := range holders {
		seconds, transactions = max(seconds, holders[i].Seconds), max(transactions, holders[i].Transactions)
	}
	s.snapshots(seconds, transactions)
	return 0, nil
}

// sampleMeasurements keeps what was measured since the last call.
func (s *Server) sampleMeasurements(context.Context) (int, error) {
	families, err := s.registry.Gather()
	s.recent.Sample(families, time.Now())
	return 0, err
}

// sampleDoubts sets the gauges of what is in doubt. A ledger that can't be asked has one of its own.
func (s *Server) sampleDoubts(ctx context.Context) (int, error) {
	found, failures := s.cross.InDoubt(ctx)
	s.sagaMetrics.Sample(s.cross.Participants(), found, failures, time.Now())
	return 0, ctx.Err()
}
