package conform

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/checkpoint"
	checkpoints "github.com/fairlead-dev/fairlead/checkpoint/redisstore"
	checkpointtest "github.com/fairlead-dev/fairlead/checkpoint/storetest"
	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/idempotency"
	keys "github.com/fairlead-dev/fairlead/idempotency/redisstore"
	keytest "github.com/fairlead-dev/fairlead/idempotency/storetest"
	"github.com/fairlead-dev/fairlead/internal/guarded"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
	"github.com/fairlead-dev/fairlead/lock/redislock"
	"github.com/fairlead-dev/fairlead/redisclient"
	"github.com/fairlead-dev/fairlead/redisclient/rueidisclient"
)

const (
	// connectWithin bounds the first connection to Redis or etcd.
	connectWithin = 10 * time.Second
	// scanned is how many keys one step of the cleanup looks at.
	scanned = 1000
)

// redis is Redis, or what passes for it.
type redis struct {
	Target

	options rueidis.ClientOption
	mark    string // in the name of every key that is made
	around  rueidis.Client
}

// openRedis looks whether suites can run on the server or cluster.
func openRedis(ctx context.Context, o Options, id string) (server, error) {
	options, err := rueidis.ParseURL(o.RedisURL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRedisURL, err)
	}
	options.DisableCache, options.DisableRetry = true, true
	r := &redis{options: options, mark: "fairlead-conformance-" + id, Target: Target{Kind: Redis, Address: strings.Join(options.InitAddress, ",")}}
	r.Place = "keys with " + r.mark + " in their names"
	r.Remove = fmt.Sprintf("redis-cli --scan --pattern '*%s*' | xargs redis-cli DEL", r.mark)
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	if r.around, err = rueidis.NewClient(options); err != nil {
		return nil, fmt.Errorf("redis at %s: %w", r.Address, err)
	}
	// What every suite needs: a script that writes.
	probe := r.around.B().Eval().Script(`redis.call('SET', KEYS[1], ARGV[1], 'PX', 10000) return redis.call('GET', KEYS[1])`).Numkeys(1).Key(r.mark + ":probe").Arg("x").Build()
	if err := r.around.Do(ctx, probe).Error(); err != nil {
		r.around.Close()
		return nil, fmt.Errorf("redis at %s runs no script that writes: %w", r.Address, err)
	}
	info, err := r.around.Do(ctx, r.around.B().Info().Section("server").Build()).ToString()
	if err != nil { // Some hosted ones don't tell.
		info = ""
	}
	r.Version = version(info)
	notes, err := keys.New(rueidisclient.New(r.around), keys.Options{}).Check(ctx)
	if err != nil {
		notes = []string{"The settings that durability and eviction rest on can't be read: " + err.Error()}
	}
	r.Notes = notes
	return r, nil
}

// ErrRedisURL is returned for a URL that is none.
var ErrRedisURL = errors.New("the URL of Redis can't be used")

// version finds the name and version in what INFO tells.
func version(info string) string {
	for _, name := range []string{"valkey", "dragonfly", "redis"} {
		for line := range strings.Lines(info) {
			if v, ok := strings.CutPrefix(line, name+"_version:"); ok {
				return name + " " + strings.TrimSpace(v)
			}
		}
	}
	return "of unknown version"
}

func (r *redis) target() *Target { return &r.Target }

func (r *redis) suites() []suite {
	return []suite{
		{"locks", locktest.Checks(), func(t *conformance.T) { locktest.Run(t, r.lockHarness) }},
		{"idempotency", keytest.Checks(), func(t *conformance.T) { keytest.Run(t, r.keyHarness) }},
		{"checkpoints", checkpointtest.Checks(), func(t *conformance.T) { checkpointtest.Run(t, r.checkpointHarness) }},
	}
}

// client is that of one process, which may have a line of its own.
func (r *redis) client(t *conformance.T, l *line) (c redisclient.Client, stop func()) {
	options := r.options
	if l != nil {
		options.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			if c != nil {
				return l.keep((&tls.Dialer{NetDialer: d, Config: c}).DialContext(ctx, "tcp", address))
			}
			return l.keep(d.DialContext(ctx, "tcp", address))
		}
	}
	made, err := rueidis.NewClient(options)
	testwait.Must(t, err)
	t.Cleanup(made.Close)
	return rueidisclient.New(made), made.Close
}

func (r *redis) lockHarness(t *conformance.T) locktest.Harness {
	writes, _ := r.client(t, nil)
	namespace := r.mark + ":" + t.Name()
	open := func() (b *redislock.Backend, disconnect func()) {
		c, stop := r.client(t, nil)
		b, err := redislock.New(c, redislock.Options{Namespace: namespace})
		testwait.Must(t, err)
		t.Cleanup(b.Close)
		return b, stop
	}
	return locktest.Harness{
		Open: func() (lock.Backend, func()) {
			b, _ := open()
			return b, b.Close
		},
		OpenDoomed: func() (lock.Backend, func()) {
			b, disconnect := open()
			return b, func() {
				disconnect() // Nothing that it would still like to say is heard.
				b.Close()
			}
		},
		Fence: func(ctx context.Context, resource string, token int64) error {
			return guarded.Redis(ctx, writes, r.mark+":resource:"+resource, token)
		},
	}
}

func (r *redis) keyHarness(t *conformance.T, _ bool) keytest.Harness {
	return keytest.Harness{Open: func() idempotency.Store {
		c, _ := r.client(t, nil)
		return keys.New(c, keys.Options{Prefix: r.mark + ":" + t.Name() + ":"})
	}}
}

func (r *redis) checkpointHarness(t *conformance.T) checkpointtest.Harness {
	var l line
	through, _ := r.client(t, &l)
	prefix := r.mark + ":" + newID() + ":"
	return checkpointtest.Harness{
		Prefix: prefix,
		Store:  checkpoints.New(through),
		Plant: func(key checkpoint.Key, body []byte) {
			testwait.Must(t, r.around.Do(t.Context(), r.around.B().Set().Key(key.String()).Value(rueidis.BinaryString(body)).Build()).Error())
		},
		Forget: func() { testwait.Must(t, r.delete(t.Context(), "*"+prefix+"*")) },
		Break:  l.cut,
	}
}

func (r *redis) write(ctx context.Context) error {
	return r.around.Do(ctx, r.around.B().Set().Key(r.mark+":written").Value("x").Build()).Error()
}

// remove deletes what has the mark in its name.
func (r *redis) remove(ctx context.Context) error {
	defer r.around.Close()
	return r.delete(ctx, "*"+r.mark+"*")
}

// delete deletes the keys that match a pattern, on each server that has some.
func (r *redis) delete(ctx context.Context, pattern string) error {
	for _, node := range r.around.Nodes() {
		for cursor := uint64(0); ; {
			found, err := node.Do(ctx, node.B().Scan().Cursor(cursor).Match(pattern).Count(scanned).Build()).AsScanEntry()
			if err != nil {
				return err
			}
			for _, key := range found.Elements {
				if err := r.around.Do(ctx, r.around.B().Del().Key(key).Build()).Error(); err != nil {
					return err
				}
			}
			if cursor = found.Cursor; cursor == 0 {
				break
			}
		}
	}
	return nil
}
