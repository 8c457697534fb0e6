//go:build unix

package explore

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestWhatIsOverCanEnd sees that what is over by the scheduler's time is an option: time stands still until it was chosen. An answer that is
// still out does not keep PostgreSQL from ending a session that does nothing in its transaction.
func TestWhatIsOverCanEnd(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	for name, session := range map[string]link{
		"idle timeout": {idleLimit: time.Minute, idleSince: long},
		"idle timeout of one whose answer is out": {idleLimit: time.Minute, idleSince: long, held: []byte("answer")},
		"lock timeout": {timeout: time.Minute, parkedAt: long, parked: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(nil, nil)
			c := newConn("s1", g.who, g.signal)
			c.link = session
			c.name, c.backend, c.since = "s1/commands#1", &backend{}, map[string]int{}
			g.conns = append(g.conns, c)
			if over := g.timeouts(); !over.Equal(long.Add(time.Minute)) {
				t.Errorf("timeouts = %v", over)
			}
			what := strings.Join(strings.Fields(name)[:2], " ")
			options := g.options()
			if !slices.ContainsFunc(options, func(o Option) bool { return o.Label == "s1/commands#1 "+what && o.process == "" }) {
				t.Errorf("there is no option for it: %v", options)
			}
		})
	}
}
