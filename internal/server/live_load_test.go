package server

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead-dev/fairlead/internal/live"
)

// socketsEnv says how many sockets [TestManySockets] opens.
const socketsEnv = "FAIRLEAD_TEST_SOCKETS"

// TestManySockets opens thousands of sockets on one auction and measures what a socket costs and how late events arrive.
// Clients and server share the process, so the memory of both is counted, and so is the time of both.
//
//	FAIRLEAD_TEST_SOCKETS=5000 go test -run TestManySockets -v ./server
//
//nolint:paralleltest // It measures the whole process.
func TestManySockets(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv(socketsEnv))
	if n == 0 {
		t.Skipf("set %s to a number of sockets", socketsEnv)
	}
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if need := uint64(2*n + 200); limit.Cur < need {
		limit.Cur = min(need, limit.Max)
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	}
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{}, nil)
	id := e.auctioned(oneRound, "")
	topic := "auction:" + id
	before := memory()
	var (
		clients sync.WaitGroup
		ready   sync.WaitGroup
		mu      sync.Mutex
		late    []time.Duration
		got     atomic.Int64
		start   = time.Now()
	)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dialling := make(chan struct{}, 64)
	for range n {
		ready.Add(1)
		clients.Go(func() {
			dialling <- struct{}{}
			ws, _, err := l.dial(nil)
			if err == nil {
				err = ws.Write(ctx, websocket.MessageText, []byte(`{"op":"subscribe","topic":"`+topic+`"}`))
			}
			<-dialling
			if err != nil {
				t.Error(err)
				ready.Done()
				return
			}
			defer func() { _ = ws.CloseNow() }()
			_, _, err = ws.Read(ctx)
			ready.Done()
			var mine []time.Duration
			for err == nil {
				var raw []byte
				if _, raw, err = ws.Read(ctx); err == nil {
					var m struct{ At time.Time }
					if json.Unmarshal(raw, &m) != nil {
						t.Errorf("got %s", raw)
					}
					mine = append(mine, time.Since(m.At))
					got.Add(1)
				}
			}
			mu.Lock()
			late = append(late, mine...)
			mu.Unlock()
		})
	}
	ready.Wait()
	took := time.Since(start)
	server, whole := l.edge.Connections(), memory()-before
	const rounds = 10
	for i := range rounds {
		conn := l.env.connect()
		_, err := conn.Exec(ctx, `UPDATE auctions SET seq = seq + 1 WHERE id = $1`, id)
		must(t, err)
		_ = conn.Close(context.Background())
		seq, at := int64(i+1), time.Now()
		l.hub.Committed(topic, seq, func() []live.Event {
			return []live.Event{{Seq: seq, Type: "test", At: at, Data: json.RawMessage(`{"account":"ann","amount":100,"previous_amount":0,"round":1,"rank":1}`)}}
		})
		eventually(t, patience, "all have it", func() bool { return got.Load() == int64(n)*seq })
	}
	cancel()
	clients.Wait()
	slices.Sort(late)
	t.Logf("%d sockets (%d on the server) opened in %s; %d bytes a pair of client and server; delivery to all of them: p50 %s, p99 %s, slowest %s",
		n, server, took.Round(time.Millisecond), whole/n, late[len(late)/2], late[len(late)*99/100], late[len(late)-1])
}

// memory is what the heap and the stacks hold.
func memory() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
