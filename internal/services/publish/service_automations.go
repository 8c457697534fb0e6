package publish

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
)

func (s *Service) flushAutomations(ctx context.Context, batch []command.Command[Op]) (answers []command.Answer, err error) {
	var names, targets []string
	for i := range batch {
		if op, ok := batch[i].Op.(CreateAutomation); ok { // Only CreateAutomation enters this lane.
			names, targets = append(names, op.Name), append(targets, op.Target)
		}
	}
	err = s.store.CreateAutomations(ctx, names, targets, command.Keys(batch), func(u *Unit) {
		answers = command.Decide(batch, u.Keys, func(c command.Command[Op]) (any, error) {
			op, ok := c.Op.(CreateAutomation)
			if !ok {
				return nil, fmt.Errorf("publish: %T does not make an automation", c.Op)
			}
			target := u.Targets[op.Target]
			switch {
			case target == nil:
				return nil, &TargetNotFoundError{Name: op.Target}
			case u.AutomationNames[op.Name]:
				return nil, ErrAutomationExists
			}
			made := DecideCreateAutomation(op, target, u.NewID(), u.Now)
			u.AutomationNames = with(u.AutomationNames, op.Name, true)
			u.MadeAutomations = append(u.MadeAutomations, made)
			u.Audit = append(u.Audit, command.Audited(c, "automation.create", made.ID.String()))
			return made, nil
		})
	})
	return answers, err
}

func (s *Service) flushAutomation(ctx context.Context, id uuid.UUID, batch []command.Command[Op]) (answers []command.Answer, err error) {
	err = s.store.CommitAutomation(ctx, id, command.Keys(batch), func(u *Unit) {
		answers = command.Decide(batch, u.Keys, func(c command.Command[Op]) (any, error) {
			if err := DecideAutomation(u.Automation, c.Op, u.Now); err != nil {
				return nil, err
			}
			u.Audit = append(u.Audit, command.Audited(c, action(c.Op), id.String()))
			shown := *u.Automation
			return &shown, nil
		})
	})
	return answers, err
}
