// Package command carries one keyed command from the edge that parsed it to the transaction that decides it, and its
// answer back.
//
// The core decides the outcome, the edge knows its status and bytes, and the transaction stores those bytes together with
// the effect. A [Command] therefore brings its own [Render], which the service calls inside the transaction. So the
// service needs to know nothing of HTTP.
package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
)

// ErrUnavailable is returned when the database cannot be reached, or did not answer in time, and this command had no effect.
// The command may be sent again. The error says nothing about an earlier command under the same key, which only the
// database knows.
var ErrUnavailable = errors.New("the database is unavailable")

// ErrUnknownOutcome is returned when a COMMIT was sent and its answer never came, and the database could not be asked
// again in time. The effect happened once or not at all; the same key settles it.
var ErrUnknownOutcome = errors.New("the outcome is not known yet")

// ErrNotApplied is returned, together with the reason, when the command's key was read, nothing was recorded under it, and the
// command certainly had no effect. An error without it, unless it is a decision, says nothing about earlier commands under
// the same key.
var ErrNotApplied = errors.New("the command was not applied")

// BlockedFor is how long a command waits, in all, for rows that somebody else has locked.
const BlockedFor = 5 * time.Second

// BlockedError is the [Answer]'s error for a command that was not decided, because somebody else has locked a row that it
// needs. Its key was looked up, and nothing was applied, unless it is Unsure; of an earlier request under the key, see Recorded.
type BlockedError struct {
	Row    string // such as "account alice"; not for users
	Waited bool   // the transaction has waited for [BlockedFor] in vain, as for a locked table, and Wait returns an error at once
	Unsure bool   // the answer to an earlier COMMIT of the command was lost: that transaction may be what has the row, and may still end well
	// Wait returns nil when the row is free, and an error when ctx ends before or too many wait already.
	Wait func(ctx context.Context) error
	// Recorded returns those of the keys that have a record by now, or that a transaction has recorded which has not ended: an earlier
	// request under the key may be what has the row. nil: there is none.
	Recorded func(ctx context.Context, keys []idempotency.ID) ([]idempotency.ID, error)
}

func (e *BlockedError) Error() string { return e.Row + " is locked by another session" }

// Execute runs a command with a key, which may be nil, by do, and again each time a row that it needed was locked by somebody else and has
// become free. After [BlockedFor] it gives up with [ErrUnavailable] and the [BlockedError], and with [ErrNotApplied] where no earlier
// request under the key can be what has the row; or with [ErrUnknownOutcome] where its own outcome was ever unsure.
func Execute(ctx context.Context, key *idempotency.Request, do func() (Answer, error)) (Answer, error) {
	a, err := do()
	blocked, ok := errors.AsType[*BlockedError](a.Err)
	if err != nil || !ok {
		return a, err
	}
	waiting, cancel := context.WithTimeout(ctx, BlockedFor)
	defer cancel()
	for unsure := false; ; {
		unsure = unsure || blocked.Unsure
		if err := blocked.Wait(waiting); err != nil {
			return Answer{}, undone(blocked.giveUp(ctx, key)(key, errors.Join(blocked, err)), unsure)
		}
		if a, err = do(); err != nil {
			return a, undone(err, unsure)
		}
		if blocked, ok = errors.AsType[*BlockedError](a.Err); !ok {
			return a, nil
		}
	}
}

// giveUp looks once more for records of the keys, and returns a function that makes the error of a command which is given up for a reason.
func (e *BlockedError) giveUp(ctx context.Context, keys ...*idempotency.Request) func(key *idempotency.Request, reason error) error {
	var ids []idempotency.ID
	for _, key := range keys {
		if key != nil {
			ids = append(ids, key.ID)
		}
	}
	var recorded []idempotency.ID
	var failed error
	if len(ids) > 0 && e.Recorded != nil {
		recorded, failed = e.Recorded(ctx, ids)
	}
	return func(key *idempotency.Request, reason error) error {
		reason = Unavailable(reason)
		if key != nil && (failed != nil || slices.Contains(recorded, key.ID)) {
			return reason
		}
		return NotApplied(reason)
	}
}

// undone is an error of a command that had no effect when it was executed for the last time. If the answer to an earlier COMMIT of it
// was lost, that may have one.
func undone(err error, unsure bool) error {
	if !unsure || errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	return UnknownOutcome(errors.New(err.Error())) // What it wraps says more than is known.
}

