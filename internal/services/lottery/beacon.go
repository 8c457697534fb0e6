package lottery

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/fairdraw"
)

// Beacon is what a campaign in beacon mode knows of the public randomness that decides it. The chain is fixed when the
// campaign is made; the seal comes with the last sale, and neither is ever changed.
type Beacon struct {
	Chain fairdraw.Chain
	Seal  *Seal // nil before everything is sold

	// Attempts is how often fetching the round has failed since it was due. Failure is why the last attempt failed, one of the
	// names of beacon.Failure; empty before the first.
	Attempts int
	Failure  string
	// Due says that the round should be there by the database's clock, and Delayed that it should have been for longer than
	// [DelayedAfter].
	Due     bool
	Delayed bool
	// Seen is how many witnesses of the public log have cosigned the seal before its round was due.
	Seen int
	// Early says that the round was published before it was due by the database's clock. Then that clock is slow, and somebody
	// may have known the round when it was named.
	Early bool
}

// DelayedAfter is how long after its time a round that is missing is called late. Networks take a second or so to sign one
// and to pass it on.
const DelayedAfter = 10 * time.Second

// Seal is the durable intent to draw: what was sold, and the round that decides among it. It is committed with the last
// sale, before anybody can know the round.
type Seal struct {
	Root     [32]byte // of the sold positions
	Round    uint64
	SealedAt time.Time
	DueAt    time.Time // when the round is to appear
}

// Wait is a sealed campaign whose round is to be asked for.
type Wait struct {
	Campaign Campaign // its ID, and its beacon with the seal
	// Early says that the round is not due yet by the database's clock. It is asked for once before, to find out whether it
	// is known already.
	Early bool
}

// ErrNoBeacon is returned when a campaign in beacon mode is made where no beacon is configured.
var ErrNoBeacon = errors.New("this server has no beacon: draw must be \"instant\"")

// MaxWitnesses is the most witnesses that a campaign may require.
const MaxWitnesses = 15

// UnwitnessedAfter is how long after its round was due a campaign counts as unwitnessed for good, for which too few witnesses have seen the
// seal: what they have signed before is known by then.
const UnwitnessedAfter = time.Minute

// WitnessesError is returned for a campaign that requires more witnesses than the server's log has.
type WitnessesError struct{ Required, Asked int }

func (e *WitnessesError) Error() string {
	return fmt.Sprintf("the campaign requires %d witnesses of the log, and this server asks %d", e.Required, e.Asked)
}

// UnwitnessedError is returned when a draw is asked for whose seal too few witnesses have seen before its round. Nothing has changed. After
// [UnwitnessedAfter] it can't be drawn any more, and can be cancelled.
type UnwitnessedError struct{ Required, Seen int }

func (e *UnwitnessedError) Error() string {
	return fmt.Sprintf("%d witnesses of the log have cosigned the seal before the round was due, and %d are required", e.Seen, e.Required)
}

// NotSealedError is returned where a campaign has no seal that witnesses of the public log have seen before its round.
type NotSealedError struct{ Why string }

func (e *NotSealedError) Error() string { return e.Why }

// unwitnessed reports whether a campaign can never be drawn, because too few witnesses have seen its seal in time.
func (s *State) unwitnessed() bool {
	b := s.Campaign.Beacon
	return b != nil && b.Seal != nil && b.Seen < s.Campaign.Witnesses && s.Book.Now().Sub(b.Seal.DueAt) > UnwitnessedAfter
}

// ErrWrongRound is returned when a draw is to be completed with another round than the one that was named.
var ErrWrongRound = errors.New("the round is not the one that was named")

// ErrSealBroken is returned when what was sold is not what was sealed. Nothing is drawn then.
var ErrSealBroken = errors.New("the sold positions are not those that were sealed")

// BeaconPendingError is returned when the draw of a sealed campaign is asked for whose round is not there. Nothing has
// changed; the draw follows when the round appears.
type BeaconPendingError struct {
	Round   uint64
	DueAt   time.Time
	Due     bool
	Failure string // what the last attempt came to, in one word; empty before the first
}

func (e *BeaconPendingError) Error() string {
	at := e.DueAt.UTC().Format(time.RFC3339)
	switch {
	case !e.Due:
		return fmt.Sprintf("the draw waits for round %d of the beacon, due at %s", e.Round, at)
	case e.Failure == "":
		return fmt.Sprintf("the draw waits for round %d of the beacon, which was due at %s", e.Round, at)
	}
	return fmt.Sprintf("the draw waits for round %d of the beacon, which was due at %s: %s", e.Round, at, e.Failure)
}

// seal fixes what was sold and names the round that decides. It happens once: a second round would be a second draw.
func (s *State) seal() error {
	c, now := s.Campaign, s.now()
	if c.Beacon == nil || c.Beacon.Seal != nil || c.SoldPositions != c.TotalPositions {
		panic("lottery: a seal where there can be none")
	}
	root, err := fairdraw.Root(c.ID.String(), SealedPositions(c, s.Inventory.Owners()))
	if err != nil {
		return fmt.Errorf("lottery: seal campaign %s: %w", c.ID, err)
	}
	round := c.Beacon.Chain.NameRound(now, s.Lead)
	due := c.Beacon.Chain.TimeOf(round)
	if due.Sub(now) < c.Beacon.Chain.Period() {
		panic("lottery: the named round is too near")
	}
	c.Beacon.Seal = &Seal{Root: root, Round: round, SealedAt: now, DueAt: due}
	s.Sealed = true
	s.change()
	return nil
}

// beaconInput adds the round to what the draw is computed from, or says why it cannot.
func (s *State) beaconInput(in *fairdraw.Input, round *fairdraw.Round) error {
	b := s.Campaign.Beacon
	if b == nil || b.Seal == nil {
		panic("lottery: a draw in beacon mode without a seal")
	}
	if round == nil {
		return &BeaconPendingError{Round: b.Seal.Round, DueAt: b.Seal.DueAt, Due: b.Due, Failure: b.Failure}
	}
	if round.Number != b.Seal.Round || len(round.Signature) == 0 {
		return ErrWrongRound
	}
	if b.Seen < s.Campaign.Witnesses {
		return &UnwitnessedError{Required: s.Campaign.Witnesses, Seen: b.Seen}
	}
	in.Beacon = round.Signature
	return nil
}
