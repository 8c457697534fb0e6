package localpg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// dialTimeout bounds the look whether somebody listens on a socket, which on one machine is a matter of microseconds.
const dialTimeout = 2 * time.Second

// state is what a running instance leaves in its directory for others to find
// it. The URL itself isn't kept, so that its form can change.
type state struct {
	SocketDir string `json:"socket_dir"`
}

func readState(l layout) (state, error) {
	raw, err := os.ReadFile(l.state())
	if err != nil {
		return state{}, err
	}
	var s state
	if err := json.Unmarshal(raw, &s); err != nil {
		return state{}, fmt.Errorf("%s: %w", l.state(), err)
	}
	if !filepath.IsAbs(s.SocketDir) {
		return state{}, fmt.Errorf("%s: socket_dir %q is not an absolute path", l.state(), s.SocketDir)
	}
	return s, nil
}

// writeState replaces the file by a rename, so that a reader never sees half.
func writeState(l layout, s state) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	tmp := l.state() + ".new"
	if err := os.WriteFile(tmp, append(raw, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, l.state())
}

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
		return "", fmt.Errorf("find the private PostgreSQL of %s: %w", dir, err)
	}
	s, err := readState(layout{dir: abs})
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w in %s: start the server with --data %s first", ErrNotRunning, abs, dir)
	}
	if err != nil {
		return "", fmt.Errorf("find the private PostgreSQL of %s: %w", abs, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socketPath(s.SocketDir))
	if err != nil {
		return "", fmt.Errorf("%w in %s: nobody listens on its socket: %w", ErrNotRunning, abs, err)
	}
	if err := conn.Close(); err != nil {
		return "", fmt.Errorf("find the private PostgreSQL of %s: %w", abs, err)
	}
	return databaseURL(s.SocketDir, databaseName), nil
}
