package saga

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// FenceEvery is how often a log leaves a new token with each participant. After four times that without one, another
// incarnation of the same log may take over.
const FenceEvery = 3 * time.Second

// fencePatience is the factor of FenceEvery.
const fencePatience = 4

// Errors of a log that has not proven to a participant that it is the one that prepared the transactions there.
var (
	// ErrDisowned is returned when a participant has a token of another incarnation of the log: this one is a copy, or was
	// restored to an earlier point. It ends nothing until an operator lets it adopt the coordinator, see [Service.Adopt].
	ErrDisowned = errors.New("this log is a copy, or was restored to an earlier point: another incarnation of it has gone on (see: fairlead sagas adopt)")
	// ErrUnproven is returned while a log that was restarted, promoted or copied waits to see whether another incarnation is
	// at work.
	ErrUnproven = errors.New("the log's database was started anew, and another copy of it was at work a moment ago")
	// ErrOtherLife ends a run that began under an earlier incarnation of the log.
	ErrOtherLife = errors.New("the log's database was started anew: the transaction is read again")
	// ErrFenced is returned by a participant whose fence another incarnation of the log holds.
	ErrFenced = errors.New("another incarnation of the log may end prepared transactions here")
	// ErrHistoryLost is a reason for [Options].Halted: a database of the coordinator or of a participant has lost commits that it had
	// confirmed. The decision of a prepared transaction, or the mark of its sibling, may be among them.
	ErrHistoryLost = errors.New("a database has lost commits that it had confirmed: an operator has to look, and accept it (see: fairlead doctor)")
	// ErrCoordinatorActive is returned when an operator wants a log to adopt a coordinator that is at work elsewhere.
	ErrCoordinatorActive = errors.New("another incarnation of this log is at work: stop it first")
	// errContended is returned where several processes have moved a fence at once. The next look succeeds.
	errContended = errors.New("the fence was moved by another process")
)

// Fence is what a participant keeps of a coordinator.
type Fence struct {
	// Token is the newest token that the coordinator's log has left here. The log stores a token before it leaves it anywhere.
	Token       uuid.UUID
	Incarnation uuid.UUID
	Since       time.Time     // when this incarnation took it, by the participant's clock
	Age         time.Duration // of the token, likewise
}

// Incarnation is one life of a log, in one run of one database server.
type Incarnation struct {
	ID uuid.UUID
	// Copied says that the log was last used in another database: it was moved or copied by its contents.
	Copied bool
}

// Lineage lets a [Store] prove to participants that it is no copy: it remembers the tokens that it has left.
type Lineage interface {
	// Incarnation returns the present one. It begins another where the database runs in another server process, or on
	// another timeline, than that of the last.
	Incarnation(ctx context.Context) (Incarnation, error)
	// Knows reports whether a token is one of those that the log has lately left anywhere.
	Knows(ctx context.Context, token uuid.UUID) (bool, error)
	// NextToken returns the token that is to follow the one that a participant was seen with. It is the same until that
	// participant was seen with it.
	NextToken(ctx context.Context, participant string, seen uuid.UUID) (uuid.UUID, error)
	// Adopt makes tokens that participants were seen with the log's own, and begins a new incarnation in this database, in
	// the transaction of decide, see [Store].
	Adopt(ctx context.Context, seen map[string]uuid.UUID, keys []idempotency.ID, decide func(*Unit)) error
}

// standing is what one participant has let the log prove.
type standing struct {
	incarnation uuid.UUID
	since       time.Time // by the participant's clock; what was prepared before that may be unknown to the log
}

// fence is this process's memory of one participant's fence.
type fence struct {
	turn chan struct{} // has a value while somebody looks

	// The service's mutex guards these.
	held   standing
	until  time.Time // the next look is due
	failed error     // that of the last look; another follows at once unless it is ErrUnproven
	// disowned says that this very participant has another incarnation's token.
	disowned bool
}

// nameOf finds a branch's participant among the service's.
func (s *Service) nameOf(b *Branch) string {
	if reflect.TypeOf(b.Participant).Comparable() {
		for name, p := range s.o.Participants {
			if reflect.TypeOf(p).Comparable() && p == b.Participant {
				return name
			}
		}
	}
	return b.Name
}

