package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/checkpoint/storetest"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	testredis.Each(t, conformance)
}

func conformance(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
	server := testredis.Start(t, "--appendonly", "yes", "--appendfsync", "no")
	client, conn := server.Client(t), l.Open(t, server.Addr())
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		t.Helper()
		testwait.Must(t, client.Do(t.Context(), client.B().Flushall().Build()).Error())
		return storetest.Harness{
			Store: New(conn),
			Plant: func(key checkpoint.Key, body []byte) {
				testwait.Must(t, client.Do(t.Context(), client.B().Set().Key(key.String()).Value(rueidis.BinaryString(body)).Build()).Error())
			},
			Forget: func() {
				testwait.Must(t, client.Do(t.Context(), client.B().Flushall().Build()).Error())
			},
			Break: func() func() {
				server.Kill()
				return server.Start
			},
		}
	})
}

// TestForm looks at what is in Redis with a client that knows nothing of this package.
func TestForm(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	c, conn := server.Client(t), testredis.Rueidis.Open(t, server.Addr())
	r, err := checkpoint.New(numbers(nil), New(conn), nil, checkpoint.Options{})
	testwait.Must(t, err)
	_, err = r.Run(t.Context(), checkpoint.Key{LockKey: "user_123_daily", ID: "multi_draw_20241217_143022"}, 3, checkpoint.Call{})
	testwait.Must(t, err)
	const key = "lottery:state:user_123_daily:multi_draw_20241217_143022"
	ttl, err := c.Do(t.Context(), c.B().Pttl().Key(key).Build()).AsInt64()
	if err != nil || ttl > 3_600_000 || ttl < 3_500_000 {
		t.Errorf("TTL %d ms, %v", ttl, err)
	}
	var doc struct {
		LockKey   string `json:"lock_key"`
		Total     int    `json:"total_count"`
		Completed int    `json:"completed_count"`
		Results   []int  `json:"results"`
		Start     int64  `json:"start_time"`
		Update    int64  `json:"last_update_time"`
	}
	testwait.Must(t, c.Do(t.Context(), c.B().Get().Key(key).Build()).DecodeJSON(&doc))
	now := time.Now().Unix()
	if doc.LockKey != "user_123_daily" || doc.Total != 3 || doc.Completed != 3 || len(doc.Results) != 3 || doc.Start > now || doc.Start < now-60 || doc.Update < doc.Start {
		t.Errorf("%+v", doc)
	}
	// A key of another type is reported, and stays.
	other := checkpoint.Key{LockKey: "a", ID: "list"}
	testwait.Must(t, c.Do(t.Context(), c.B().Rpush().Key(other.String()).Element("x").Build()).Error())
	if _, err := r.Run(t.Context(), other, 3, checkpoint.Call{}); !errors.Is(err, checkpoint.ErrCorrupt) {
		t.Errorf("a list: %v", err)
	}
	for range 2 { // And then a string that is no state.
		if err := New(conn).Save(t.Context(), other, &checkpoint.Save{Head: checkpoint.Head{Revision: 2}, TTL: time.Hour}); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("a save over it: %v", err)
		}
		testwait.Must(t, c.Do(t.Context(), c.B().Set().Key(other.String()).Value("{}").Build()).Error())
	}
}

type squares struct {
	n    int
	hook func(int)
}

func (s squares) Count() int { return s.n }

func (s squares) Do(_ context.Context, i int) (int, error) {
	if s.hook != nil {
		s.hook(i)
	}
	return i * i, nil
}

func numbers(hook func(int)) checkpoint.Definition[int, int] {
	return checkpoint.Definition[int, int]{
		Name: "squares",
		Open: func(n int, _ checkpoint.Seed) (checkpoint.Steps[int], error) { return squares{n, hook}, nil },
	}
}

// TestServerDies kills Redis under a run, with and without its memory, and starts it again, at once or too late.
func TestServerDies(t *testing.T) {
	t.Parallel()
	testredis.Each(t, serverDies)
}

