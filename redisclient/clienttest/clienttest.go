// Package clienttest is the conformance suite of package redisclient's adapters: each adapter runs it, on Redis servers that the
// suite starts (redis-server must be installed), and its behaviour when connections fail included.
package clienttest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/internal/rediskit"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/redisclient"
)

// patience bounds every wait.
const patience = testwait.Patience

// Open returns a client of the server at an address, or of the cluster that it is in, and what closes it. The client ends with tb.
type Open func(tb testing.TB, addr string, cluster bool) (c redisclient.Client, closeIt func())

// Run runs the suite.
func Run(t *testing.T, open Open) {
	t.Helper()
	for name, test := range map[string]func(*suite){
		"replies":       (*suite).replies,
		"values":        (*suite).values,
		"errors":        (*suite).errors,
		"forgotten":     (*suite).forgottenScript,
		"lost answers":  (*suite).lostAnswers,
		"contexts":      (*suite).contexts,
		"closed":        (*suite).closed,
		"subscription":  (*suite).subscription,
		"cut off":       (*suite).cutOff,
		"silent server": (*suite).silentServer,
		"settings":      (*suite).settings,
	} {
		for _, cluster := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " on a cluster"}[cluster], func(t *testing.T) {
				t.Parallel()
				server := testredis.Start
				if cluster {
					server = func(tb testing.TB, _ ...string) *testredis.Server { tb.Helper(); return testredis.StartCluster(tb) }
				}
				s := &suite{T: t, server: server(t), cluster: cluster}
				s.admin, s.relay = s.server.Client(t), testredis.NewRelay(t, s.server.Addr())
				if cluster { // Its clients ask where the servers are.
					_, port, _ := strings.Cut(s.relay.Addr(), ":")
					s.ask("CONFIG", "SET", "cluster-announce-port", port)
				}
				s.c, s.end = open(t, s.relay.Addr(), cluster)
				test(s)
			})
		}
	}
}

// suite is one test: a server of its own, and a client that reaches it through a relay.
type suite struct {
	*testing.T

	server *testredis.Server
	relay  *testredis.Relay
	admin  rueidis.Client
	c      redisclient.Client
	end    func()

	cluster bool
}

// ask asks the server past the client.
func (s *suite) ask(words ...string) rueidis.RedisResult {
	s.Helper()
	r := s.admin.Do(s.Context(), s.admin.B().Arbitrary(words...).Build())
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		s.Fatal(words, err)
	}
	return r
}

// binary is a text of all bytes.
func binary() string {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return string(all)
}

func (s *suite) replies() {
	for script, want := range map[string]any{
		"return false":                    nil,
		"return 7":                        int64(7),
		"return -9007199254740991":        int64(-9007199254740991),
		"return ''":                       "",
		"return ARGV[1]":                  binary(),
		"return KEYS[1]":                  "k",
		"return {}":                       []any{},
		"return {1, 'a', {'b', {}}}":      []any{int64(1), "a", []any{"b", []any{}}},
		"return {false, 1}":               []any{nil, int64(1)},
		"return redis.status_reply('ok')": "ok",
	} {
		got, err := s.c.Eval(s.Context(), script, []string{"k"}, []string{binary(), ""})
		if err != nil || !reflect.DeepEqual(got, want) {
			s.Errorf("%s: %#v, %v; want %#v", script, got, err, want)
		}
	}
	if got, err := s.c.Eval(s.Context(), "return #KEYS + #ARGV", nil, nil); err != nil || got != int64(0) {
		s.Errorf("without keys and arguments: %#v, %v", got, err)
	}
}

func (s *suite) values() {
	ctx := s.Context()
	get := func(key, want string, there bool) {
		s.Helper()
		if got, found, err := s.c.Get(ctx, key); err != nil || found != there || string(got) != want {
			s.Errorf("%s: %q, %t, %v; want %q, %t", key, got, found, err, want, there)
		}
	}
	get("k", "", false)
	s.ask("SET", "k", "")
	get("k", "", true)
	large := strings.Repeat(binary(), 40_000) // 10 MB, as a saved state may have.
	s.ask("SET", "k", large)
	got, found, err := s.c.Get(ctx, "k")
	if err != nil || !found || !bytes.Equal(got, []byte(large)) {
		s.Errorf("%d bytes, %t, %v", len(got), found, err)
	}
	for range 2 {
		testwait.Check(s, s.c.Del(ctx, "k"))
		get("k", "", false)
	}
	s.ask("HSET", "h", "f", "1", "g", "2")
	for _, want := range []bool{true, false} {
		if deleted, err := s.c.HDel(ctx, "h", "f"); err != nil || deleted != want {
			s.Errorf("deleted %t, %v; want %t", deleted, err, want)
		}
	}
}

