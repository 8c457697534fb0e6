package saga

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// pruneBatch is how many sagas are deleted at once: enough to keep up, and few enough to hold their locks for a moment only.
const pruneBatch = 500

// errNoRetention keeps a mistake from deleting everything that has just ended.
var errNoRetention = errors.New("the retention must be positive")

// Prune deletes the sagas that ended longer ago than retention, by the log's clock, with the marks of their steps in each
// participant, and returns how many sagas it has deleted. Any number of processes may prune at once.
//
// A saga that has not ended is never deleted, and neither is one of which a participant has a prepared transaction. Nothing
// is deleted while a participant can't be asked for these. The marks go first: a process that dies in between leaves ended sagas,
// of which nothing is executed any more, and which the next call deletes.
//
// What is deleted is not known any more: [Service.Start] under its id starts another saga. The retention must be longer than
// any process may stand still in the middle of a step and then go on with it, and than requests are repeated.
func (s *Service) Prune(ctx context.Context, retention time.Duration) (deleted int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("saga: prune: %w", err)
		}
	}()
	if retention <= 0 {
		return 0, errNoRetention
	}
	for _, name := range s.Participants() {
		// The marks of a copy's sagas are production's.
		if _, err := s.stand(ctx, name, s.o.Participants[name]); err != nil {
			return 0, err
		}
	}
	doubts, failures := s.InDoubt(ctx)
	for name, err := range failures {
		return 0, fmt.Errorf("is anything in doubt in %s: %w", name, err)
	}
	spare := make([]uuid.UUID, 0, len(doubts))
	for i := range doubts {
		spare = append(spare, doubts[i].Saga)
	}
	for {
		ids, err := s.store.Ended(ctx, retention, spare, pruneBatch)
		if err != nil || len(ids) == 0 {
			return deleted, err
		}
		for _, name := range s.Participants() {
			if err := s.o.Participants[name].Forget(ctx, ids); err != nil {
				return deleted, fmt.Errorf("marks in %s: %w", name, err)
			}
		}
		n, err := s.store.Delete(ctx, ids)
		deleted += n
		// Where all of a batch are being deleted by another process, the rest is left to it.
		if err != nil || n == 0 || len(ids) < pruneBatch {
			return deleted, err
		}
	}
}

// Participants names the databases that may have prepared transactions of ours, in order.
func (s *Service) Participants() []string { return slices.Sorted(maps.Keys(s.o.Participants)) }
