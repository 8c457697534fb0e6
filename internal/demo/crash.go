package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/screen"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/multidraw"
)

const (
	// demoDraws are enough that the operation is still under way when its server is killed.
	demoDraws     = 3_000_000
	demoUndone    = 20_000_000 // of the operation that is rolled back
	demoFaces     = 6
	demoHolderTTL = 5 * time.Second
	demoCrashTime = 3 * time.Minute // bounds the act
)

// Crash is what the clients of servers saw that were killed.
type Crash struct {
	Workers     int     `json:"workers"`
	Posts       int     `json:"posts"`
	Cancelled   int     `json:"posts_cancelled"`
	InFlight    int     `json:"posts_in_flight"`
	SentAgain   int     `json:"posts_sent_again"`
	Transfers   int     `json:"transfers"`
	LostAnswers int     `json:"lost_answers"`
	SettledMS   float64 `json:"settled_ms"`
	Draws       int64   `json:"draws"`
	Interrupted int64   `json:"interrupted_at"`
	RolledBack  int64   `json:"rolled_back_at"`
	OldToken    int64   `json:"old_token"`
	NewToken    int64   `json:"new_token"`
	Cause       string  `json:"holder_told"`
	LockMS      float64 `json:"lock_free_ms"`
	StaleWrite  bool    `json:"stale_write_refused"`
	LateRelease bool    `json:"late_release_refused"`

	endedInTime bool      // the holder was told before its lease can have expired
	grant       string    // the id of the next holder's lock
	expires     time.Time // of the dead holder's lease, by the database's clock
	died        time.Time // not before, by the same clock
	resumed     string    // the operation
	undone      string
	digest      string // of the draws of a run that nothing interrupts
	otherCount  bool   // other parameters were refused
}

// crashAct plays the crash.
type crashAct struct {
	*traffic

	helpers  []*helper
	receiver *receiver
	holder   *lateHolder
	next     chan error // the next holder has its lock, or not
	drawKey  string
	killed   time.Time
}

// crash lets further servers join, and kills them all at work.
func (d *Demo) crash(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoCrashTime)
	defer cancel()
	c := &d.result.Crash
	c.Workers = d.helpers() + 1
	d.screen.Heading(fmt.Sprintf("The crash: %s on the same work, and all but one killed in the middle of it", plural(c.Workers, "server")))
	a := &crashAct{traffic: &traffic{Demo: d}, next: make(chan error, 1), drawKey: "demo-" + uuid.NewString()}
	d.screen.Begin("Starting " + plural(d.helpers(), "more server"))
	began := time.Now()
	err := d.openBranch(ctx)
	if err == nil {
		a.helpers, err = d.startHelpers(ctx)
	}
	if err != nil {
		d.screen.Break()
		return err
	}
	defer func() { cancel(); killAll(a.helpers); a.sending.Wait() }()
	d.screen.End("each a process of its own, in %s", screen.Seconds(time.Since(began)))
	if a.receiver, err = newReceiver(ctx); err != nil {
		return err
	}
	defer a.receiver.close()
	if err := a.work(ctx); err != nil {
		return err
	}
	d.screen.Heading("After the crash: what the server that is left makes of it")
	for _, survive := range []func(context.Context) error{a.lockMoves, a.publish, func(ctx context.Context) error { return a.settle(ctx, a.killed) }, a.drawOn} {
		if err := survive(ctx); err != nil {
			return err
		}
	}
	return nil
}

// work gives all servers something to do, and kills them.
func (a *crashAct) work(ctx context.Context) error {
	c, last := &a.result.Crash, a.helpers[len(a.helpers)-1]
	if err := a.schedulePosts(ctx, a.receiver); err != nil {
		return err
	}
	c.Posts, c.Cancelled = len(a.posts), len(a.cancelled)
	a.screen.Begin("Posts, wanted by " + plural(c.Workers, "server"))
	if err := a.receiver.await(ctx, func(posts int) bool { return posts >= demoPerTarget*c.Workers }); err != nil {
		a.screen.Break()
		return err
	}
	c.InFlight = demoPerTarget * c.Workers
	a.screen.End("%d due at one moment, %d being sent; %d were cancelled before", c.Posts, c.InFlight, c.Cancelled)
	a.begin(ctx, a.helpers)
	if err := until(ctx, a.underWay); err != nil {
		return err
	}
	if err := a.holdLock(ctx, last); err != nil {
		return err
	}
	// The longer one is begun first, so that neither is over when both have begun.
	operations := make([]*client.Multidraw, 2)
	for i, count := range []int64{demoUndone, demoDraws} {
		o, err := a.startDraws(ctx, last.api, count, a.drawKey+fmt.Sprint(i))
		if err != nil {
			return err
		}
		if err := until(ctx, func() (bool, error) {
			now, err := a.api.GetMultidraw(ctx, o.ID)
			return err == nil && now.CompletedCount > 0, err
		}); err != nil {
			return err
		}
		operations[i] = o
	}
	c.undone, c.resumed, c.Draws = operations[0].ID, operations[1].ID, demoDraws
	return a.kill(ctx)
}

// holdLock takes a lock through a server that is about to be killed, as late as can be: a machine that is stalled for longer than its lease would
// lose it before. Another client waits for it.
func (a *crashAct) holdLock(ctx context.Context, last *helper) (err error) {
	c := &a.result.Crash
	if a.holder, err = a.holdThrough(ctx, last); err != nil {
		return err
	}
	c.OldToken = a.holder.Token(a.lastLock())
	go func() {
		next, err := a.api.AcquireLock(ctx, client.LockRequest{Keys: []string{a.lastLock()}, Owner: "next" + a.tag, TTL: "10m", Wait: "1m"})
		if err == nil {
			c.grant, c.NewToken = next.ID, next.Tokens[a.lastLock()]
		}
		a.next <- err
	}()
	return nil
}

