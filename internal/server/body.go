package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxBody is the largest body that is read, in bytes.
const maxBody = 1 << 20

// readBody reads a body of at most so many bytes. The buffer grows with what arrives: a declared length is only a claim.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	tooLarge := r.ContentLength > most
	if !tooLarge {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
		if err == nil {
			return body, nil
		}
		_, tooLarge = errors.AsType[*http.MaxBytesError](err)
	}
	if tooLarge {
		return nil, &refusal{Kind: payloadTooLarge, Detail: fmt.Sprintf("the body has more than %d bytes", most)}
	}
	return nil, refuse("the body could not be read")
}
