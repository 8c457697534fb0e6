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
	"time"

	"github.com/fairlead-dev/fairlead/idempotency"
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
// needs. Its key was looked up, and nothing was applied.
type BlockedError struct {
	Row string // such as "account alice"; not for users
	// Wait returns nil when the row is free, and an error when ctx ends before or too many wait already.
	Wait func(ctx context.Context) error
}

func (e *BlockedError) Error() string { return e.Row + " is locked by another session" }

// Execute runs a command by do, and again each time a row that it needed was locked by somebody else and has become free.
// After [BlockedFor] it gives up with [ErrNotApplied], [ErrUnavailable] and the [BlockedError].
func Execute(ctx context.Context, do func() (Answer, error)) (Answer, error) {
	a, err := do()
	blocked, ok := errors.AsType[*BlockedError](a.Err)
	if err != nil || !ok {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, BlockedFor)
	defer cancel()
	for {
		if err := blocked.Wait(ctx); err != nil {
			return Answer{}, NotApplied(Unavailable(errors.Join(blocked, err)))
		}
		if a, err = do(); err != nil {
			return a, err
		}
		if blocked, ok = errors.AsType[*BlockedError](a.Err); !ok {
			return a, nil
		}
	}
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

// Decide answers every command of a batch in order: a repeated one with the recorded answer, all others by calling decide.
// Nothing else looks keys up before a decision.
func Decide[Op any](batch []Command[Op], keys *idempotency.Batch, decide func(Command[Op]) (any, error)) []Answer {
	answers := make([]Answer, len(batch))
	for i, c := range batch {
		if c.Key != nil {
			if known, ok, err := keys.Lookup(*c.Key); err != nil || ok {
				if answers[i] = (Answer{Answer: known}); err != nil {
					answers[i] = c.Refuse(err)
				}
				continue
			}
		}
		result, err := decide(c)
		if _, blocked := errors.AsType[*BlockedError](err); blocked || c.Render == nil {
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
