package localpg

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// The words of the last line of postmaster.pid that matter here; the others are "starting" and "standby".
const (
	statusReady    = "ready"
	statusStopping = "stopping"
)

// pidFile is what postmaster.pid says. PostgreSQL writes its lines one by one
// while it starts, so that all but the first may be missing.
type pidFile struct {
	pid       int
	socketDir string // line 5
	status    string // line 8
}

// parsePIDFile reads the lines of postmaster.pid, whose order PostgreSQL documents in src/include/utils/pidfile.h.
func parsePIDFile(raw []byte) (pidFile, error) {
	lines := strings.Split(string(raw), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return pidFile{}, fmt.Errorf("postmaster.pid: first line is not a process id: %w", err)
	}
	// A standalone backend writes its id negated; it serves nobody.
	if pid < 0 {
		pid = -pid
	}
	if pid == 0 {
		return pidFile{}, fmt.Errorf("postmaster.pid: process id is zero")
	}
	p := pidFile{pid: pid}
	if len(lines) > 4 {
		p.socketDir = strings.TrimSpace(lines[4])
	}
	if len(lines) > 7 {
		p.status = strings.TrimSpace(lines[7])
	}
	return p, nil
}

func readPIDFile(l layout) (pidFile, error) {
	raw, err := os.ReadFile(l.pidFile())
	if err != nil {
		return pidFile{}, err
	}
	return parsePIDFile(raw)
}
