package server

import (
	"bufio"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// stream asks for a stream; the caller closes its body.
func (l *liveEnv) stream(t *testing.T, path string, header http.Header) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.url+path, nil)
	must(t, err)
	maps.Copy(r.Header, header)
	if l.as != "" {
		r.Header.Set("Authorization", "Bearer "+l.as)
	}
	response, err := l.http.Do(r)
	must(t, err)
	return response
}

// block reads up to the next empty line.
func block(t *testing.T, r *bufio.Reader) []string {
	t.Helper()
	var lines []string
	for {
		line, err := r.ReadString('\n')
		must(t, err)
		if line = strings.TrimSuffix(line, "\n"); line == "" {
			return lines
		}
		lines = append(lines, line)
	}
}

func TestServerSentEvents(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const limit = 8 * time.Second // A stream must outlive what requests are given.
	l := newHastyLiveEnv(t, e, live.Options{}, func(o *LiveOptions) { o.Times.Write, o.Times.KeepAlive = limit, limit+time.Second }, limit)
	e.account("ann", "EUR", 1000)
	id := e.started(oneRound, `"cooldown":"0s"`)
	path := "/v1/events?topic=auction:" + id
	from := func(path, last string) (*http.Response, *bufio.Reader) {
		h := http.Header{}
		if last != "" {
			h.Set("Last-Event-Id", last)
		}
		r := l.stream(t, path, h)
		t.Cleanup(func() { _ = r.Body.Close() })
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "text/event-stream" || r.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%s: %s %v", path, r.Status, r.Header)
		}
		return r, bufio.NewReader(r.Body)
	}
	expect := func(r *bufio.Reader, seq, kind string) {
		t.Helper()
		lines := block(t, r)
		if len(lines) != 3 || lines[0] != "id: "+seq || lines[1] != "event: "+kind {
			t.Fatalf("want %s %s, got %q", seq, kind, lines)
		}
		var m heard
		must(t, json.Unmarshal([]byte(strings.TrimPrefix(lines[2], "data: ")), &m))
		if m.Type != kind || m.Topic != "auction:"+id || m.Seq == nil {
			t.Errorf("%+v", m)
		}
	}
	_, all := from(path+"&since=0", "")
	_, rest := from(path+"&since=0", "1")
	_, fresh := from(path, "")
	for _, r := range []*bufio.Reader{all, rest, fresh} {
		if got := block(t, r); len(got) != 1 || got[0] != ": subscribed 2" {
			t.Fatalf("got %q", got)
		}
	}
	expect(all, "1", "auction.started")
	for _, r := range []*bufio.Reader{all, rest} {
		expect(r, "2", "round.started")
	}
	// Longer than the limit.
	if got := block(t, fresh); len(got) != 1 || got[0] != ":" {
		t.Fatalf("got %q", got)
	}
	e.bid(id, "ann", 100).want(http.StatusCreated)
	for _, r := range []*bufio.Reader{all, rest, fresh} {
		for {
			if lines, err := r.Peek(1); err != nil || lines[0] != ':' {
				break
			}
			block(t, r)
		}
		expect(r, "3", "bid.placed")
	}
	l.hub.Broadcast("auction:"+id, live.Event{Type: "countdown", Data: []byte(`{}`)})
	for got := []string{":"}; got[0] != "event: countdown"; {
		if got = block(t, fresh); got[0] == "event: countdown" && (len(got) != 2 || !strings.HasPrefix(got[1], `data: {"topic":`)) {
			t.Errorf("got %q", got)
		}
	}
}

// TestMetricsOfStreams: the time of a stream, or of a request that says how long it waits, is not among those of requests. All are counted.
func TestMetricsOfStreams(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{}, nil)
	id := e.started(oneRound, "")
	r := l.stream(t, "/v1/events?topic=auction:"+id, nil)
	block(t, bufio.NewReader(r.Body))
	must(t, r.Body.Close())
	e.lock("ann", "5m", "1s", "a").want(http.StatusCreated)
	const stream, lock = `route="/v1/events"`, `route="/v1/locks"`
	text := func() string { return string(e.by("").get("/metrics").body) }
	for _, counted := range []string{`method="GET",` + stream + `,status="200"`, `method="POST",` + lock + `,status="201"`} {
		testwait.Eventually(t, patience, counted, func() bool { return strings.Contains(text(), "fairlead_http_requests_total{"+counted+"} 1") })
	}
	if got := text(); strings.Contains(got, "_seconds_count{"+stream) || strings.Contains(got, "_seconds_count{"+lock) {
		t.Fatal("a stream, or a wait, was timed")
	}
	e.lock("ann", "5m", "", "b").want(http.StatusCreated)
	r = l.stream(t, "/v1/events", nil)
	must(t, r.Body.Close())
	for _, route := range []string{stream, lock} {
		testwait.Eventually(t, patience, route, func() bool {
			return strings.Contains(text(), "fairlead_http_request_duration_seconds_count{"+route+"} 1")
		})
	}
}

func TestServerSentEventsAreRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{}, func(o *LiveOptions) { o.MaxStreams = 1 })
	id := e.auctioned(oneRound, "")
	topic := "?topic=auction:" + id
	for query, want := range map[string]int{
		"":                            400,
		"?topic=":                     400,
		topic + "&topic=x":            400,
		topic + "&since=x":            400,
		topic + "&since=-1":           400,
		topic + "&since=":             400,
		topic + "%zz":                 400,
		"?topic=auction:" + newUUID(): 404,
		"?topic=accounts":             404,
		topic + "&since=0":            200,
	} {
		r := l.stream(t, "/v1/events"+query, nil)
		if r.StatusCode != want {
			t.Errorf("%s: %s", query, r.Status)
		}
		_ = r.Body.Close()
		eventually(t, patience, "the stream ends", func() bool { return l.hub.Stats().Subscribers == 0 && l.edge.Connections() == 0 })
	}
	r := l.stream(t, "/v1/events"+topic, http.Header{"Last-Event-Id": {"nonsense"}})
	if r.StatusCode != 400 {
		t.Errorf("Last-Event-ID: %s", r.Status)
	}
	_ = r.Body.Close()
	head, err := http.NewRequestWithContext(t.Context(), http.MethodHead, l.url+"/v1/events"+topic, nil)
	must(t, err)
	head.Header.Set("Authorization", "Bearer "+l.admin)
	answered, err := l.http.Do(head)
	must(t, err)
	_ = answered.Body.Close()
	c := l.connect()
	if r := l.stream(t, "/v1/events"+topic, nil); r.StatusCode != 503 {
		t.Errorf("one too many: %s", r.Status)
	} else {
		_ = r.Body.Close()
	}
	_ = c.ws.CloseNow()
}
