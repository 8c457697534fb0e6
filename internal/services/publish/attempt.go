package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Errors that end an attempt from outside.
var (
	errClaimLost = errors.New("the claim was lost while it ran")
	errShutdown  = errors.New("the server was shut down before the target answered")
)

// Delivery is what a sender is given.
type Delivery struct {
	Publication uuid.UUID // or the event, of a subscription: what receivers know repeats by
	Version     int64     // grows with each attempt
	// At is when the attempt is made, by the database's clock: receivers refuse what seems old, and this machine's clock
	// may be wrong.
	At       time.Time
	Target   *Target
	Secret   []byte
	Previous []byte // the secret before the last rotation, nil once its overlap is over
	Payload  []byte // JSON
	// ContentType is the payload's, application/json where it is empty.
	ContentType string
	Progress    []byte // what an earlier attempt has saved, nil when there is none
	// Save keeps what this attempt has brought about so far, for the next one, in a format of the sender's own, which must
	// be text. It returns [ErrClaimLost] when another process may be at the publication: then the attempt must end. A
	// sender saves before each step that cannot be taken back.
	Save func(ctx context.Context, progress []byte) error
	// Meter is told what the attempt is doing, for those who watch it. May be nil.
	Meter *Meter
}

// Unseal gives the delivery the secrets of its target. It returns why the secret cannot be read, which is for the log; where the one
// before it cannot, the delivery goes without.
func (d *Delivery) Unseal(ctx context.Context, v *Vault, logger *slog.Logger) (err error) {
	if d.Secret, err = v.Open(d.Target.Secret, d.Target.ID[:]); err != nil {
		return err
	}
	if until := d.Target.PreviousUntil; until != nil && d.At.Before(*until) {
		if d.Previous, err = v.Open(d.Target.Previous, d.Target.ID[:]); err != nil {
			logger.WarnContext(ctx, "a target's previous secret cannot be read", "target", d.Target.ID, "error", err)
		}
	}
	return nil
}

// Unreadable is what an attempt ends with when [Delivery.Unseal] fails.
func Unreadable() Result {
	return Result{Class: Transient, Error: "the target's secret cannot be read"}
}

// Sender brings publications to the targets of one kind. It must return when ctx ends, and is called concurrently. [Deliver] bounds
// ctx by the target's timeout. Package targettest holds senders to that.
type Sender interface {
	Send(ctx context.Context, d *Delivery) Result
}

// Finder is what a [Sender] also is whose targets can be asked whether they have a publication. It is asked before a
// repeat, so that nothing is published twice.
type Finder interface {
	// Find asks. settled says that nothing is to be sent: the target has the publication, and the result is Delivered with
	// its name for it; or it could not be asked, and the result says why.
	Find(ctx context.Context, d *Delivery) (result Result, settled bool)
}

// Deliver has a sender make one attempt, all of it within the target's timeout: the question whether the target has the publication
// already, where it can be asked, and then every request and upload.
func Deliver(ctx context.Context, sender Sender, d *Delivery) Result {
	limit := d.Target.Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the attempt took longer than the target's timeout of %s", limit))
	defer cancel()
	if ctx.Err() != nil { // This process was stopped for longer than the claim lives, perhaps. Another one may be at it.
		return cutShort(ctx, Result{Class: Transient})
	}
	if finder, ok := sender.(Finder); ok && d.Version > 1 {
		if result, settled := finder.Find(ctx, d); settled {
			return cutShort(ctx, result)
		}
	}
	return cutShort(ctx, sender.Send(ctx, d))
}

// cutShort says of a result why it is one, where the attempt was ended from outside.
func cutShort(ctx context.Context, result Result) Result {
	if cause := context.Cause(ctx); cause != nil && result.Class == Transient {
		result.Error, result.Interrupted = cause.Error(), errors.Is(cause, errShutdown)
		switch {
		case errors.Is(cause, errClaimLost):
			result.Cause = causeOwn
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			result.Cause = CauseTimeout
		}
	}
	return result
}

// Stages of an attempt. A sender may have others of its own.
const (
	StageLooking    = "looking"    // asking the target whether it has the publication already
	StageUploading  = "uploading"  // sending the publication's file
	StagePublishing = "publishing" // the request that publishes, and its answer
)

// Activity is what an attempt is doing.
type Activity struct {
	Stage string // empty before the first
	// Sent is how much of the file has been sent, in bytes, and Total its length; 0 where it is not known.
	Sent, Total int64
}

// Meter holds what an attempt is doing. It is safe for concurrent use, and a nil Meter holds nothing.
type Meter struct {
	mu  sync.Mutex
	now Activity
}

// Begin begins a stage, in which total bytes are to be sent; 0: none, or nobody knows how many.
func (m *Meter) Begin(stage string, total int64) {
	m.change(func(a *Activity) { *a = Activity{Stage: stage, Total: total} })
}

// Sent counts bytes that were sent in this stage.
func (m *Meter) Sent(n int) { m.change(func(a *Activity) { a.Sent += int64(n) }) }

func (m *Meter) change(f func(*Activity)) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		f(&m.now)
	}
}

// Read returns what the attempt is doing now.
func (m *Meter) Read() (now Activity) {
	m.change(func(a *Activity) { now = *a })
	return now
}
