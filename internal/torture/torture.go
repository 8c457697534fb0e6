package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/audit"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/tally"
)

const (
	// Prefix begins the names of all accounts that a run opens.
	Prefix = "torture-"
	// session is how long the load runs between two comparisons of the books.
	session = time.Minute
	// answers are awaited after each fault, and answerLimit is how long that may take.
	answers     = 5
	answerLimit = time.Minute
	// checkLimit bounds each comparison of a session.
	checkLimit = 5 * time.Minute
	// Sizes of the load.
	accounts, workers = 20, 8
	// replays is how many keys are asked once more in a session, at most.
	replays = 2000
	// apart is how far the servers may be wrong about the database's clock, which decides what a session has stored.
	apart = time.Second
)

var (
	// ErrRow is returned for a row that there is not.
	ErrRow = errors.New("no such row")
	// ErrInside is returned for a row that can't be caused from outside.
	ErrInside = errors.New("can't be caused from outside")
	// ErrProduction is returned where somebody may need what the installation has.
	ErrProduction = errors.New("this looks like production")
	// ErrOther is returned when a server has other books than the database.
	ErrOther = errors.New("this server uses another database")
	// ErrStuck is returned when nobody gets an answer any more.
	ErrStuck = errors.New("no command was answered")
)

// Options say what is run, against what.
type Options struct {
	// URLs are the servers, Key is an admin key of theirs, and DatabaseURL is their database.
	URLs        []string
	Key         string
	DatabaseURL string
	// Processes are the servers' process numbers, or files that have them, for the rows that need them.
	Processes []string
	// Row is what happens, for how long, as Seed decides.
	Row  string
	For  time.Duration
	Seed uint64
	// Progress is told what was counted so far, after each session.
	Progress func(tally.Count)
}

// Result is what became of a run.
type Result struct {
	tally.Count

	Seed uint64 `json:"seed"`
	// Commands is how many were sent.
	Commands int `json:"commands"`
	// Wrong is all that was found to be wrong, lost and doubled things among it.
	Wrong []string `json:"wrong,omitempty"`
}

// Sound reports whether everything was as it should be.
func (r *Result) Sound() bool {
	return len(r.Wrong) == 0 && r.Lost == 0 && r.Doubled == 0 && r.Failed == 0
}

// site is one session.
type site struct {
	o       Options
	conn    *pgx.Conn
	prefix  string
	rng     *rand.Rand
	proxies []*Proxy
	history *sim.History
	load    *sim.Workload
	faults  int
}

func (s *site) account() string { return s.load.Accounts()[s.rng.IntN(accounts)] }

func (s *site) proxy() *Proxy { return s.proxies[s.rng.IntN(len(s.proxies))] }

// some is one server's proxy, or all.
func (s *site) some() []*Proxy {
	if s.rng.IntN(2) == 0 {
		return s.proxies
	}
	return []*Proxy{s.proxy()}
}

// server is a target that does not move.
type server string

func (s server) URL() string { return string(s) }

// Find finds a row by its name, unless it can't be caused from outside.
func Find(name string) (Row, error) {
	rows := Rows()
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name })
	if i < 0 {
		return Row{}, fmt.Errorf("%w: %q", ErrRow, name)
	}
	if rows[i].Cannot != "" {
		return Row{}, fmt.Errorf("%s %w: %s", name, ErrInside, rows[i].Cannot)
	}
	return rows[i], nil
}

// Run runs a row. The error is about running it; what was found is in the result.
func Run(ctx context.Context, o Options) (*Result, error) {
	row, err := Find(o.Row)
	if err != nil {
		return nil, err
	}
	if err := checkProcesses(row, o.Processes); err != nil {
		return nil, err
	}
	conn, err := Connect(ctx, o.DatabaseURL)
	if err != nil {
		return nil, err
	}
	defer closing(conn) //nolint:contextcheck // It ends also after ctx has.
	if err := look(ctx, conn, row); err != nil {
		return nil, err
	}
	for _, url := range o.URLs {
		if err := sameBooks(ctx, conn, url, o.Key); err != nil {
			return nil, err
		}
	}
	result := &Result{Count: tally.Count{Row: row.Name}, Seed: o.Seed}
	end := time.Now().Add(o.For)
	run := fmt.Sprintf("%s%x-", Prefix, time.Now().UnixMilli())
	for n := 0; ctx.Err() == nil && time.Until(end) > 0; n++ {
		s := &site{o: o, conn: conn, prefix: fmt.Sprintf("%s%d-", run, n), rng: rand.New(rand.NewPCG(o.Seed, uint64(n)))} //nolint:gosec // Repeatable, not secret; n is not negative.
		if err := s.run(ctx, row, min(session, time.Until(end)), result); err != nil {
			return result, err
		}
		if o.Progress != nil {
			o.Progress(result.Count)
		}
		if !result.Sound() {
			break // The database is damaged, or a server is: what follows says nothing.
		}
	}
	return result, nil
}

