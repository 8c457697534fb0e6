package leanhttp

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

const plain = "POST /v1/auctions/0198c4f0-3b6e-7e2a-9c55-5b0f1c2d3e4f/bids HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: Go-http-client/1.1\r\n" +
	"Content-Length: 29\r\nAuthorization: Bearer fl_service_abc\r\nContent-Type: application/json\r\nidempotency-key: \t k-1 \r\nAccept-Encoding: gzip\r\n\r\n" +
	`{"account":"ann","amount":12}`

func TestParseHead(t *testing.T) {
	t.Parallel()
	h, ok := parseHead([]byte(plain+"POST /next"), http.Header{})
	if !ok || h.size+h.length != len(plain) || h.path != "/v1/auctions/0198c4f0-3b6e-7e2a-9c55-5b0f1c2d3e4f/bids" || h.host != "localhost:8080" {
		t.Fatalf("%+v, %v", h, ok)
	}
	want := http.Header{
		"User-Agent": {"Go-http-client/1.1"}, "Content-Length": {"29"}, "Authorization": {"Bearer fl_service_abc"},
		"Content-Type": {"application/json"}, "Idempotency-Key": {"k-1"}, "Accept-Encoding": {"gzip"},
	}
	if !reflect.DeepEqual(h.header, want) {
		t.Errorf("%v", h.header)
	}
	// A header that comes twice keeps both values, and its neighbours theirs.
	h, ok = parseHead([]byte("POST / HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\na: 3\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n"), http.Header{})
	if want := (http.Header{"A": {"1", "3"}, "B": {"2"}, "Content-Length": {"0"}, "Connection": {"Keep-Alive"}}); !ok || !reflect.DeepEqual(h.header, want) {
		t.Errorf("%v, %v", h.header, ok)
	}
}

// unsure are heads that are left to net/http, whether it takes them or not.
var unsure = map[string]string{
	"another method":             "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
	"a method in lower case":     "post / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
	"no end":                     "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n",
	"nothing":                    "",
	"an older version":           "POST / HTTP/1.0\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
	"no version":                 "POST /\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
	"two spaces":                 "POST /  HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
	"an absolute target":         "POST http://h/ HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
	"a query":                    "POST /?a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
	"an escaped path":            "POST /%41 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
	"no host":                    "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
	"an empty host":              "POST / HTTP/1.1\r\nHost:\r\nContent-Length: 0\r\n\r\n",
	"two hosts":                  "POST / HTTP/1.1\r\nHost: h\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
	"a host with a path":         "POST / HTTP/1.1\r\nHost: h/x\r\nContent-Length: 0\r\n\r\n",
	"no length":                  "POST / HTTP/1.1\r\nHost: h\r\n\r\n",
	"two lengths":                "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\ncontent-length: 0\r\n\r\n",
	"a list of lengths":          "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0, 0\r\n\r\n",
	"a length with a sign":       "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n",
	"an empty length":            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: \r\n\r\n",
	"a length of eight digits":   "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 00000001\r\n\r\n",
	"chunks":                     "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"chunks and a length":        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"an expectation":             "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n",
	"an upgrade":                 "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nUpgrade: h2c\r\n\r\n",
	"the last of its connection": "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	"trailers":                   "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTrailer: X\r\n\r\n",
	"a space after a name":       "POST / HTTP/1.1\r\nHost: h\r\nContent-Length : 0\r\n\r\n",
	"a folded line":              "POST / HTTP/1.1\r\nHost: h\r\nA: 1\r\n 2\r\nContent-Length: 0\r\n\r\n",
	"a line without a colon":     "POST / HTTP/1.1\r\nHost: h\r\nA\r\nContent-Length: 0\r\n\r\n",
	"a line without a name":      "POST / HTTP/1.1\r\nHost: h\r\n: 1\r\nContent-Length: 0\r\n\r\n",
	"a bare line feed":           "POST / HTTP/1.1\r\nHost: h\nA: 1\r\nContent-Length: 0\r\n\r\n",
	"a bare carriage return":     "POST / HTTP/1.1\r\nHost: h\r\nA: 1\r2\r\nContent-Length: 0\r\n\r\n",
	"a zero byte":                "POST / HTTP/1.1\r\nHost: h\r\nA: \x00\r\nContent-Length: 0\r\n\r\n",
	"another script":             "POST / HTTP/1.1\r\nHost: h\r\nA: ä\r\nContent-Length: 0\r\n\r\n",
	"an empty line first":        "\r\nPOST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
	"the preface of HTTP/2":      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}

func TestParseHeadLeavesWhatItIsNotSureOf(t *testing.T) {
	t.Parallel()
	for name, b := range unsure {
		if h, ok := parseHead([]byte(b), http.Header{}); ok {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

// FuzzParseHead wants that what is accepted has the meaning that net/http finds in it, to the last byte of its body.
func FuzzParseHead(f *testing.F) {
	f.Add([]byte(plain))
	for _, b := range unsure {
		f.Add([]byte(b))
		f.Add([]byte(strings.Replace(b, "h\r\n", "h\r\nX-Request-Id: 7\r\n", 1)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := parseHead(b, http.Header{})
		if !ok {
			return
		}
		// As much body as was said, so that net/http finds it whole.
		whole := append(bytes.Clone(b[:h.size]), bytes.Repeat([]byte{'x'}, h.length+1)...)
		rest := bufio.NewReader(bytes.NewReader(whole))
		r, err := http.ReadRequest(rest)
		if err != nil {
			t.Fatalf("net/http refuses %q: %v", b[:h.size], err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) != h.length || rest.Buffered() != 1 && h.length < 4000 {
			t.Errorf("%q: body of %d bytes, %d left, %v", b[:h.size], len(body), rest.Buffered(), err)
		}
		if r.Method != http.MethodPost || r.URL.Path != h.path || r.RequestURI != h.path || r.URL.RawQuery != "" || r.Host != h.host ||
			r.ContentLength != int64(h.length) || r.Close || r.Proto != "HTTP/1.1" || !reflect.DeepEqual(r.Header, h.header) {
			t.Errorf("%q:\n%+v\n%+v", b[:h.size], h, r)
		}
	})
}
