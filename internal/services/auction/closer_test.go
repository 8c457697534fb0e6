package auction_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

const (
	// clockSkew sets the database's clock of these tests apart from the local one.
	clockSkew = 3*time.Hour + 137*time.Millisecond
	// roundTrip is how long its answers take; its clock is read half way.
	roundTrip = 6 * time.Millisecond
	// punctual is how late a close may begin: the estimate of the clock is behind by at most half a round trip.
	punctual = roundTrip
)

// stage is a database as a closer sees it.
type stage struct {
	mu        sync.Mutex
	ahead     time.Duration // of the database's clock
	slow      time.Duration // added to every reading
	auctions  map[uuid.UUID]*staged
	readFails int
	reads     int
	closes    []closing
	counted   []counted
	most      int // closes at a time
	now       int

	during sync.WaitGroup // what happens while a closer leads
}

type staged struct {
	auction.Auction

	fails      int  // so many attempts to close fail
	hangs      bool // attempts to close end with their context
	superseded bool
}

type closing struct {
	id    uuid.UUID
	round int
	term  int64
	late  time.Duration
	noop  bool
}

type counted struct {
	id uuid.UUID
	auction.Event
	auction.CountdownData
}

func newStage() *stage { return &stage{ahead: clockSkew, auctions: map[uuid.UUID]*staged{}} }

func (s *stage) clock() time.Time { return time.Now().Add(s.ahead) }

// add starts an auction, whose first round ends after the first duration.
func (s *stage) add(durations ...time.Duration) *staged {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &staged{Auction: auction.Auction{ID: uuid.New(), Status: auction.StatusActive}}
	for i, d := range durations {
		a.Rounds = append(a.Rounds, auction.Round{Number: i + 1, Duration: d, Status: auction.RoundPending})
	}
	a.next(s.clock())
	s.auctions[a.ID] = a
	return a
}

// next opens the next round, if any.
func (a *staged) next(now time.Time) {
	if a.CurrentRound == len(a.Rounds) {
		a.Status = auction.StatusCompleted
		return
	}
	r := &a.Rounds[a.CurrentRound]
	a.CurrentRound++
	end := now.Add(r.Duration)
	r.Status, r.EndsAt = auction.RoundActive, &end
}

func (s *stage) extend(a *staged, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := a.Open().EndsAt.Add(by)
	a.Open().EndsAt = &end
}

// Running is the Reader.
func (s *stage) Running(context.Context) (open []auction.Running, now time.Time, err error) {
	time.Sleep(roundTrip / 2)
	s.mu.Lock()
	s.reads++
	if s.readFails > 0 {
		s.readFails--
		s.mu.Unlock()
		return nil, now, errors.New("no answer")
	}
	for _, a := range s.auctions {
		if r := a.Open(); r != nil {
			open, now = append(open, auction.Running{Auction: a.ID, Round: r.Number, EndsAt: *r.EndsAt}), s.clock()
		}
	}
	slow := s.slow
	s.mu.Unlock()
	slices.SortFunc(open, func(a, b auction.Running) int { return a.EndsAt.Compare(b.EndsAt) })
	time.Sleep(roundTrip/2 + slow)
	return open, now, nil
}

func (s *stage) execute(ctx context.Context, id uuid.UUID, c command.Command[auction.Op]) (command.Answer, error) {
	op, ok := c.Op.(auction.CloseRound)
	if !ok {
		return command.Answer{}, errors.New("not a close")
	}
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	a := s.auctions[id]
	hangs := a.hangs
	if a.fails > 0 {
		a.fails--
		s.now--
		s.mu.Unlock()
		return command.Answer{}, command.ErrUnavailable
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
	}()
	if hangs {
		<-ctx.Done()
		return command.Answer{}, ctx.Err()
	}
	s.mu.Lock()
	if a.superseded {
		s.mu.Unlock()
		return command.Answer{Err: auction.ErrSuperseded}, nil
	}
	r, now := a.Open(), s.clock()
	done := closing{id: id, round: op.Round, term: op.Term}
	done.noop = r == nil || r.Number != op.Round || now.Before(*r.EndsAt)
	if !done.noop {
		done.late = now.Sub(*r.EndsAt)
		r.Status = auction.RoundCompleted
		a.next(now)
	}
	s.closes = append(s.closes, done)
	copied := a.Auction
	copied.Rounds = slices.Clone(a.Rounds)
	s.mu.Unlock()
	time.Sleep(roundTrip / 2)
	if done.noop {
		return command.Answer{Result: (*auction.Auction)(nil)}, nil
	}
	return command.Answer{Result: &copied}, nil
}

func (s *stage) broadcast(id uuid.UUID, e auction.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := e.Data.(auction.CountdownData)
	if !ok {
		panic("not a countdown")
	}
	s.counted = append(s.counted, counted{id: id, Event: e, CountdownData: data})
}

