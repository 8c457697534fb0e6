package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// cluster is three servers.
type cluster struct {
	directories  []string
	ports, peers []int
	stops        []func()
}

func (c *cluster) start(t *testing.T, i int) {
	t.Helper()
	var members []string
	for n, peer := range c.peers {
		members = append(members, fmt.Sprintf("m%d=http://127.0.0.1:%d", n, peer))
	}
	c.stops[i] = startMember(t, fmt.Sprint("m", i), c.directories[i], c.ports[i], c.peers[i], strings.Join(members, ","))
}

// leader waits until all servers agree on one.
func (c *cluster) leader(t *testing.T, client *clientv3.Client) (leader int) {
	t.Helper()
	testwait.Eventually(t, 3*patience, "a leader", func() bool {
		ids, leads := map[uint64]int{}, map[uint64]int{}
		for i, port := range c.ports {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			status, err := client.Status(ctx, fmt.Sprintf("127.0.0.1:%d", port))
			cancel()
			if err != nil {
				return false
			}
			ids[status.Header.GetMemberId()] = i
			leads[status.Leader]++
		}
		for id, votes := range leads {
			if i, known := ids[id]; known && votes == len(c.ports) {
				leader = i
				return true
			}
		}
		return false
	})
	return leader
}

// TestFailover kills the leader of three servers. The others forget nothing: what is held is held, who waits is granted the lock when it
// is released, and tokens go on growing.
func TestFailover(t *testing.T) {
	t.Parallel()
	counted := testwait.Recorder(t)
	c := &cluster{stops: make([]func(), 3)}
	for range c.stops {
		c.directories, c.ports, c.peers = append(c.directories, t.TempDir()), append(c.ports, pgtest.Port(t)), append(c.peers, pgtest.Port(t))
	}
	for i := range c.stops {
		c.start(t, i)
	}
	client := connect(t, c.ports...)
	b, _ := open(t, client, Options{})
	other, _ := open(t, connect(t, c.ports...), Options{})
	l := lock.New(b, lock.LockerOptions{})
	for round := range testwait.Count(1, 50) {
		leader := c.leader(t, client)
		h, err := l.Acquire(t.Context(), []string{"k"}, lock.Options{TTL: time.Minute})
		testwait.Must(t, err)
		granted := make(chan lock.Grant, 1)
		var done sync.WaitGroup
		done.Go(func() {
			g, err := other.Acquire(t.Context(), request(10*time.Second, lock.Forever, "k"))
			testwait.Check(t, err)
			granted <- g
		})
		testwait.Eventually(t, patience, "the other waits", func() bool {
			s, err := b.Snapshot(t.Context())
			return err == nil && len(s.Waiters) == 1
		})
		began := time.Now()
		counted.Fault(tally.EtcdFailedOver, began)
		c.stops[leader]()
		// A request may still meet the one that is gone.
		testwait.Eventually(t, 3*patience, "the lock is still held", func() bool {
			g, err := b.Acquire(t.Context(), request(time.Second, 0, "k"))
			if err == nil {
				t.Errorf("round %d: granted a second time: %v", round, g)
			}
			return errors.Is(err, lock.ErrHeld)
		})
		if h.Context().Err() != nil {
			t.Errorf("round %d: lost: %v", round, context.Cause(h.Context()))
		}
		testwait.Check(t, h.Release(t.Context()))
		done.Wait()
		g := <-granted
		counted.Answered(began, time.Now(), true)
		if g.Tokens["k"] <= h.Token("k") {
			t.Errorf("round %d: token %d after %d", round, g.Tokens["k"], h.Token("k"))
		}
		testwait.Check(t, other.Release(t.Context(), lock.Grant{ID: g.ID}))
		c.start(t, leader)
	}
}