func serverDies(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
	key := checkpoint.Key{LockKey: "k", ID: "op"}
	const n, at = 20, 7
	for name, c := range map[string]struct {
		remembers bool
		late      bool
		want      error
	}{
		"it remembers":              {remembers: true},
		"it has forgotten":          {want: checkpoint.ErrLost},
		"it stays away for a while": {remembers: true, late: true, want: checkpoint.ErrConnection},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var args []string
			if c.remembers {
				args = []string{"--appendonly", "yes", "--appendfsync", "no"}
			}
			server := testredis.Start(t, args...)
			client := l.Open(t, server.Addr())
			var restart sync.WaitGroup
			r, err := checkpoint.New(numbers(func(i int) {
				if i != at {
					return
				}
				server.Kill()
				switch {
				case c.late:
				case c.remembers:
					restart.Go(server.Start)
				default:
					server.Start() // However long that takes, the save meets the empty server.
				}
			}), New(client), nil, checkpoint.Options{})
			testwait.Must(t, err)
			res, err := r.Run(t.Context(), key, n, checkpoint.Call{})
			restart.Wait()
			if c.want == nil {
				// A loaded machine may take longer for the restart than a save is tried for: that is then reported.
				if err != nil && !errors.Is(err, checkpoint.ErrConnection) {
					t.Fatal(err)
				}
			} else if !errors.Is(err, c.want) || res.Completed != at || !res.Partial() {
				t.Fatalf("%+v, %v", res, err)
			}
			if c.late {
				server.Start()
			}
			again, err := checkpoint.New(numbers(nil), New(client), nil, checkpoint.Options{})
			testwait.Must(t, err)
			res, err = again.Resume(t.Context(), key, checkpoint.Call{})
			if !c.remembers {
				if !errors.Is(err, checkpoint.ErrNotFound) {
					t.Fatalf("what was forgotten: %+v, %v", res, err)
				}
				return
			}
			if err != nil || len(res.Results) != n || res.Results[n-1] != (n-1)*(n-1) {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

// TestLostAnswers loses the answer to every second script: the store asks again, and a save that was executed is recognised.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	testredis.Each(t, func(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
		relay := testredis.NewRelay(t, testredis.Start(t).Addr())
		r, err := checkpoint.New(numbers(nil), New(l.Open(t, relay.Addr())), nil, checkpoint.Options{})
		testwait.Must(t, err)
		var scripts atomic.Int64
		relay.Hear(func(request string) bool {
			return strings.Contains(strings.ToUpper(request), "\r\nEVALSHA\r\n") && scripts.Add(1)%2 == 1
		})
		const n = 10
		res, err := r.Run(t.Context(), checkpoint.Key{LockKey: "k", ID: "op"}, n, checkpoint.Call{})
		if err != nil || len(res.Results) != n || scripts.Load() < 2*n {
			t.Errorf("%+v, %v after %d scripts", res, err, scripts.Load())
		}
	})
}

// TestServerGoesBack restores an older file under a run: the run is told that the state is not what it saved.
func TestServerGoesBack(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	client := server.Client(t)
	store := New(testredis.Rueidis.Open(t, server.Addr()))
	key := checkpoint.Key{LockKey: "k", ID: "op"}
	var older []byte
	r, err := checkpoint.New(numbers(func(i int) {
		switch i {
		case 3:
			older, _ = store.Load(t.Context(), key)
		case 8:
			testwait.Must(t, client.Do(t.Context(), client.B().Set().Key(key.String()).Value(rueidis.BinaryString(older)).Build()).Error())
		}
	}), store, nil, checkpoint.Options{})
	testwait.Must(t, err)
	res, err := r.Run(t.Context(), key, 20, checkpoint.Call{})
	if !errors.Is(err, checkpoint.ErrFenced) || res.Completed != 8 {
		t.Fatalf("%+v, %v", res, err)
	}
	again, err := checkpoint.New(numbers(nil), store, nil, checkpoint.Options{})
	testwait.Must(t, err)
	if res, err = again.Resume(t.Context(), key, checkpoint.Call{}); err != nil || len(res.Results) != 20 || res.Results[19] != 361 {
		t.Errorf("%+v, %v", res, err)
	}
}
