package speculation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Observer receives how speculative transactions ended, for metrics. Its methods must not block and may be called concurrently.
type Observer interface {
	pgkit.Observer
	// Fallback is called for each transaction that could have been speculative and was not, or failed when it was. What reasons
	// there are is in docs/operations/runbook.md.
	Fallback(name, reason string)
}

// Options are what a [Speculator] needs of its database.
type Options struct {
	Pool      *pgxpool.Pool   // where the database is asked for the time
	Config    *pgx.ConnConfig // of the pipelines' connections
	Pipelines int             // how many
	// MostAccounts is how many accounts are remembered; 0 means [DefaultAccounts].
	MostAccounts int
	Statements   []string        // all that speculative transactions consist of, in the order in which one has them
	Presence     *pgkit.Presence // of the database
	Observer     Observer        // may be nil
	// NewBook makes the book of a transaction that begins now.
	NewBook func(now time.Time) *ledger.Book
	// Blocked reports whether somebody else has locked one of the accounts.
	Blocked func(accounts []string) bool
	// Read reads accounts without locks. It leaves out those that do not exist.
	Read func(ctx context.Context, ids []string) ([]ledger.Account, error)
	// Met is called with each new connection of a pipeline before it is used; it may be nil.
	Met func(ctx context.Context, conn *pgx.Conn) error
	// Explicit is for a database that makes no transaction of the statements up to a Sync, see [Pipeline].
	Explicit bool
}

// Speculator runs speculative transactions on one database. It is safe for concurrent use.
type Speculator struct {
	Accounts *Accounts
	Keys     *Keys
	Clock    Clock

	o         Options
	pipelines []*Pipeline
}

// New returns a speculator that remembers nothing yet. Its pipelines connect when they are first used.
func New(o Options) *Speculator {
	s := &Speculator{Accounts: NewAccounts(o.MostAccounts), Keys: NewKeys(), o: o}
	s.Grow(o.Pipelines)
	return s
}

// Grow adds pipelines until there are n. Nothing may be under way.
func (s *Speculator) Grow(n int) {
	for len(s.pipelines) < n {
		s.pipelines = append(s.pipelines, &Pipeline{
			Config: s.o.Config, Presence: s.o.Presence, Statements: s.o.Statements, Met: s.o.Met, Explicit: s.o.Explicit, Undone: s.undone,
		})
	}
}

// undone reports a transaction that was undone with those that it was sent with, and is sent again.
func (s *Speculator) undone(err error) {
	if s.o.Observer != nil {
		s.o.Observer.Fallback("gathered", Reason(err))
	}
}

// Forget drops all that is remembered of accounts and keys.
func (s *Speculator) Forget() {
	s.Accounts.forgetAll()
	s.Keys.forgetAll()
}

// Close closes the pipelines.
func (s *Speculator) Close() {
	for _, p := range s.pipelines {
		p.Close()
	}
}

// Pipeline returns a pipeline, always the same one for a number. Transactions that may rest on each other take the same one.
func (s *Speculator) Pipeline(n int) *Pipeline { return s.pipelines[n%len(s.pipelines)] }

// Run runs a transaction that can be speculative (docs/adr/0010): speculative tries that, once, and everything but plain
// success is left to locked. Each such fallback is reported with its reason. The first result says whether the speculative
// transaction committed. speculative returns what [Pipeline.Commit] does, and locked returns command.ErrUnavailable,
// command.ErrUnknownOutcome or an error of its own.
func (s *Speculator) Run(name string, speculative, locked func() error) (bool, error) {
	start := time.Now()
	observe := func(outcome string) {
		if s.o.Observer != nil {
			s.o.Observer.Transaction(name, 1, time.Since(start), outcome)
		}
	}
	err := speculative()
	if err == nil {
		observe("committed")
		return true, nil
	}
	reason := Reason(err)
	if s.o.Observer != nil {
		s.o.Observer.Fallback(name, reason)
	}
	away, lost := errors.Is(err, pgkit.ErrAway), errors.Is(err, ErrLinkLost)
	switch {
	case errors.Is(err, pgkit.ErrNotReplicated), away && lost:
		observe("unknown")
		return true, fmt.Errorf("postgres: %s: %w", name, command.UnknownOutcome(err))
	case away: // It has been waited for long enough.
		observe("failed")
		return false, fmt.Errorf("postgres: %s: %w", name, command.Unavailable(pgkit.ErrAway))
	case !IsNotSent(err) && s.o.Observer != nil:
		s.o.Observer.Retry(name, reason)
	}
	lockedErr := locked()
	if lost { // The locked run did nothing, but nobody knows of the speculative one. It may be what has the row.
		blocked, ok := errors.AsType[*command.BlockedError](lockedErr)
		switch {
		case ok:
			blocked.Unsure = true
		case errors.Is(lockedErr, command.ErrUnavailable):
			return false, fmt.Errorf("postgres: %s: %w", name, command.UnknownOutcome(err))
		}
	}
	return false, lockedErr
}

