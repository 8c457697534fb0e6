package load

import (
	"errors"
	"testing"
)

func TestParseResponse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in     string
		status int
		body   string
		size   int
		err    error
	}{
		"length":            {"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}", 201, "{}", 45, nil},
		"lower-case name":   {"HTTP/1.1 409 Conflict\r\ncontent-length:2\r\n\r\n{}", 409, "{}", 45, nil},
		"more than one":     {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc", 200, "a", 39, nil},
		"no content":        {"HTTP/1.1 204 No Content\r\nDate: x\r\n\r\n", 204, "", 36, nil},
		"chunks":            {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", 200, "abc", 69, nil},
		"incomplete head":   {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n", 0, "", 0, nil},
		"incomplete body":   {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", 0, "", 0, nil},
		"incomplete chunk":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab", 200, "", 0, nil},
		"missing last":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", 200, "", 0, nil},
		"empty":             {"", 0, "", 0, nil},
		"another protocol":  {"SSH-2.0-OpenSSH_9.2 some words\r\n\r\n", 0, "", 0, ErrMalformed},
		"no length":         {"HTTP/1.1 200 OK\r\nDate: x\r\n\r\nab", 0, "", 0, ErrMalformed},
		"negative length":   {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 0, "", 0, ErrMalformed},
		"bad status":        {"HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n", 0, "", 0, ErrMalformed},
		"bad chunk size":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n", 200, "", 0, ErrMalformed},
		"chunk without end": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n", 200, "", 0, ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, body, size, err := parseResponse([]byte(tc.in))
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if size != tc.size || (size > 0 && (status != tc.status || string(body) != tc.body)) {
				t.Fatalf("status %d, body %q, size %d; want %d, %q, %d", status, body, size, tc.status, tc.body, tc.size)
			}
		})
	}
}

func FuzzParseResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, body, size, err := parseResponse(b)
		if size < 0 || size > len(b) || len(body) > len(b) || (err != nil && size != 0) {
			t.Fatalf("size %d, body of %d, error %v, of %d bytes", size, len(body), err, len(b))
		}
	})
}
