package speculation

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Limits of what is gathered into one transaction.
const (
	maxGathered = 64 // transactions
	// maxCommands bounds the commands of all of them: what is sent as one is undone as one.
	maxCommands = 512
)

// errUndone is returned for a transaction that was sent together with others and undone with them: the failure may be a neighbour's.
var errUndone = errors.New("undone together with others")

// member is a transaction, sent alone or together with others.
type member struct {
	Work

	queries []*pgx.QueuedQuery
	done    chan error // has room for the end
}

// gathering is a transaction that others join until it is sent. A statement that several of them have becomes one, which has the
// rows of all. So they must not have to do with each other.
type gathering struct {
	link     *link
	members  []*member
	groups   [][]*pgx.QueuedQuery // by the rank of their statement
	touched  map[string]struct{}
	commands int
	room     <-chan struct{} // has one when it should be sent
}

// join adds a transaction. It reports false, and changes nothing, where that has to be sent by itself.
func (g *gathering) join(m *member) bool {
	if len(g.members) > 0 && g.commands+m.Commands > maxCommands {
		return false
	}
	last := -1
	for _, q := range m.queries {
		s := g.link.statements[q.SQL]
		if s == nil || s.rank <= last {
			return false // Not known, or in an order of its own.
		}
		last = s.rank
	}
	for _, row := range m.Touched {
		if _, ok := g.touched[row]; ok {
			return false // A later statement sees what an earlier one has written, but a row of the same one does not.
		}
	}
	for _, row := range m.Touched {
		g.touched[row] = struct{}{}
	}
	for _, q := range m.queries {
		rank := g.link.statements[q.SQL].rank
		g.groups[rank] = append(g.groups[rank], q)
	}
	g.commands += m.Commands
	g.members = append(g.members, m)
	return true
}

// end tells all of its members how it has ended.
func end(members []*member, err error) {
	if len(members) > 1 && undone(err) {
		err = fmt.Errorf("%w: %w", errUndone, err)
	}
	for _, m := range members {
		m.done <- err
	}
}

// alone returns the statements of one transaction, each by itself.
func alone(m *member) [][]*pgx.QueuedQuery {
	groups := make([][]*pgx.QueuedQuery, len(m.queries))
	for i := range m.queries {
		groups[i] = m.queries[i : i+1]
	}
	return groups
}
