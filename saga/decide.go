package saga

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// action is what is to be done next.
type action int

const (
	actDo action = iota
	actUndo
	actEnd
)

// next decides what is to be done with which step of a compensated saga.
func next(s *Saga) (action, int) {
	refused := false
	for i := range s.Steps {
		switch s.Steps[i].Status {
		case StepRefused:
			refused = true
		case StepPending:
			if !refused {
				return actDo, i
			}
		case StepDone, StepCompensated:
		}
	}
	if !refused {
		return actEnd, 0
	}
	for i, step := range slices.Backward(s.Steps) {
		if step.Status == StepDone {
			return actUndo, i
		}
	}
	return actEnd, 0
}

// tried counts an attempt at a step, and keeps why it failed; err is nil where it did not.
func (s *StepState) tried(err error) {
	s.Attempts++
	if s.Error = ""; err != nil {
		s.Error = err.Error()
	}
}

// record notes what became of a step.
func record(s *Saga, a action, i int, o Outcome) {
	step := &s.Steps[i]
	step.tried(nil)
	switch {
	case a == actUndo:
		step.Status, step.Undone = StepCompensated, o.Result
	case o.Refused:
		step.Status, step.Reason = StepRefused, o.Reason
		s.Reason = o.Reason
	default:
		step.Status, step.Result = StepDone, o.Result
	}
}

// clean makes all words in a saga's record storable. They come from outside: from a service that refused, or a server that
// failed.
func clean(s *Saga) {
	s.Reason, s.LastError = storable(s.Reason), storable(s.LastError)
	for i := range s.Steps {
		step := &s.Steps[i]
		step.Reason, step.Error = storable(step.Reason), storable(step.Error)
	}
}

// storable is a text that every store takes. U+FFFD replaces NUL bytes and what is not UTF-8, which PostgreSQL refuses.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// settle gives a saga of which nothing is left to do the status that it has come to.
func settle(s *Saga) {
	s.Status = Completed
	for i := range s.Steps {
		switch s.Steps[i].Status {
		case StepCompensated:
			s.Status = WasCompensated
			return
		case StepRefused:
			s.Status = Failed
		case StepPending, StepDone:
		}
	}
}

// Verdict is what is to become of a prepared branch.
type Verdict string

// The verdicts.
const (
	Leave          Verdict = "running" // its coordinator is at work
	CommitBranch   Verdict = "commit"
	RollbackBranch Verdict = "rollback"
	Undecided      Verdict = "in_doubt" // nobody may end it yet, see [Doubt.Reason]
)

// The reasons of verdicts that need one.
const (
	// ReasonDisowned: a participant has shown that the log is a copy, or was restored.
	ReasonDisowned = "log_disowned"
	// ReasonUnproven: the log has not proven yet that it is the one that prepared the branch, or couldn't ask.
	ReasonUnproven = "log_unproven"
	// ReasonHistory: a database has lost commits.
	ReasonHistory = "history_lost"
	// ReasonYoung: the log knows nothing of the branch, which is younger than [DoubtAge].
	ReasonYoung = "too_young"
	// ReasonNotAsked: the log may not know all about the branch, and a participant could not be asked for its siblings.
	ReasonNotAsked = "participant_unreachable"
	// ReasonSibling: the log knows nothing of a decision, and a branch that was committed proves it.
	ReasonSibling = "sibling_committed"
)

// DecideInDoubt decides on a branch that was prepared in a term, by what the log says of its saga; s is nil where it says
// nothing. The branch of a pending saga is left to the run in its term, even when that run's lease has expired: it might
// yet decide to commit. The next holder of the lease begins another term, which settles that. A run that has given its lease up
// decides nothing any more. What the log doesn't know, it can't decide.
func DecideInDoubt(s *Saga, term int64) Verdict {
	switch {
	case s == nil:
		return Undecided
	case s.Decided == term:
		return CommitBranch
	case s.Decided == 0 && s.Status == Pending && s.Term == term && !s.Parked():
		return Leave
	}
	return RollbackBranch
}

