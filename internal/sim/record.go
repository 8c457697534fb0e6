package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tally"
)

// Kind names what a command does.
type Kind string

// The kinds of commands.
const (
	KindAccount    Kind = "account"
	KindDeposit    Kind = "deposit"
	KindWithdrawal Kind = "withdrawal"
	KindTransfer   Kind = "transfer"
	KindLegs       Kind = "legs"
	KindHold       Kind = "hold"
	KindCapture    Kind = "capture"
	KindRelease    Kind = "release"
	KindCampaign   Kind = "campaign"
	KindPublish    Kind = "publish"
	KindCancel     Kind = "cancel"
	KindPurchase   Kind = "purchase"
	KindDraw       Kind = "draw"
	KindCross      Kind = "cross"
	KindAuction    Kind = "auction"
	KindBid        Kind = "bid"
)

// Op is one command under one key, and every answer that it ever got. Its fields but answers don't change once made.
type Op struct {
	Kind   Kind
	Method string
	Path   string
	Key    string
	Body   []byte

	mu      sync.Mutex
	began   time.Time // of the first attempt
	answers []Answer
}

// String tells the command in one line.
func (o *Op) String() string {
	return fmt.Sprintf("%s %s key=%s %s", o.Method, o.Path, o.Key, o.Body)
}

// Answers returns a copy of the answers so far, in the order of their arrival.
func (o *Op) Answers() []Answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Answer(nil), o.answers...)
}

// Final returns the first final answer, if one has come.
func (o *Op) Final() (Answer, bool) {
	for _, a := range o.Answers() {
		if a.Final() {
			return a, true
		}
	}
	return Answer{}, false
}

// History records the commands of one run in the order in which they were first sent.
type History struct {
	// Recorder counts what was acknowledged by the faults of the run. It may be replaced before the first command.
	Recorder *tally.Recorder
	// Scope is what [History.Check] compares.
	Scope Scope

	mu      sync.Mutex
	ops     []*Op
	keys    map[string]bool
	answers int
	waiters []waiter
}

type waiter struct {
	answers int
	reached chan struct{}
}

// NewHistory makes an empty history.
func NewHistory() *History { return &History{Recorder: new(tally.Recorder), keys: map[string]bool{}} }

// Clone returns a history that begins with the commands of this one.
func (h *History) Clone() *History {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &History{Recorder: new(tally.Recorder), ops: append([]*Op(nil), h.ops...), keys: maps.Clone(h.keys), answers: h.answers}
}

// NewOp makes a POST command. The key must be new to its path: two commands under one key would be one to the server.
func NewOp(kind Kind, path, key string, body any) *Op {
	op := &Op{Kind: kind, Method: http.MethodPost, Path: path, Key: key}
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			panic("sim: " + err.Error()) // The bodies are this package's own structs and maps.
		}
		op.Body = encoded
	}
	return op
}

func (h *History) record(op *Op, began time.Time, a Answer) {
	op.mu.Lock()
	first := len(op.answers) == 0
	if first {
		op.began = began
	}
	settled := a.Final() && !slices.ContainsFunc(op.answers, Answer.Final)
	op.answers = append(op.answers, a)
	began = op.began
	op.mu.Unlock()
	if settled {
		h.Recorder.Answered(began, time.Now(), a.Status < 300)
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if first {
		name := op.Method + " " + op.Path + " " + op.Key
		if h.keys[name] {
			panic("sim: two commands under one key: " + name)
		}
		h.keys[name] = true
		h.ops = append(h.ops, op)
	}
	if !a.Final() {
		return
	}
	h.answers++
	kept := h.waiters[:0]
	for _, w := range h.waiters {
		if h.answers >= w.answers {
			close(w.reached)
		} else {
			kept = append(kept, w)
		}
	}
	h.waiters = kept
}

// Ops returns the commands so far.
func (h *History) Ops() []*Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*Op(nil), h.ops...)
}

// After returns a channel that is closed when n more final answers have arrived: a moment under load that does not
// depend on how fast the machine is.
func (h *History) After(n int) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	reached := make(chan struct{})
	if n <= 0 {
		close(reached)
		return reached
	}
	h.waiters = append(h.waiters, waiter{h.answers + n, reached})
	return reached
}

// Count tells the answers of each kind of command by status, and by code where there is one.
func (h *History) Count() map[string]int {
	counts := map[string]int{}
	for _, op := range h.Ops() {
		final, ok := op.Final()
		if !ok {
			counts[string(op.Kind)+" unanswered"]++
			continue
		}
		counts[strings.TrimSpace(fmt.Sprintf("%s %d %s", op.Kind, final.Status, final.Code()))]++
	}
	return counts
}

// Replay sends every settled command once more, those that pick selects (all, if nil), from workers at a time, and
// checks that the answer is the first one, byte for byte, and marked as replayed. Commands whose answer is not stored
// are passed over: they would be decided anew.
func (h *History) Replay(ctx context.Context, c *Client, workers int, pick func(i int) bool) (replayed int, err error) {
	var ops []*Op
	for i, op := range h.Ops() {
		if final, ok := op.Final(); ok && final.Stored() && (pick == nil || pick(i)) {
			ops = append(ops, op)
		}
	}
	err = each(workers, ops, func(op *Op) error {
		answer, err := c.Settle(ctx, op)
		if err == nil && !answer.Replayed {
			err = fmt.Errorf("%w: replay is not marked as such: %s: %v", ErrProtocol, op, answer)
		}
		return err
	})
	return len(ops), errors.Join(h.CheckReplies(), err)
}

// CheckReplies checks the answers of each command against one another: all final ones are equal in status, type and body, and
// at most one of them, the executing request's own, lacks the mark of a replay. Every command must have a final answer, and none a 500.
func (h *History) CheckReplies() error {
	var wrong []error
	for _, op := range h.Ops() {
		var first *Answer
		own := 0
		for _, a := range op.Answers() {
			if a.Status == http.StatusInternalServerError { // Whether or not it may be tried again: no fault is a reason for one.
				wrong = append(wrong, fmt.Errorf("%w: %s: %v", ErrProtocol, op, a))
			}
			if !a.Final() {
				continue
			}
			if first == nil {
				first = &a
			}
			if !a.Stored() {
				continue
			}
			if !a.Replayed {
				own++
			}
			if a.Status != first.Status || !bytes.Equal(a.Body, first.Body) || a.Header.Get("Content-Type") != first.Header.Get("Content-Type") {
				wrong = append(wrong, fmt.Errorf("%w: %s: answered %v, then %v", ErrProtocol, op, first, a))
			}
		}
		if first == nil {
			wrong = append(wrong, fmt.Errorf("%w: %s: %v", ErrUnsettled, op, op.Answers()))
		}
		if own > 1 {
			wrong = append(wrong, fmt.Errorf("%w: %s: executed %d times by its own word", ErrProtocol, op, own))
		}
	}
	return errors.Join(wrong...)
}
