package load

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// ErrMalformed is returned when a server's bytes are not an HTTP/1.1 answer that this package can read.
var ErrMalformed = errors.New("malformed answer")

// maxHeaderBytes bounds the head of an answer; both sides stay far below it.
const maxHeaderBytes = 16 << 10

// parseResponse reads one answer from the front of b. size is how many bytes it takes, 0 when more must be read first.
// The body aliases b, except a chunked one, which is copied together.
func parseResponse(b []byte) (status int, body []byte, size int, err error) {
	head := bytes.Index(b, []byte("\r\n\r\n"))
	if head < 0 {
		if len(b) > maxHeaderBytes {
			return 0, nil, 0, fmt.Errorf("%w: no end of the header", ErrMalformed)
		}
		return 0, nil, 0, nil
	}
	if head < 12 || !bytes.HasPrefix(b, []byte("HTTP/1.1 ")) {
		return 0, nil, 0, fmt.Errorf("%w: status line %q", ErrMalformed, b[:min(head, 64)])
	}
	status, err = strconv.Atoi(string(b[9:12]))
	if err != nil {
		return 0, nil, 0, fmt.Errorf("%w: status %q", ErrMalformed, b[9:12])
	}
	length, chunked := -1, false
	for lines := b[:head]; len(lines) > 0; {
		line, rest, _ := bytes.Cut(lines, []byte("\r\n"))
		lines = rest
		switch {
		case hasName(line, "content-length:"):
			length, err = strconv.Atoi(string(bytes.TrimSpace(line[len("content-length:"):])))
			if err != nil || length < 0 {
				return 0, nil, 0, fmt.Errorf("%w: %q", ErrMalformed, line)
			}
		case hasName(line, "transfer-encoding:"):
			chunked = true
		}
	}
	start := head + len("\r\n\r\n")
	switch {
	case chunked:
		body, size, err = parseChunks(b[start:])
		if size > 0 {
			size += start
		}
		return status, body, size, err
	case status == 204 || status == 304:
		return status, nil, start, nil
	case length < 0:
		return 0, nil, 0, fmt.Errorf("%w: neither length nor chunks", ErrMalformed)
	case len(b) < start+length:
		return 0, nil, 0, nil
	}
	return status, b[start : start+length], start + length, nil
}

// hasName tells whether a header line begins with a name given in lower case with its colon.
func hasName(line []byte, name string) bool {
	return len(line) >= len(name) && line[0]|0x20 == name[0] && bytes.EqualFold(line[:len(name)], []byte(name))
}

// parseChunks reads a chunked body without trailers; size is 0 while it is incomplete.
func parseChunks(b []byte) (body []byte, size int, err error) {
	for {
		line, rest, ok := bytes.Cut(b[size:], []byte("\r\n"))
		if !ok {
			return nil, 0, nil
		}
		digits, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseUint(string(digits), 16, 31)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: chunk size %q", ErrMalformed, line)
		}
		if len(rest) < int(n)+len("\r\n") {
			return nil, 0, nil
		}
		if !bytes.HasPrefix(rest[n:], []byte("\r\n")) {
			return nil, 0, fmt.Errorf("%w: chunk without its end", ErrMalformed)
		}
		body = append(body, rest[:n]...)
		size += len(line) + int(n) + 2*len("\r\n")
		if n == 0 {
			return body, size, nil
		}
	}
}
