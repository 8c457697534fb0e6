//go:build unix

package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// TestLockOldestHold lets an owner hold a lock for ever, and another one wait for it.
func TestLockOldestHold(t *testing.T) {
	_, server, s := scene(t)
	s.breaks()
	var held thing
	server.posts(t, "/v1/locks", `{"keys":["report"],"owner":"gone","ttl":"10m"}`, &held)
	stop := load(t, 1, func(ctx context.Context) {
		status, _ := server.tries(ctx, http.MethodPost, "/v1/locks", `{"keys":["report"],"owner":"waiter","ttl":"1s","wait":"2m"}`)
		if status == http.StatusCreated {
			wait.For(ctx, 2*time.Second)
		}
	})
	s.fires("FairleadLockWaitTooLong")
	s.fires("FairleadLockOldestHold")
	section := sectionOf(t, "FairleadLockOldestHold")
	out := s.operator.runs(t, section, "curl -s -H")
	if !strings.Contains(out, held.ID) || !strings.Contains(out, `"gone"`) {
		t.Errorf("the runbook's query does not show the holder")
	}
	sectionOf(t, "FairleadLockWaitTooLong").says(t, "as above")
	s.operator.runs(t, section, "curl -s -X DELETE", "ID", held.ID)
	s.ends("FairleadLockOldestHold", "DELETE /v1/locks/{id}")
	s.ends("FairleadLockWaitTooLong", "likewise")
	stop()
}

// TestLockHeldTooLong has a program hold a lock for longer than the rule allows, and then for less time.
func TestLockHeldTooLong(t *testing.T) {
	_, server, s := scene(t)
	s.breaks()
	work := func(holds time.Duration) (stop func()) {
		return load(t, 1, func(ctx context.Context) {
			status, answer := server.tries(ctx, http.MethodPost, "/v1/locks", `{"keys":["slow"],"owner":"worker","ttl":"1m","wait":"20s"}`)
			if status == http.StatusCreated {
				wait.For(ctx, holds)
				_, _ = server.tries(context.Background(), http.MethodDelete, "/v1/locks/"+idOf(answer), "")
			}
		})
	}
	stop := work(2 * time.Second) // For a rule whose times are shortened, too.
	s.fires("FairleadLockHeldTooLong")
	section := sectionOf(t, "FairleadLockHeldTooLong")
	if out := s.operator.runs(t, section, "curl -s -H"); !strings.Contains(out, `"holders"`) {
		t.Errorf("the runbook's query shows no holders: %s", out)
	}
	section.says(t, "hold locks for less time")
	stop()
	stop = work(10 * time.Millisecond)
	s.ends("FairleadLockHeldTooLong", "the lock was held for less time")
	stop()
}

// TestLocksLost has programs take locks for a second and die.
func TestLocksLost(t *testing.T) {
	_, server, s := scene(t)
	s.breaks()
	ttl := "1s"
	work := func() (stop func()) {
		return load(t, 2, func(ctx context.Context) {
			// It is done after two seconds, which is too late.
			status, answer := server.tries(ctx, http.MethodPost, "/v1/locks", fmt.Sprintf(`{"keys":["lost"],"owner":"worker","ttl":%q,"wait":"10s"}`, ttl))
			if status == http.StatusCreated {
				wait.For(ctx, 2*time.Second)
				_, _ = server.tries(ctx, http.MethodDelete, "/v1/locks/"+idOf(answer), "")
			}
		})
	}
	stop := work()
	s.fires("FairleadLocksLost")
	sectionOf(t, "FairleadLocksLost").says(t, "longer TTLs")
	stop()
	ttl = "1m"
	stop = work()
	s.ends("FairleadLocksLost", "the work got a longer TTL")
	stop()
}

// TestDeadlocks has two owners take two keys in opposite orders.
func TestDeadlocks(t *testing.T) {
	_, server, s := scene(t)
	s.breaks()
	release := func(answer []byte) {
		_, _ = server.tries(context.Background(), http.MethodDelete, "/v1/locks/"+idOf(answer), "")
	}
	ready := make(chan struct{})
	one := func(first, second string) func(context.Context) {
		return func(ctx context.Context) {
			request := `{"keys":[%q],"owner":%q,"ttl":"1m","wait":"20s"}`
			_, a := server.tries(ctx, http.MethodPost, "/v1/locks", fmt.Sprintf(request, first, "owner-"+first))
			select { // Both have their first.
			case ready <- struct{}{}:
			case <-ready:
			case <-ctx.Done():
			}
			status, b := server.tries(ctx, http.MethodPost, "/v1/locks", fmt.Sprintf(request, second, "owner-"+first))
			if status == http.StatusCreated {
				release(b)
			}
			release(a)
		}
	}
	stopA, stopB := load(t, 1, one("left", "right")), load(t, 1, one("right", "left"))
	s.fires("FairleadDeadlocks")
	sectionOf(t, "FairleadDeadlocks").says(t, "request all their keys in one request")
	stopA()
	stopB()
	stop := load(t, 2, func(ctx context.Context) {
		if status, a := server.tries(ctx, http.MethodPost, "/v1/locks", `{"keys":["left","right"],"owner":"both","ttl":"1m","wait":"20s"}`); status == http.StatusCreated {
			release(a)
		}
	})
	s.ends("FairleadDeadlocks", "both keys were asked for in one request")
	stop()
}

// TestLocksContended has many want one key.
func TestLocksContended(t *testing.T) {
	_, server, s := scene(t)
	s.breaks()
	want := func(key func(ctx context.Context) string) (stop func()) {
		return load(t, 8, func(ctx context.Context) {
			status, answer := server.tries(ctx, http.MethodPost, "/v1/locks", fmt.Sprintf(`{"keys":[%q],"owner":"one","ttl":"1m","wait":"20s"}`, key(ctx)))
			if status == http.StatusCreated {
				wait.For(ctx, 20*time.Millisecond)
				_, _ = server.tries(context.Background(), http.MethodDelete, "/v1/locks/"+idOf(answer), "")
			}
		})
	}
	stop := want(func(context.Context) string { return "everything" })
	s.fires("FairleadLocksContended")
	sectionOf(t, "FairleadLocksContended").says(t, "finer keys")
	stop()
	stop = want(func(context.Context) string { return fmt.Sprintf("row-%d", time.Now().UnixNano()) })
	s.ends("FairleadLocksContended", "finer keys")
	stop()
}
