package pglock

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// queryer is a pool or a transaction.
type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// take calls lock_take for a request that does not wait, and returns its token, or what the function left undecided or refused.
func take(t *testing.T, b *Backend, db queryer, key string, id uuid.UUID) (token int64, undecided bool) {
	t.Helper()
	var of []*int64
	testwait.Must(t, db.QueryRow(t.Context(), b.st.AskOne, key, id.String(), "o", time.Hour.Microseconds(), 0, false, b.process, aliveFor.Microseconds()).Scan(&of))
	if of == nil || of[0] == nil {
		return 0, of == nil
	}
	return *of[0], false
}

// freed calls lock_free, and returns "" where that has left the lock alone.
func freed(t *testing.T, b *Backend, db queryer, key string, id uuid.UUID) string {
	t.Helper()
	var ended *string
	testwait.Must(t, db.QueryRow(t.Context(), b.st.Free, key, id.String()).Scan(&ended))
	if ended == nil {
		return ""
	}
	return *ended
}

// TestAloneLeavesWhatIsOutOfTheOrdinary has the functions for one request alone meet all that they are not to decide.
func TestAloneLeavesWhatIsOutOfTheOrdinary(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Functions)
	b := open(t, database(t), Options{})
	id, other := uuid.New(), uuid.New()
	if token, _ := take(t, b, b.pool, "k", id); token != 1 {
		t.Fatalf("a new key: token %d", token)
	}
	if token, undecided := take(t, b, b.pool, "k", other); token != 0 || undecided {
		t.Errorf("a key that is held: token %d, undecided %v", token, undecided)
	}
	if _, undecided := take(t, b, b.pool, "k", id); !undecided {
		t.Error("a request that is made again after its grant is decided")
	}
	if got := freed(t, b, b.pool, "k", other); got != "" {
		t.Errorf("somebody else's lock: %q", got)
	}

	waiting := line(t, b, "k", 1, time.Minute)
	if got := freed(t, b, b.pool, "k", id); got != "" {
		t.Errorf("a lock that somebody waits for: %q", got)
	}
	if n := count(t, b.pool, testSchema.in(`SELECT count(*) FROM @lock_grants WHERE id = '`+id.String()+`'`)); n != 1 {
		t.Errorf("%d grants after a release that decided nothing", n)
	}
	testwait.Must(t, b.Release(t.Context(), lock.Grant{ID: id.String(), Tokens: map[string]int64{"k": 1}}))
	h := got(t, waiting[0])
	last := h.Token("k")
	if last < 2 {
		t.Errorf("the next one's token is %d", last)
	}
	let(t, h)
	if token, _ := take(t, b, b.pool, "k", other); token != last+1 {
		t.Errorf("a key that was held before: token %d after %d", token, last)
	}

	// A lease that is over.
	testwait.Must(t, testwait.Err(b.pool.Exec(t.Context(), testSchema.in(`UPDATE @lock_grants SET expires_at = clock_timestamp()`))))
	if _, undecided := take(t, b, b.pool, "k", id); !undecided {
		t.Error("a key whose lease is over is decided")
	}
	if err := b.Release(t.Context(), lock.Grant{ID: other.String(), Tokens: map[string]int64{"k": last + 1}}); !errors.Is(err, lock.ErrLost) {
		t.Errorf("a lock whose lease is over is released: %v", err)
	}
	if got := freed(t, b, b.pool, "k", other); got != "" {
		t.Errorf("a lock that has ended: %q", got)
	}

	// A request whose caller has gone.
	testwait.Must(t, testwait.Err(b.pool.Exec(t.Context(), b.st.Tombstone, other, "o", []string{"k"})))
	if _, undecided := take(t, b, b.pool, "k", other); !undecided {
		t.Error("a request whose caller has gone is decided")
	}
	if token, _ := take(t, b, b.pool, "k", id); token != last+2 {
		t.Errorf("the next token is %d, after %d", token, last+1)
	}
}

// TestAloneUnderOtherIsolation: where the functions can't see what was committed while they waited for the key, they decide nothing.
func TestAloneUnderOtherIsolation(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Functions)
	b := open(t, database(t), Options{})
	held, id := uuid.New(), uuid.New()
	take(t, b, b.pool, "held", held)
	let(t, acquire(t, lock.New(b, lock.LockerOptions{}), "free", lock.Options{}))
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		testwait.Must(t, err)
		if _, undecided := take(t, b, tx, "free", id); !undecided {
			t.Errorf("%s: a request is decided", level)
		}
		if got := freed(t, b, tx, "held", held); got != "" {
			t.Errorf("%s: a release is decided: %q", level, got)
		}
		testwait.Must(t, tx.Commit(t.Context()))
	}
}

// TestAloneOnOlderTables works on tables without these functions, until the schema is installed again.
func TestAloneOnOlderTables(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Functions)
	url := database(t)
	var log testwait.Buffer
	b := open(t, url, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	testwait.Must(t, testwait.Err(b.pool.Exec(t.Context(), testSchema.in(`DROP FUNCTION @lock_take, @lock_free`))))
	l := lock.New(b, lock.LockerOptions{})
	for n := range int64(3) {
		h := acquire(t, l, "k", lock.Options{})
		if h.Token("k") != n+1 {
			t.Errorf("token %d, want %d", h.Token("k"), n+1)
		}
		let(t, h)
	}
	if !b.older.Load() || b.plain.Load() {
		t.Error("it does not know that the tables are older, or takes them for much older ones")
	}
	if said := log.String(); strings.Count(said, "install the schema again") != 1 {
		t.Errorf("the log says %s", said)
	}
	testwait.Must(t, install(t.Context(), url))
	renewed := open(t, url, Options{})
	if token, _ := take(t, renewed, renewed.pool, "k", uuid.New()); token != 4 {
		t.Errorf("token %d of the installed function", token)
	}
}
