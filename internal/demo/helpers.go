package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// How all servers of the demo publish. A claim goes stale soon, so that a stranger needn't wait for what a dead worker has left.
const (
	demoPerTarget  = 4
	demoStaleAfter = 3 * time.Second
	demoSweepEvery = time.Second
)

// helpers is how many servers join the first one. On a database of the user's there is one, which needs few connections.
func (d *Demo) helpers() int {
	if d.DatabaseURL != "" {
		return 1
	}
	return 4
}

// helper is a server in a process of its own, so that it can be killed.
type helper struct {
	cmd    *exec.Cmd
	output bytes.Buffer // read it after exited
	exited chan struct{}
	api    *client.Client // tries once: a caller of a dead server decides for itself
}

// startHelpers starts them all at once. They are killed when ctx ends.
func (d *Demo) startHelpers(ctx context.Context) ([]*helper, error) {
	all := make([]*helper, d.helpers())
	group, starting := errgroup.WithContext(ctx)
	for i := range all {
		group.Go(func() (err error) {
			// One moves money to the branch: the more do, the more connections they need.
			all[i], err = d.startHelper(ctx, starting, filepath.Join(d.Data, fmt.Sprintf("helper-%d.addr", i)), i == len(all)-1)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		killAll(all)
		return nil, err
	}
	return all, nil
}

// ServeArgs is the command line of a further server. It writes its address to a file.
func ServeArgs(data, address string) []string {
	return []string{
		"serve", "--listen", "127.0.0.1:0", "--addr-file", address, "--data", data, "--database-connections", "4", "--allow-private-targets",
		"--publish-per-target", strconv.Itoa(demoPerTarget), "--claim-stale-after", demoStaleAfter.String(),
		"--claim-sweep-every", demoSweepEvery.String(), "--log-level", "error",
	}
}

func (d *Demo) startHelper(ctx, starting context.Context, address string, money bool) (*helper, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(address); err != nil {
		return nil, err
	}
	h := &helper{exited: make(chan struct{})}
	h.cmd = exec.CommandContext(ctx, binary, ServeArgs(d.Data, address)...)
	for _, v := range os.Environ() {
		// What a server of the user's is told is not for this one.
		if !strings.HasPrefix(v, "FAIRLEAD_") || strings.HasPrefix(v, adminKeyVariable+"=") {
			h.cmd.Env = append(h.cmd.Env, v)
		}
	}
	// Not in the arguments, which everybody on the machine can read.
	h.cmd.Env = append(h.cmd.Env, "FAIRLEAD_DATABASE_URL="+d.databases.url)
	if money && d.databases.branch != "" {
		h.cmd.Env = append(h.cmd.Env, "FAIRLEAD_LEDGER="+branchLedger+"="+d.databases.branch)
	}
	h.cmd.Stdout, h.cmd.Stderr = &h.output, &h.output
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = h.cmd.Wait() // It ends by being killed.
		close(h.exited)
	}()
	if err := h.awaitReady(starting, address, d.key, d.pool); err != nil {
		h.kill()
		return nil, errors.Join(err, errors.New(strings.TrimSpace(h.output.String())))
	}
	return h, nil
}

func (h *helper) awaitReady(ctx context.Context, address, key string, pool *http.Transport) error {
	for {
		if addr, err := os.ReadFile(address); err == nil && len(addr) > 0 {
			if h.api, err = client.New("http://"+strings.TrimSpace(string(addr)), key, client.WithHTTPClient(&http.Client{Transport: pool}),
				client.WithRetry(client.Retry{Attempts: 1})); err != nil {
				return err
			}
			if h.api.Ready(ctx) == nil {
				return nil
			}
		}
		select {
		case <-h.exited:
			return errors.New("a further server ended before it was ready")
		default:
		}
		if !wait.For(ctx, 10*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// kill ends the process at once, as kill -9 does.
func (h *helper) kill() {
	_ = h.cmd.Process.Kill() // It may have ended.
	<-h.exited
}

// killAll kills all of them before it waits for the first.
func killAll(all []*helper) {
	for _, h := range all {
		if h != nil {
			_ = h.cmd.Process.Kill()
		}
	}
	for _, h := range all {
		if h != nil {
			h.kill()
		}
	}
}
