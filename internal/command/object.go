package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// ExecuteOn is [Execute] for a command that do decides in a transaction of its own, which may fail by a [BlockedError]. known
// reads the records of keys: a repeat is answered though the row is blocked.
func ExecuteOn[Op any](ctx context.Context, c Command[Op], known func(context.Context, []idempotency.ID) (*idempotency.Batch, error),
	do func() (Answer, error),
) (Answer, error) {
	return Execute(ctx, c.Key, func() (Answer, error) {
		a, err := do()
		reason, blocked := errors.AsType[*BlockedError](err)
		if !blocked {
			return a, err
		}
		keys, err := known(ctx, KeysOf(c))
		if err != nil {
			return Answer{}, err
		}
		return One(&Unit{Keys: keys}, c, "", func() (any, string, error) { return nil, "", reason }), nil
	})
}

// One decides one command on an object, as [Decide] does. The action, unless it is empty, is noted as a change of the object.
func One[Op any](u *Unit, c Command[Op], object string, decide func() (result any, action string, err error)) Answer {
	return Decide([]Command[Op]{c}, u.Keys, func(Command[Op]) (any, error) {
		result, action, err := decide()
		if err != nil {
			return nil, err
		}
		if action != "" {
			u.Changed = true
			u.Audit = append(u.Audit, Audited(c, action, object))
		}
		return result, nil
	})[0]
}

// Make decides a command that makes an object, as [One] does. With later, only a refusal is answered now; else the caller answers
// when the object has ended, and the object keeps the command's key until then. If an earlier request under the same key has made
// an object and is not answered yet, nothing is decided, and wait is that object.
func Make[Op any](u *Unit, c Command[Op], object uuid.UUID, later bool, decide func() (any, string, error)) (a Answer, wait *uuid.UUID) {
	if c.Key != nil && u.Asked != nil && !Known(u.Keys, c.Key) {
		if u.Asked.Fingerprint != c.Key.Fingerprint {
			return c.Refuse(idempotency.ErrKeyReused), nil
		}
		return a, &u.Asked.Object
	}
	if render := c.Render; later && render != nil {
		c.Render = func(result any, err error) Rendered {
			if err == nil {
				return Rendered{}
			}
			return render(result, err)
		}
	}
	return One(u, c, object.String(), decide), nil
}

// Settle decides the answer to the request that made an object, unless that is decided already, and takes the request's key from
// the object, which keeps it in pending. The answer is that of the first request, also when a repeated one asks. update runs the
// object's transaction; known is that of [ExecuteOn]. An object that stays blocked is an unknown outcome, since it has been made.
func Settle[Op, O any](ctx context.Context, c Command[Op], known func(context.Context, []idempotency.ID) (*idempotency.Batch, error),
	pending func(O) **idempotency.Request, update func(keys []idempotency.ID, decide func(*Unit, O)) error,
) (Answer, error) {
	answer, err := ExecuteOn(ctx, c, known, func() (answer Answer, err error) {
		err = update(KeysOf(c), func(u *Unit, object O) {
			c, replayed := c, false
			if p := pending(object); *p != nil && c.Key != nil && (*p).ID == c.Key.ID {
				replayed = (*p).Execution != c.Key.Execution
				c.Key, *p, u.Changed = *p, nil, true
			}
			answer = One(u, c, "", func() (any, string, error) { return object, "", nil })
			answer.Replayed = answer.Replayed || replayed
		})
		return answer, err
	})
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		err = fmt.Errorf("%w: %s", ErrUnknownOutcome, blocked.Error())
	}
	return answer, err
}

// Columns are a pending request as a row has it; nil where there is none.
func Columns(r *idempotency.Request) (key, fingerprint []byte, execution *uuid.UUID) {
	if r == nil {
		return nil, nil, nil
	}
	return r.ID[:], r.Fingerprint[:], &r.Execution
}

// Pending reads what [Columns] gave.
func Pending(key, fingerprint []byte, execution *uuid.UUID) *idempotency.Request {
	if key == nil || execution == nil {
		return nil
	}
	r := &idempotency.Request{Execution: *execution}
	copy(r.ID[:], key)
	copy(r.Fingerprint[:], fingerprint)
	return r
}
