package lottery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// The kinds of failures of draws.
const (
	failureUnknown       = "unknown_outcome" // the answer to COMMIT was lost
	failureDeadlock      = "deadlock"
	failureSerialization = "serialization"
	failureTimeout       = "timeout" // of a statement or a lock
	failureConstraint    = "constraint"
	failureDatabase      = "database" // it refused for another reason, such as a full disk
	failureUnavailable   = "unavailable"
	failureSeal          = "seal_broken"
	failurePayout        = "payout_refused" // the beneficiary's account does not take the money
	failureOther         = "other"
)

// Failures lists the kinds of failures of draws.
func Failures() []string {
	return []string{
		failureUnknown, failureDeadlock, failureSerialization, failureTimeout, failureConstraint, failureDatabase, failureUnavailable,
		failureSeal, failurePayout, failureOther,
	}
}

// failureOf is the kind of a draw's failure. PostgreSQL's own reason goes before the server's word for it.
func failureOf(err error) string {
	var coded interface{ SQLState() string }
	_, missing := errors.AsType[*ledger.AccountNotFoundError](err)
	switch {
	case errors.Is(err, command.ErrUnknownOutcome):
		return failureUnknown
	case errors.As(err, &coded):
		return failureOfState(coded.SQLState())
	case errors.Is(err, command.ErrUnavailable):
		return failureUnavailable
	case errors.Is(err, ErrSealBroken), errors.Is(err, ErrWrongRound):
		return failureSeal
	case missing, errors.Is(err, ledger.ErrBalanceOverflow), errors.Is(err, ledger.ErrCurrencyMismatch):
		return failurePayout
	}
	return failureOther
}

// failureOfState is the kind of failure that a SQLSTATE stands for.
func failureOfState(code string) string {
	switch {
	case code == "40P01":
		return failureDeadlock
	case code == "40001":
		return failureSerialization
	case code == "57014", code == "55P03", strings.HasPrefix(code, "25P"):
		return failureTimeout
	case strings.HasPrefix(code, "23"):
		return failureConstraint
	case strings.HasPrefix(code, "08"), strings.HasPrefix(code, "57P"):
		return failureUnavailable
	}
	return failureDatabase
}

// refusedDraw is why a draw that was due was refused, nil where none was. That a draw is not due yet is no failure.
func refusedDraw(op Op, err error) error {
	_, waits := errors.AsType[*BeaconPendingError](err)
	switch op.(type) {
	case AskDraw, FinishDraw:
		if err != nil && !waits && !errors.Is(err, ErrNotDrawn) && !errors.Is(err, ErrNotSoldOut) {
			return err
		}
	}
	return nil
}

// work is what one run of a batch's transaction has decided. Only the last run can have been committed.
type work struct {
	state     *State // nil where the campaign could not be worked on
	waited    time.Duration
	changes   []change
	conflicts int
	refused   []refusal // draws
	drawn     *Draw
	requestID string // of the command that drew
}

type change struct {
	from, to  Status
	requestID string
}

type refusal struct {
	err       error
	requestID string
}

// note keeps what one command did to a campaign that had this status, and no draw or an older one, before.
func (w *work) note(before Status, drawn *Draw, c command.Command[Op], err error) {
	if errors.Is(err, ErrBadTransition) {
		w.conflicts++
	}
	if err := refusedDraw(c.Op, err); err != nil {
		w.refused = append(w.refused, refusal{err, c.RequestID})
	}
	for _, to := range steps(before, w.state.Campaign.Status) {
		w.changes = append(w.changes, change{before, to, c.RequestID})
		before = to
	}
	if w.state.Drawn != drawn {
		w.drawn, w.requestID = w.state.Drawn, c.RequestID
	}
}

// steps are the transitions from one status to another. One command makes two where the last sale draws at once.
func steps(from, to Status) []Status {
	switch {
	case from == to:
		return nil
	case from == StatusActive && to == StatusCompleted:
		return []Status{StatusDrawing, StatusCompleted}
	}
	return []Status{to}
}

