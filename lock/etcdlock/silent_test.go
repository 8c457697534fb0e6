package etcdlock

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// TestSilentServer: nobody waits for an etcd that does not answer for longer than a call may take, and no longer than until the backend is closed.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // It takes connections, and says nothing.
	testwait.Must(t, err)
	defer mute.Close()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{mute.Addr().String()}})
	testwait.Must(t, err)
	defer client.Close()
	for _, c := range []struct {
		wait time.Duration
		want error
	}{{0, errSilent}, {lock.Forever, errSilent}, {lock.Forever, lock.ErrClosed}} {
		b := New(client, Options{})
		failed := make(chan error, 1)
		go func() {
			_, err := b.Acquire(context.Background(), lock.Request{ID: "r", Keys: []string{"k"}, Owner: "ann", TTL: time.Minute, Wait: c.wait})
			failed <- err
		}()
		if errors.Is(c.want, lock.ErrClosed) {
			b.Close()
		}
		if err := <-failed; !errors.Is(err, c.want) {
			t.Errorf("a wait of %v: %v instead of %v", c.wait, err, c.want)
		}
		b.Close()
	}
}