// run runs a session and adds what was counted to the result.
func (s *site) run(ctx context.Context, row Row, lasts time.Duration, result *Result) (err error) {
	// What has begun is ended, also if the user ends the run.
	through := context.WithoutCancel(ctx)
	s.history = sim.NewHistory()
	if err := s.conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&s.history.Scope.Since); err != nil {
		return err
	}
	<-time.After(apart)
	s.history.Scope.Prefix = s.prefix
	var targets []sim.Target
	for i, url := range s.o.URLs {
		p, err := Listen(through, server(strings.TrimRight(url, "/")), s.o.Seed+uint64(i))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		s.proxies, targets = append(s.proxies, p), append(targets, p)
	}
	c := sim.NewClient(s.history, s.o.Key, targets...)
	defer c.Close()
	s.load = sim.NewWorkload(sim.WorkloadOptions{Seed: s.rng.Uint64(), Prefix: strings.TrimSuffix(s.prefix, "-"), Accounts: accounts, Workers: workers, Mix: sim.DefaultMix()})
	setUp, cancel := context.WithTimeout(through, checkLimit)
	defer cancel()
	if err := s.load.Setup(setUp, c); err != nil {
		return fmt.Errorf("open accounts: %w", err)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.load.Run(through, c, stop) }()
	caused := s.meet(ctx, row, lasts)
	close(stop)
	wrong := []error{<-done}
	wrong = append(wrong, s.compare(through, c))
	for _, count := range s.history.Recorder.Counts() {
		result.Add(count)
	}
	result.Commands += len(s.history.Ops())
	if err := errors.Join(wrong...); err != nil {
		result.Failed++
		result.Wrong = append(result.Wrong, strings.Split(err.Error(), "\n")...)
	}
	return caused
}

// meet causes one fault after the other.
func (s *site) meet(ctx context.Context, row Row, lasts time.Duration) error {
	within, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	for within.Err() == nil {
		answered := s.history.After(answers)
		if err := row.cause(within, s); err != nil && within.Err() == nil {
			return err
		}
		select {
		case <-answered:
		case <-within.Done():
		case <-time.After(answerLimit):
			return fmt.Errorf("%w for %v after a fault of %s", ErrStuck, answerLimit, row.Name)
		}
	}
	return nil
}

// compare closes the books of a session.
func (s *site) compare(ctx context.Context, c *sim.Client) error {
	every := max(1, len(s.history.Ops())/replays)
	replaying, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	_, replayed := s.history.Replay(replaying, c, workers, func(i int) bool { return i%every == 0 })
	checking, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	return errors.Join(replayed, audit.Audit(checking, s.conn), s.history.Check(checking, s.conn))
}

// look refuses an installation that somebody may need.
func look(ctx context.Context, conn *pgx.Conn, row Row) error {
	var found []string
	for _, q := range []struct{ what, sql string }{
		{"accounts that no torture opened", `SELECT count(*) FROM accounts WHERE NOT starts_with(id, '` + Prefix + `') AND id NOT IN (SELECT escrow FROM campaigns)`},
		{"auctions", `SELECT count(*) FROM auctions`},
		{"publications", `SELECT count(*) FROM publications`},
		{"multi-draws", `SELECT count(*) FROM multidraws`},
		{"subscriptions", `SELECT count(*) FROM subscriptions`},
		{"standbys that follow it", `SELECT count(*) FROM pg_stat_replication`},
		{"sessions of other databases, which would be without connections", `SELECT count(*) FROM pg_stat_activity
			WHERE datname <> current_database() AND backend_type = 'client backend' AND '` + row.Name + `' = '` + tally.ConnectionsExhausted + `'`},
	} {
		var n int
		if err := conn.QueryRow(ctx, q.sql).Scan(&n); err != nil {
			return fmt.Errorf("look at the database: %w", err)
		}
		if n > 0 {
			found = append(found, fmt.Sprintf("%d %s", n, q.what))
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: the database has %s", ErrProduction, strings.Join(found, ", "))
	}
	return nil
}

// sameBooks refuses a server that has another database: what is looked at would not be what is loaded.
func sameBooks(ctx context.Context, conn *pgx.Conn, url, key string) error {
	c, err := client.New(url, key, client.WithRetry(client.Retry{Attempts: 1}), client.WithHTTPClient(&http.Client{Timeout: answerLimit}))
	if err != nil {
		return err
	}
	told, err := client.Call[client.Integrity](ctx, c, http.MethodGet, "/v1/integrity", nil)
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	there := map[string]string{}
	for _, currency := range told.Currencies {
		there[currency.Currency] = fmt.Sprint(currency.Available, " + ", currency.Held)
	}
	rows, err := conn.Query(ctx, `SELECT currency, sum(available) || ' + ' || sum(held) FROM accounts GROUP BY currency`)
	if err != nil {
		return fmt.Errorf("look at the database: %w", err)
	}
	here := map[string]string{}
	var currency, total string
	if _, err := pgx.ForEachRow(rows, []any{&currency, &total}, func() error { here[currency] = total; return nil }); err != nil {
		return fmt.Errorf("look at the database: %w", err)
	}
	for currency := range there {
		if there[currency] != here[currency] {
			return fmt.Errorf("%w: %s has %s %s, the database %q", ErrOther, url, there[currency], currency, here[currency])
		}
	}
	for currency := range here {
		if _, ok := there[currency]; !ok {
			return fmt.Errorf("%w: %s has no %s, the database %s", ErrOther, url, currency, here[currency])
		}
	}
	return nil
}
