package main

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcdMutex is concurrency.Mutex, with a session a worker: one session holds a mutex once.
func etcdMutex(o *options) (*side, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{o.store}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	worker := func(_ context.Context, key string) (acquire, error) {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(int(ttl/time.Second)))
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (func(context.Context) error, error) {
			m := concurrency.NewMutex(session, "/bench/"+key)
			if err := m.Lock(ctx); err != nil {
				return nil, err
			}
			return m.Unlock, nil
		}, nil
	}
	return &side{worker: worker, close: func() { _ = client.Close() }}, nil
}
