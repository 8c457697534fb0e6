package server

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead-dev/fairlead/internal/live"
)

// TestAStalledClientCostsNobodyAnything lets one client read nothing while others follow. It is given up once it has not
// taken what it was sent; when it reads again it finds everything up to there, without a gap, then that it was dropped and
// where, and can come back from there.
func TestAStalledClientCostsNobodyAnything(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for tries := 1; !stalledCostsNothing(t, e); tries++ {
		if tries == 3 {
			t.Fatal("each time, others waited as long as for the stalled one")
		}
	}
}

// stalledCostsNothing reports false if others waited for as long as the stalled client was given: for it, or because the machine has stalled.
func stalledCostsNothing(t *testing.T, e *env) bool {
	t.Helper()
	const given = 20 * time.Second
	l := newLiveEnv(t, e, live.Options{Buffer: 500}, func(o *LiveOptions) { o.Times.Write, o.Times.Linger = given, patience })
	id := e.auctioned(oneRound, "")
	topic := "auction:" + id
	stalled, quick := l.connect(), l.connect()
	stalled.subscribe(topic, "")
	quick.subscribe(topic, "")
	const rounds, each = 60, 400 // some 12 MB, more than the kernels take
	for i := range rounds {
		start := time.Now()
		l.grow(id, each)
		for seq := range int64(each) {
			quick.event(int64(i*each)+seq+1, "test")
		}
		if took := time.Since(start); took > given {
			t.Logf("others waited for %s", took)
			_ = stalled.ws.CloseNow()
			return false
		}
	}
	eventually(t, 2*patience, "it is dropped", func() bool { return l.hub.Stats().Dropped == 1 })
	var last int64
	for {
		h := stalled.hear()
		if h.Op == "dropped" {
			if h.Topic != topic || h.LastSeq == nil || *h.LastSeq != last {
				t.Errorf("after %d: %+v", last, h)
			}
			break
		}
		if last++; h.Seq == nil || *h.Seq != last {
			t.Fatalf("want event %d, got %+v", last, h)
		}
	}
	if last == 0 || last >= rounds*each {
		t.Errorf("it was given %d events", last)
	}
	if code, _ := stalled.ended(); code != websocket.StatusTryAgainLater {
		t.Errorf("closed with %d", code)
	}
	eventually(t, patience, "the server lets go of it", func() bool { return l.edge.Connections() == 1 })
	again := l.connect()
	again.say(`{"op":"subscribe","topic":%q,"since":%d}`, topic, last)
	if h := again.hear(); h.Op != "subscribed" || *h.Seq != rounds*each {
		t.Fatalf("%+v", h)
	}
	for seq := last + 1; seq <= rounds*each; seq++ {
		again.event(seq, "test")
	}
	return true
}

// TestAClientThatIsGoneIsNoticed has a client that answers no ping. A slow machine may keep the one that does from answering in time.
func TestAClientThatIsGoneIsNoticed(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for pong := 3 * time.Second; !goneIsNoticed(t, e, pong); pong *= 2 {
		if pong > time.Minute {
			t.Fatal("the one that answers was given up, too")
		}
	}
}

// goneIsNoticed reports false if the client that answers was given up, too.
func goneIsNoticed(t *testing.T, e *env, pong time.Duration) bool {
	t.Helper()
	l := newLiveEnv(t, e, live.Options{}, func(o *LiveOptions) {
		o.Times.Recheck, o.Times.Ping, o.Times.Pong = 20*time.Millisecond, 40*time.Millisecond, pong
	})
	began := time.Now()
	var pings atomic.Int64
	quiet, _, err := websocket.Dial(t.Context(), l.url+livePath, &websocket.DialOptions{
		HTTPClient: l.http, HTTPHeader: http.Header{"Authorization": {"Bearer " + l.as}},
		OnPingReceived: func(context.Context, []byte) bool { pings.Add(1); return true },
	})
	must(t, err)
	defer func() { _ = quiet.CloseNow() }()
	ctx := quiet.CloseRead(t.Context()) // It reads, and so answers.
	gone := l.connect()
	defer func() { _ = gone.ws.CloseNow() }()
	if n := l.edge.Connections(); n != 2 && time.Since(began) < pong {
		t.Fatalf("%d clients", n)
	}
	eventually(t, patience, "one is given up", func() bool { return l.edge.Connections() < 2 })
	before := pings.Load()
	eventually(t, patience, "the other one is asked again", func() bool { return pings.Load() > before+20 || ctx.Err() != nil })
	return ctx.Err() == nil && l.edge.Connections() == 1
}
