package conform

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/guarded"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/etcdlock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
)

// etcd is an etcd, of any number of members.
type etcd struct {
	Target

	config clientv3.Config
	prefix string
	around *clientv3.Client
}

// openEtcd looks whether suites can run there.
func openEtcd(ctx context.Context, o Options, id string) (server, error) {
	e := &etcd{prefix: "fairlead-conformance/" + id + "/"}
	e.config = clientv3.Config{DialTimeout: connectWithin, Logger: zap.NewNop()}
	for _, endpoint := range o.EtcdEndpoints {
		u, err := url.Parse(endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" {
			return nil, fmt.Errorf("%w: %q", ErrEtcdEndpoint, endpoint)
		}
		if password, ok := u.User.Password(); ok {
			e.config.Username, e.config.Password = u.User.Username(), password
		}
		if u.Scheme == "https" {
			e.config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		e.config.Endpoints = append(e.config.Endpoints, u.Scheme+"://"+u.Host)
	}
	e.Target = Target{
		Kind: Etcd, Address: strings.Join(e.config.Endpoints, ","), Place: "keys under " + e.prefix,
		Remove: "etcdctl --endpoints " + strings.Join(e.config.Endpoints, ",") + " del --prefix " + e.prefix,
	}
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	var err error
	if e.around, err = clientv3.New(e.config); err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", e.Address, err)
	}
	// What the suite needs: a write, and one that is gone.
	if _, err = e.around.Put(ctx, e.prefix+"probe", "x"); err == nil {
		_, err = e.around.Delete(ctx, e.prefix+"probe")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("etcd at %s takes no writes under %s: %w", e.Address, e.prefix, err), e.around.Close())
	}
	e.Version = "of unknown version"
	if status, err := e.around.Status(ctx, e.config.Endpoints[0]); err == nil {
		e.Version = "etcd " + status.Version
	}
	return e, nil
}

// ErrEtcdEndpoint is returned for an endpoint that is none.
var ErrEtcdEndpoint = errors.New("an endpoint of etcd is http://HOST:2379 or https://USER:PASSWORD@HOST:2379")

func (e *etcd) target() *Target { return &e.Target }

func (e *etcd) suites() []suite {
	return []suite{{"locks", locktest.Checks(), func(t *conformance.T) { locktest.Run(t, e.lockHarness) }}}
}

func (e *etcd) client(t *conformance.T) *clientv3.Client {
	c, err := clientv3.New(e.config)
	testwait.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (e *etcd) lockHarness(t *conformance.T) locktest.Harness {
	writes := e.client(t)
	open := func() (c *clientv3.Client, b *etcdlock.Backend, stop func()) {
		c = e.client(t)
		b = etcdlock.New(c, etcdlock.Options{Prefix: e.prefix + t.Name() + "/"})
		stop = sync.OnceFunc(b.Close)
		t.Cleanup(stop)
		return c, b, stop
	}
	return locktest.Harness{
		Open: func() (lock.Backend, func()) {
			_, b, stop := open()
			return b, stop
		},
		OpenDoomed: func() (lock.Backend, func()) {
			c, b, stop := open()
			return b, func() {
				_ = c.Close() // Nothing that it would still like to say is heard.
				stop()
			}
		},
		Fence: func(ctx context.Context, resource string, token int64) error {
			return guarded.Etcd(ctx, writes, e.prefix+"resource/"+resource, token)
		},
	}
}

func (e *etcd) write(ctx context.Context) error {
	_, err := e.around.Put(ctx, e.prefix+"written", "x")
	return err
}

// remove deletes what is under the prefix.
func (e *etcd) remove(ctx context.Context) error {
	_, err := e.around.Delete(ctx, e.prefix, clientv3.WithPrefix())
	return errors.Join(err, e.around.Close())
}
