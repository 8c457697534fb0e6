package idempotency

import (
	"time"

	"github.com/google/uuid"
)

// Rendered is an outcome as an edge speaks it.
type Rendered struct {
	Status int
	Body   []byte
	// Decided says that the outcome is a decision and must be kept under the command's key. Outcomes that a retry may
	// change (an absent object, an overloaded server) are not.
	Decided bool
}

// Render turns an outcome, which is a result or the error that the core refused with, into an answer. It must be pure, because
// a transaction may run more than once.
type Render func(result any, err error) Rendered

// Command is an operation with what is needed to execute it exactly once and to answer its caller.
type Command[Op any] struct {
	Op Op
	// Key is nil for the server's own commands (sweepers), which are guarded by state alone.
	Key *Request
	// Render is nil for the server's own commands; their callers get the result or the error as it is.
	Render Render
	// Principal and RequestID are written to the audit log where the operation is an administrative one.
	Principal string
	RequestID string
	// List is set for commands of one request that are decided in its order, and then the same for all of them.
	List *List
	// Operator says that the principal is an administrator: some of what services do all the time is an administrative
	// operation only then.
	Operator bool
}

// List is the list that a command belongs to. Lists are told apart by their addresses.
type List struct{ _ byte }

// Outcome is what the caller of a command gets.
type Outcome struct {
	Answer
	// Result and Err are set for commands without a Render.
	Result any
	Err    error
}

// Audit is an administrative change, written in its own transaction.
type Audit struct {
	Principal string // who asked for it
	RequestID string
	Action    string // such as campaign.publish
	Object    string // the id of what was changed
}

// Unit is what one transaction of a service works on, beside the object that it is about.
type Unit struct {
	Now  time.Time // the database's
	Keys *Batch
	// Asked is the request under the same key that has made an object and is not answered yet, or nil.
	Asked   *Asked
	Changed bool // The object is to be written.
	Audit   []Audit
}

// Asked is a request that has made an object whose work goes on after the request's transaction.
type Asked struct {
	Request

	Object uuid.UUID
}

// Refuse answers a command without a decision: nothing is stored under its key.
func (c *Command[Op]) Refuse(reason error) Outcome {
	if c.Render == nil {
		return Outcome{Err: reason}
	}
	r := c.Render(nil, reason)
	return Outcome{Answer: Answer{Status: r.Status, Body: r.Body}}
}