func (s *stage) closer() *auction.Closer {
	return &auction.Closer{Reader: s, Execute: s.execute, Broadcast: s.broadcast}
}

// lead runs a closer under a term for a while.
func (s *stage) lead(t *testing.T, term int64, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	s.closer().Lead(ctx, term)
	s.during.Wait()
}

// checkCloses makes sure that exactly the given rounds of an auction were closed, each in time.
func (s *stage) checkCloses(t *testing.T, a *staged, within time.Duration, rounds ...int) {
	t.Helper()
	var closed []int
	for _, c := range s.closes {
		if c.id == a.ID && !c.noop {
			closed = append(closed, c.round)
			if c.late > within {
				t.Errorf("round %d was closed %s late", c.round, c.late)
			}
		}
	}
	if !slices.Equal(closed, rounds) {
		t.Errorf("closed rounds %v, want %v", closed, rounds)
	}
}

// checkCountdown makes sure that an auction was counted down once in each of so many consecutive seconds, on time and
// truthfully.
func (s *stage) checkCountdown(t *testing.T, a *staged, seconds int) {
	t.Helper()
	var last time.Time
	n := 0
	for _, c := range s.counted {
		if c.id != a.ID {
			continue
		}
		n++
		second := c.At.Truncate(time.Second)
		if late := c.At.Sub(second); late > punctual {
			t.Errorf("counted at %s", c.At)
		}
		if !last.IsZero() && !second.Equal(last.Add(time.Second)) {
			t.Errorf("counted at %s after %s", second, last)
		}
		last = second
		if c.Type != auction.EventCountdown || c.Seq != 0 || c.RemainingMS != time.Time(c.EndsAt).Sub(c.At).Milliseconds() || c.RemainingMS < 0 {
			t.Errorf("told %+v", c)
		}
	}
	if n != seconds {
		t.Errorf("counted %d times, want %d", n, seconds)
	}
}

func TestRoundsAreCountedDownAndClosedAtTheirEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		a := s.add(2500*time.Millisecond, 3*time.Second, 30*time.Millisecond, time.Hour)
		b := s.add(time.Hour)
		s.lead(t, 7, 10*time.Second)
		s.checkCloses(t, a, punctual, 1, 2, 3)
		s.checkCloses(t, b, 0)
		s.checkCountdown(t, a, 10)
		s.checkCountdown(t, b, 10)
		for _, c := range s.closes {
			if c.term != 7 || c.noop {
				t.Errorf("closed with %+v", c)
			}
		}
		for _, c := range s.counted {
			if c.id == b.ID && c.Round != 1 {
				t.Errorf("told %+v", c)
			}
		}
		if s.reads < 20 || s.reads > 25 {
			t.Errorf("%d readings", s.reads)
		}
	})
}

func TestOverdueRoundsAreClosedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		var overdue []*staged
		for range 40 {
			overdue = append(overdue, s.add(time.Second))
		}
		time.Sleep(time.Minute)
		start := s.clock()
		s.lead(t, 1, 500*time.Millisecond)
		for _, a := range overdue {
			s.checkCloses(t, a, s.clock().Sub(start)+time.Minute, 1)
		}
		for _, c := range s.closes {
			// One reading, and then forty rounds, eight at a time.
			if took := c.late - 59*time.Second; took > 6*roundTrip {
				t.Errorf("closed %s after the start", took)
			}
		}
		if s.most != 8 {
			t.Errorf("%d closes at a time", s.most)
		}
	})
}

func TestAnExtensionIsRespected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		a := s.add(2100*time.Millisecond, time.Hour)
		s.during.Go(func() {
			// Between the last reading and the end: the closer finds out by trying, and looks again.
			time.Sleep(2090 * time.Millisecond)
			s.extend(a, 250*time.Millisecond)
			time.Sleep(250 * time.Millisecond)
			s.extend(a, 3*time.Second)
		})
		s.lead(t, 1, 8*time.Second)
		s.checkCloses(t, a, punctual, 1)
		if noops := len(s.closes) - 1; noops != 2 {
			t.Errorf("%d vain attempts", noops)
		}
		s.checkCountdown(t, a, 8)
	})
}

func TestNewAuctionsAreNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		var a, b *staged
		s.during.Go(func() {
			time.Sleep(1510 * time.Millisecond)
			a = s.add(20*time.Millisecond, time.Hour)
			b = s.add(5 * time.Second)
		})
		s.lead(t, 1, 4*time.Second)
		s.checkCloses(t, a, time.Second, 1)
		s.checkCountdown(t, a, 2)
		s.checkCountdown(t, b, 2)
	})
}

func TestStuckClosesDelayNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		for range 7 {
			s.add(time.Second).hangs = true
		}
		a := s.add(1500*time.Millisecond, 1500*time.Millisecond, 20*time.Second)
		s.lead(t, 1, 15*time.Second)
		s.checkCloses(t, a, punctual, 1, 2)
		s.checkCountdown(t, a, 15)
		if s.most != 8 {
			t.Errorf("%d closes at a time", s.most)
		}
	})
}

func TestFailuresAreTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		a := s.add(1100 * time.Millisecond)
		a.fails = 1
		s.readFails = 1
		s.during.Go(func() { // A close that failed does not need the next look.
			time.Sleep(time.Second)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.readFails = 100
		})
		s.lead(t, 1, 4*time.Second)
		s.checkCloses(t, a, time.Second, 1)
		if len(s.counted) != 1 {
			t.Errorf("counted %+v", s.counted)
		}
	})
}

// TestALastingFailureIsToldNowAndThen has a round that can't be closed for 65 s: that is logged at once, and twice more, and the round is closed as soon as it can be.
func TestALastingFailureIsToldNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		a := s.add(time.Second, time.Hour)
		a.fails = 130
		s.during.Go(func() { // What is known is told without a look, too.
			time.Sleep(5 * time.Second)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.readFails = 1000
		})
		var log strings.Builder
		var longest, last time.Duration
		closer := s.closer()
		closer.Overdue = func(d time.Duration) { longest, last = max(longest, d), d }
		closer.Logger = slog.New(slog.NewTextHandler(&log, nil))
		ctx, cancel := context.WithTimeout(t.Context(), 80*time.Second)
		defer cancel()
		closer.Lead(ctx, 1)
		s.during.Wait()
		if told := strings.Count(log.String(), "round not closed"); told != 3 || a.fails != 0 {
			t.Errorf("told %d times, with %d failures left:\n%s", told, a.fails, &log)
		}
		if longest < 60*time.Second || longest > 66*time.Second || last != 0 {
			t.Errorf("overdue by %v at most, and by %v at the end", longest, last)
		}
		s.checkCloses(t, a, 66*time.Second, 1)
	})
}

// TestSlowReadingsShiftNothing lets every reading but the first take most of a second.
func TestSlowReadingsShiftNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		a := s.add(5300*time.Millisecond, time.Hour)
		s.during.Go(func() {
			time.Sleep(100 * time.Millisecond)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.slow = 900 * time.Millisecond
		})
		s.lead(t, 1, 9*time.Second)
		s.checkCloses(t, a, punctual, 1)
		s.checkCountdown(t, a, 9)
	})
}

// TestAReadingOlderThanACloseIsNotBelieved has a round close while a slow reading, which still lists it, is under way.
func TestAReadingOlderThanACloseIsNotBelieved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		a := s.add(1040*time.Millisecond, 300*time.Millisecond, time.Hour)
		s.during.Go(func() {
			time.Sleep(900 * time.Millisecond)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.slow = time.Second
		})
		s.lead(t, 1, 3*time.Second)
		s.checkCloses(t, a, punctual, 1, 2)
		if len(s.closes) != 2 {
			t.Errorf("closed %+v", s.closes)
		}
	})
}

// TestTheDatabasesClockIsFollowed sets it forward and back, as a failover to another machine would.
func TestTheDatabasesClockIsFollowed(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"forward": time.Minute, "back": -time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage()
				s.add(time.Hour)
				s.during.Go(func() {
					time.Sleep(5 * time.Second)
					s.mu.Lock()
					defer s.mu.Unlock()
					s.ahead += step
				})
				s.lead(t, 1, 10*time.Second)
				// One countdown may come between two whole seconds, or be missing, where the clock jumps.
				if n := len(s.counted); n < 9 || n > 11 {
					t.Errorf("counted %d times", n)
				}
				last := s.counted[len(s.counted)-1]
				if off := s.clock().Sub(last.At); off < 0 || off > time.Second {
					t.Errorf("the last countdown says %s at %s", last.At, s.clock())
				}
			})
		})
	}
}

func TestANewerLeaderEndsTheTenure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.add(time.Second).superseded = true
		s.add(time.Second).hangs = true
		start := time.Now()
		s.lead(t, 1, time.Hour)
		if took := time.Since(start); took > time.Second+2*roundTrip {
			t.Errorf("led for %s", took)
		}
	})
}

func TestALeaderGoesOnWhereAnotherEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		a := s.add(2*time.Second, 2*time.Second, time.Hour)
		s.lead(t, 1, 1500*time.Millisecond)
		s.lead(t, 2, 4*time.Second)
		s.checkCloses(t, a, punctual, 1, 2)
		s.checkCountdown(t, a, 5)
		if slices.ContainsFunc(s.closes, func(c closing) bool { return c.term != 2 }) {
			t.Errorf("closed %+v", s.closes)
		}
	})
}
