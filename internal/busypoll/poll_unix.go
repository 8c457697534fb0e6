//go:build unix

package busypoll

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// poll looks for an answer until there is one or patience is over. It returns true, for [syscall.RawConn] not to wait.
func (c *conn) poll(fd uintptr) bool {
	for {
		n, err := syscall.Read(int(fd), c.into)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			if time.Now().After(c.until) {
				return true
			}
		case err != nil:
			c.found, c.n, c.err = true, 0, &net.OpError{
				Op: "read", Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("read", err),
			}
			return true
		case n == 0:
			c.found, c.n, c.err = true, 0, io.EOF
			return true
		default:
			c.found, c.n, c.err = true, n, nil
			return true
		}
	}
}
