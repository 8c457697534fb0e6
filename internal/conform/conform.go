// Package conform runs the conformance suites on servers that a user names: PostgreSQL, Redis and etcd. It says which of the promises of
// docs/guarantees.md hold there. Everything it makes has a name of its own with a random part, and is removed at the end.
package conform

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/conformance"
)

// Options say where, and what. One server at least is named.
type Options struct {
	DatabaseURL   string
	RedisURL      string
	EtcdEndpoints []string
	// Only names what to run, suites such as "locks" and checks such as "locks/TokensGrow"; empty: all that there is for the
	// named servers.
	Only []string
	Seed uint64 // of the random choices; 0: one is drawn
	// Keep leaves what was made.
	Keep bool
	// Began is told of each server when its checks begin, and Ended of each check that has ended. They may be nil.
	Began func(t Target)
	Ended func(f Finding, done, all int)
}

const (
	// atOnce is how many checks run on a server at a time. Each has up to some twenty connections.
	atOnce = 2
	// cleanupFor bounds the removal of what was made on one server.
	cleanupFor = time.Minute
)

// Kind is what a server is.
type Kind string

// The kinds of servers.
const (
	PostgreSQL Kind = "postgresql"
	Redis      Kind = "redis"
	Etcd       Kind = "etcd"
)

// Target is a server, and what is to be known of it.
type Target struct {
	Kind    Kind   `json:"kind"`
	Address string `json:"address"` // without secrets
	Version string `json:"version"`
	// Place is what everything that was made there is in: a schema, or a prefix of keys.
	Place string `json:"place"`
	// Remove is how to remove it by hand.
	Remove string `json:"remove"`
	// Notes are settings that promises rest on, where they are others than they should be.
	Notes []string `json:"notes,omitempty"`
	// Left says why what was made is still there; empty when it was removed.
	Left string `json:"left,omitempty"`
}

// Finding is how one check has ended.
type Finding struct {
	Target     Kind                `json:"target"`
	Suite      string              `json:"suite"`
	Check      string              `json:"check"`
	Guarantees []string            `json:"guarantees"`
	Tried      string              `json:"tried"`
	Verdict    conformance.Verdict `json:"verdict"`
	OutOfTime  bool                `json:"out_of_time,omitempty"` // it was not tried to its end
	Why        []string            `json:"why,omitempty"`
	TookMS     int64               `json:"took_ms"`
	Times      []Time              `json:"times,omitempty"`
}

// Time is the best measurement of what a promise about time bounds.
type Time struct {
	Promise string `json:"promise"`
	TookMS  int64  `json:"took_ms"`
	LimitMS int64  `json:"limit_ms"`
}

// Guarantee is what the checks say of one guarantee on one server. It holds where one check at least was tried, none found it broken, and none was called
// off before its end.
type Guarantee struct {
	Number   string              `json:"number"`
	Title    string              `json:"title"`
	Target   Kind                `json:"target"`
	Verdict  conformance.Verdict `json:"verdict"`
	Held     int                 `json:"held"`
	Broken   int                 `json:"broken"`
	NotTried int                 `json:"not_tried"`

	outOfTime int // of those that were not tried
}

// Report is what was found.
type Report struct {
	// Held says that no check found a promise broken, and Complete that each guarantee was tried.
	Held       bool        `json:"held"`
	Complete   bool        `json:"complete"`
	Seed       uint64      `json:"seed"`
	Targets    []Target    `json:"targets"`
	Guarantees []Guarantee `json:"guarantees"`
	Findings   []Finding   `json:"checks"`
}

// suite is one, for one kind of server.
type suite struct {
	name   string
	checks []conformance.Check
	run    func(t *conformance.T)
}

// server is one that the suites run on.
type server interface {
	target() *Target
	suites() []suite
	// write is a small write, as checks make many.
	write(ctx context.Context) error
	// remove removes what was made.
	remove(ctx context.Context) error
}

// Run runs the suites. Its error says why nothing could be tried; what was found is in the report. When ctx ends, checks that have not ended
// were not tried, its error comes with the report, and what was made is removed all the same.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Seed == 0 {
		n, err := rand.Int(rand.Reader, big.NewInt(1<<48))
		if err != nil {
			return nil, err
		}
		o.Seed = n.Uint64()
	}
	report = &Report{Seed: o.Seed}
	id := newID()
	var servers []server
	defer func() {
		for _, s := range servers {
			if why := o.tidy(ctx, s); why != nil {
				s.target().Left = why.Error()
			}
			report.Targets = append(report.Targets, *s.target())
		}
		report.conclude()
	}()
	for _, open := range []struct {
		named bool
		open  func(ctx context.Context, o Options, id string) (server, error)
	}{
		{o.DatabaseURL != "", openPostgres},
		{o.RedisURL != "", openRedis},
		{len(o.EtcdEndpoints) > 0, openEtcd},
	} {
		if !open.named {
			continue
		}
		s, err := open.open(ctx, o, id)
		if s != nil {
			servers = append(servers, s)
		}
		if err != nil {
			return report, err
		}
	}
	work, all := o.plan(servers)
	if all == 0 {
		return report, fmt.Errorf("there is nothing to run: the servers that are named have no such checks as %s", strings.Join(o.Only, ", "))
	}
	for _, w := range work {
		if o.Began != nil {
			o.Began(*w.server.target())
		}
		for _, s := range w.suites {
			o.runSuite(ctx, w.server, s, report, all)
		}
	}
	return report, ctx.Err()
}

// Suites are the names of all suites, in the order in which they run.
func Suites() []string {
	return []string{"locks", "claims", "idempotency", "checkpoints", "sagas", "services"}
}

