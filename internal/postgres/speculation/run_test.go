package speculation

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/command"
)

// TestOutcomeOfALostLink: while nobody knows whether the speculative transaction committed, a locked run that could do nothing must
// not say that nothing was applied, as what follows a [command.BlockedError] does.
func TestOutcomeOfALostLink(t *testing.T) {
	t.Parallel()
	locked := func() *command.BlockedError {
		return &command.BlockedError{Row: "auction a", Wait: func(context.Context) error { return nil }}
	}
	refused := errors.New("refused under locks")
	for name, test := range map[string]struct {
		locked          error
		lost            bool
		unsure, unknown bool
	}{
		"blocked":                 {locked(), true, true, false},
		"blocked, wrapped":        {fmt.Errorf("ledger: %w", locked()), true, true, false},
		"unavailable":             {command.Unavailable(errors.New("away")), true, false, true},
		"decided":                 {nil, true, false, false},
		"refused":                 {refused, true, false, false},
		"blocked, nothing is out": {locked(), false, false, false},
	} {
		speculative := NotSent(Stale, nil)
		if test.lost {
			speculative = fmt.Errorf("%w: cut", ErrLinkLost)
		}
		_, err := (&Speculator{}).Run("ledger", func() error { return speculative }, func() error { return test.locked })
		if errors.Is(err, command.ErrUnknownOutcome) != test.unknown {
			t.Errorf("%s: %v", name, err)
		}
		if blocked, ok := errors.AsType[*command.BlockedError](err); (ok && blocked.Unsure) != test.unsure {
			t.Errorf("%s: it counts as surely not applied: %v", name, err)
		}
		if !test.unknown && !errors.Is(err, test.locked) {
			t.Errorf("%s: %v, want %v", name, err, test.locked)
		}
	}
}