func (s *suite) errors() {
	ctx := s.Context()
	s.ask("SET", "k", "v")
	s.ask("HSET", "h", "f", "1")
	_, _, wrongType := s.c.Get(ctx, "h")
	_, notAHash := s.c.HDel(ctx, "k", "f")
	_, raised := s.c.Eval(ctx, "return redis.error_reply('OOM none left')", nil, nil)
	_, noSyntax := s.c.Eval(ctx, "return return", nil, nil)
	for _, c := range []struct {
		err  error
		code string
	}{{wrongType, "WRONGTYPE"}, {notAHash, "WRONGTYPE"}, {raised, "OOM"}, {noSyntax, "Error"}} {
		if got := rediskit.Code(c.err); got != c.code || !strings.Contains(c.err.Error(), c.code) || rediskit.Passing(c.err) {
			s.Errorf("%v: code %q, want %q", c.err, got, c.code)
		}
	}
}

// forgottenScript: a script is called by its digest as soon as it was sent, and again after SCRIPT FLUSH.
func (s *suite) forgottenScript() {
	script := rediskit.NewScript("return redis.call('INCR', KEYS[1])")
	for n := range int64(4) {
		if n%2 == 0 {
			s.ask("SCRIPT", "FLUSH")
		}
		if got, err := script.Run(s.Context(), s.c, []string{"n"}, nil); err != nil || got != n+1 {
			s.Errorf("%v, %v; want %d", got, err, n+1)
		}
	}
	_, err := s.c.EvalSHA(s.Context(), strings.Repeat("0", 40), nil, nil)
	if rediskit.Code(err) != "NOSCRIPT" {
		s.Errorf("a digest that the server does not know: %v", err)
	}
}

// lostAnswers: what may have been executed is not executed again, and its caller is told that the outcome is unknown.
func (s *suite) lostAnswers() {
	ctx := s.Context()
	const incr, bySHA = "return redis.call('INCR', KEYS[1])", "return redis.call('INCR', KEYS[1]) + 0"
	sha, err := s.ask("SCRIPT", "LOAD", bySHA).ToString()
	testwait.Must(s, err)
	for what, run := range map[string]func() error{
		"eval":    func() error { _, err := s.c.Eval(ctx, incr, []string{"eval"}, nil); return err },
		"evalsha": func() error { _, err := s.c.EvalSHA(ctx, sha, []string{"evalsha"}, nil); return err },
		"hdel":    func() error { _, err := s.c.HDel(ctx, "hdel", "f"); return err },
	} {
		s.ask("HSET", "hdel", "f", "1")
		if what != "hdel" { // A client may look around before its first command.
			testwait.Must(s, run())
		}
		var asked atomic.Int64
		s.relay.Hear(func(request string) bool {
			if !strings.Contains(request, "\r\n"+what+"\r\n") {
				return false
			}
			// The server executes it before the client learns of the loss.
			return asked.Add(1) == 1
		})
		err := run()
		s.relay.Hear(nil)
		if _, answered := errors.AsType[*redisclient.ServerError](err); err == nil || answered || errors.Is(err, redisclient.ErrClosed) || !rediskit.Passing(err) {
			s.Errorf("%s whose answer was lost: %v", what, err)
		}
		if asked.Load() == 0 {
			s.Errorf("%s was not heard", what)
		}
		testwait.Eventually(s, patience, "the client connects again", func() bool { _, _, err := s.c.Get(ctx, "x"); return err == nil })
		if what != "hdel" {
			if n, err := s.ask("GET", what).AsInt64(); err != nil || n != 2 {
				s.Errorf("%s was executed %d times after the first, %v", what, n-1, err)
			}
		}
		if asked.Load() != 1 {
			s.Errorf("%s was sent %d times", what, asked.Load())
		}
	}
}

// contexts: a call ends some time after its deadline though the server is silent, and makes nothing under a context that has ended.
func (s *suite) contexts() {
	ended, cancel := context.WithCancel(s.Context())
	cancel()
	if _, err := s.c.Eval(ended, "return redis.call('INCR', 'n')", []string{"n"}, nil); !errors.Is(err, context.Canceled) {
		s.Errorf("under a context that has ended: %v", err)
	}
	if n, err := s.ask("EXISTS", "n").AsInt64(); n != 0 || err != nil {
		s.Errorf("it was executed, %v", err)
	}
	_, _, err := s.c.Get(s.Context(), "n")
	testwait.Must(s, err)
	s.Cleanup(s.server.Kill) // Before the client is closed, which may wait for answers.
	s.ask("CLIENT", "PAUSE", "600000", "ALL")
	var all sync.WaitGroup
	for what, run := range map[string]func(context.Context) error{
		"eval": func(ctx context.Context) error { _, err := s.c.Eval(ctx, "return 1", nil, nil); return err },
		"get":  func(ctx context.Context) error { _, _, err := s.c.Get(ctx, "n"); return err },
		"del":  func(ctx context.Context) error { return s.c.Del(ctx, "n") },
		"hdel": func(ctx context.Context) error { _, err := s.c.HDel(ctx, "n", "f"); return err },
	} {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(s.Context(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			if err := run(ctx); err == nil || time.Since(began) > patience {
				s.Errorf("%s at a silent server: %v after %s", what, err, time.Since(began))
			}
		})
	}
	all.Wait()
}