// Listed is what became of one command of a list.
type Listed = groupcommit.Outcome[Answer]

// ExecuteAll is [Execute] for a list of commands on one object, which are decided in its order: what stands behind a blocked command
// waits with it. queue puts the first commands of a list on their lane and returns the function that waits for them, as
// [groupcommit.Group.DoAll] does; the function that ExecuteAll returns waits for all and is to be called once. When the list has waited
// for [BlockedFor], commands that are still blocked fail, and those behind them are decided, unless their transaction would wait for the same table.
func ExecuteAll[Op any](ctx context.Context, list []Command[Op], queue func([]Command[Op]) (wait func() []Listed)) (wait func() []Listed) {
	in := &idempotency.List{}
	for i := range list {
		list[i].List = in
	}
	first := queue(list)
	return func() []Listed {
		var deadline time.Time
		wait := func(blocked *BlockedError) error {
			if deadline.IsZero() {
				deadline = time.Now().Add(BlockedFor)
			}
			ctx, cancel := context.WithDeadline(ctx, deadline)
			defer cancel()
			return blocked.Wait(ctx)
		}
		outcomes := first()
		for done := 0; ; outcomes = append(outcomes, queue(list[done:])()...) {
			table := settle(ctx, list[done:], outcomes[done:], queue, wait)
			if done = len(outcomes); done == len(list) {
				return outcomes
			}
			if table != nil {
				return append(outcomes, refuseRest(ctx, list[done:], table)...)
			}
		}
	}
}

// refuseRest gives up the commands behind those whose transaction has waited for a table in vain.
func refuseRest[Op any](ctx context.Context, rest []Command[Op], table *BlockedError) []Listed {
	keys := make([]*idempotency.Request, len(rest))
	for i := range rest {
		keys[i] = rest[i].Key
	}
	failure, outcomes := table.giveUp(ctx, keys...), make([]Listed, len(rest))
	for i := range rest {
		outcomes[i].Err = failure(rest[i].Key, table)
	}
	return outcomes
}

// settle executes the commands of a part of a list again that were not decided, until all are. Where wait fails, those that are still
// blocked are given up. So are those whose transaction has waited already; then table is why.
func settle[Op any](ctx context.Context, part []Command[Op], outcomes []Listed, queue func([]Command[Op]) func() []Listed, wait func(*BlockedError) error,
) (table *BlockedError) {
	unsure := map[int]bool{} // the places whose command may have had an effect
	for last := false; ; {
		places, blocked, waited := undecided(outcomes)
		if blocked == nil {
			return nil
		}
		keys := make([]*idempotency.Request, len(places))
		for i, at := range places {
			reason, ok := errors.AsType[*BlockedError](outcomes[at].Result.Err)
			unsure[at], keys[i] = unsure[at] || (ok && reason.Unsure), part[at].Key
		}
		if last || waited {
			failure := blocked.giveUp(ctx, keys...)
			for _, at := range places {
				outcomes[at] = Listed{Err: undone(failure(part[at].Key, outcomes[at].Result.Err), unsure[at])}
			}
			if waited {
				table = blocked
			}
			return table
		}
		last = wait(blocked) != nil
		again := make([]Command[Op], len(places))
		for i, at := range places {
			if again[i] = part[at]; last {
				again[i].List = nil
			}
		}
		for i, o := range queue(again)() {
			if o.Err != nil {
				o.Err = undone(o.Err, unsure[places[i]])
			}
			outcomes[places[i]] = o
		}
	}
}

// undecided returns the places of the commands that were not decided, what blocks the first of them, and whether all have waited already.
func undecided(outcomes []Listed) (places []int, first *BlockedError, waited bool) {
	waited = true
	for i := range outcomes {
		blocked, ok := errors.AsType[*BlockedError](outcomes[i].Result.Err)
		if outcomes[i].Err != nil || !ok {
			continue
		}
		if places, waited = append(places, i), waited && blocked.Waited; first == nil {
			first = blocked
		}
	}
	return places, first, waited
}

