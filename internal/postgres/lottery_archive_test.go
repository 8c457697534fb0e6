package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/archive"
	"github.com/fairlead-dev/fairlead/internal/audit"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions/partitionstest"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// soldLongAgo makes a database with two months of history, in each of which campaigns were made.
func soldLongAgo(ctx context.Context, url string) error {
	if err := longAgo(ctx, url); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	for month := range 2 {
		err = errors.Join(err, partitionstest.Sales(ctx, conn, firstMonth().AddDate(0, month, 0), 0))
	}
	return errors.Join(err, conn.Close(ctx))
}

// firstMonth is that of [longAgo].
func firstMonth() time.Time { return time.Date(time.Now().Year()-1, 1, 1, 0, 0, 0, 0, time.UTC) }

// TestArchivedPurchases archives the purchases of one month of two. Readers of these purchases get an error that says so, and reads that need none go on.
// The audit leaves these purchases out, and nothing else.
func TestArchivedPurchases(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Partitions)
	db := open(t, Options{URL: pgtest.NewDatabase(t, soldLongAgo)})
	archivedAt := firstMonth().AddDate(0, 1, 0)
	drawn, cancelled := partitionstest.CampaignOf(firstMonth(), partitionstest.Drawn), partitionstest.CampaignOf(firstMonth(), partitionstest.Cancelled)
	kept := partitionstest.CampaignOf(archivedAt, partitionstest.Drawn)
	before := lottery.NewService(NewLottery(db), lottery.Options{})
	t.Cleanup(func() { closing(t, before.Close) })
	refused := func(id uuid.UUID, op lottery.Op, want error) {
		t.Helper()
		for _, s := range []*lottery.Service{before, lottery.NewService(NewLottery(db), lottery.Options{})} {
			for range 2 { // The second is decided on what the first has left.
				a, err := s.Execute(t.Context(), id, own[lottery.Op](op))
				if err = errors.Join(err, a.Err); !errors.Is(err, want) {
					t.Errorf("%T: %v, want %v", op, err, want)
				}
			}
		}
	}
	refused(drawn, lottery.Buy{Account: "old-03"}, lottery.ErrSoldOut)
	refused(cancelled, lottery.Buy{Account: "old-03"}, lottery.ErrNotActive)
	proof := new(bytes.Buffer)
	campaign, err := before.Campaign(t.Context(), drawn)
	testwait.Must(t, err)
	testwait.Must(t, lottery.WriteProof(t.Context(), before, campaign, nil, proof))
	directory := t.TempDir()
	r, err := db.Archive(t.Context(), archive.Options{Before: archivedAt, Directory: directory})
	if err != nil || len(r.Made) != 1 || r.Purchases != "" {
		t.Fatalf("archived %+v, %v", r, err)
	}

	l, o := NewLottery(db), NewOperator(db)
	reads := map[string]func(id uuid.UUID) (int, error){
		"owners": func(id uuid.UUID) (int, error) {
			all, err := l.Owners(t.Context(), id, 0, 5)
			return len(all), err
		},
		"purchases": func(id uuid.UUID) (int, error) {
			all, err := l.Purchases(t.Context(), id, "", 0, 10)
			return len(all), err
		},
		"statistics": func(id uuid.UUID) (int, error) {
			s, err := l.Statistics(t.Context(), id)
			return s.Buyers + 2, err
		},
		"sold ordinals": func(id uuid.UUID) (int, error) {
			all, err := o.SoldOrdinals(t.Context(), id)
			return len(all), err
		},
		"sales": func(id uuid.UUID) (int, error) {
			all, err := o.Sales(t.Context(), id, []int{1, 2, 3, 4, 5})
			return len(all), err
		},
		"newest purchases": func(id uuid.UUID) (int, error) {
			all, err := o.Purchases(t.Context(), id, "", 10, 10)
			return len(all), err
		},
		"the proof": func(id uuid.UUID) (int, error) {
			c, err := l.Campaign(t.Context(), id)
			testwait.Must(t, err)
			var text bytes.Buffer
			if err := lottery.WriteProof(t.Context(), before, c, nil, &text); err != nil {
				return 0, err
			}
			p, err := fairdraw.ParseProof(text.Bytes())
			testwait.Must(t, err)
			testwait.Must(t, p.Verify())
			return len(p.Positions), nil
		},
	}
	for what, read := range reads {
		for _, id := range []uuid.UUID{drawn, cancelled} {
			if what == "the proof" && id == cancelled {
				continue
			}
			_, err := read(id)
			want := fmt.Sprintf("there is no sale of campaign %s: the history of before %s was archived", id, archivedAt.Format(time.RFC3339))
			if gone, is := errors.AsType[*lottery.SalesNotFoundError](err); !is || gone.Error() != want {
				t.Errorf("%s: %v, want %s", what, err, want)
			}
		}
		if n, err := read(kept); err != nil || n != 5 {
			t.Errorf("%s of a campaign that was not archived: %d, %v", what, n, err)
		}
		if what == "the proof" {
			continue
		}
		if _, err := read(newID()); err != nil {
			t.Errorf("%s of no campaign: %v", what, err)
		}
	}
	if all, err := l.AccountPurchases(t.Context(), "old-00", uuid.Max, 10); err != nil || len(all) != 3 {
		t.Errorf("an account's purchases: %+v, %v", all, err)
	}

	testArchivedProof(t, db, directory, proof.String(), drawn, map[uuid.UUID]string{
		cancelled: lottery.ErrNotDrawn.Error(), kept: archive.ErrNotArchived.Error(), newID(): "there is no campaign",
	})

	e := NewEvents(db, testViews())
	for _, stream := range []struct {
		id   uuid.UUID
		sold int64
		rest int
	}{{drawn, 5, 1}, {cancelled, 2, 0}} {
		topic := lottery.Topic(stream.id)
		for after := range stream.sold {
			_, err := e.Events(t.Context(), topic, after, 10)
			if expired, is := errors.AsType[*live.ExpiredError](err); !is || expired.First != stream.sold+1 {
				t.Errorf("events after %d: %v", after, err)
			}
		}
		if found, err := e.Events(t.Context(), topic, stream.sold, 10); err != nil || len(found) != stream.rest {
			t.Errorf("the last events: %+v, %v", found, err)
		}
		if heads, err := e.Heads(t.Context(), []string{topic}); err != nil || heads[topic] != stream.sold+int64(stream.rest) {
			t.Errorf("the head: %v, %v", heads, err)
		}
	}
	if found, err := e.Events(t.Context(), lottery.Topic(kept), 0, 10); err != nil || len(found) != 6 {
		t.Errorf("the events of a campaign that was not archived: %+v, %v", found, err)
	}

	refused(drawn, lottery.Buy{Account: "old-03"}, lottery.ErrSoldOut)
	refused(drawn, lottery.Cancel{}, lottery.ErrBadTransition)
	refused(drawn, lottery.Publish{}, lottery.ErrBadTransition)
	refused(drawn, lottery.AskDraw{}, nil)
	refused(cancelled, lottery.Buy{Account: "old-03"}, lottery.ErrNotActive)
	refused(cancelled, lottery.Cancel{}, lottery.ErrBadTransition)
	refused(cancelled, lottery.AskDraw{}, lottery.ErrNotSoldOut)

	conn := pgtest.Connect(t, db.url)
	testwait.Must(t, audit.Audit(t.Context(), conn, audit.Lottery, audit.Keys))
	for sql, found := range map[string]bool{
		`UPDATE campaigns SET sold_positions = sold_positions - 1 WHERE id = $1`:                                  true,
		`UPDATE purchases SET account = 'old-09' WHERE campaign = $1 AND seq = 1`:                                 true,
		`DELETE FROM purchases WHERE campaign = $1 AND seq = 3`:                                                   true,
		`UPDATE purchases SET price = price + 1 WHERE campaign = $1 AND seq = 1`:                                  true,
		`UPDATE transfers SET amount = amount + 1 WHERE kind = 'payout' AND source = 'escrow/' || $1::uuid::text`: true,
		`DELETE FROM draws WHERE campaign = $1`:                                                                   true,
		`UPDATE draws SET winners = '[]' WHERE campaign = $1`:                                                     true,
		`UPDATE campaigns SET name = 'other' WHERE id = $1`:                                                       false,
		`UPDATE campaign_layers SET sold = 1 WHERE campaign = $1 AND layer = 1`:                                   true,
	} {
		for _, id := range []uuid.UUID{kept, drawn} {
			tx, err := conn.Begin(t.Context())
			testwait.Must(t, err)
			tag, err := tx.Exec(t.Context(), sql, id)
			if pgkit.Code(err) != "23514" { // The database refuses it by itself.
				testwait.Must(t, err)
				want := found && tag.RowsAffected() > 0
				if err := audit.Audit(t.Context(), nested{tx}, audit.Lottery); (err != nil) != want {
					t.Errorf("%s of %s: the audit found %v", sql, id, err)
				}
			}
			testwait.Must(t, tx.Rollback(t.Context()))
		}
	}
}

