package postgres

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon/beacontest"
	"github.com/fairlead-dev/fairlead/internal/archive"
	"github.com/fairlead-dev/fairlead/internal/audit"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions/partitionstest"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestArchivedBeaconProof archives the purchases of a campaign that a beacon has decided. The proof that is made of the file is the one that servers gave, and
// the beacon's signature in it is verified. The files agree with the database, unless the seal's root is another one.
func TestArchivedBeaconProof(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Partitions)
	db := open(t, Options{URL: pgtest.NewDatabase(t, soldLongAgo)})
	conn := pgtest.Connect(t, db.url)
	of := beacontest.New(t)
	drawn, sealed := partitionstest.CampaignOf(firstMonth(), partitionstest.Drawn), partitionstest.CampaignOf(firstMonth(), partitionstest.Cancelled)
	decidedByBeacon(t, conn, of, drawn)
	sealedThenCancelled(t, conn, of, sealed)
	service := lottery.NewService(NewLottery(db), lottery.Options{Beacon: &lottery.BeaconOptions{Chain: of.Chain()}})
	t.Cleanup(func() { closing(t, service.Close) })
	campaign, err := service.Campaign(t.Context(), drawn)
	testwait.Must(t, err)
	var before, after bytes.Buffer
	testwait.Must(t, lottery.WriteProof(t.Context(), service, campaign, nil, &before))
	testwait.Must(t, audit.Audit(t.Context(), conn, audit.Lottery))

	directory := t.TempDir()
	r, err := db.Archive(t.Context(), archive.Options{Before: firstMonth().AddDate(0, 1, 0), Directory: directory})
	if err != nil || len(r.Made) != 1 || r.Purchases != "" {
		t.Fatalf("archived %+v, %v", r, err)
	}
	testwait.Must(t, db.WriteArchivedProof(t.Context(), directory, drawn, &after))
	if after.String() != before.String() {
		t.Errorf("the proof from the archive is\n%s\nand was\n%s", after.String(), before.String())
	}
	proof, err := fairdraw.ParseProof(after.Bytes())
	testwait.Must(t, err)
	testwait.Must(t, proof.VerifyBeacon(beacon.Trust(of.Chain().Hash())))
	refusedProof(t, db, directory, sealed, lottery.ErrNotDrawn.Error())
	testwait.Must(t, audit.Audit(t.Context(), conn, audit.Lottery))

	check := func() error {
		_, err := archive.Check(t.Context(), db.pool, directory, nil)
		return err
	}
	testwait.Must(t, check())
	for _, id := range []uuid.UUID{drawn, sealed} {
		turn := func() {
			for _, table := range []string{"draws", "campaign_beacons"} {
				testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `UPDATE `+table+` SET root = set_byte(root, 0, 255 - get_byte(root, 0)) WHERE campaign = $1`, id)))
			}
		}
		turn()
		if err := check(); err == nil {
			t.Errorf("the files agree with campaign %s, of which another root was sealed", id)
		}
		turn()
	}
	testwait.Must(t, check())
}

// decidedByBeacon has a campaign that was drawn be one in beacon mode.
func decidedByBeacon(t *testing.T, conn *pgx.Conn, of *beacontest.Server, id uuid.UUID) {
	t.Helper()
	c := &lottery.Campaign{ID: id, Layers: []lottery.Layer{{Positions: 2}, {Positions: 3, First: 2}}, Prizes: []lottery.Prize{{Name: "grand", Quantity: 1}, {Name: "small", Layer: 2, Quantity: 2}}}
	seed := sha256.Sum256(id[:])
	rows, err := conn.Query(t.Context(), `SELECT account FROM purchases WHERE campaign = $1 ORDER BY ordinal`, id)
	testwait.Must(t, err)
	owners, err := pgx.CollectRows(rows, pgx.RowTo[string])
	testwait.Must(t, err)
	round := seal(t, conn, of, c, owners)
	signed := of.Sign(round)
	in := lottery.NewDrawInput(c, seed, owners)
	in.Beacon = signed.Signature
	draw, err := fairdraw.Draw(in)
	testwait.Must(t, err)
	winners, err := json.Marshal(draw.Winners)
	testwait.Must(t, err)
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `UPDATE draws SET winners = $2, beacon = $3, beacon_round = $4 WHERE campaign = $1`, id, string(winners), signed.Signature, signed.Number)))
}

// sealedThenCancelled has a campaign that was cancelled be one in beacon mode, which had sold what it had.
func sealedThenCancelled(t *testing.T, conn *pgx.Conn, of *beacontest.Server, id uuid.UUID) {
	t.Helper()
	c := &lottery.Campaign{ID: id, Layers: []lottery.Layer{{Positions: 2}}}
	owners := make([]string, 2)
	for i := range owners {
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `UPDATE purchases SET number = $2, ordinal = $2 - 1 WHERE campaign = $1 AND seq = $2`, id, i+1)))
		testwait.Must(t, conn.QueryRow(t.Context(), `SELECT account FROM purchases WHERE campaign = $1 AND seq = $2`, id, i+1).Scan(&owners[i]))
	}
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `UPDATE campaigns SET total_positions = 2 WHERE id = $1`, id)))
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `UPDATE campaign_layers SET positions = 2 WHERE campaign = $1`, id)))
	seal(t, conn, of, c, owners)
}

// seal writes the seal of a campaign's sales, and returns its round.
func seal(t *testing.T, conn *pgx.Conn, of *beacontest.Server, c *lottery.Campaign, owners []string) (round uint64) {
	t.Helper()
	chain, err := json.Marshal(of.Chain())
	testwait.Must(t, err)
	root, err := fairdraw.Root(c.ID.String(), lottery.SealedPositions(c, owners))
	testwait.Must(t, err)
	round = 1000
	due := of.Chain().TimeOf(round)
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `UPDATE campaigns SET draw_mode = 'beacon' WHERE id = $1`, c.ID)))
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `INSERT INTO campaign_beacons (campaign, chain, root, round, sealed_at, due_at) VALUES ($1, $2, $3, $4, $5, $6)`,
		c.ID, string(chain), root[:], round, due.Add(-2*time.Second), due)))
	return round
}
