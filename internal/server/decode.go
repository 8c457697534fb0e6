package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxBody is the largest body that is read, in bytes.
const maxBody = 1 << 20

// firstRead is the largest buffer, in bytes, that is made for a body before any of it has arrived. Commands fit into it.
const firstRead = 4 << 10

// refuse makes a 400 with a detail for a person.
func refuse(format string, args ...any) error {
	return &refusal{kind: badRequest, detail: fmt.Sprintf(format, args...)}
}

// readBody reads a body of at most maxBody bytes.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return readBodyUpTo(w, r, maxBody)
}

// readBodyUpTo reads a body of at most so many bytes. The buffer grows with what arrives: a declared length is only a claim.
func readBodyUpTo(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	tooLarge := &refusal{kind: payloadTooLarge, detail: fmt.Sprintf("the body has more than %d bytes", most)}
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

// decode reads one JSON object strictly: member names are matched exactly, unknown and duplicate members, trailing data
// and invalid UTF-8 are refused. An empty body is an empty object. Errors are refusals that name the member.
func decode(body []byte, into any) error {
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if len(trimmed) == 0 {
		return nil
	}
	if trimmed[0] != '{' {
		return refuse("the body must be a JSON object")
	}
	if err := json.Unmarshal(body, into, json.RejectUnknownMembers(true)); err != nil {
		return refuse("%s", describe(err))
	}
	return nil
}

// describe says what is wrong with a JSON text, without the decoder's own wording, which names Go types.
func describe(err error) string {
	var (
		semantic  *json.SemanticError
		syntactic *jsontext.SyntacticError
	)
	switch {
	case errors.Is(err, json.ErrUnknownName):
		if errors.As(err, &semantic) {
			return fmt.Sprintf("unknown member %s", semantic.JSONPointer)
		}
		return "unknown member"
	case errors.Is(err, jsontext.ErrDuplicateName):
		if errors.As(err, &syntactic) {
			return fmt.Sprintf("duplicate member %s", syntactic.JSONPointer)
		}
		return "duplicate member"
	case errors.As(err, &syntactic):
		return fmt.Sprintf("malformed JSON at byte %d", syntactic.ByteOffset)
	case errors.As(err, &semantic) && semantic.JSONPointer != "":
		return fmt.Sprintf("%s has the wrong type or is out of range", semantic.JSONPointer)
	}
	return "malformed JSON"
}