func (a *crashAct) startDraws(ctx context.Context, api *client.Client, count int64, key string) (*client.Multidraw, error) {
	return api.CreateMultidraw(ctx, client.CreateMultidrawRequest{
		LockKey: fmt.Sprintf("demo/dice-%d%s", count, a.tag), Count: count, Range: &client.RangeRequest{Min: 1, Max: demoFaces}, Async: true,
	}, client.Key(key))
}

// kill kills all servers but the first, and asks the database what time it is.
func (a *crashAct) kill(ctx context.Context) error {
	c := &a.result.Crash
	conn, err := pgx.Connect(ctx, a.databases.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	a.killed = time.Now()
	killAll(a.helpers)
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp(), expires_at FROM lock_grants WHERE id = $1`, a.holder.ID()).Scan(&c.died, &c.expires); err != nil {
		return err
	}
	answered := time.Now()
	a.sending.Wait()
	a.screen.Fact("kill -9", "%d transfers had been answered, %d had not", len(a.told), len(a.lost))

	// The holder learns of it by itself. The database's clock was not less than died when it answered.
	select {
	case ended := <-a.holder.ended:
		c.endedInTime = !c.died.Add(ended.Sub(answered)).After(c.expires)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// lockMoves waits for the next holder, and lets the dead one's client write and release too late.
func (a *crashAct) lockMoves(ctx context.Context) error {
	c := &a.result.Crash
	defer a.holder.close()
	cause := context.Cause(a.holder.Context()) //nolint:contextcheck // Why the lock ended, which bounds nothing here.
	c.Cause = cause.Error()
	c.endedInTime = c.endedInTime && errors.Is(cause, lock.ErrLost)
	a.screen.Begin("The lock")
	if err := <-a.next; err != nil {
		a.screen.Break()
		return err
	}
	c.LockMS = inMilliseconds(time.Since(a.killed))
	if err := a.guardedWrite(ctx, a.lastLock(), c.NewToken); err != nil {
		return err
	}
	err := a.guardedWrite(ctx, a.lastLock(), c.OldToken)
	if c.StaleWrite = errors.Is(err, lock.ErrStaleToken); !c.StaleWrite && err != nil {
		return err
	}
	c.LateRelease = client.CodeOf(a.api.ReleaseLock(ctx, a.holder.ID())) == "lock_lost"
	a.screen.End("next in line has it after %s; the late holder's write was refused", screen.Milliseconds(c.LockMS))
	return nil
}

func (a *crashAct) publish(ctx context.Context) error {
	close(a.receiver.released)
	return a.awaitPosts(ctx, a.receiver)
}

// drawOn resumes one operation, and rolls the other one back.
func (a *crashAct) drawOn(ctx context.Context) error {
	c := &a.result.Crash
	show, done := a.screen.Status("The draws")
	err := a.resume(ctx, show)
	done()
	if err == nil {
		a.screen.End("stopped at %d, resumed to %d, all as in an unbroken run", c.Interrupted, c.Draws)
		a.screen.Fact("Other draws", "stopped at %d, and rolled back", c.RolledBack)
	} else {
		a.screen.Break()
	}
	return err
}

func (a *crashAct) resume(ctx context.Context, show func(float64, string)) error {
	c := &a.result.Crash
	stopped := func(id string) (o *client.Multidraw, err error) {
		err = until(ctx, func() (bool, error) {
			o, err = a.api.GetMultidraw(ctx, id)
			return err == nil && o.Status != client.MultidrawStatusRunning, err
		})
		return o, err
	}
	for id, at := range map[string]*int64{c.resumed: &c.Interrupted, c.undone: &c.RolledBack} {
		o, err := stopped(id)
		if err != nil {
			return err
		}
		if *at = o.CompletedCount; o.Status != client.MultidrawStatusInterrupted {
			return fmt.Errorf("the draws were %s before the crash", o.Status)
		}
	}
	if _, err := a.api.RollbackMultidraw(ctx, c.undone); err != nil {
		return err
	}
	_, err := a.startDraws(ctx, a.api, demoDraws+1, a.drawKey+"1")
	c.otherCount = client.CodeOf(err) == "idempotency_key_reused"
	if _, err := a.api.ResumeMultidraw(ctx, c.resumed); err != nil {
		return err
	}
	var o *client.Multidraw
	if err := until(ctx, func() (bool, error) {
		if o, err = a.api.GetMultidraw(ctx, c.resumed); err != nil {
			return false, err
		}
		show(float64(o.CompletedCount)/float64(demoDraws), fmt.Sprintf("%d of %d", o.CompletedCount, demoDraws))
		return o.Status != client.MultidrawStatusRunning, nil
	}); err != nil {
		return err
	}
	c.digest, err = unbroken(ctx, o)
	return err
}

// unbroken makes all draws of an operation again, in one run, and returns the digest of their bytes.
func unbroken(ctx context.Context, o *client.Multidraw) (string, error) {
	seed, err := fairdraw.ParseSeed(o.Seed)
	if err != nil {
		return "", err
	}
	draws, err := multidraw.New(seed, o.ID, multidraw.Spec{Range: &multidraw.Range{Min: 1, Max: demoFaces}})
	if err != nil {
		return "", err
	}
	state, err := multidraw.NewState(draws, demoDraws, multidraw.EveryFor(demoDraws))
	if err != nil {
		return "", err
	}
	bytes := sha256.New()
	_, err = multidraw.Run(ctx, draws, state, func(_ context.Context, c multidraw.Chunk) error {
		_, err := bytes.Write(c.Saved)
		return err
	})
	return hex.EncodeToString(bytes.Sum(nil)), err
}
