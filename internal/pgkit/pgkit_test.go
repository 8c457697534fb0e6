package pgkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestWaitsBetweenRunsGrowAndAreBounded(t *testing.T) {
	t.Parallel()
	wait, usual := waits(), firstBackoff
	for n := range 20 {
		if got := wait.NextBackOff(); got < usual/2 || got > usual*3/2 {
			t.Errorf("wait %d is %v, want %v by half more or less", n, got, usual)
		}
		usual = min(2*usual, MaxBackoff)
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	pg := func(code string) error { return fmt.Errorf("outer: %w", &pgconn.PgError{Code: code}) }
	for _, c := range []struct {
		err    error
		want   Verdict
		reason string
	}{
		{pg("40001"), Conflict, "40001"},
		{pg("40P01"), Conflict, "40P01"},
		{pg("55P03"), Conflict, "55P03"},
		{pg("23505"), Conflict, "23505"},
		{pg("25P03"), Conflict, "25P03"},
		{pg("57014"), Conflict, "57014"},
		{fmt.Errorf("x: %w", ErrStale), Conflict, "stale"},
		{pg("57P01"), Lost, "57P01"},
		{pg("57P02"), Lost, "57P02"},
		{pg("57P03"), Lost, "57P03"},
		{pg("08006"), Lost, "08006"},
		{pg("53300"), Lost, "53300"},
		{pg("53100"), Lost, "53100"},
		{pg("58030"), Lost, "58030"},
		{pg("25006"), Lost, "25006"},
		{pg("40003"), Lost, "40003"},
		{&pgconn.PgError{Code: "55000", Routine: "HandleParallelMessages"}, Lost, "55000"},
		{&pgconn.PgError{Code: "55000", Routine: "PrepareTransaction"}, Final, "55000"},
		{io.EOF, Lost, "connection"},
		{fmt.Errorf("x: %w", io.ErrUnexpectedEOF), Lost, "connection"},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, Lost, "connection"},
		{net.ErrClosed, Lost, "connection"},
		{context.DeadlineExceeded, Lost, "connection"},
		{pg("42501"), Denied, "42501"},
		{pg("23514"), Final, "23514"},
		{pg("42601"), Final, "42601"},
		{errors.New("another"), Final, "other"},
		{context.Canceled, Final, "other"},
	} {
		if got, reason := Classify(c.err); got != c.want || reason != c.reason {
			t.Errorf("%v is %v %q, want %v %q", c.err, got, reason, c.want, c.reason)
		}
	}
	if got, _ := Classify(pg(LockTimeout), LockTimeout); got != Final {
		t.Errorf("an exception is %v", got)
	}
}

// TestOutages goes through the times of an outage.
func TestOutages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, goThroughOutages)
}

func goThroughOutages(t *testing.T) {
	p := NewPresence(10*time.Second, nil)
	defer p.Close()
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	left := func(at time.Time) time.Duration { return time.Until(at).Round(time.Second) }
	if p.Hopeless() {
		t.Error("nothing was missed")
	}
	if d := left(p.Missed(ago(0))); d != 9*time.Second || p.Hopeless() {
		t.Errorf("it is waited for during %s", d)
	}
	if d := left(p.Missed(ago(4 * time.Second))); d != 5*time.Second {
		t.Errorf("who has missed it for longer waits for %s", d)
	}
	p.since = ago(5 * time.Second)
	if d := left(p.Missed(ago(0))); d != 4*time.Second || p.Hopeless() {
		t.Errorf("who comes later waits for %s", d)
	}
	p.since = ago(9500 * time.Millisecond)
	if d := left(p.Missed(ago(0))); d > 0 || !p.Hopeless() {
		t.Errorf("what has queued waits for %s", d)
	}
	p.since = ago(11 * time.Second)
	if p.Hopeless() {
		t.Error("the outage never ends")
	}
	if d := left(p.Missed(ago(0))); d != 9*time.Second {
		t.Errorf("the next outage is waited for during %s", d)
	}
	p.since = ago(9500 * time.Millisecond)
	if p.Heard(); p.Hopeless() {
		t.Error("it is there")
	}
}
