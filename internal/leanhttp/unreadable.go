package leanhttp

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

// net/http writes the answer to a request that it can't read straight to the connection, in one write and in plain text, and has
// no hook for it. Such a write is known by the headers that follow its first line: answers of handlers have a Date besides.
const (
	refusalStart   = "HTTP/1.1 "
	refusalHeaders = "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
)

// A request with an Expect other than 100-continue is answered likewise, without a body, in one write of a head that has a Date.
// Handlers answer no 417, so such a head is known by its first line and its end.
const (
	expectationStart = " 417 Expectation Failed\r\n"
	expectationEnd   = "\r\nContent-Length: 0\r\n\r\n"
)

// refusalOf takes apart what net/http answers to a request that it can't read. The reason is empty where it gives none.
func refusalOf(written []byte) (status int, reason string, ok bool) {
	if rest, ok := bytes.CutPrefix(written, []byte("HTTP/1.")); ok && len(rest) > 0 && bytes.HasPrefix(rest[1:], []byte(expectationStart)) &&
		bytes.HasSuffix(rest, []byte(expectationEnd)) {
		return http.StatusExpectationFailed, "", true
	}
	if !bytes.HasPrefix(written, []byte(refusalStart)) {
		return 0, "", false
	}
	line, rest, _ := bytes.Cut(written[len(refusalStart):], []byte("\r\n"))
	if !bytes.HasPrefix(rest, []byte(refusalHeaders)) {
		return 0, "", false
	}
	code, text, _ := strings.Cut(string(line), " ")
	status, err := strconv.Atoi(code)
	_, reason, _ = strings.Cut(text, ": ")
	return status, reason, err == nil
}

// Write implements [net.Conn]. It puts the server's own answer in the place of net/http's to a request that can't be read.
func (c *begun) Write(b []byte) (int, error) {
	if answer := c.server.Unreadable; answer != nil && !c.framing.off.Load() {
		if status, reason, ok := refusalOf(b); ok {
			if _, err := c.TCPConn.Write(answer(status, reason)); err != nil {
				return 0, err //nolint:wrapcheck // As for Read.
			}
			return len(b), nil
		}
	}
	return c.TCPConn.Write(b) //nolint:wrapcheck // As for Read.
}