// stand makes sure that this log is the one that may end its transactions in a participant, and leaves a new token there
// when the last is old enough.
func (s *Service) stand(ctx context.Context, name string, p Participant) (standing, error) {
	if s.o.Halted != nil {
		if err := s.o.Halted(); err != nil {
			return standing{}, fmt.Errorf("saga: %s: %w", name, err)
		}
	}
	s.runs.Lock()
	own := s.fences[name]
	if own == nil {
		own = &fence{turn: make(chan struct{}, 1)}
		s.fences[name] = own
	}
	s.runs.Unlock()
	select {
	case own.turn <- struct{}{}:
		defer func() { <-own.turn }()
	case <-ctx.Done():
		return standing{}, ctx.Err()
	}
	asked := time.Now()
	s.runs.Lock()
	held, err := own.held, own.failed
	fresh := asked.Before(own.until) && (err == nil || errors.Is(err, ErrUnproven))
	s.runs.Unlock()
	if fresh {
		return held, err
	}
	elsewhere := s.disowned(own)
	if elsewhere {
		// It leaves tokens nowhere: the incarnation that has taken its place there is to get all participants.
		held, err = standing{}, ErrDisowned
	} else {
		held, err = s.prove(ctx, name, p)
	}
	if err != nil {
		err = fmt.Errorf("saga: prove the log to %s: %w", name, err)
	}
	s.runs.Lock()
	defer s.runs.Unlock()
	if err != nil && (own.failed == nil || own.failed.Error() != err.Error()) {
		s.o.Logger.WarnContext(ctx, "prepared transactions are left in doubt", "error", err)
	}
	own.held, own.failed, own.until = held, err, asked.Add(s.o.FenceEvery)
	if err != nil {
		own.until = asked.Add(s.o.FenceEvery / (2 * fencePauses)) // The sagas of a coordinator look together.
	}
	own.disowned = !elsewhere && errors.Is(err, ErrDisowned)
	return held, err
}

// prove looks at the fence and moves it.
func (s *Service) prove(ctx context.Context, name string, p Participant) (standing, error) {
	const tries = 3
	for range tries {
		life, err := s.incarnation(ctx)
		if err == nil && life.Copied && s.alone() {
			// No other database can have anything of the original's.
			if err = s.store.Adopt(ctx, nil, nil, func(u *Unit) { u.Changed = true }); err == nil {
				life, err = s.incarnation(ctx)
			}
		}
		if err != nil {
			return standing{}, err
		}
		seen, err := p.Fence(ctx, s.o.Coordinator)
		if err != nil {
			return standing{}, err
		}
		var (
			from  uuid.UUID
			known bool
		)
		if seen != nil {
			from = seen.Token
			// Read after the fence: whatever this log has left there, it had before.
			if known, err = s.store.Knows(ctx, from); err != nil {
				return standing{}, err
			}
		}
		move, err := decideFence(life, seen, known, name == s.o.Home, s.o.FenceEvery)
		if err != nil {
			return standing{}, err
		}
		if move {
			token, err := s.store.NextToken(ctx, name, from)
			if err != nil {
				return standing{}, err
			}
			if seen, err = p.MoveFence(ctx, s.o.Coordinator, from, token, life.ID); err != nil {
				return standing{}, err
			}
		}
		if seen != nil {
			return standing{incarnation: life.ID, since: seen.Since}, nil
		}
	}
	return standing{}, errContended
}

// alone reports whether the log's own database is the only participant.
func (s *Service) alone() bool {
	_, home := s.o.Participants[s.o.Home]
	return home && len(s.o.Participants) == 1
}

// incarnation asks the log for its own, and remembers it for the runs that begin.
func (s *Service) incarnation(ctx context.Context) (Incarnation, error) {
	life, err := s.store.Incarnation(ctx)
	if err == nil {
		s.runs.Lock()
		s.life = life.ID
		s.runs.Unlock()
	}
	return life, err
}

// disowned reports whether any participant, other than this one, has a token that this log never had.
func (s *Service) disowned(but *fence) bool {
	s.runs.Lock()
	defer s.runs.Unlock()
	for _, f := range s.fences {
		if f != but && f.disowned {
			return true
		}
	}
	return false
}

// grant is what a process knows when it asks the log for a saga's lease.
type grant struct {
	asked time.Time
	// life is the log's incarnation. It is read before the row is: a run must not end branches in the name of a later one,
	// whose log may have lost what the run knows.
	life uuid.UUID
}

func (s *Service) asking(ctx context.Context) grant {
	s.runs.Lock()
	g := grant{asked: time.Now(), life: s.life}
	s.runs.Unlock()
	if g.life == uuid.Nil {
		if life, err := s.incarnation(ctx); err == nil {
			g.life = life.ID
		} // Else a two-phase transaction gets the error when it looks again.
	}
	return g
}

// standings makes sure that a run may end branches in all of its participants. One that has disowned the log stops it
// everywhere.
func (s *Service) standings(r *run, branches []Branch) error {
	ctx, cancel := context.WithTimeout(r.ctx, sweepTimeout)
	defer cancel()
	for i := range branches {
		held, err := s.stand(ctx, s.nameOf(&branches[i]), branches[i].Participant)
		if err != nil {
			return err
		}
		if held.incarnation != r.life {
			return ErrOtherLife
		}
	}
	if s.disowned(nil) {
		return ErrDisowned
	}
	return nil
}
