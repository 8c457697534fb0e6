package ledger

import "github.com/fairlead-dev/fairlead/internal/command"

// Part is what only some commands of the ledger work on, in a table of its own. While another session has locked that table, the other commands
// are decided without it.
type Part int

// Parts.
const (
	Holds Part = iota
	Legs
	References
	Audit // of what operators do
)

// partsOf returns the parts that a command works on.
func partsOf(c *command.Command[Op]) (parts []Part) {
	switch c.Op.(type) {
	case PlaceHold, CaptureHold:
		parts = append(parts, Holds)
	case ReleaseHold:
		parts = append(parts, Holds)
		if c.Operator {
			parts = append(parts, Audit)
		}
	case TransferLegs:
		parts = append(parts, Legs)
	}
	if ReferenceOf(c.Op) != "" {
		parts = append(parts, References)
	}
	return parts
}

// blocked returns why a command can't be decided in the unit, nil where it can.
func (u *Unit) blocked(c *command.Command[Op]) error {
	if u.Blocked != nil {
		return u.Blocked
	}
	if len(u.Without) > 0 {
		for _, p := range partsOf(c) {
			if reason := u.Without[p]; reason != nil {
				return reason
			}
		}
	}
	return nil
}
