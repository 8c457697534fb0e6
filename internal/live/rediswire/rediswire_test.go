package rediswire

import (
	"context"
	"encoding/json"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = testwait.Patience

// redis starts a server on a free port, to be killed by the test or at its end.
func redis(t *testing.T, port int) *exec.Cmd {
	t.Helper()
	binary := pgtest.Program(t, "redis-server")
	cmd := exec.CommandContext(context.Background(), binary, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", t.TempDir())
	testwait.Must(t, cmd.Start())
	t.Cleanup(func() { stop(cmd) })
	return cmd
}

func stop(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func connect(t *testing.T, port int) rueidis.Client {
	t.Helper()
	var client rueidis.Client
	eventually(t, "connect to Redis", func() bool {
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{"127.0.0.1:" + strconv.Itoa(port)}, ForceSingleClient: true, DisableCache: true,
		})
		client = c
		return err == nil
	})
	t.Cleanup(client.Close)
	return client
}

// ear collects what a wire hears, connecting again as the hub does.
type ear struct {
	mu    sync.Mutex
	hints []live.Hint
	lost  int
}

func listen(t *testing.T, w *Wire) *ear {
	t.Helper()
	e := &ear{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			err := w.Receive(ctx, func(h live.Hint) {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.hints = append(e.hints, h)
			})
			if err != nil {
				e.mu.Lock()
				e.lost++
				e.mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return e
}

func (e *ear) last() (live.Hint, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.hints) == 0 {
		return live.Hint{}, false
	}
	return e.hints[len(e.hints)-1], true
}

func TestHintsReachOtherProcessesAndComeBackAfterARestart(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	server := redis(t, port)
	a, b := New(connect(t, port), nil), New(connect(t, port), nil)
	ear := listen(t, b)
	countdown := live.Event{Type: "countdown", At: time.Now().UTC().Truncate(time.Microsecond), Data: json.RawMessage(`{"round":1}`)}
	publish := func(hint live.Hint) func() bool {
		return func() bool { // Not yet subscribed: nobody hears it. Not there: it fails. Both pass.
			_ = a.Publish(t.Context(), []live.Hint{hint})
			got, ok := ear.last()
			return ok && got.Topic == hint.Topic
		}
	}
	eventually(t, "a hint arrives", publish(live.Hint{From: "a", Topic: "auction:1", Event: &countdown}))
	got, _ := ear.last()
	if got.From != "a" || got.Event == nil || string(got.Event.Data) != `{"round":1}` || !got.Event.At.Equal(countdown.At) {
		t.Errorf("got %+v", got)
	}
	stop(server)
	eventually(t, "the loss is noticed", func() bool { ear.mu.Lock(); defer ear.mu.Unlock(); return ear.lost > 0 })
	redis(t, port)
	eventually(t, "hints arrive again", publish(live.Hint{From: "a", Topic: "auction:2", Seq: 7}))
}

func TestWhatIsNotOursIsPassedOver(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	redis(t, port)
	client := connect(t, port)
	w := New(client, nil)
	ear := listen(t, w)
	eventually(t, "a hint arrives", func() bool {
		testwait.Must(t, client.Do(t.Context(), client.B().Publish().Channel(channel).Message("{").Build()).Error())
		testwait.Must(t, w.Publish(t.Context(), []live.Hint{{Topic: "x", Seq: 1}}))
		_, ok := ear.last()
		return ok
	})
	if ear.lost != 0 {
		t.Errorf("the connection was given up %d times", ear.lost)
	}
}
