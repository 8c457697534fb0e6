package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/archive"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions/partitionstest"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestArchiveBehindTheReplica archives purchases while the standby is behind. It goes on to answer with what it has; but where the primary was asked, and has no
// purchases any more, the standby is not asked whether they were archived: it would say that there never were any.
func TestArchiveBehindTheReplica(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	testwait.Must(t, soldLongAgo(t.Context(), primary.URL()))
	replica := pgtest.StandbyOf(t, primary, "replica")
	db := counted(t, Options{URL: primary.URL(), ReplicaURL: replica.URL(), ReplicaLag: time.Hour})
	replicaIs(t, db, true)
	drawn := partitionstest.CampaignOf(firstMonth(), partitionstest.Drawn)
	l := NewLottery(db)
	owners := func() (n int, archived bool) {
		t.Helper()
		found, err := l.Owners(allow(t, 0), drawn, 0, 5)
		if _, archived = errors.AsType[*lottery.SalesNotFoundError](err); !archived {
			testwait.Must(t, err)
		}
		return len(found), archived
	}
	sqlOn(t, replica, `SELECT pg_wal_replay_pause()`)
	r, err := db.Archive(t.Context(), archive.Options{Before: firstMonth().AddDate(0, 1, 0), Directory: t.TempDir()})
	if err != nil || len(r.Made) != 1 || r.Purchases != "" {
		t.Fatalf("archived %+v, %v", r, err)
	}
	before, _ := db.Replica()
	n, archived := owners()
	if now, _ := db.Replica(); n != 5 || archived || now.Served == before.Served {
		t.Errorf("the standby that is behind has %d owners, archived: %v, %+v", n, archived, now)
	}
	// The primary answers a read that the standby fails, and every later read of that request.
	ctx := allow(t, 0)
	if _, err := query(ctx, db.reads, pgx.RowTo[int], `SELECT 1 / (2 * pg_is_in_recovery()::integer - 2)`); err != nil { // The standby divides by zero.
		t.Error(err)
	}
	found, err := unlessArchived[string](ctx, db, drawn, nil, nil)
	if _, is := errors.AsType[*lottery.SalesNotFoundError](err); !is {
		t.Errorf("purchases that the primary no longer has: %v, %v", found, err)
	}
	sqlOn(t, replica, `SELECT pg_wal_replay_resume()`)
	testwait.Eventually(t, patience, "the standby says that they are archived", func() bool {
		n, archived := owners()
		if !archived && n != 5 {
			t.Fatalf("there are %d owners, and no word of an archive", n)
		}
		return archived
	})
}
