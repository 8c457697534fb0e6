package live

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	hub "github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Events streams one topic's events as server-sent events (WHATWG HTML, section 9.2) until the client goes, is too
// slow, or the server stops. A client that comes back with Last-Event-ID misses nothing.
func (e *Edge) Events(w http.ResponseWriter, r *http.Request) error {
	topic, since, err := parseStream(r)
	if err != nil {
		return err
	}
	c, err := e.admit(r)
	if err != nil {
		return err
	}
	defer e.leave(c)
	sub := e.Hub.NewSubscriber()
	defer sub.Close()
	if err := e.subscribe(r.Context(), c.principal, sub, topic, since); err != nil {
		return refusalOf(err)
	}
	st := &stream{w: w, rc: http.NewResponseController(w), timeout: e.Times.Write}
	// The server's deadlines are for requests that end.
	if err := errors.Join(st.rc.SetReadDeadline(time.Time{}), st.rc.SetWriteDeadline(time.Now().Add(st.timeout))); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // Some proxies collect answers unless told not to.
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		st.run(e, r, c, sub)
	}
	return nil
}

// parseStream reads which topic is asked for, and from where.
func parseStream(r *http.Request) (topic string, since *int64, err error) {
	q := r.URL.Query()
	for name, values := range q {
		if len(values) > 1 {
			return "", nil, edge.Refuse("%s is given more than once", name)
		}
	}
	if topic = q.Get("topic"); topic == "" {
		return "", nil, edge.Refuse("topic must be given, as auction:ID, campaign:ID, multidraw:ID or account:ID")
	}
	from, name := q.Get("since"), "since"
	// A client that reconnects by itself repeats its URL, and knows better.
	if id := r.Header.Get("Last-Event-Id"); id != "" {
		from, name = id, "Last-Event-ID"
	} else if !q.Has("since") {
		return topic, nil, nil
	}
	n, err := strconv.ParseInt(from, 10, 64)
	if err != nil || n < 0 || n > ledger.MaxAmount {
		return "", nil, edge.Refuse("%s must be an integer from 0 to %d", name, int64(ledger.MaxAmount))
	}
	return topic, &n, nil
}

// stream writes to one client.
type stream struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	line    []byte
}

func (st *stream) run(e *Edge, r *http.Request, c *client, sub *hub.Subscriber) {
	quiet := time.NewTicker(e.Times.KeepAlive)
	defer quiet.Stop()
	buf := make([]hub.Message, 0, messageBatch)
	if st.flush() != nil {
		return
	}
	for {
		messages, err := sub.Pull(r.Context(), buf)
		if err != nil {
			return
		}
		if len(messages) > 0 {
			if !st.write(messages) {
				return
			}
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-e.ctx.Done():
			return
		case <-c.done:
			return
		case <-sub.Ready():
		case <-quiet.C:
			st.line = append(st.line, ":\n\n"...)
			if st.flush() != nil {
				return
			}
		}
	}
}

const eventFormat = "event: %s\ndata: %s\n\n" // its type, and its data on one line

// write reports whether to go on.
func (st *stream) write(messages []hub.Message) bool {
	for i := range messages {
		switch m := &messages[i]; m.Kind {
		case hub.KindEvent:
			if m.Seq > 0 {
				st.line = fmt.Appendf(st.line, "id: %d\n", m.Seq)
			}
			st.line = fmt.Appendf(st.line, eventFormat, m.Type, m.JSON)
		case hub.KindSubscribed:
			// A comment, since clients look for events alone.
			st.line = fmt.Appendf(st.line, ": subscribed %d\n\n", m.Seq)
		case hub.KindDropped:
			st.line = fmt.Appendf(st.line, eventFormat, "dropped", edge.Marshal(answer{Op: "dropped", Topic: m.Topic, LastSeq: &m.Seq}))
			_ = st.flush() // It ends here either way.
			return false
		}
	}
	return st.flush() == nil
}

func (st *stream) flush() error {
	err := st.rc.SetWriteDeadline(time.Now().Add(st.timeout))
	if err == nil {
		_, err = st.w.Write(st.line)
	}
	if err == nil {
		err = st.rc.Flush()
	}
	st.line = st.line[:0]
	return err
}