func (s *suite) closed() {
	if s.cluster {
		s.Skip("rueidis connects to a cluster again after it was closed")
	}
	s.end()
	_, evaluated := s.c.Eval(s.Context(), "return 1", []string{"k"}, nil)
	_, _, got := s.c.Get(s.Context(), "k")
	for _, err := range []error{evaluated, got} {
		if !errors.Is(err, redisclient.ErrClosed) || rediskit.Passing(err) {
			s.Errorf("a closed client: %v", err)
		}
	}
}

// ear is a subscription of the suite's client.
type ear struct {
	subscribed chan struct{}
	messages   chan string
	ended      chan error
	stop       context.CancelFunc
}

// listen subscribes, and waits until that is confirmed.
func (s *suite) listen() *ear {
	s.Helper()
	ctx, stop := context.WithCancel(s.Context())
	e := &ear{make(chan struct{}, 1), make(chan string, 1000), make(chan error, 1), stop}
	go func() {
		e.ended <- s.c.Subscribe(ctx, "{channel}", func() { e.subscribed <- struct{}{} }, func(text string) { e.messages <- text })
	}()
	s.Cleanup(stop)
	next(s, e.subscribed, e.ended)
	return e
}

// next waits for a value.
func next[T any](s *suite, c <-chan T, ended <-chan error) (v T) {
	s.Helper()
	select {
	case v = <-c:
	case err := <-ended:
		s.Fatalf("the subscription ended with %v", err)
	case <-time.After(patience):
		s.Fatal("nothing came")
	}
	return v
}

func (s *suite) subscription() {
	e := s.listen()
	for i := range 500 {
		_, err := s.c.Eval(s.Context(), "return redis.call('PUBLISH', '{channel}', ARGV[1])", []string{"{channel}"}, []string{strconv.Itoa(i) + binary()})
		testwait.Must(s, err)
	}
	for i := range 500 {
		if got := next(s, e.messages, e.ended); got != strconv.Itoa(i)+binary() {
			s.Fatalf("message %d is %q", i, got)
		}
	}
	e.stop()
	if err := next(s, e.ended, nil); err == nil {
		s.Error("it ended without an error")
	}
	testwait.Eventually(s, patience, "the connection is given back", func() bool {
		n, err := s.ask("PUBSUB", "NUMSUB", "{channel}").ToArray()
		if err != nil {
			return false
		}
		count, err := n[1].AsInt64()
		return err == nil && count == 0
	})
}

// cutOff: the end of a connection ends its subscription, so that its owner knows that messages may be lost; the next one works.
func (s *suite) cutOff() {
	for range 3 {
		e := s.listen()
		s.ask("PUBLISH", "{channel}", "heard")
		if got := next(s, e.messages, e.ended); got != "heard" {
			s.Errorf("heard %q", got)
		}
		s.ask("CLIENT", "KILL", "TYPE", "pubsub")
		if err := next(s, e.ended, nil); err == nil {
			s.Error("killed, it ended without an error")
		}
	}
	e := s.listen()
	s.server.Kill()
	if err := next(s, e.ended, nil); err == nil {
		s.Error("it ended without an error when the server died")
	}
}

// silentServer: a server that is there but silent is noticed.
func (s *suite) silentServer() {
	if os.Getenv("FAIRLEAD_TORTURE") != "1" {
		s.Skip("a long test: FAIRLEAD_TORTURE=1")
	}
	e := s.listen()
	s.Cleanup(s.server.Kill)
	s.ask("CLIENT", "PAUSE", "600000", "ALL")
	if err := next(s, e.ended, nil); err == nil {
		s.Error("it ended without an error")
	}
}

func (s *suite) settings() {
	servers, err := s.c.ConfigGet(s.Context(), "append*", "maxmemory*")
	if err != nil || len(servers) != 1 {
		s.Fatalf("%v, %v", servers, err)
	}
	for addr, settings := range servers {
		if addr != s.relay.Addr() || settings["appendonly"] != "no" || settings["maxmemory-policy"] != "noeviction" {
			s.Errorf("%s: %v", addr, settings)
		}
	}
}
