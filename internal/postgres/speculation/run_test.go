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
	blocked := &command.BlockedError{Row: "auction a", Wait: func(context.Context) error { return nil }}
	refused := errors.New("refused under locks")
	for name, test := range map[string]struct {
		locked  error
		lost    bool
		unknown bool
	}{
		"blocked":                 {blocked, true, true},
		"blocked, wrapped":        {fmt.Errorf("ledger: %w", blocked), true, true},
		"unavailable":             {command.Unavailable(errors.New("away")), true, true},
		"decided":                 {nil, true, false},
		"refused":                 {refused, true, false},
		"blocked, nothing is out": {blocked, false, false},
	} {
		speculative := NotSent(Stale, nil)
		if test.lost {
			speculative = fmt.Errorf("%w: cut", ErrLinkLost)
		}
		_, err := (&Speculator{}).Run("ledger", func() error { return speculative }, func() error { return test.locked })
		if errors.Is(err, command.ErrUnknownOutcome) != test.unknown {
			t.Errorf("%s: %v", name, err)
		}
		if _, left := errors.AsType[*command.BlockedError](err); left && test.unknown {
			t.Errorf("%s: it may still be taken for a blocked one: %v", name, err)
		}
		if !test.unknown && !errors.Is(err, test.locked) {
			t.Errorf("%s: %v, want %v", name, err, test.locked)
		}
	}
}
