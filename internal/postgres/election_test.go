package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

const (
	// shortTTL lets many tenures pass in a few seconds.
	shortTTL = 900 * time.Millisecond
	patience = testwait.Patience
	// slack is how late a goroutine may notice the end of its context, on a machine that does nothing else. The tests on fake time allow
	// nothing.
	slack = 500 * time.Millisecond
)

func migrated(ctx context.Context, url string) error {
	_, err := postgres.Migrate(ctx, url)
	return err
}

// freezable is a backend whose calls stand still while it is frozen, whatever their context says, as those of a process
// that was stopped do.
type freezable struct {
	lock.Backend

	mu     sync.Mutex
	thawed chan struct{} // nil when it is not frozen
}

func (f *freezable) freeze() (thaw func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan struct{})
	f.thawed = c
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		close(c)
		f.thawed = nil
	}
}

func (f *freezable) wait() {
	f.mu.Lock()
	c := f.thawed
	f.mu.Unlock()
	if c != nil {
		<-c
	}
}

// Acquire implements [lock.Backend]. A grant that was under way when everything stopped is seen when it goes on.
func (f *freezable) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	f.wait()
	g, err := f.Backend.Acquire(ctx, r)
	f.wait()
	return g, err
}

// Renew implements [lock.Backend].
func (f *freezable) Renew(ctx context.Context, id string, ttl time.Duration) (lock.Grant, error) {
	f.wait()
	return f.Backend.Renew(ctx, id, ttl)
}

// campaign runs a candidate and returns what stops it and waits.
func campaign(t *testing.T, b lock.Backend, candidate string, ttl time.Duration, lead func(context.Context, int64)) (stop func()) {
	t.Helper()
	e, err := lock.NewElection(lock.New(b, lock.LockerOptions{}), "auctions", lock.ElectionOptions{Candidate: candidate, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx, lead) })
	return func() {
		cancel()
		running.Wait()
	}
}

// cluster is five electors on one database, whose leader writes as long as it believes to lead, and a while longer.
type cluster struct {
	t       *testing.T
	pool    *pgxpool.Pool // of the writes and of the test itself
	members []*member
	writing sync.WaitGroup

	refused atomic.Int64

	mu     sync.Mutex
	grants []grant
}

type member struct {
	holder string
	lease  *freezable
	stop   func()
}

