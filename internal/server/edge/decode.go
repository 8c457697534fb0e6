package edge

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads one JSON object strictly: member names are matched exactly, unknown and duplicate members, trailing data
// and invalid UTF-8 are refused. An empty body is an empty object. Errors are refusals that name the member.
func Decode(body []byte, into any) error {
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if len(trimmed) == 0 {
		return nil
	}
	if trimmed[0] != '{' {
		return Refuse("the body must be a JSON object")
	}
	if err := json.Unmarshal(body, into, json.RejectUnknownMembers(true)); err != nil {
		return Refuse("%s", Describe(err))
	}
	return nil
}

// Describe says what is wrong with a JSON text, without the decoder's own wording, which names Go types.
func Describe(err error) string {
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

// Marshal encodes one of our own answer types, which cannot fail.
func Marshal(v any) []byte {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic("server: an answer could not be encoded: " + err.Error())
	}
	return b
}