// testArchivedProof has the proof of a campaign be made of an archive, byte by byte as it was before. It is refused where the database, the directory or the
// file is not what it was; others are refused, too.
func testArchivedProof(t *testing.T, db *DB, directory, proof string, drawn uuid.UUID, others map[uuid.UUID]string) {
	t.Helper()
	var made bytes.Buffer
	if err := db.WriteArchivedProof(t.Context(), directory, drawn, &made); err != nil || made.String() != proof {
		t.Errorf("the proof from the archive: %v\n%s\nand was\n%s", err, made.String(), proof)
	}
	for id, want := range others {
		refusedProof(t, db, directory, id, want)
	}
	turn := func() {
		conn := pgtest.Connect(t, db.url)
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `UPDATE draws SET root = set_byte(root, 0, 255 - get_byte(root, 0)) WHERE campaign = $1`, drawn)))
	}
	turn()
	refusedProof(t, db, directory, drawn, "was drawn from the root")
	turn()
	refusedProof(t, db, t.TempDir(), drawn, "no such file")
	files, err := filepath.Glob(filepath.Join(directory, "*", "purchases.csv.gz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the files of purchases: %q, %v", files, err)
	}
	content, err := os.ReadFile(files[0])
	testwait.Must(t, err)
	content[len(content)/2] ^= 1
	testwait.Must(t, os.WriteFile(files[0], content, 0o600))
	refusedProof(t, db, directory, drawn, "is damaged")
}

// refusedProof wants no proof to be made, and nothing to be written.
func refusedProof(t *testing.T, db *DB, directory string, campaign uuid.UUID, want string) {
	t.Helper()
	var made bytes.Buffer
	if err := db.WriteArchivedProof(t.Context(), directory, campaign, &made); err == nil || !strings.Contains(err.Error(), want) || made.Len() > 0 {
		t.Errorf("the proof from the archive: %v, want %q; %d bytes are written", err, want, made.Len())
	}
}
