package postgres

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw/beacon/beacontest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// TestRunLeasedByAClockThatWasAhead: the run of a process that died counts as interrupted a lease after the first look.
func TestRunLeasedByAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	store := NewMultidraws(db)
	s := newMultidraws(t, &silent{mortal{Multidraws: store}}, multidraw.Options{})
	dead := made(t, s, inRange("a", 30_000, true)).ID
	exec(t, db, `UPDATE multidraws SET lease_expires_at = lease_expires_at + interval '1 hour'`)
	testwait.Eventually(t, patience, "the run is interrupted", func() bool {
		lost, err := store.Expire(t.Context(), 100*time.Millisecond)
		testwait.Must(t, err)
		return slices.Equal(lost, []uuid.UUID{dead})
	})
}

// TestRoundBookedByAClockThatWasAhead: an attempt to get a beacon's round that is booked for an hour from now is made at once.
func TestRoundBookedByAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	v, url := newVenue(t, beaconOptions(t, beacontest.New(t)))
	id := v.sellOut(t)
	exec(t, open(t, Options{URL: url}), `UPDATE campaign_beacons SET next_attempt_at = clock_timestamp() + interval '1 hour'`)
	v.sweepUntilDrawn(t, id)
}
