package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// Reconcile renews the leases of the sagas that run here, takes over those that are due, and settles prepared transactions that
// a run has left behind, until ctx ends. Each process of a server does so.
func (s *Service) Reconcile(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	// What is left in doubt is settled beside the leases, and each participant has its own turn: one that does not answer must
	// not cost a saga its lease, nor the log its standing with the others.
	for _, name := range s.Participants() {
		p := s.o.Participants[name]
		group.Go(func() {
			var failures wait.News
			wait.Every(ctx, min(s.o.ReconcileEvery, s.o.FenceEvery), nil, func() {
				if err := s.resolveIn(ctx, name, p); ctx.Err() == nil && failures.Is(err) {
					s.o.Logger.WarnContext(ctx, "prepared transactions were not looked at", "error", err)
				}
			})
		})
	}
	var failures wait.News
	wait.Every(ctx, min(s.o.ReconcileEvery, s.o.LeaseTTL/2), s.wake, func() { // Half a lease, so that one look may fail.
		if err := s.reconcile(ctx); ctx.Err() == nil && failures.Is(err) {
			s.o.Logger.WarnContext(ctx, "sagas were not reconciled", "error", err)
		}
	})
}

// reconcile renews and claims once.
func (s *Service) reconcile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.LeaseTTL)
	defer cancel()
	// Its own first: a process that stood still for a while goes on where nobody else has.
	if err := s.renew(ctx); err != nil {
		return fmt.Errorf("saga: renew leases: %w", err)
	}
	for {
		room := s.runs.Room()
		if room <= 0 || len(s.names) == 0 {
			return nil
		}
		limit, g := min(room, claimBatch), s.asking(ctx)
		due, err := s.store.Claim(ctx, s.owner, s.names, s.o.LeaseTTL, limit)
		if err != nil {
			return fmt.Errorf("saga: look for sagas that are due: %w", err)
		}
		for _, saga := range due {
			if saga.Attempts == 0 {
				s.observe(func(o Observer) { o.Resumed(saga.Protocol) })
				s.o.Logger.InfoContext(ctx, "saga resumed", "id", saga.ID, "term", saga.Term)
			}
			s.start(saga, g) //nolint:contextcheck // A run outlives the look that found it.
		}
		if len(due) < limit {
			return nil
		}
	}
}

// renew keeps the leases of what runs here, and ends the runs whose leases may have expired.
func (s *Service) renew(ctx context.Context) error {
	ids := s.runs.IDs()
	if len(ids) == 0 {
		return nil
	}
	asked := time.Now()
	renewed, err := s.store.Renew(ctx, s.owner, ids, s.o.LeaseTTL)
	s.runs.Lock()
	defer s.runs.Unlock()
	for _, id := range renewed {
		if r := s.runs.Runs[id]; r != nil {
			r.Of.until = asked.Add(s.o.LeaseTTL)
		}
	}
	for _, r := range s.runs.Runs {
		if time.Now().After(r.Of.until) {
			r.Of.cancel(ErrLeaseLost)
		}
	}
	return err
}

// Doubt is a prepared transaction of this log's, and what the log says of it.
type Doubt struct {
	Participant string
	Prepared
	Saga    uuid.UUID
	Term    int64
	Verdict Verdict // [Leave]: its run is at work
	Reason  string  // why it is [Undecided], or is committed without the log's word

	life uuid.UUID // in whose name it is to be ended
}

// InDoubt lists the prepared transactions in every participant, oldest first, and names the participants that could not be
// asked, with their errors.
func (s *Service) InDoubt(ctx context.Context) ([]Doubt, map[string]error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	var (
		group    sync.WaitGroup
		mu       sync.Mutex
		found    []Doubt
		failures = map[string]error{}
	)
	for _, name := range s.Participants() {
		p := s.o.Participants[name]
		group.Go(func() {
			doubts, err := s.doubts(ctx, name, p)
			mu.Lock()
			defer mu.Unlock()
			found = append(found, doubts...)
			if err != nil {
				failures[name] = err
			}
		})
	}
	group.Wait()
	slices.SortFunc(found, func(a, b Doubt) int { return a.At.Compare(b.At) })
	return found, failures
}

