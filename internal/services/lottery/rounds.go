package lottery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
)

// BeaconOptions say which public randomness decides campaigns in beacon mode.
type BeaconOptions struct {
	// Chain is that of campaigns made from now on. Those that exist keep theirs.
	Chain fairdraw.Chain
	// Source gives rounds. What it gives is verified once more before it counts.
	Source beacon.Source
	// Lead is the least time from a campaign's seal to the round that decides it. It is never less than the chain's period.
	// It must be longer than the database's clock may be slow.
	Lead time.Duration
}

// Limits of the work on rounds.
const (
	// roundBatch is how many campaigns one look takes up, and roundLookers how many of their rounds are asked for at once.
	roundBatch   = 32
	roundLookers = 4
	// roundTimeout bounds all attempts at one round, over all relays, and askTimeout those that a request waits for.
	roundTimeout = 20 * time.Second
	askTimeout   = 5 * time.Second
)

// SweepRounds asks the beacon for the rounds that sealed campaigns wait for, and draws those whose round is there. It
// returns how many it drew. It is meant to be called every second or so: what is not due, or failed a moment ago, is not
// asked for. Any number of processes may do so at once.
func (s *Service) SweepRounds(ctx context.Context) (int, error) {
	if s.o.Beacon == nil {
		return 0, nil
	}
	waits, err := s.store.ClaimRounds(ctx, roundBatch)
	if err != nil {
		return 0, fmt.Errorf("lottery: look for sealed campaigns: %w", err)
	}
	// Campaigns that were sold out at the same time wait for the same round.
	type key struct {
		chain fairdraw.Chain
		round uint64
	}
	same := map[key][]Wait{}
	for _, w := range waits {
		k := key{w.Campaign.Beacon.Chain, w.Campaign.Beacon.Seal.Round}
		same[k] = append(same[k], w)
	}
	var (
		mu       sync.Mutex
		drawn    int
		failures []error
		lookers  errgroup.Group
	)
	lookers.SetLimit(roundLookers)
	for k, group := range same {
		lookers.Go(func() error {
			round, err := s.fetch(ctx, k.chain, k.round, roundTimeout)
			for _, w := range group {
				done, drawErr := s.settle(ctx, w, round, err)
				mu.Lock()
				drawn += done
				failures = append(failures, drawErr)
				mu.Unlock()
			}
			return nil
		})
	}
	_ = lookers.Wait() // They return no errors.
	return drawn, errors.Join(failures...)
}

// failureUnwitnessed is why a campaign waits whose round is there, beside the names of beacon.Failure.
const failureUnwitnessed = "unwitnessed"

// settle draws a campaign whose round is there, and notes why it is not otherwise. It returns 1 when it drew.
func (s *Service) settle(ctx context.Context, w Wait, round fairdraw.Round, missing error) (int, error) {
	id, seal := w.Campaign.ID, w.Campaign.Beacon.Seal
	// A round that is not due should be missing, and a server that stops is no failure of the beacon.
	silent := w.Early || ctx.Err() != nil
	switch {
	case missing != nil && silent:
		return 0, nil
	case missing != nil:
		failure := beacon.Failure(missing)
		s.o.Logger.WarnContext(ctx, "the beacon's round is missing", "campaign", id, "round", seal.Round, "due_at", seal.DueAt,
			"failure", failure, "attempts", w.Campaign.Beacon.Attempts, "error", missing)
		if err := s.store.RoundMissed(ctx, id, failure); err != nil {
			return 0, fmt.Errorf("lottery: note that the round of %s is missing: %w", id, err)
		}
		return 0, nil
	}
	if w.Early {
		// A relay may have kept the request until the round appeared, so the clock is asked once more.
		early, err := s.store.RoundEarly(ctx, id)
		if err != nil {
			return 0, fmt.Errorf("lottery: note that the round of %s was early: %w", id, err)
		}
		if early {
			s.o.Logger.ErrorContext(ctx, "the round was published before it was due: the database's clock is slow, or the beacon's fast",
				"campaign", id, "round", seal.Round, "due_at", seal.DueAt)
		}
	}
	crashpoint.Hit(crashpoint.LotteryRound)
	a, err := s.Execute(ctx, id, command.Command[Op]{Op: FinishDraw{Round: &round}})
	err = errors.Join(err, a.Err)
	if _, unseen := errors.AsType[*UnwitnessedError](err); unseen {
		s.o.Logger.WarnContext(ctx, "too few witnesses of the log have cosigned the seal", "campaign", id, "due_at", seal.DueAt, "error", err)
		return 0, s.store.RoundMissed(ctx, id, failureUnwitnessed)
	}
	if err != nil {
		return 0, fmt.Errorf("lottery: complete the draw of %s: %w", id, err)
	}
	if a.Result != true {
		return 0, nil // Another process was first.
	}
	crashpoint.Hit(crashpoint.LotteryRoundDrawn)
	return 1, nil
}

// fetch gets a round from the source, which is not trusted, and verifies it.
func (s *Service) fetch(ctx context.Context, chain fairdraw.Chain, number uint64, limit time.Duration) (fairdraw.Round, error) {
	limited, cancel := context.WithTimeoutCause(ctx, limit, beacon.ErrTimeout)
	defer cancel()
	round, err := s.o.Beacon.Source.Round(limited, chain, number)
	switch {
	case err != nil && ctx.Err() == nil && limited.Err() != nil:
		err = fmt.Errorf("%w: %w", beacon.ErrTimeout, err)
	case err == nil && round.Number != number:
		err = beacon.ErrWrongRound
	case err == nil:
		err = beacon.Verify(chain, round)
	}
	if s.o.Observer != nil && ctx.Err() == nil {
		s.o.Observer.RoundTried(beacon.Failure(err))
	}
	return round, err
}

// roundOf fetches the round of a sealed campaign whose draw was asked for. It returns nil when the campaign waits for no round,
// or when the round could not be fetched now; the sweeper will fetch it.
func (s *Service) roundOf(ctx context.Context, campaign uuid.UUID) *fairdraw.Round {
	if s.o.Beacon == nil {
		return nil
	}
	reading, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := s.Campaign(reading, campaign)
	if err != nil || c.Status != StatusDrawing || c.Beacon == nil || c.Beacon.Seal == nil || !c.Beacon.Due {
		return nil
	}
	round, err := s.fetch(ctx, c.Beacon.Chain, c.Beacon.Seal.Round, askTimeout)
	if err != nil {
		s.o.Logger.WarnContext(ctx, "the beacon's round is missing", "campaign", campaign, "round", c.Beacon.Seal.Round,
			"due_at", c.Beacon.Seal.DueAt, "failure", beacon.Failure(err), "error", err)
		return nil
	}
	return &round
}
