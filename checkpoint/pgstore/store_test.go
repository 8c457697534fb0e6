package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/checkpoint/storetest"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// testSchema is quoted wherever it is used, or nothing works.
const testSchema = `Check "points"`

func pool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	p, err := pgxpool.New(tb.Context(), url)
	testwait.Must(tb, err)
	tb.Cleanup(p.Close)
	return p
}

func installed(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return Install(ctx, conn, testSchema)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		t.Helper()
		database := pgtest.NewDatabase(t, installed)
		config, err := pgx.ParseConfig(database)
		testwait.Must(t, err)
		around, through := pool(t, database), pool(t, database)
		s := New(through, testSchema)
		return storetest.Harness{
			Store: s,
			Plant: func(key checkpoint.Key, body []byte) {
				_, err := around.Exec(t.Context(), pgkit.In(testSchema, `INSERT INTO @checkpoint_states VALUES ($1, $2, 1, 0, '', $3, now(), NULL)
					ON CONFLICT (lock_key, operation_id) DO UPDATE SET state = excluded.state`), key.LockKey, key.ID, body)
				testwait.Must(t, err)
			},
			Forget: func() {
				testwait.Must(t, testwait.Err(around.Exec(t.Context(), pgkit.In(testSchema, `DELETE FROM @checkpoint_states`))))
			},
			// Nobody gets in, and who was in is thrown out.
			Break: func() func() {
				other := config.Copy()
				other.Database = "postgres"
				admin, err := pgx.ConnectConfig(t.Context(), other)
				testwait.Must(t, err)
				name := pgx.Identifier{config.Database}.Sanitize()
				testwait.Must(t, testwait.Err(admin.Exec(t.Context(), `ALTER DATABASE `+name+` ALLOW_CONNECTIONS false`)))
				_, err = admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 50000) FROM pg_stat_activity WHERE datname = $1`, config.Database)
				testwait.Must(t, err)
				return func() {
					_, err := admin.Exec(t.Context(), `ALTER DATABASE `+name+` ALLOW_CONNECTIONS true`)
					testwait.Must(t, errors.Join(err, admin.Close(t.Context())))
				}
			},
		}
	})
}

// transfers are the parameters of operations whose steps move money from one account to another.
type transfers struct {
	N int `json:"n"`
}

type moving struct {
	n    int
	hook func(ctx context.Context, step int) error // after the effect
}

func (m moving) Count() int { return m.n }

const move = `UPDATE accounts SET balance = balance + CASE id WHEN 'from' THEN -$1::bigint ELSE $1 END`

func (m moving) Do(ctx context.Context, step int) (int64, error) {
	amount := int64(step%7 + 1)
	if _, err := Tx(ctx).Exec(ctx, move, amount); err != nil {
		return 0, err
	}
	if _, err := Tx(ctx).Exec(ctx, `INSERT INTO journal (step) VALUES ($1)`, step); err != nil {
		return 0, err
	}
	if m.hook != nil {
		if err := m.hook(ctx, step); err != nil {
			return 0, err
		}
	}
	return amount, nil
}

func (m moving) Undo(ctx context.Context, d checkpoint.Done[int64]) error {
	if !d.Certain {
		return errors.New("with transactions, everything is certain")
	}
	if _, err := Tx(ctx).Exec(ctx, move, -d.Result); err != nil {
		return err
	}
	if m.hook != nil {
		return m.hook(ctx, d.Step)
	}
	return nil
}

func newMover(t *testing.T, s *Store, every int, hook func(ctx context.Context, step int) error) *checkpoint.Runner[transfers, int64] {
	t.Helper()
	r, err := checkpoint.New(checkpoint.Definition[transfers, int64]{
		Name: "transfers",
		Open: func(p transfers, _ checkpoint.Seed) (checkpoint.Steps[int64], error) { return moving{p.N, hook}, nil },
	}, s, nil, checkpoint.Options{Every: every, Transactional: true})
	testwait.Must(t, err)
	return r
}

// bank is a database with two accounts that can be balanced.
func bank(t *testing.T) (url string, around *pgxpool.Pool) {
	t.Helper()
	url = pgtest.NewDatabase(t, installed)
	around = pool(t, url)
	for _, sql := range []string{
		`CREATE TABLE accounts (id text PRIMARY KEY, balance bigint NOT NULL)`, `INSERT INTO accounts VALUES ('from', 1000000), ('to', 0)`,
		`CREATE TABLE journal (number bigint GENERATED ALWAYS AS IDENTITY, step int NOT NULL UNIQUE)`,
	} {
		testwait.Must(t, testwait.Err(around.Exec(t.Context(), sql)))
	}
	return url, around
}

// wantMoved compares the books with what the steps up to n move.
func wantMoved(t *testing.T, around *pgxpool.Pool, n, journal int) {
	t.Helper()
	var want int64
	for i := range n {
		want += int64(i%7 + 1)
	}
	var from, to, rows int64
	testwait.Must(t, around.QueryRow(t.Context(), `SELECT (SELECT balance FROM accounts WHERE id = 'from'), (SELECT balance FROM accounts WHERE id = 'to'),
		(SELECT count(*) FROM journal)`).Scan(&from, &to, &rows))
	if from != 1_000_000-want || to != want || rows != int64(journal) {
		t.Fatalf("after %d steps %d and %d, journal of %d", n, from, to, rows)
	}
}

var errStop = errors.New("stop")

// TestMoneyIsMovedOnce stops transfers at every step, with an error or by killing the connection, goes on each time, and at some
// point rolls back, with interruptions too. After each attempt the books agree with the state.
func TestMoneyIsMovedOnce(t *testing.T) {
	t.Parallel()
	const n = 13
	for end := 0; end <= n; end += 3 {
		for _, every := range []int{1, 4} {
			t.Run(fmt.Sprintf("to-%d-each-%d", end, every), func(t *testing.T) {
				t.Parallel()
				url, around := bank(t)
				s := New(pool(t, url), testSchema)
				key := checkpoint.Key{LockKey: "bank", ID: "op"}
				tries := 0
				until := n
				hook := func(ctx context.Context, step int) error {
					tries++
					switch {
					case step >= until || tries%5 == 0:
						return errStop
					case tries%7 == 0:
						// The connection dies in the middle; the transaction is run again by itself. Its end is waited for, also when the transaction
						// has no more time: PostgreSQL would end the session later.
						_, err := around.Exec(context.WithoutCancel(ctx), `SELECT pg_terminate_backend($1, 50000)`, Tx(ctx).Conn().PgConn().PID())
						testwait.Check(t, err)
					}
					return nil
				}
				done := 0
				for done < end {
					until = end
					if end == n {
						until = n + 1
					}
					res, err := newMover(t, s, every, hook).Run(t.Context(), key, transfers{n}, checkpoint.Call{})
					if err != nil && !errors.Is(err, errStop) {
						t.Fatal(err)
					}
					if res.Completed == done && res.Completed/every == end/every {
						break // The next batch has a step that never works.
					}
					done = res.Completed
					wantMoved(t, around, done, done)
				}
				if done == 0 {
					_, err := newMover(t, s, every, func(context.Context, int) error { return errStop }).Run(t.Context(), key, transfers{n}, checkpoint.Call{})
					if !errors.Is(err, errStop) {
						t.Fatal(err)
					}
				}
				until = n
				for {
					res, err := newMover(t, s, every, hook).Rollback(t.Context(), key, checkpoint.Call{})
					if err != nil && !errors.Is(err, errStop) {
						t.Fatal(err)
					}
					wantMoved(t, around, res.Completed-res.Undone, done)
					if err == nil {
						if res.Status != checkpoint.StatusRolledBack || len(res.Results) != done || len(res.Errors) == 0 {
							t.Errorf("%+v", res)
						}
						break
					}
				}
			})
		}
	}
}

// TestCommitsAreLost runs over a proxy that loses a third of all commits, before or after they were done, some of them without
// anybody being able to ask.
func TestCommitsAreLost(t *testing.T) {
	t.Parallel()
	direct, around := bank(t)
	opts := wire.Options{Seed: rand.Uint64(), LoseOneIn: 3}
	proxy, through := wire.Through(t, direct, opts)
	p := pool(t, through)
	proxy.Arm(true)
	s := New(p, testSchema)
	const n = 60
	key := checkpoint.Key{LockKey: "bank", ID: "op"}
	var res *checkpoint.Result[int64]
	var err error
	for deadline := time.Now().Add(testwait.Patience); ; {
		_, err = newMover(t, s, 1, nil).Run(t.Context(), key, transfers{n}, checkpoint.Call{})
		if err == nil {
			break
		}
		if !errors.Is(err, checkpoint.ErrConnection) || time.Now().After(deadline) {
			t.Fatalf("seed %d: %v", opts.Seed, err)
		}
	}
	wantMoved(t, around, n, n)
	for {
		if res, err = newMover(t, s, 1, nil).Rollback(t.Context(), key, checkpoint.Call{}); err == nil {
			break
		}
		if !errors.Is(err, checkpoint.ErrConnection) {
			t.Fatalf("seed %d: %v", opts.Seed, err)
		}
	}
	wantMoved(t, around, 0, n)
	proxy.Arm(false)
	if lost := proxy.Stats(); lost.AnswerLost == 0 || lost.CommitLost == 0 || len(res.Results) != n {
		t.Errorf("seed %d: the proxy did no more than %+v", opts.Seed, lost)
	}
}

// TestZombieCommitsNothing lets a run stand still in the middle of a transaction while another one waits for it, and one that was
// overtaken between two transactions begin its next.
func TestZombieCommitsNothing(t *testing.T) {
	t.Parallel()
	url, around := bank(t)
	s := New(pool(t, url), testSchema)
	key := checkpoint.Key{LockKey: "bank", ID: "op"}
	reached, goOn := make(chan struct{}), make(chan struct{})
	told := make(chan error, 1)
	var once sync.Once
	progress := func(p checkpoint.Progress) {
		if p.Completed == 4 {
			once.Do(func() {
				close(reached)
				<-goOn
			})
		}
	}
	old := newMover(t, s, 1, nil)
	go func() {
		_, err := old.Run(context.WithoutCancel(t.Context()), key, transfers{10}, checkpoint.Call{Token: 1, Progress: progress})
		told <- err
	}()
	<-reached
	res, err := newMover(t, s, 1, nil).Resume(t.Context(), key, checkpoint.Call{Token: 2})
	testwait.Must(t, err)
	close(goOn)
	if err := <-told; !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("the old run was told %v", err)
	}
	wantMoved(t, around, 10, 10)
	if !slices.Equal(res.Results, []int64{1, 2, 3, 4, 5, 6, 7, 1, 2, 3}) {
		t.Errorf("%v", res.Results)
	}
}

// heard counts what an observer is told of.
type heard struct {
	saved, failed int
}

func (h *heard) Stored(op checkpoint.Op, bytes int, _ time.Duration, err error) {
	switch {
	case op != checkpoint.OpSave:
	case err != nil:
		h.failed++
	case bytes > 0:
		h.saved++
	}
}

// TestASaveThatWaits: a stranger locks the table while a step is done. The save that commits with the step does not wait for it for ever, nothing
// of that transaction remains, and the step is done again.
func TestASaveThatWaits(t *testing.T) {
	t.Parallel()
	url, around := bank(t)
	stranger, err := around.Begin(t.Context())
	testwait.Must(t, err)
	tries := 0
	key, head := checkpoint.Key{LockKey: "locks", ID: "waits"}, checkpoint.Head{Revision: 1, Token: 1, Run: "run"}
	err = New(pool(t, url), testSchema).SaveWith(t.Context(), key, head, func(context.Context) (*checkpoint.Save, error) {
		if tries++; tries == 1 {
			testwait.Check(t, testwait.Err(stranger.Exec(t.Context(), pgkit.In(testSchema, `LOCK TABLE @checkpoint_states IN SHARE MODE`))))
		} else {
			testwait.Check(t, stranger.Rollback(t.Context()))
		}
		return &checkpoint.Save{Head: head, Body: []byte("{}")}, nil
	})
	if err != nil || tries != 2 {
		t.Errorf("after %d tries: %v", tries, err)
	}
}

// TestTransactionsAreReported has a step fail, which is no failure of a save, and then goes on.
func TestTransactionsAreReported(t *testing.T) {
	t.Parallel()
	url, _ := bank(t)
	s := New(pool(t, url), testSchema)
	key := checkpoint.Key{LockKey: "bank", ID: "op"}
	var h heard
	fails := true
	r, err := checkpoint.New(checkpoint.Definition[transfers, int64]{
		Name: "transfers",
		Open: func(p transfers, _ checkpoint.Seed) (checkpoint.Steps[int64], error) {
			return moving{p.N, func(_ context.Context, step int) error {
				if step == 2 && fails {
					return errStop
				}
				return nil
			}}, nil
		},
	}, s, nil, checkpoint.Options{Transactional: true, Observer: &h})
	testwait.Must(t, err)
	if _, err := r.Run(t.Context(), key, transfers{4}, checkpoint.Call{}); !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	// The claim, two steps, and the note of the error.
	if h.saved != 4 || h.failed != 0 {
		t.Errorf("after a step that failed: %+v", h)
	}
	fails = false
	testwait.Must(t, testwait.Err(r.Resume(t.Context(), key, checkpoint.Call{})))
	if h.saved != 7 || h.failed != 0 {
		t.Errorf("after all steps: %+v", h)
	}
}

func TestTransactionsAreAsked(t *testing.T) {
	t.Parallel()
	if _, err := checkpoint.New(checkpoint.Definition[transfers, int64]{
		Name: "transfers", Open: func(transfers, checkpoint.Seed) (checkpoint.Steps[int64], error) { return moving{}, nil },
	}, &checkpoint.Memory{}, nil, checkpoint.Options{Transactional: true}); !errors.Is(err, checkpoint.ErrNoTransactions) {
		t.Error(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a step had a transaction that is none")
		}
	}()
	Tx(t.Context())
}

func TestInstallAndSweep(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, nil)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { testwait.Check(t, installed(t.Context(), url)) })
	}
	all.Wait()
	p := pool(t, url)
	testwait.Must(t, Install(t.Context(), p, ""))
	s := New(p, "")
	for i := range 5 {
		save := &checkpoint.Save{Head: checkpoint.Head{Revision: 1, Run: "r"}, Body: []byte("x"), TTL: time.Hour, Ended: i < 3}
		if i < 2 {
			save.TTL = time.Millisecond
		}
		testwait.Must(t, s.Save(t.Context(), checkpoint.Key{LockKey: "k", ID: fmt.Sprint(i)}, save))
	}
	swept := 0
	for deadline := time.Now().Add(testwait.Patience); swept < 2 && time.Now().Before(deadline); {
		n, err := s.Sweep(t.Context(), 1)
		testwait.Must(t, err)
		swept += n
	}
	if n, err := s.Sweep(t.Context(), 10); n != 0 || err != nil || swept != 2 {
		t.Errorf("%d and %d were swept, %v", swept, n, err)
	}
}
