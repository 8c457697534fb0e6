package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// maxLiveMessage is the longest message of the live stream that the demo takes.
const maxLiveMessage = 1 << 20

// demoAbsence is how long the second watcher stays away when it has hung up.
const demoAbsence = 300 * time.Millisecond

// event is an event as it came, byte for byte.
type event struct {
	seq  int64
	kind replay.Type
	raw  []byte
}

// errLiveEnded is returned when the live stream ends before the auction does.
var errLiveEnded = errors.New("the live stream ended before the auction did")

// watchSocket follows the auction over a WebSocket, without a break, and keeps the board that the bots look at.
func (a *auctionAct) watchSocket(ctx context.Context) error {
	conn, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(a.Demo.result.URL, "http")+"/v1/live", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: a.pool}, HTTPHeader: http.Header{"Authorization": {"Bearer " + a.key}},
	})
	if resp != nil && resp.Body != nil {
		defer func() { _ = resp.Body.Close() }()
	}
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(maxLiveMessage)
	request := fmt.Sprintf(`{"op":"subscribe","topic":%q,"since":0}`, a.topic)
	if err := conn.Write(ctx, websocket.MessageText, []byte(request)); err != nil {
		return err
	}
	for {
		_, message, err := conn.Read(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", errLiveEnded, err)
		}
		var answer struct {
			Op string `json:"op"`
		}
		if err := json.Unmarshal(message, &answer); err != nil {
			return err
		}
		if answer.Op == "subscribed" {
			continue
		}
		if answer.Op != "" {
			return fmt.Errorf("%w: %s", errLiveEnded, message)
		}
		e, err := replay.ParseEvent(message)
		if err != nil {
			return err
		}
		if e.Countdown != nil {
			a.result.Countdowns++
			continue
		}
		// What comes twice is for the table to tell; the bots go by its first coming.
		if n := len(a.result.socket); n == 0 || e.Seq > a.result.socket[n-1].seq {
			a.board.apply(e)
		}
		a.result.socket = append(a.result.socket, event{seq: e.Seq, kind: e.Type, raw: message})
		a.result.replays = append(a.result.replays, e)
		if e.Type == replay.AuctionCompleted {
			_ = conn.Close(websocket.StatusNormalClosure, "") // Everything was said.
			return nil
		}
	}
}

// watchStream follows the auction as server-sent events. It hangs up in the middle of each close, stays away for a
// while, and comes back with the number of its last event.
func (a *auctionAct) watchStream(ctx context.Context) error {
	for {
		ended, err := a.follow(ctx)
		if ended || err != nil {
			return err
		}
		a.result.Resumes++
		if !wait.For(ctx, demoAbsence) {
			return context.Cause(ctx)
		}
	}
}

// follow reads events until a round closes, and reports whether the auction has ended.
func (a *auctionAct) follow(ctx context.Context) (ended bool, err error) {
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	last := "0"
	if n := len(a.result.stream); n > 0 {
		last = strconv.FormatInt(a.result.stream[n-1].seq, 10)
	}
	resp, err := a.api.Open(ctx, "/v1/events?topic="+url.QueryEscape(a.topic), client.Header("Last-Event-ID", last))
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLiveMessage)
	var e event
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte(":")) {
			continue // A comment.
		}
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(field) {
		case "id":
			if e.seq, err = strconv.ParseInt(string(value), 10, 64); err != nil {
				return false, err
			}
		case "event":
			e.kind = replay.Type(value)
		case "data":
			e.raw = bytes.Clone(value)
		case "": // An event is complete, if there was one.
			if e.kind == "dropped" {
				return false, fmt.Errorf("%w: %s", errLiveEnded, e.raw)
			}
			if e.seq > 0 {
				a.result.stream = append(a.result.stream, e)
			}
			if e.kind == replay.RoundCompleted || e.kind == replay.AuctionCompleted {
				return e.kind == replay.AuctionCompleted, nil
			}
			e = event{}
		}
	}
	return false, errors.Join(errLiveEnded, lines.Err())
}
