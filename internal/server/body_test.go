package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// TestBodiesCostWhatArrives declares a mebibyte and sends ten bytes, many times.
//
//nolint:paralleltest // It measures the whole process.
func TestBodiesCostWhatArrives(t *testing.T) {
	const times = 200
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", io.MultiReader(strings.NewReader("0123456789"), iotest.ErrReader(io.ErrUnexpectedEOF)))
		r.ContentLength = maxBody
		if _, err := readBody(httptest.NewRecorder(), r, maxBody); err == nil {
			t.Fatal("a body that was cut short was taken")
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / times; each > 64<<10 {
		t.Errorf("%d bytes are allocated for ten that arrive", each)
	}
}

// TestBodiesOfAllSizes reads bodies around the sizes at which buffers grow, with and without a declared length.
func TestBodiesOfAllSizes(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 511, 512, 4095, 4096, 4097, 8192, 100_000, maxBody - 1, maxBody, maxBody + 1, 2 * maxBody} {
		content := strings.Repeat("x", size)
		for _, length := range []int64{int64(size), -1} {
			for _, body := range []io.Reader{strings.NewReader(content), iotest.DataErrReader(strings.NewReader(content)), iotest.HalfReader(strings.NewReader(content))} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
				r.ContentLength = length
				got, err := readBody(httptest.NewRecorder(), r, maxBody)
				if large := size > maxBody; large != (err != nil) || !large && string(got) != content {
					t.Errorf("%d bytes, declared as %d: %d were read, %v", size, length, len(got), err)
				}
				if err != nil && problemOf(err, "").Code != payloadTooLarge.Code {
					t.Errorf("%d bytes, declared as %d: %v", size, length, err)
				}
			}
		}
	}
}

// TestClientsThatOnlySendAreAnswered sends twice what is read, from clients that read the answer only after they have sent all.
func TestClientsThatOnlySendAreAnswered(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for path, most := range map[string]int{"/v1/transfers": maxBody, "/v1/accounts": maxBody, "/v1/commands": maxBatch} {
		content := strings.Repeat(" ", 2*most)
		for _, framed := range [][2]string{
			{fmt.Sprintf("Content-Length: %d", len(content)), content},
			{"Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(content), content)},
		} {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(e.url, "http://"))
			must(t, err)
			must(t, conn.SetDeadline(time.Now().Add(patience)))
			_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nIdempotency-Key: large\r\n%s\r\n\r\n%s", path, e.as, framed[0], framed[1])
			if err != nil {
				t.Errorf("%s, %s: the client could not send what it had: %v", path, framed[0], err)
			}
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("%s, %s: %v", path, framed[0], err)
			}
			if response.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s, %s: %d", path, framed[0], response.StatusCode)
			}
			must(t, errors.Join(response.Body.Close(), conn.Close()))
		}
	}
}

// TestSignInReadsLittle sends to the one route that reads before it knows who asks what it should not wait for.
func TestSignInReadsLittle(t *testing.T) {
	t.Parallel()
	e, _ := newConsoleEnv(t)
	long := `{"key":"` + strings.Repeat("k", 4<<10) + `"}`
	if r := e.browse(http.MethodPost, sessionPath, long); r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("%d bytes: %d", len(long), r.StatusCode)
	}
	for _, head := range []string{"Content-Length: 1048576", "Content-Length: 20", "Transfer-Encoding: chunked"} {
		t.Run(head, func(t *testing.T) {
			t.Parallel()
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(e.url, "http://"))
			must(t, err)
			defer func() { _ = conn.Close() }()
			must(t, conn.SetDeadline(time.Now().Add(patience)))
			_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n\r\n", sessionPath, head)
			must(t, err)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("a body that does not come is waited for: %v", err)
			}
			must(t, response.Body.Close())
			if s := response.StatusCode; s != http.StatusBadRequest && s != http.StatusRequestEntityTooLarge && s != http.StatusRequestTimeout {
				t.Errorf("%d", s)
			}
		})
	}
}
