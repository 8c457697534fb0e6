package localpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// dialTimeout bounds the look whether somebody listens on a socket, which on one machine is a matter of microseconds.
const dialTimeout = 2 * time.Second

// socketPath is where PostgreSQL puts its socket; the port is part of the name and always the default one.
func socketPath(dir string) string {
	return filepath.Join(dir, ".s.PGSQL.5432")
}

// databaseURL is the URL of one database reached through the socket in dir.
func databaseURL(socketDir, database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(roleName),
		Path:     "/" + database,
		RawQuery: url.Values{"host": {socketDir}}.Encode(),
	}
	return u.String()
}

// URLOf returns the URL of the PostgreSQL that a running server keeps in dir.
// It returns [ErrNotRunning] when there is none, or when it doesn't listen.
func URLOf(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	p, err := readPIDFile(layout{dir: abs})
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w in %s: start the server with --data %s first", ErrNotRunning, abs, dir)
	}
	if err != nil {
		return "", fmt.Errorf("find the private PostgreSQL of %s: %w", abs, err)
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(context.Background(), "unix", socketPath(p.socketDir))
	if err != nil {
		return "", fmt.Errorf("%w in %s: nobody listens on its socket: %w", ErrNotRunning, abs, err)
	}
	return databaseURL(p.socketDir, databaseName), conn.Close()
}

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
