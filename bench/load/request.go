package load

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// keyDigits is the length of an idempotency key: a random prefix of 8 hex digits for the template, 16 for the counter.
const keyDigits = 8 + 16

// Template is a POST request laid out once, whose fixed-width parts are overwritten for each request. It is for one
// goroutine.
type Template struct {
	bytes []byte
	keyAt int
	keys  uint64
}

// NewTemplate lays out a POST of body to path. The body's length can't change afterwards.
func NewTemplate(path, bearer, body string) *Template {
	var prefix [4]byte
	_, _ = rand.Read(prefix[:]) // It never fails.
	head := "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + bearer +
		"\r\nContent-Type: application/json\r\nIdempotency-Key: "
	t := &Template{keyAt: len(head)}
	t.bytes = fmt.Appendf(nil, "%s%s%016x\r\nContent-Length: %d\r\n\r\n%s",
		head, hex.EncodeToString(prefix[:]), 0, len(body), body)
	return t
}

// BodyOffset returns where the body begins in the bytes that Next returns.
func (t *Template) BodyOffset(body string) int { return len(t.bytes) - len(body) }

// Next gives the request a key of its own and returns its bytes, which the caller may patch and which are valid until
// the next call.
func (t *Template) Next() []byte {
	t.keys++
	PutHex(t.bytes[t.keyAt+8:t.keyAt+keyDigits], t.keys)
	return t.bytes
}

// PutHex writes v with leading zeros over all of b.
func PutHex(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = "0123456789abcdef"[v&15]
		v >>= 4
	}
}

// PutDecimal writes v with leading zeros over all of b.
func PutDecimal(b []byte, v int) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + v%10)
		v /= 10
	}
}