type grant struct {
	holder     string
	term       int64
	start, end time.Time // end is zero while it lasts
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	url := pgtest.NewDatabase(t, migrated)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c := &cluster{t: t, pool: pool}
	c.exec(`CREATE TABLE fence (term bigint NOT NULL)`)
	c.exec(`INSERT INTO fence VALUES (0)`)
	c.exec(`CREATE TABLE writes (id bigint GENERATED ALWAYS AS IDENTITY, term bigint NOT NULL, holder text NOT NULL)`)
	db, err := postgres.Open(t.Context(), postgres.Options{URL: url, MaxConns: 1, Patience: testwait.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	for i := range 5 {
		m := &member{holder: fmt.Sprintf("member %d", i), lease: &freezable{Backend: newElections(t, db)}}
		c.members = append(c.members, m)
		c.start(m)
	}
	return c
}

func (c *cluster) exec(sql string) {
	c.t.Helper()
	if _, err := c.pool.Exec(c.t.Context(), sql); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) start(m *member) {
	c.t.Helper()
	m.stop = campaign(c.t, m.lease, m.holder, shortTTL, func(ctx context.Context, term int64) { c.lead(ctx, m.holder, term) })
}

func (c *cluster) lead(ctx context.Context, holder string, term int64) {
	c.mu.Lock()
	i := len(c.grants)
	c.grants = append(c.grants, grant{holder: holder, term: term, start: time.Now()})
	c.mu.Unlock()
	// It goes on writing after its tenure, as a process does that was stopped just after it looked: only the fence can
	// keep that out.
	c.writing.Go(func() {
		late := time.Time{}
		for late.IsZero() || time.Since(late) < 2*shortTTL {
			if late.IsZero() && ctx.Err() != nil {
				late = time.Now()
			}
			c.write(holder, term)
		}
	})
	<-ctx.Done()
	c.mu.Lock()
	c.grants[i].end = time.Now()
	c.mu.Unlock()
}

var errOldTerm = errors.New("a newer term has written")

// write is a guarded write.
func (c *cluster) write(holder string, term int64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE fence SET term = $1 WHERE term <= $1`, term)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errOldTerm
		}
		_, err = tx.Exec(ctx, `INSERT INTO writes (term, holder) VALUES ($1, $2)`, term, holder)
		return err
	})
	switch {
	case errors.Is(err, errOldTerm):
		c.refused.Add(1)
	case err != nil:
		c.t.Error(err)
	}
	time.Sleep(5 * time.Millisecond) // The writer's pace.
}

// leaderAfter waits for a tenure with a term above the given one that is not over, and returns who has it and its number.
func (c *cluster) leaderAfter(term int64) (*member, grant) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		c.mu.Lock()
		n := len(c.grants)
		var last grant
		if n > 0 {
			last = c.grants[n-1]
		}
		c.mu.Unlock()
		if last.term > term && last.end.IsZero() {
			for _, m := range c.members {
				if m.holder == last.holder {
					return m, last
				}
			}
		}
	}
	c.t.Fatalf("nobody leads after term %d", term)
	return nil, grant{}
}

// check stops everything and looks at what happened.
func (c *cluster) check() {
	c.t.Helper()
	for _, m := range c.members {
		m.stop()
	}
	c.writing.Wait()
	for i := 1; i < len(c.grants); i++ {
		was, is := c.grants[i-1], c.grants[i]
		if is.term <= was.term {
			c.t.Errorf("term %d after %d", is.term, was.term)
		}
		if over := was.end.Sub(is.start); over > slack && testwait.Torture() {
			c.t.Errorf("term %d began %s before term %d had ended", is.term, over, was.term)
		}
	}
	rows, err := c.pool.Query(c.t.Context(), `SELECT term, holder FROM writes ORDER BY id`)
	if err != nil {
		c.t.Fatal(err)
	}
	writes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Term   int64
		Holder string
	}])
	if err != nil {
		c.t.Fatal(err)
	}
	for i := 1; i < len(writes); i++ {
		was, is := writes[i-1], writes[i]
		if is.Term < was.Term || (is.Term == was.Term && is.Holder != was.Holder) {
			c.t.Errorf("%+v was accepted after %+v", is, was)
		}
	}
	c.t.Logf("%d tenures, %d writes accepted, %d refused", len(c.grants), len(writes), c.refused.Load())
}

// TestElectionUnderAttack kills connections, freezes leaders and stops them, in turns.
func TestElectionUnderAttack(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	testpromise.CheckEach(t, []string{"leader-after-death", "leader-after-resignation"}, func(seen func(string, time.Duration)) {
		for range 4 {
			c.attack(seen)
		}
	})
	c.check()
	if c.refused.Load() == 0 {
		t.Error("no leader wrote too late, so that the fence was not tried")
	}
}

// attack is one turn.
func (c *cluster) attack(seen func(string, time.Duration)) {
	c.t.Helper()
	// All connections of the elections break at once: a passing trouble. Afterwards somebody leads.
	c.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fairlead elections' AND datname = current_database()`)
	m, was := c.leaderAfter(0)

	// The leader freezes, and wakes up after the next one was elected.
	frozen := time.Now()
	thaw := m.lease.freeze()
	next, is := c.leaderAfter(was.term)
	if next == m { // It had been elected anew before it was frozen.
		next, is = c.leaderAfter(is.term)
	}
	if next == m {
		c.t.Errorf("%s was elected while it was frozen", m.holder)
	}
	seen("leader-after-death", is.start.Sub(frozen)-shortTTL)
	thaw()

	// The leader is stopped and resigns: the next one need not wait for the expiry.
	stopping := time.Now()
	next.stop()
	_, last := c.leaderAfter(is.term)
	seen("leader-after-resignation", last.start.Sub(stopping))
	c.start(next)
}

// TestAHandOverNeedsNoExpiry has a term that would last for a minute.
func TestAHandOverNeedsNoExpiry(t *testing.T) {
	t.Parallel()
	db := openMigrated(t)
	type tenure struct {
		holder string
		term   int64
	}
	began := make(chan tenure)
	stops := map[string]func(){}
	for _, holder := range []string{"a", "b", "c"} {
		stops[holder] = campaign(t, newElections(t, db), holder, 2*patience, func(ctx context.Context, term int64) {
			select {
			case began <- tenure{holder, term}:
				<-ctx.Done()
			case <-ctx.Done():
			}
		})
	}
	for term := range int64(3) {
		select {
		case now := <-began:
			if now.term != term+1 {
				t.Errorf("tenure %+v, want term %d", now, term+1)
			}
			stops[now.holder]()
			delete(stops, now.holder)
		case <-time.After(patience): // Half of a term.
			t.Fatalf("nobody leads after term %d", term)
		}
	}
	if len(stops) != 0 {
		t.Errorf("left: %v", stops)
	}
}

func openMigrated(t *testing.T) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: pgtest.NewDatabase(t, migrated), MaxConns: 1, Patience: testwait.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

func newElections(t *testing.T, db *postgres.DB) *postgres.Elections {
	t.Helper()
	e, err := postgres.NewElections(db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return e
}
