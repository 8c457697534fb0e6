package postgres

import (
	"fmt"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestALockedStandingBidStopsItsBidderAlone has a session lock a bidder's standing bid and stay away. The other bids go on; the bidder's own wait by
// themselves, and are placed when it is free.
func TestALockedStandingBidStopsItsBidderAlone(t *testing.T) {
	t.Parallel()
	for _, unique := range []bool{false, true} {
		t.Run(fmt.Sprintf("unique amounts %t", unique), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, database(t))
			fund(t, newLedgerService(t, h.db), 100_000, "seller", "ann/'b", "ben", "cat")
			id := h.open(func(c *auction.Create) { c.UniqueAmounts = unique })
			amount := int64(10)
			bid := func(account string) error {
				amount++
				_, err := h.bid(id, account, amount)
				return err
			}
			for _, account := range []string{"ann/'b", "ben", "cat"} {
				testwait.Must(t, bid(account))
			}
			goAway := stranger(t, h.db, `SELECT FROM auction_standing WHERE account = $1 FOR UPDATE`, "ann/'b")
			blocked := stays(func() error { _, err := h.bid(id, "ann/'b", 90_000); return err })
			isWaiting(t, h.db, "a raise", blocked)
			neighbour(t, "a bid", func() error { return bid("ben") })
			h.store.memory.Forget() // So that the next one takes the auction's lock.
			neighbour(t, "a bid under the lock", func() error { return bid("cat") })
			goAway()
			if err := <-blocked; err != nil {
				t.Errorf("the raise whose bid has become free: %v", err)
			}
			nothingBlocked(t, h.db)
			if err := bid("ben"); err != nil {
				t.Error(err)
			}
			if b, err := h.bid(id, "ann/'b", 90_001); err != nil || b.PreviousAmount != 90_000 {
				t.Errorf("%+v, %v", b, err)
			}
		})
	}
}
