package leanhttp

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// maxLengthDigits bounds a Content-Length that is looked at. Anything near it is larger than the buffer.
const maxLengthDigits = 7

// head is what comes before the body of a plain request.
type head struct {
	path   string
	host   string
	header http.Header // with canonical names, without Host, as a handler of net/http gets it
	size   int         // bytes of the head, with its empty line
	length int         // bytes of the body
}

const endOfHead = "\r\n\r\n"

// parseHead reads the head of a plain request at the start of b. It refuses whatever it isn't sure of: what it accepts,
// [http.ReadRequest] accepts with the same meaning (RFC 9112 §2 to §6). The head has header, which is empty.
func parseHead(b []byte, header http.Header) (h head, ok bool) {
	if !bytes.HasPrefix(b, []byte("POST /")) {
		return h, false
	}
	end := bytes.Index(b, []byte(endOfHead))
	if end < 0 {
		return h, false
	}
	h.size = end + len(endOfHead)
	// One string for all names and values, which may outlive the buffer.
	text := string(b[len("POST ") : end+len("\r\n")])
	line, text, _ := strings.Cut(text, "\r\n")
	h.path, ok = strings.CutSuffix(line, " HTTP/1.1")
	if !ok || !all(h.path, inPath) {
		return h, false
	}
	h.header, h.length = header, -1
	values := make([]string, 0, 8)
	for text != "" {
		line, text, _ = strings.Cut(text, "\r\n")
		name, value, found := strings.Cut(line, ":")
		value = trim(value)
		if !found || name == "" || !all(name, inName) || !all(value, inValue) {
			return h, false
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		switch name {
		case "Host":
			if h.host != "" || value == "" || !all(value, inHost) {
				return h, false
			}
			h.host = value
			continue
		case "Content-Length":
			if h.length >= 0 || value == "" || len(value) > maxLengthDigits || !all(value, inLength) {
				return h, false
			}
			h.length, _ = strconv.Atoi(value) // It has few digits and nothing else.
		case "Connection":
			if !strings.EqualFold(value, "keep-alive") {
				return h, false
			}
		case "Expect", "Pragma", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
			return h, false
		}
		if before := h.header[name]; before != nil {
			h.header[name] = append(before, value)
			continue
		}
		values = append(values, value)
		// Each has room for its own value alone, so that appending to one does not write over the next.
		h.header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	return h, h.host != "" && h.length >= 0
}

// trim removes spaces and tabs at both ends, without the table that [strings.Trim] makes for each value.
func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// class is a set of the places where a byte may stand.
type class uint8

const (
	inName   class = 1 << iota // RFC 9110 §5.6.2, token
	inValue                    // visible ASCII, space and tab
	inPath                     // the segments of a path that need no decoding
	inHost                     // names and addresses, with a port
	inLength                   // decimal digits
)

//nolint:gochecknoglobals // A table, which nobody writes to.
var classes = func() (t [256]class) {
	set := func(of string, in class) {
		for _, b := range []byte(of) {
			t[b] |= in
		}
	}
	const digits, letters = "0123456789", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	set(digits, inName|inPath|inHost|inLength)
	set(letters, inName|inPath|inHost)
	set("!#$%&'*+-.^_`|~", inName)
	set("/-._~", inPath)
	set(".:-[]", inHost)
	for b := byte(' '); b <= '~'; b++ {
		t[b] |= inValue
	}
	t['\t'] |= inValue
	return t
}()

func all(s string, in class) bool {
	for i := range len(s) {
		if classes[s[i]]&in == 0 {
			return false
		}
	}
	return true
}
