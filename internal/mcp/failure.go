package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead-dev/fairlead/client"
)

// failure is the error of a tool, as an agent reads it: one JSON document.
type failure struct {
	Code       string `json:"code"`   // the server's, or one of those below
	Detail     string `json:"detail"` // this occurrence
	Retryable  bool   `json:"retryable"`
	Outcome    string `json:"outcome"` // as the client has it
	WhatToDo   string `json:"what_to_do"`
	RetryAfter int64  `json:"retry_after_seconds,omitzero"`
	ID         string `json:"id,omitzero"`       // of the prepared command
	Transfer   string `json:"transfer,omitzero"` // as in [client.Problem]
}

// Codes of this package, beside those of docs/problems.md.
const (
	codeBadRequest = "bad_request"       // the same as the server's
	codeNoAnswer   = "no_answer"         // no answer came from the server
	codeNotJSON    = "unexpected_answer" // what answered was no Fairlead server
	codeUnknownID  = "prepared_unknown"  // this process has no command of that id
	codeChanged    = "prepared_changed"  // id and command do not belong together
	codeExpired    = "prepared_expired"  // it was not committed in time
	codeTooMany    = "too_many_prepared" // as many as are kept
)

func (f *failure) Error() string { return f.Code + ": " + f.Detail }

// result is the failure as the protocol has it. It is in the text alone: structured content must follow the schema of the success.
func (f *failure) result() *sdk.CallToolResult {
	text, err := json.Marshal(f)
	if err != nil {
		text = []byte(f.Error()) // Strings that are not UTF-8.
	}
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: string(text)}}}
}

// wrongArguments is returned when a tool was called with arguments that it can't take.
func wrongArguments(format string, values ...any) *failure {
	return &failure{
		Code: codeBadRequest, Detail: "the arguments are not as the tool's input schema has them: " + fmt.Sprintf(format, values...),
		Outcome: client.NotApplied, WhatToDo: "Correct the arguments and call again. Nothing was sent to the server.",
	}
}

// failureOf describes the error of a tool that reads.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	f := describe(err)
	f.Outcome = client.NotApplied // There was nothing to apply.
	switch {
	case f.WhatToDo != "":
	case f.Retryable:
		f.WhatToDo = "Nothing was changed. Call again" + f.later() + "."
	case f.Code == "not_found":
		f.WhatToDo = "Check the id. The tools named list_ and search find things. Another user's things are not found either."
	default:
		f.WhatToDo = "Nothing was changed. Correct what the detail names and call again."
	}
	return f
}

// failedCommit describes the error of a command that was sent under an id.
func failedCommit(id string, err error) *failure {
	f := describe(err)
	f.ID = id
	switch {
	case f.Outcome == client.Unknown:
		f.Retryable = true // Under this id, at any time.
		f.WhatToDo = "It may have been done. Call commit again with the same id" + f.later() + ": it can't be done twice, and you learn what became of it. Do not prepare it anew before."
	case f.Outcome == client.Applied:
		f.WhatToDo = "It was done. Do not commit or prepare it again."
	case f.Retryable:
		f.WhatToDo = "Nothing was done. Call commit again with the same id" + f.later() + "."
	case f.WhatToDo != "":
		f.WhatToDo = "Nothing was done. " + f.WhatToDo
	default:
		f.WhatToDo = "Nothing was done, and this id stays refused. Remove the reason, and prepare it anew if it is still wanted."
	}
	return f
}

// later says when to try again.
func (f *failure) later() string {
	if f.RetryAfter > 0 {
		return fmt.Sprintf(" after %d s", f.RetryAfter)
	}
	return " in a few seconds"
}

// describe reads what the client knows of an error.
func describe(err error) *failure {
	if p, ok := errors.AsType[*client.Problem](err); ok {
		f := &failure{
			Code: cmp.Or(p.Code, codeNotJSON), Detail: cmp.Or(p.Detail, p.Title, strings.TrimPrefix(p.Error(), "client: ")),
			Retryable: p.Retryable, Outcome: cmp.Or(p.Outcome, client.Unknown),
			RetryAfter: int64(math.Ceil(p.RetryAfter.Seconds())), Transfer: p.Transfer,
		}
		switch p.Status {
		case http.StatusUnauthorized:
			f.WhatToDo = "The server does not take the key that this process was started with. Tell the user: FAIRLEAD_KEY must be a key that is in force."
		case http.StatusForbidden:
			f.WhatToDo = "The key that this process was started with may not do this. Tell the user: it takes a key of another role."
		}
		return f
	}
	text := strings.TrimPrefix(err.Error(), "client: ")
	if _, ok := errors.AsType[*client.UnansweredError](err); ok {
		return &failure{Code: codeNoAnswer, Detail: text, Retryable: true, Outcome: client.Unknown}
	}
	// It can't be sent.
	return &failure{Code: codeNotJSON, Detail: text, Outcome: client.Unknown}
}