func (s *Service) doubts(ctx context.Context, name string, p Participant) ([]Doubt, error) {
	held, unproven := s.stand(ctx, name, p)
	prepared, err := p.InDoubt(ctx, s.o.Coordinator+":")
	if err != nil {
		return nil, fmt.Errorf("saga: ask %s: %w", name, err)
	}
	found := make([]Doubt, 0, len(prepared))
	ids := make([]uuid.UUID, 0, len(prepared))
	for _, one := range prepared {
		d := Doubt{Participant: name, Prepared: one, life: held.incarnation}
		var ok bool
		if d.Saga, d.Term, ok = ParseGID(s.o.Coordinator, one.GID); ok { // Else it is none that we could have made.
			found, ids = append(found, d), append(ids, d.Saga)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	// Read after the prepared transactions were seen: what was prepared had its intent in the log before.
	known, err := s.store.Find(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("saga: read the log: %w", err)
	}
	byID := make(map[uuid.UUID]*Saga, len(known))
	for _, saga := range known {
		byID[saga.ID] = saga
	}
	for i := range found {
		s.judge(ctx, &found[i], byID[found[i].Saga], held, unproven)
	}
	return found, nil
}

// judge decides on a prepared transaction. The log's word counts where it can't have lost what it knew: of what was prepared
// since its present incarnation began. Of what is older, and of what it doesn't know, the siblings are asked for first.
func (s *Service) judge(ctx context.Context, d *Doubt, saga *Saga, held standing, unproven error) {
	d.Verdict = DecideInDoubt(saga, d.Term)
	switch {
	case errors.Is(unproven, ErrDisowned) || s.disowned(nil):
		d.Verdict, d.Reason = Undecided, ReasonDisowned
		return
	case errors.Is(unproven, ErrHistoryLost):
		d.Verdict, d.Reason = Undecided, ReasonHistory
		return
	case unproven != nil:
		d.Verdict, d.Reason = Undecided, ReasonUnproven
		return
	case d.Verdict == Leave, d.Verdict == CommitBranch, d.Verdict == RollbackBranch && !d.At.Before(held.since):
		return
	}
	var t siblings
	if saga != nil || d.Age >= s.o.DoubtAge {
		t = s.askSiblings(ctx, d)
	}
	d.Verdict, d.Reason = decideUnknown(saga != nil, d.Age, s.o.DoubtAge, t)
	if s.disowned(nil) { // One of the others has just said so.
		d.Verdict, d.Reason = Undecided, ReasonDisowned
	}
}

// askSiblings asks all participants for marks of a branch's siblings. Each must have let this log prove itself: what another
// incarnation may still commit there is not known.
func (s *Service) askSiblings(ctx context.Context, d *Doubt) siblings {
	t := siblings{all: true}
	for _, name := range s.Participants() {
		p := s.o.Participants[name]
		if _, err := s.stand(ctx, name, p); err != nil {
			t.all = false
			continue
		}
		done, err := p.Committed(ctx, d.Saga)
		t.all = t.all && err == nil
		for _, gid := range done {
			_, term, ok := ParseGID(s.o.Coordinator, gid)
			t.committed = t.committed || gid == "" || ok && term == d.Term
		}
	}
	return t
}

// Resolve settles once the prepared transactions that no run will settle, in every participant. It returns the errors of
// those that could not be asked, after having asked all.
func (s *Service) Resolve(ctx context.Context) error {
	var group sync.WaitGroup
	failures := make([]error, len(s.o.Participants))
	for i, name := range s.Participants() {
		// One that does not answer must not keep the others in doubt.
		group.Go(func() { failures[i] = s.resolveIn(ctx, name, s.o.Participants[name]) })
	}
	group.Wait()
	return errors.Join(failures...)
}

func (s *Service) resolveIn(ctx context.Context, name string, p Participant) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	doubts, err := s.doubts(ctx, name, p)
	failures := []error{err}
	for i := range doubts {
		if err := s.resolve(ctx, p, &doubts[i]); err != nil {
			failures = append(failures, fmt.Errorf("saga: settle %s in %s: %w", doubts[i].GID, name, err))
		}
	}
	return errors.Join(failures...)
}

func (s *Service) resolve(ctx context.Context, p Participant, d *Doubt) (err error) {
	switch d.Verdict {
	case Leave, Undecided:
		return nil
	case CommitBranch:
		s.runs.Lock()
		r := s.runs.Runs[d.Saga]
		here := r != nil && r.Of.active
		s.runs.Unlock()
		if here {
			return nil // Its run is about to do so.
		}
	case RollbackBranch:
	}
	err = p.EndPrepared(ctx, d.GID, d.Verdict == CommitBranch, s.o.Coordinator, d.life)
	if err == nil {
		s.observe(func(o Observer) { o.Resolved(d.Verdict == CommitBranch) })
		s.o.Logger.InfoContext(ctx, "prepared transaction settled", "gid", d.GID, "verdict", string(d.Verdict))
	}
	return err
}

// Close takes no more sagas and stops those that run here, each after the step that is under way; others go on with them at
// once. It waits for that up to ctx.
func (s *Service) Close(ctx context.Context) error {
	// Closing the reads answers whoever still waits, at the latest when ctx ends.
	if err := s.runs.Close(ctx, func() { _ = s.reads.Close(ctx) }); err != nil {
		return fmt.Errorf("saga: runs were still under way: %w", err)
	}
	return nil
}