// The types of a command are public, because packages saga and multidraw take commands too.
type (
	// Command is an operation with what is needed to execute it exactly once and to answer its caller.
	Command[Op any] = idempotency.Command[Op]
	// Render turns an outcome into an answer.
	Render = idempotency.Render
	// Rendered is an outcome as the edge answers it.
	Rendered = idempotency.Rendered
	// Answer is what one caller gets. Its Err is a [BlockedError] for a command that was not decided.
	Answer = idempotency.Outcome
	// Audit is an administrative change, written in its own transaction.
	Audit = idempotency.Audit
	// Unit is what one transaction works on, beside its object.
	Unit = idempotency.Unit
	// Asked is a request that has made an object and is not answered yet.
	Asked = idempotency.Asked
)

// Audited notes that a command has changed an object.
func Audited[Op any](c Command[Op], action, object string) Audit {
	return Audit{Principal: c.Principal, RequestID: c.RequestID, Action: action, Object: object}
}

// Keys collects the keys of a batch.
func Keys[Op any](batch []Command[Op]) []idempotency.ID {
	ids := make([]idempotency.ID, 0, len(batch))
	for i := range batch {
		if batch[i].Key != nil {
			ids = append(ids, batch[i].Key.ID)
		}
	}
	return ids
}

// KeysOf is [Keys] for one command.
func KeysOf[Op any](c Command[Op]) []idempotency.ID { return Keys([]Command[Op]{c}) }

// Decide answers every command of a batch in order: a repeated one with the recorded answer, all others by calling decide. A command
// behind a blocked one of its list is blocked, too.
// Nothing else looks keys up before a decision.
func Decide[Op any](batch []Command[Op], keys *idempotency.Batch, decide func(Command[Op]) (any, error)) []Answer {
	answers := make([]Answer, len(batch))
	var waiting map[*idempotency.List]error // the lists with a blocked command
	for i, c := range batch {
		if c.Key != nil {
			if known, ok, err := keys.Lookup(*c.Key); err != nil || ok {
				if answers[i] = (Answer{Answer: known}); err != nil {
					answers[i] = c.Refuse(err)
				}
				continue
			}
		}
		if blocked := waiting[c.List]; c.List != nil && blocked != nil {
			answers[i] = Answer{Err: blocked}
			continue
		}
		result, err := decide(c)
		_, blocked := errors.AsType[*BlockedError](err)
		if blocked && c.List != nil {
			if waiting == nil {
				waiting = map[*idempotency.List]error{}
			}
			waiting[c.List] = err
		}
		if blocked || c.Render == nil {
			answers[i] = Answer{Result: result, Err: err}
			continue
		}
		r := c.Render(result, err)
		if c.Key != nil && r.Decided {
			keys.Store(*c.Key, r.Status, r.Body)
		}
		answers[i] = Answer{Answer: idempotency.Answer{Status: r.Status, Body: r.Body}}
	}
	return answers
}

// RefuseAll refuses the commands of a batch on something that does not exist.
func RefuseAll[Op any](batch []Command[Op], reason error) []Answer {
	answers := make([]Answer, len(batch))
	for i := range batch {
		answers[i] = batch[i].Refuse(reason)
	}
	return answers
}

// RefuseListed is [RefuseAll] for a list.
func RefuseListed[Op any](list []Command[Op], reason error) []Listed {
	outcomes := make([]Listed, len(list))
	for i, a := range RefuseAll(list, reason) {
		outcomes[i].Result = a
	}
	return outcomes
}

// Known reports whether a request was decided before, whatever it asked for.
func Known(keys *idempotency.Batch, r *idempotency.Request) bool {
	_, ok, err := keys.Lookup(*r)
	return ok || err != nil
}

// Undividable reports that halving a batch would not help: the failure lies with the connection, not with a command.
func Undividable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknownOutcome)
}

// Unavailable wraps the reason for which the database could not be used.
func Unavailable(reason error) error { return fmt.Errorf("%w: %w", ErrUnavailable, reason) }

// NotApplied wraps the reason for which a command was given up whose key had been read.
func NotApplied(reason error) error { return fmt.Errorf("%w: %w", ErrNotApplied, reason) }

// UnknownOutcome wraps the reason for which the outcome of a COMMIT could not be learnt.
func UnknownOutcome(reason error) error { return fmt.Errorf("%w: %w", ErrUnknownOutcome, reason) }