func (o *Options) check() error {
	if o.DatabaseURL == "" && o.RedisURL == "" && len(o.EtcdEndpoints) == 0 {
		return ErrNoServer
	}
	for _, name := range o.Only {
		name, _, _ = strings.Cut(name, "/")
		if !slices.Contains(Suites(), name) {
			return fmt.Errorf("there is no suite %q: there are %s", name, strings.Join(Suites(), ", "))
		}
	}
	return nil
}

// ErrNoServer is returned where no server is named.
var ErrNoServer = errors.New("no server is named")

// newID is the random part of names. It is short enough for the longest name of PostgreSQL.
func newID() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // It never fails.
	return hex.EncodeToString(b)
}

// work is what runs on one server.
type work struct {
	server server
	suites []suite
}

func (o *Options) plan(servers []server) (all []work, checks int) {
	for _, s := range servers {
		w := work{server: s}
		for _, x := range s.suites() {
			x.checks = slices.DeleteFunc(x.checks, func(c conformance.Check) bool {
				return len(o.Only) > 0 && !slices.Contains(o.Only, x.name) && !slices.Contains(o.Only, x.name+"/"+c.Name)
			})
			if len(x.checks) > 0 {
				w.suites = append(w.suites, x)
				checks += len(x.checks)
			}
		}
		if len(w.suites) > 0 {
			all = append(all, w)
		}
	}
	return all, checks
}

// runSuite runs a suite, and adds what it found to the report. A check that the suite never came to was not tried.
func (o *Options) runSuite(ctx context.Context, on server, s suite, report *Report, all int) {
	seen := map[string]bool{}
	add := func(r conformance.Result) {
		if r.Name == conformance.Setup {
			return // It is why there is none of the checks.
		}
		seen[r.Name] = true
		f := Finding{
			Target: on.target().Kind, Suite: s.name, Check: r.Name, Guarantees: r.Guarantees, Tried: r.Tries, Verdict: r.Verdict,
			OutOfTime: r.OutOfTime, Why: r.Why, TookMS: r.Took.Milliseconds(), Times: best(r.Times),
		}
		report.Findings = append(report.Findings, f)
		if o.Ended != nil {
			o.Ended(f, len(report.Findings), all)
		}
	}
	runner := &conformance.Runner{Checks: s.checks, Parallel: atOnce, Limits: limits(), Seed: o.Seed, Ended: add, Slow: func(ctx context.Context) string { return slow(ctx, on) }}
	results := runner.Run(ctx, s.run)
	why := []string{"interrupted"}
	if ctx.Err() == nil {
		why = []string{"the suite did not come to it"}
		if i := slices.IndexFunc(results, func(r conformance.Result) bool { return r.Name == conformance.Setup }); i >= 0 {
			why = results[i].Why
		}
	}
	for _, c := range s.checks {
		if !seen[c.Name] {
			add(conformance.Result{Check: c, Verdict: conformance.NotTried, Why: why})
		}
	}
}

const (
	// slowWrite is how long a write takes on a server that is too slow for the waits of the checks, most of which are a minute.
	slowWrite = 250 * time.Millisecond
	// slowTries is how many writes have to be slow.
	slowTries = 3
)

// slow says how slow a server is, or nothing where its writes are fast enough.
func slow(ctx context.Context, on server) string {
	best := time.Duration(0)
	for i := range slowTries {
		began := time.Now()
		if err := on.write(ctx); err != nil {
			return ""
		}
		if took := time.Since(began); i == 0 || took < best {
			best = took
		}
	}
	if best < slowWrite {
		return ""
	}
	return fmt.Sprintf("the server is too slow: a write takes %d ms", best.Milliseconds())
}

// best is the least measurement of each promise.
func best(times []conformance.Time) (least []Time) {
	for _, x := range times {
		i := slices.IndexFunc(least, func(l Time) bool { return l.Promise == x.Promise })
		if i < 0 {
			least = append(least, Time{x.Promise, x.Took.Milliseconds(), x.Limit.Milliseconds()})
			continue
		}
		least[i].TookMS = min(least[i].TookMS, x.Took.Milliseconds())
	}
	return least
}

// tidy removes what was made on a server, also when ctx has ended.
func (o *Options) tidy(ctx context.Context, s server) error {
	if o.Keep {
		return errors.New("it was to be kept")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupFor)
	defer cancel()
	return s.remove(ctx)
}

// conclude sums up what was found.
func (r *Report) conclude() {
	r.Held, r.Complete = true, len(r.Findings) > 0
	for _, f := range r.Findings {
		r.Held = r.Held && f.Verdict != conformance.Broken
		for _, number := range f.Guarantees {
			i := slices.IndexFunc(r.Guarantees, func(g Guarantee) bool { return g.Number == number && g.Target == f.Target })
			if i < 0 {
				i = len(r.Guarantees)
				r.Guarantees = append(r.Guarantees, Guarantee{Number: number, Title: titles()[number], Target: f.Target})
			}
			switch g := &r.Guarantees[i]; f.Verdict {
			case conformance.Held:
				g.Held++
			case conformance.Broken:
				g.Broken++
			case conformance.NotTried:
				g.NotTried++
				if f.OutOfTime {
					g.outOfTime++
				}
			}
		}
	}
	for i := range r.Guarantees {
		g := &r.Guarantees[i]
		switch {
		case g.Broken > 0:
			g.Verdict = conformance.Broken
		case g.Held > 0 && g.outOfTime == 0:
			g.Verdict = conformance.Held
		default:
			g.Verdict = conformance.NotTried
			r.Complete = false
		}
	}
	order := strings.Fields(numbers)
	slices.SortStableFunc(r.Guarantees, func(a, b Guarantee) int {
		return cmp.Compare(slices.Index(order, a.Number), slices.Index(order, b.Number))
	})
}
