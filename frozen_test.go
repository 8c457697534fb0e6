//go:build linux

package fairlead

import (
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestFrozenDatabase ends a server whose private PostgreSQL does not answer, while a command waits for it: the command is told that its
// outcome is not known, and the end is not an error. The next server recovers the database.
func TestFrozenDatabase(t *testing.T) {
	t.Parallel()
	o := Options{Data: t.TempDir(), Listen: "127.0.0.1:0", AdminKey: strings.Repeat("k", 32), DrainTimeout: time.Second, UnavailableAfter: time.Minute}
	_, url, stop, ended := running(t, o)
	c, err := client.New(url, o.AdminKey, client.WithRetry(client.Retry{Attempts: 1}))
	testwait.Must(t, err)
	open := func(c *client.Client, id string) error {
		_, err := c.CreateAccount(t.Context(), client.CreateAccountRequest{ID: id, Currency: "EUR"}, client.Key(id))
		return err
	}
	testwait.Must(t, open(c, "before"))

	postmaster, all := localpg.Processes(o.Data)
	if postmaster == 0 {
		t.Fatal("the private PostgreSQL does not run")
	}
	for _, pid := range all {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	waits := make(chan error, 1)
	go func() { waits <- open(c, "waits") }()
	// By when it says so, it has read what was sent before.
	testwait.Eventually(t, testwait.Patience, "the server is not ready", func() bool {
		resp, err := http.Get(url + "/readyz")
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	stop()
	if err := <-waits; client.CodeOf(err) != "outcome_unknown" && client.CodeOf(err) != "unavailable" {
		t.Errorf("the command that waits: %v", err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the end: %v", err)
		}
	case <-time.After(testwait.Patience):
		t.Fatal("the server does not end")
	}
	testwait.Eventually(t, testwait.Patience, "no process of PostgreSQL is left", func() bool {
		_, left := localpg.Processes(o.Data)
		return len(left) == 0
	})

	again, err := Open(t.Context(), o)
	testwait.Must(t, err)
	if err := open(again.Client(), "before"); client.CodeOf(err) != "account_exists" {
		t.Errorf("an account from before: %v", err)
	}
	if err := open(again.Client(), "waits"); err != nil && client.CodeOf(err) != "account_exists" {
		t.Error(err)
	}
	testwait.Check(t, again.Close(t.Context()))
}
