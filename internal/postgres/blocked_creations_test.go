package postgres

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// TestALockedRowStopsItsOwnCreationsAlone: all creations of a kind share a lane. Those that need no row of the locked ones go
// on, whatever the others wait for.
func TestALockedRowStopsItsOwnCreationsAlone(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct {
		lock string
		make func(t *testing.T) (db *DB, create func(of string) error)
	}{
		"campaigns": {strangeAccount, func(t *testing.T) (*DB, func(string) error) {
			t.Helper()
			v, _ := newVenue(t, lottery.Options{})
			return v.db, func(of string) error {
				return answerErr(v.Create(t.Context(), own[lottery.Op](lottery.Create{
					Name: "spring", BaseLength: new(3), Price: new(int64(10)), Currency: "EUR", Beneficiary: of,
					Prizes: []lottery.Prize{{Name: "grand", Quantity: 1}},
				})))
			}
		}},
		"auctions": {strangeAccount, func(t *testing.T) (*DB, func(string) error) {
			t.Helper()
			h := newHouse(t, database(t))
			fund(t, newLedgerService(t, h.db), 1, "ann", "ben")
			return h.db, func(of string) error {
				return answerErr(h.service.Create(t.Context(), own[auction.Op](auction.Create{
					Title: "a", Currency: "EUR", Seller: of, MinBid: 1, MinIncrement: 1, Rounds: []auction.NewRound{{Winners: 1, Duration: time.Hour}},
				})))
			}
		}},
		"publications": {`SELECT FROM targets WHERE name = $1 FOR UPDATE`, func(t *testing.T) (*DB, func(string) error) {
			t.Helper()
			p := newPress(t)
			p.target("ann")
			p.target("ben")
			return p.db, func(of string) error {
				return answerErr(p.service.Create(t.Context(), own[publish.Op](publish.Create{Target: of, Payload: []byte(`1`)})))
			}
		}},
		"automations": {`SELECT FROM targets WHERE name = $1 FOR UPDATE`, func(t *testing.T) (*DB, func(string) error) {
			t.Helper()
			p := newPress(t)
			p.target("ann")
			p.target("ben")
			return p.db, func(of string) error {
				rule := publish.Rule{Every: time.Hour, Zone: time.UTC}
				return answerErr(p.service.Create(t.Context(), own[publish.Op](publish.CreateAutomation{
					Name: newID().String(), Target: of, Rule: rule, Pick: publish.PickFirst, DailyQuota: 1,
				})))
			}
		}},
		"accounts": {
			`INSERT INTO accounts (id, currency, available, held, version, created_at) VALUES ($1, 'EUR', 0, 0, 1, now())`,
			func(t *testing.T) (*DB, func(string) error) {
				t.Helper()
				db := open(t, Options{URL: database(t)})
				s := newLedgerService(t, db)
				fund(t, s, 1, "ben")
				return db, func(of string) error {
					if of == "ben" {
						return answerErr(s.Execute(t.Context(), own[ledger.Op](ledger.Deposit{Account: of, Amount: 1})))
					}
					return answerErr(s.Execute(t.Context(), own[ledger.Op](ledger.CreateAccount{ID: of, Currency: "EUR"})))
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, create := scene.make(t)
			goAway := stranger(t, db, scene.lock, "ann")
			waiting := []<-chan error{stays(func() error { return create("ann") })}
			isWaiting(t, db, "a creation", waiting[0])
			for range 20 {
				waiting = append(waiting, stays(func() error { return create("ann") }))
			}
			neighbour(t, "another", func() error { return create("ben") })
			goAway()
			made := 0
			for _, done := range waiting {
				if err := <-done; err == nil {
					made++
				} else if name != "accounts" {
					t.Errorf("a creation whose row has become free: %v", err)
				}
			}
			if name == "accounts" && made != 1 { // The stranger's was rolled back, and the id is there once.
				t.Errorf("%d of the accounts were made", made)
			}
			nothingBlocked(t, db)

			stranger(t, db, scene.lock, map[bool]string{true: "cid", false: "ann"}[name == "accounts"])
			if err := create(map[bool]string{true: "cid", false: "ann"}[name == "accounts"]); !isBlocked(err) {
				t.Errorf("a creation whose row stays locked: %v", err)
			}
		})
	}
}