// report passes on how a transaction ended: to the log, the observer and [Options].Committed. It tells nothing of a transaction that
// was undone but that a draw was lost with it.
func (s *Service) report(ctx context.Context, campaign uuid.UUID, commands int, w work, took time.Duration, err error) {
	o := s.o.Observer
	if o != nil {
		o.Attempted(commands)
	}
	if err != nil {
		if w.drawn != nil {
			s.drawFailed(ctx, campaign, took, refusal{err, w.requestID})
		}
		return
	}
	if w.state == nil {
		return
	}
	if o != nil && w.conflicts > 0 {
		o.Conflicts(w.conflicts)
	}
	for _, r := range w.refused {
		s.drawFailed(ctx, campaign, took, r)
	}
	s.logChanges(ctx, &w)
	if w.drawn != nil {
		if o != nil {
			o.DrawEnded(took, "")
		}
		s.logDraw(ctx, &w, took)
	}
	if s.o.Committed != nil {
		if last := lastEvent(w.state); last > 0 {
			s.o.Committed(campaign, last)
		}
	}
}

func (s *Service) drawFailed(ctx context.Context, campaign uuid.UUID, took time.Duration, r refusal) {
	kind := failureOf(r.err)
	if s.o.Observer != nil {
		s.o.Observer.DrawEnded(took, kind)
	}
	s.o.Logger.ErrorContext(ctx, "draw failed", "campaign", campaign, "took", took, "error_type", kind, "error", r.err, "request_id", r.requestID)
}

// logChanges logs the transitions of a campaign, and how long the lock was waited for that guarded them. Sales alone are not logged.
func (s *Service) logChanges(ctx context.Context, w *work) {
	c := w.state.Campaign
	for i, to := range w.changes {
		if i == 0 {
			s.o.Logger.InfoContext(ctx, "campaign lock acquired", "campaign", c.ID, "waited", w.waited, "request_id", to.requestID)
		}
		if to.to == StatusDrawing {
			s.o.Logger.InfoContext(ctx, "draw triggered", "campaign", c.ID, "total_positions", c.TotalPositions,
				"sold_positions", c.SoldPositions, "prizes", len(c.Prizes), "request_id", to.requestID)
		}
		s.o.Logger.InfoContext(ctx, "campaign changed", "campaign", c.ID, "from", to.from, "to", to.to, "request_id", to.requestID)
	}
	if w.state.Sealed {
		crashpoint.Hit(crashpoint.LotterySealed)
		seal := c.Beacon.Seal
		s.o.Logger.InfoContext(ctx, "campaign sealed", "campaign", c.ID, "root", fmt.Sprintf("%x", seal.Root),
			"round", seal.Round, "due_at", seal.DueAt)
	}
}

// loggedPositions is how many winning positions one line of the log has.
const loggedPositions = 1000

// logDraw logs a draw with the positions that won, in the order of the prizes. A large draw takes several lines.
func (s *Service) logDraw(ctx context.Context, w *work, took time.Duration) {
	positions := make([]string, len(w.drawn.Winners))
	for i := range w.drawn.Winners {
		positions[i] = w.drawn.Winners[i].Position.ID
	}
	first := min(len(positions), loggedPositions)
	s.o.Logger.InfoContext(ctx, "draw completed", "campaign", w.drawn.Campaign, "winners", len(positions), "positions", positions[:first],
		"took", took, "root", fmt.Sprintf("%x", w.drawn.Root), "request_id", w.requestID)
	for further := range slices.Chunk(positions[first:], loggedPositions) {
		s.o.Logger.InfoContext(ctx, "further winning positions", "campaign", w.drawn.Campaign, "positions", further, "request_id", w.requestID)
	}
}

// lastEvent is the number of the campaign's last event, or 0 where the transaction made none.
func lastEvent(st *State) int64 {
	switch {
	case st.Drawn != nil:
		return int64(st.Campaign.SoldPositions) + 1
	case len(st.Purchases) > 0: // The campaign may be another transaction's by now.
		return int64(st.Purchases[len(st.Purchases)-1].Seq)
	}
	return 0
}