// siblings is what the participants say of the siblings of a branch.
type siblings struct {
	all       bool // were asked
	committed bool // one of them in the branch's term
}

// decideUnknown decides on a branch about which the log may have lost something. known says that the log knows its saga.
func decideUnknown(known bool, age, least time.Duration, t siblings) (Verdict, string) {
	switch {
	case !known && age < least:
		return Undecided, ReasonYoung
	case !t.all:
		return Undecided, ReasonNotAsked
	case t.committed:
		return CommitBranch, ReasonSibling
	}
	return RollbackBranch, ""
}

// decideFence decides whether a log moves the fence that it has seen at a participant, which is nil where there is none.
// known says that the log has lately left the fence's token; every, how often it does. The home participant is the log's own
// database: there can't be one without the other.
func decideFence(life Incarnation, seen *Fence, known, home bool, every time.Duration) (move bool, err error) {
	switch {
	case life.Copied:
		return false, ErrDisowned
	case seen == nil:
		return true, nil
	case home:
		return seen.Incarnation != life.ID, nil
	case !known:
		return false, ErrDisowned
	case seen.Incarnation == life.ID:
		return seen.Age >= every/2, nil // Else another process has just done so.
	case seen.Age < fencePatience*every:
		return false, ErrUnproven
	}
	return true, nil
}

// lastError is what the log keeps when a saga gets on: nothing, but for one that has come to nothing, which says why.
func lastError(s *Saga) string {
	if s.Status != Failed && s.Status != WasCompensated {
		return ""
	}
	if s.LastError != "" {
		return s.LastError
	}
	for i := range s.Steps {
		if step := &s.Steps[i]; step.Status == StepRefused {
			return "saga: step " + step.Name + " was refused: " + step.Reason
		}
	}
	return "saga: " + s.Reason
}

// hopeless is the reason of a transaction whose branch failed so that no further attempt would help, or nothing.
func hopeless(err error) string {
	switch {
	case errors.Is(err, ErrTwoPhaseUnavailable): // It stays so until somebody restarts that database with other settings.
		return ReasonTwoPhaseUnavailable
	case errors.Is(err, ErrTransactionEnded): // The program would do so again, and repeat what it has committed.
		return ReasonTransactionEnded
	}
	return ""
}

// stop says why the way forward of a saga has ended, or nothing.
func stop(s *Saga, now time.Time) string {
	switch {
	case s.Cancelled:
		return ReasonCancelled
	case s.DeadlineAt != nil && now.After(*s.DeadlineAt):
		return ReasonDeadline
	}
	return ""
}

// decideNew makes a saga of a request.
func decideNew(n *New, id, owner uuid.UUID, ttl time.Duration, coordinator string, now time.Time) *Saga {
	s := &Saga{
		ID: id, Name: n.Name, Protocol: n.Protocol, Input: n.Input, Status: Pending, Coordinator: coordinator,
		Owner: owner, Term: 1, LeaseExpiresAt: now.Add(ttl), Version: 1, NextAt: now, CreatedAt: now, UpdatedAt: now,
	}
	for _, step := range n.Steps {
		s.Steps = append(s.Steps, StepState{Name: step, Status: StepPending})
	}
	if n.Deadline > 0 {
		s.DeadlineAt = new(now.Add(n.Deadline))
	}
	return s
}

// decideRetry lets a pending saga be tried at once.
func decideRetry(s *Saga, now time.Time) error {
	if s.Status != Pending {
		return ErrBadTransition
	}
	s.NextAt, s.Attempts = now, 0
	return nil
}

// decideCompensate notes that a saga is to be compensated.
func decideCompensate(s *Saga, now time.Time) error {
	if s.Status != Pending || s.Decided != 0 {
		return ErrBadTransition
	}
	s.Cancelled = true
	return decideRetry(s, now)
}