// Reasons for which a transaction was not speculative, or failed when it was. Others are "connection", "encode",
// "commit_unknown", "not_replicated", and SQLSTATEs.
const (
	Backoff   = "backoff"   // another server wrote lately
	Blocked   = "blocked"   // a row is locked by somebody else
	Closing   = "closing"   // the round is about to end, or the sale
	Command   = "command"   // the batch has a command that is decided under locks
	Extension = "extension" // a bid moves the round's end
	Refusal   = "refusal"   // a command is refused
	Stale     = "stale"     // the database has something else than what is remembered
	Turn      = "turn"      // it is the first one of a turn, and reads what others have committed

	absent    = "absent"    // nothing is remembered of the auction or campaign
	behind    = "behind"    // a transaction that it rested on failed
	busy      = "busy"      // other transactions of this process work on the accounts
	noClock   = "clock"     // the database's time is not known
	forgotten = "forgotten" // an account was forgotten meanwhile
	noRead    = "read"      // accounts could not be read
	repeat    = "repeat"    // a key was used lately
	keyKnown  = "key_known" // a key has a record, or a reference is taken, which this process did not know of
)

// Reason names why a speculative transaction did not commit.
func Reason(err error) string {
	unsent, _ := errors.AsType[*notSentError](err)
	code := pgkit.Code(err)
	switch {
	case unsent != nil:
		return unsent.reason
	case errors.Is(err, pgkit.ErrNotReplicated):
		return "not_replicated"
	case errors.Is(err, ErrLinkLost):
		return "commit_unknown"
	case isKeyKnown(err):
		return keyKnown
	case errors.Is(err, ErrBehind):
		return behind
	case code == pgkit.DivisionByZero, code == pgkit.UniqueViolation: // A guard refused, or a row was there that was not expected.
		return Stale
	case code == pgkit.LockTimeout:
		return Blocked
	}
	return cmp.Or(code, "other")
}

// isKeyKnown reports whether an idempotency key was stored that has a record already, or a reference: a client has sent a request
// again.
func isKeyKnown(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == pgkit.UniqueViolation && (strings.HasPrefix(pgErr.TableName, "idempotency_keys") || pgErr.TableName == "transfer_references")
}

// AskTime asks for the database's time before what is known of it is too old, lest speculative transactions have to stop for
// it. Those go on meanwhile. Without an answer the next one asks, or the first that must know.
func (s *Speculator) AskTime(ctx context.Context) {
	if !s.Clock.Due() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, clockPatience)
	defer cancel()
	conn, err := s.o.Pool.Acquire(ctx)
	if err != nil {
		return
	}
	defer conn.Release()
	var now time.Time
	asked := time.Now() // The wait for a connection is no part of the answer's way.
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err == nil {
		s.Clock.Learned(now, asked, time.Now())
	}
}

// readUnknown reads the accounts that are not remembered; with doubt, also those that no transaction of this process is changing.
func (s *Speculator) readUnknown(ctx context.Context, ids []string, doubt bool) (map[string]reading, error) {
	unknown, ok := s.Accounts.unknown(ids, doubt)
	switch {
	case !ok:
		return nil, NotSent(forgotten, nil)
	case len(unknown) == 0:
		return nil, nil
	}
	found, err := s.o.Read(ctx, slices.Collect(maps.Keys(unknown)))
	if err != nil {
		return nil, NotSent(noRead, err)
	}
	for i := range found {
		id := found[i].ID
		unknown[id] = reading{&found[i], unknown[id].turns}
	}
	return unknown, nil
}

// Scene is what a speculative transaction is decided on.
type Scene struct {
	Book      *ledger.Book  // has the accounts, and bears the latest time that it may be
	Uncertain time.Duration // by how much it may be earlier
	Absent    []string      // the ids of accounts that do not exist
	Changed   bool          // another process has changed an account since this one knew it
}

// Want is what a speculative transaction works on.
type Want struct {
	Place, Target string // as in [Work]
	Accounts      []string
	Keys          []idempotency.ID
	// Doubt has the accounts read even where they are remembered: other processes change them, too.
	Doubt bool
}

// Commit makes sure that no other transaction of this process works on the accounts, reads those that are not remembered, and
// sends what fill queues, as one transaction on p, or together with others that touch other accounts and targets. See [Pipeline.Commit].
func (s *Speculator) Commit(ctx context.Context, p *Pipeline, want Want, fill func(b *pgx.Batch, on Scene) error) error {
	accounts := want.Accounts
	_, _, timed := s.Clock.Now()
	switch {
	case s.o.Presence.Hopeless():
		return NotSent("connection", pgkit.ErrAway)
	case !timed: // It is asked for again below, for the time of the decision.
		return NotSent(noClock, nil)
	case s.Keys.Any(want.Keys):
		return NotSent(repeat, nil)
	case s.o.Blocked(accounts):
		return NotSent(Blocked, nil)
	case !s.Accounts.enter(ctx, p, accounts):
		return NotSent(busy, nil)
	}
	sent := false
	defer func() { s.Accounts.leave(accounts, sent) }()
	read, err := s.readUnknown(ctx, accounts, want.Doubt)
	if err != nil {
		return err
	}
	err = p.Commit(ctx, Work{Place: want.Place, Touched: append(slices.Clip(accounts), want.Target), Commands: len(want.Keys)}, func(b *pgx.Batch) error {
		earliest, latest, ok := s.Clock.Now()
		if !ok {
			return NotSent(noClock, nil)
		}
		on := Scene{Book: s.o.NewBook(latest), Uncertain: latest.Sub(earliest)}
		if on.Absent, on.Changed, ok = s.Accounts.loadAll(accounts, read, on.Book); !ok {
			return NotSent(forgotten, nil)
		}
		if err := fill(b, on); err != nil {
			return err
		}
		// What the next call decides on. Should this transaction fail, the checks of those that rest on it do so, too.
		s.Accounts.keep(accounts, on.Book)
		sent = true
		return nil
	})
	if err != nil && sent {
		s.Accounts.Forget(accounts)
	}
	return err
}
