package leanhttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// response gathers an answer, which goes out in one piece when its handler has returned. Unlike that of net/http, it says
// the body's length itself, and sends neither trailers nor informational answers.
type response struct {
	header http.Header
	status int
	body   []byte
}

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
}

func (w *response) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	w.body = append(w.body, b...)
	return len(b), nil
}

func (w *response) reset() {
	clear(w.header)
	w.status, w.body = 0, w.body[:0]
}

// wantsClose reports whether the handler asked for the connection's end.
func (w *response) wantsClose() bool {
	for _, v := range w.header["Connection"] {
		if strings.EqualFold(v, "close") {
			return true
		}
	}
	return false
}

// appendTo appends the whole answer to b. now is the Date of an answer that has none of its own.
func (w *response) appendTo(b []byte, now time.Time, last bool) []byte {
	w.WriteHeader(http.StatusOK)
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(w.status), 10)
	b = append(append(append(b, ' '), http.StatusText(w.status)...), "\r\n"...)
	for name, values := range w.header {
		if name == "Content-Length" || name == "Connection" || name == "" || !all(name, inName) {
			continue
		}
		for _, value := range values {
			b = append(append(b, name...), ": "...)
			b = append(appendValue(b, value), "\r\n"...)
		}
	}
	if bodyAllowed(w.status) {
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, int64(len(w.body)), 10), "\r\n"...)
	}
	if last {
		b = append(b, "Connection: close\r\n"...)
	}
	if w.header["Date"] == nil {
		b = append(now.UTC().AppendFormat(append(b, "Date: "...), http.TimeFormat), "\r\n"...)
	}
	return append(append(b, "\r\n"...), w.body...)
}

// appendValue appends a header's value. A handler that puts a line's end into one must not get to say another header.
func appendValue(b []byte, value string) []byte {
	start := len(b)
	b = append(b, strings.TrimSpace(value)...)
	for i, c := range b[start:] {
		if c == '\r' || c == '\n' {
			b[start+i] = ' '
		}
	}
	return b
}

func bodyAllowed(status int) bool {
	return status >= http.StatusOK && status != http.StatusNoContent && status != http.StatusNotModified
}
