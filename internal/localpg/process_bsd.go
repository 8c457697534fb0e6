//go:build darwin || freebsd

package localpg

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// psTimeout bounds one look at the process table.
const psTimeout = 5 * time.Second

// alive says whether a process exists and hasn't exited; a zombie has.
func alive(pid int) bool {
	stat := ps(pid, "stat")
	return stat != "" && !strings.HasPrefix(stat, "Z")
}

// isPostmaster says whether a process is a PostgreSQL server on this cluster,
// and not one that merely got the same number. We start it with "-D dir".
func isPostmaster(pid int, dataDir string) bool {
	if !alive(pid) {
		return false
	}
	command := ps(pid, "command")
	return strings.Contains(command, "postgres") && strings.Contains(command, "-D "+dataDir)
}

// leftovers would list the processes of a dead server that still work on the cluster. Without /proc they can't be distinguished from
// others': they end by themselves once idle, and the start is retried until they have.
func leftovers(string) []int { return nil }

func ps(pid int, column string) string {
	ctx, cancel := context.WithTimeout(context.Background(), psTimeout)
	defer cancel()
	//nolint:gosec // The column is a constant of this file and the pid a number.
	out, err := exec.CommandContext(ctx, "ps", "-ww", "-o", column+"=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// namespace fails, so that PostgreSQL runs as another user.
func (identity) namespace(*syscall.SysProcAttr) error {
	return errors.New("this system has no user namespaces")
}

func tie(*syscall.SysProcAttr) {}
