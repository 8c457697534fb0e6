package saga

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/google/uuid"
)

// Outcome is what became of a step, for ever.
type Outcome struct {
	Refused bool
	// Reason is that of a refusal. The log and marks keep U+FFFD instead of NUL bytes and what is not UTF-8, as they do in errors.
	Reason string
	// Result is kept as it is. One that is not UTF-8 fails the step, and one with a NUL byte a step or branch of package pgsaga.
	Result string
}

// Refuse is the outcome of a step that was refused. U+FFFD replaces NUL bytes in the reason, and what is not UTF-8.
func Refuse(reason string) Outcome { return Outcome{Refused: true, Reason: storable(reason)} }

// Call is one execution of a step.
type Call struct {
	Saga  uuid.UUID
	Step  string
	Input []byte
	// Term is the lease's fencing token, for effects on what can refuse an older one. It grows with each resumption.
	Term int64
	// GID names the prepared transaction of a branch; it is empty in a step.
	GID string
	// Undo says that the step is to be undone.
	Undo bool
	// Cancel, unless empty, asks for the step's outcome: refused with this reason, unless it was done, or refused, already.
	Cancel string
}

// Key is the same for each execution of a step, and another for its compensation.
func (c Call) Key() string {
	if c.Undo {
		return undoPrefix + c.Step
	}
	return c.Step
}

// IdempotencyKey is Key made unique among all sagas, for the header of that name and its like: up to 137 characters of
// visible ASCII.
func (c Call) IdempotencyKey() string { return c.Saga.String() + "." + c.Key() }

const undoPrefix = "undo."

// Step is a step of a compensated saga. Both functions may be called again after an error, by another process too, and
// must then change nothing a second time: a mark in the database that has the effect (package pgsaga), or the call's key,
// see to that. An error says that the outcome is not known; a panic and [runtime.Goexit] are errors, too. They are called in
// goroutines of their own.
type Step struct {
	Name string
	Do   func(ctx context.Context, c Call) (Outcome, error) // is required
	// Undo must not refuse; nil where there is nothing to undo.
	Undo func(ctx context.Context, c Call) (Outcome, error)
}

// Prepared is a transaction that was prepared and not finished.
type Prepared struct {
	GID string
	At  time.Time
	Age time.Duration // by the participant's clock
}

// Participant is a database that can prepare transactions. It keeps marks of the steps and branches that had their effects in
// it, and a fence, which lets one incarnation of a coordinator's log end what is prepared. It is safe for concurrent use.
type Participant interface {
	// InDoubt lists the prepared transactions whose identifiers begin so.
	InDoubt(ctx context.Context, prefix string) ([]Prepared, error)
	// Fence returns a coordinator's fence, or nil where there is none.
	Fence(ctx context.Context, coordinator string) (*Fence, error)
	// MoveFence replaces the fence that has the token from, or none where that is nil, and returns it as it is then; nil
	// where the fence had another token. Another incarnation takes it when no [Participant.EndPrepared] is under way.
	MoveFence(ctx context.Context, coordinator string, from, token, incarnation uuid.UUID) (*Fence, error)
	// EndPrepared commits a prepared transaction, or rolls it back. One that has ended so already is a success; to commit one
	// that is neither prepared nor committed is [ErrNotPrepared]. It returns [ErrFenced] unless the incarnation holds the fence
	// all the while.
	EndPrepared(ctx context.Context, gid string, commit bool, coordinator string, incarnation uuid.UUID) error
	// Committed returns the identifiers of the branches of a saga that were committed here. An empty one stands for any.
	Committed(ctx context.Context, id uuid.UUID) ([]string, error)
	// Forget deletes the marks of these sagas. It changes nothing where there are none.
	Forget(ctx context.Context, ids []uuid.UUID) error
}

// Branch is one database's part of a two-phase transaction. Prepare leaves a prepared transaction where it doesn't refuse;
// after an error it may have. It tries once: another try is made in a new term.
type Branch struct {
	Name        string
	Participant Participant
	Prepare     func(ctx context.Context, c Call, gid string) (Outcome, error)
}

// Plan is how a saga is carried out: by steps, or, with [TwoPhase], by branches in the order in which all sagas prepare.
type Plan struct {
	Steps    []Step
	Branches []Branch
}

func (p *Plan) names() []string {
	names := make([]string, 0, len(p.Steps)+len(p.Branches))
	for i := range p.Steps {
		names = append(names, p.Steps[i].Name)
	}
	for i := range p.Branches {
		names = append(names, p.Branches[i].Name)
	}
	return names
}

// check finds parts that can't be executed.
func (p *Plan) check() error {
	for i := range p.Steps {
		if p.Steps[i].Do == nil {
			return fmt.Errorf("%w: step %q has no Do", errBadPlan, p.Steps[i].Name)
		}
	}
	for i := range p.Branches {
		if b := &p.Branches[i]; b.Prepare == nil || b.Participant == nil {
			return fmt.Errorf("%w: branch %q lacks Prepare or Participant", errBadPlan, b.Name)
		}
	}
	return nil
}

// Definition makes plans for the sagas of its name. Plan must give the same steps whenever it is asked about the same saga:
// a process may come to resume it that runs a later version of the program. Its error, panic or
// [runtime.Goexit] is a failure of the saga, which is tried again. So is a step without Do.
type Definition struct {
	Name string
	Plan func(s *Saga) (Plan, error)
}

// maxSteps bounds the log's rows. Longer operations are for package checkpoint.
const maxSteps = 100

// errBadPlan is returned for parts that can't be executed, and for names that the log, or a mark, could not tell apart.
var errBadPlan = errors.New("a plan has from 1 to 100 steps with a Do, or complete branches, with different names of 1 to 64 characters of A-Z a-z 0-9 _ : @ -, points within")

func checkNames(names []string) error {
	valid := regexp.MustCompile(`^[A-Za-z0-9_:@-][A-Za-z0-9._:@-]{0,63}$`)
	if len(names) == 0 || len(names) > maxSteps {
		return errBadPlan
	}
	seen := map[string]bool{}
	for _, name := range names {
		undo := len(name) > len(undoPrefix) && name[:len(undoPrefix)] == undoPrefix
		if !valid.MatchString(name) || undo || seen[name] {
			return fmt.Errorf("%w: %q", errBadPlan, name)
		}
		seen[name] = true
	}
	return nil
}
