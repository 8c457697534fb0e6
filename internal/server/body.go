package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// maxBody is the largest body that is read, in bytes.
const maxBody = 1 << 20

// firstRead is the largest buffer, in bytes, that is made for a body before any of it has arrived. Commands fit into it.
const firstRead = 4 << 10

// readBody reads a body of at most so many bytes. The buffer grows with what arrives: a declared length is only a claim.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	tooLarge := &refusal{Kind: payloadTooLarge, Detail: fmt.Sprintf("the body has more than %d bytes", most)}
	if r.ContentLength > most {
		return nil, tooLarge
	}
	from, length := r.Body, r.ContentLength
	if length < 0 {
		from, length = http.MaxBytesReader(w, r.Body, most), most+1
	}
	body := make([]byte, 0, min(length, firstRead))
	for int64(len(body)) < length {
		if len(body) == cap(body) {
			body = slices.Grow(body, len(body))
		}
		n, err := from.Read(body[len(body):min(int64(cap(body)), length)])
		body = body[:len(body)+n]
		if err == nil {
			continue
		}
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, tooLarge
		}
		if short := r.ContentLength >= 0 && int64(len(body)) < length; short || !errors.Is(err, io.EOF) {
			return nil, refuse("the body could not be read")
		}
		break
	}
	return body, nil
}
