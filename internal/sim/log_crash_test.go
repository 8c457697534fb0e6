//go:build unix

package sim_test

import (
	"fmt"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestLogKeeperDiesAtEveryCrashPoint lets the only server kill itself at each named place between a fact and its published checkpoint,
// under load. The next one goes on where the log is, and in the end each fact is a leaf once.
func TestLogKeeperDiesAtEveryCrashPoint(t *testing.T) {
	beside(t)
	rng, seed := testwait.Rand(t)
	s := newLogSite(t, newDatabase(t), 1, 1, 1)
	server := s.servers[0]
	collected := s.watchCheckpoints(t)
	l := startPublicLoad(t, s)
	s.grows(t)
	deaths := 0
	for range testwait.Count(1, 25) {
		for _, point := range []string{"log.append", "log.appended", "log.signed", "log.seen"} {
			at := fmt.Sprintf("%s:%d", point, 1+rng.IntN(3))
			before := s.stateOf(t)
			willDie(t, server, at)
			dies(t, server, at)
			deaths++
			after := s.stateOf(t)
			if after.Size < before.Size || after.Published < before.Published || after.Refused != "" {
				t.Fatalf("%s: the log was %+v and is %+v", at, before, after)
			}
			start(t, server)
			s.grows(t)
			if t.Failed() {
				t.Fatalf("after %s", at)
			}
		}
	}
	l.finish(t)
	heads := collected() // Before the log is read: the books go on to be closed.
	whole, count := s.whole(t)
	whole.oneHistory(t, heads)
	bids := l.isIn(t, whole)
	t.Logf("seed %d: %d deaths; %d facts, %d bids of them acknowledged; %d different checkpoints", seed, deaths, count, bids, len(heads))
}
