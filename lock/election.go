package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// DefaultTermTTL is how long a leader that died stands in the way of the next one.
const DefaultTermTTL = 5 * time.Second

// Pauses of an election.
const (
	// campaignPause is the time until a candidate stands again after its work returned, or after the backend failed: whoever
	// else waits goes first, since this process may be the one that cannot do the work. A little is added by chance, lest
	// many try in step.
	campaignPause  = 500 * time.Millisecond
	campaignJitter = 10 * time.Millisecond
	// observePause is the time between two looks at who leads.
	observePause = 250 * time.Millisecond
)

// Leader is who leads, as [Election.Observe] and [Election.Leader] see it. The zero one is nobody.
type Leader struct {
	Candidate string
	// Term is the leader's token: it grows from leader to leader, and 0 is nobody's.
	Term int64
	// Since is when the term began, by the backend's clock.
	Since time.Time
}

// ElectionOptions configure an [Election]. The zero value is fine.
type ElectionOptions struct {
	// TTL is how long a leader that died stands in the way: [MinTTL] to [MaxTTL], 0 means [DefaultTermTTL].
	TTL time.Duration
	// Candidate names who stands, for people and for [Election.Observe]; "" is a random name.
	Candidate string
	Logger    *slog.Logger // may be nil
	// Observe is called with true when a term begins, and with false when the work of it has returned, for metrics. It must not
	// block, and may be nil.
	Observe func(name string, term int64, leading bool)
}

// Election lets one of many candidates, in any number of processes, do what needs no more than one. It is a lock that is
// renewed: candidates wait in line, and whoever resigns hands over to the next at once. It is safe for concurrent use.
//
// A term is a fencing token. As with locks, nothing promises that at most one leader acts at any instant: the work must
// carry its term into what it writes, and refuse a term lower than one seen before in the transaction of the write.
type Election struct {
	locker *Locker
	name   string
	o      ElectionOptions
	log    *slog.Logger
}

// NewElection returns a candidate for the leadership that has a name: a key among the locker's locks. It returns
// [ErrInvalid] when there is no locker, or the name, the candidate's, or the TTL is not within the limits.
func NewElection(l *Locker, name string, o ElectionOptions) (*Election, error) {
	if o.TTL == 0 {
		o.TTL = DefaultTermTTL
	}
	if o.Candidate == "" {
		o.Candidate = uuid.NewString()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(string, int64, bool) {}
	}
	if l == nil || !ValidName(name) || !ValidName(o.Candidate) || !ValidTTL(o.TTL) {
		return nil, fmt.Errorf("lock: election %q of %q for %s: %w", name, o.Candidate, o.TTL, ErrInvalid)
	}
	return &Election{locker: l, name: name, o: o, log: o.Logger.With("election", name, "candidate", o.Candidate)}, nil
}

// Campaign waits in line until elected, for as long as ctx lasts. The lock that it returns is the term: its token for the
// election's name is the term's number, its context ends before another one can have been elected, and its release resigns.
// Errors are those of [Locker.Acquire].
func (e *Election) Campaign(ctx context.Context) (*Held, error) {
	return e.locker.Acquire(ctx, []string{e.name}, Options{TTL: e.o.TTL, Wait: Forever, Owner: e.o.Candidate})
}

// Run campaigns until ctx ends, and returns once the work has returned and the term is resigned. Whenever it is elected it
// calls lead, with a context that ends before another one can have been elected, and with the term's number. A lead that
// returns by itself resigns, and its candidate stands again behind all others. No two calls of lead overlap.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, term int64)) {
	failing := false
	for ctx.Err() == nil {
		h, err := e.Campaign(ctx)
		if err == nil {
			e.serve(ctx, h, lead)
		} else if ctx.Err() == nil && !failing {
			e.log.WarnContext(ctx, "cannot stand for election, and try again", "error", err)
		}
		failing = err != nil
		wait.For(ctx, campaignPause+rand.N(campaignJitter)) //nolint:gosec // Jitter needs no secrecy.
	}
}

// serve is one term.
func (e *Election) serve(ctx context.Context, h *Held, lead func(context.Context, int64)) {
	term, number := h.Context(), h.Token(e.name)
	if term.Err() == nil { // Else this process was stopped, perhaps, before it could see that it was elected.
		e.log.InfoContext(ctx, "elected", "term", number)
		e.o.Observe(e.name, number, true)
		lead(term, number) //nolint:contextcheck // The term's context was made from ctx.
		defer e.o.Observe(e.name, number, false)
	}
	switch err := h.Release(ctx); {
	case err == nil:
		e.log.InfoContext(ctx, "resigned", "term", number)
	case !errors.Is(err, ErrLost):
		e.log.WarnContext(ctx, "not resigned: the term expires", "term", number, "error", err)
	}
}

// Leader tells who leads now. It returns [errors.ErrUnsupported] where the backend is no [Inspector].
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	var g Grant
	err := errors.ErrUnsupported
	b, ok := e.locker.backend.(Inspector)
	if ok {
		g, ok, err = b.Find(ctx, e.name)
	}
	switch {
	case err != nil:
		return Leader{}, fmt.Errorf("lock: leader of %q: %w", e.name, err)
	case !ok:
		return Leader{}, nil
	}
	return Leader{Candidate: g.Owner, Term: g.Tokens[e.name], Since: g.GrantedAt}, nil
}

// Observe yields who leads, at once and whenever it changes, until ctx ends. It looks four times a second, so that a term
// shorter than that may be missed; terms that are seen only grow. An error is yielded without a leader, and does not end
// the observation.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		var last Leader
		for first := true; ; first = false {
			now, err := e.Leader(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if !yield(Leader{}, err) {
					return
				}
			case first || now.Term != last.Term:
				last = now
				if !yield(now, nil) {
					return
				}
			}
			if !wait.For(ctx, observePause) {
				return
			}
		}
	}
}
