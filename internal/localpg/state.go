package localpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"path/filepath"
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
		return "", fmt.Errorf("find the private PostgreSQL of %s: %w", dir, err)
	}
	p, err := readPIDFile(layout{dir: abs})
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w in %s: start the server with --data %s first", ErrNotRunning, abs, dir)
	}
	if err != nil {
		return "", fmt.Errorf("find the private PostgreSQL of %s: %w", abs, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socketPath(p.socketDir))
	if err != nil {
		return "", fmt.Errorf("%w in %s: nobody listens on its socket: %w", ErrNotRunning, abs, err)
	}
	if err := conn.Close(); err != nil {
		return "", fmt.Errorf("find the private PostgreSQL of %s: %w", abs, err)
	}
	return databaseURL(p.socketDir, databaseName), nil
}
