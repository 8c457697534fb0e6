package mcp

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead-dev/fairlead/client"
)

// committed is the answer of commit.
type committed struct {
	ID       string         `json:"id"`
	Summary  string         `json:"summary,omitzero" jsonschema:"what was done; absent when another process has prepared it"`
	Status   int            `json:"status" jsonschema:"of HTTP, from the server"`
	Repeated bool           `json:"repeated" jsonschema:"true: this id had been committed before. Nothing was done again, and this is the first answer"`
	Answer   jsontext.Value `json:"answer" jsonschema:"the server's document"`
}

// pending is a prepared command in a list.
type pending struct {
	ID        string    `json:"id"`
	Summary   string    `json:"summary,omitzero"`
	State     string    `json:"state" jsonschema:"prepared: not sent by this process. unanswered: sent, without a final answer yet: commit it again to learn what became of it"`
	ExpiresAt time.Time `json:"expires_at"`
	Command   command   `json:"command"`
}

// pendingList is the answer of list_prepared.
type pendingList struct {
	Items []pending `json:"items"`
	Left  int       `json:"left_out,omitzero" jsonschema:"how many more there are, which expire later"`
}

func (s *service) addCommit(b *builder) {
	yes, no := true, false
	add(b, tool{
		name: "commit", title: "Carry out a prepared command",
		about: "Carries out a command that a prepare_ tool has described, by its id. It has its effect once, however often it is called: a repeat returns the first answer with repeated true. " +
			"If the outcome is unknown, call it again with the same id. An id expires; give command as well, exactly as prepare returned it, if this server was restarted since. " +
			"A command that differs from the prepared one is refused.",
		annotations: sdk.ToolAnnotations{IdempotentHint: true, DestructiveHint: &yes, OpenWorldHint: &no},
		output:      output[committed](b),
	}, s.commit)
	add(b, tool{
		name: "list_prepared", title: "List prepared commands",
		about:       "Lists what was prepared and can still be committed: what was never sent, and what was sent and has no answer yet. It knows of this process's own only.",
		annotations: isReading(), output: output[pendingList](b),
	}, func(context.Context, struct{}) (any, error) {
		list := pendingList{Items: []pending{}}
		for i, r := range s.shelf.list(s.now()) {
			if i >= maxListed {
				list.Left++
				continue
			}
			list.Items = append(list.Items, pending{ID: r.id, Summary: r.summary, State: r.state, ExpiresAt: r.expires.UTC(), Command: r.command})
		}
		return list, nil
	})
}

type commitInput struct {
	ID      string   `json:"id" jsonschema:"the id that a prepare_ tool has returned"`
	Command *command `json:"command,omitzero" jsonschema:"the command as prepare returned it, unchanged. Needed only if this server was restarted since"`
}

// commit sends a prepared command under its id. It may be called any number of times, also at once: the server carries out the id once.
func (s *service) commit(ctx context.Context, in commitInput) (any, error) {
	r, err := s.recall(in)
	if err != nil {
		return nil, err
	}
	switch {
	case r.done != nil:
		repeated := *r.done
		repeated.Repeated = true
		return repeated, nil
	case r.refusal != nil:
		return nil, r.refusal
	}
	s.shelf.change(r.id, func(r *remembered) {
		if !r.ended() {
			r.state = stateUnanswered
		}
	})
	var answer client.Answer
	_, err = client.Call[jsontext.Value](ctx, s.client, http.MethodPost, r.command.Path, r.command.Body, client.Key(r.id), client.Into(&answer))
	if err != nil {
		f := failedCommit(r.id, err)
		s.shelf.change(r.id, func(r *remembered) { r.failed(f, answer.Status) })
		return nil, f
	}
	done := committed{ID: r.id, Summary: r.summary, Status: answer.Status, Repeated: answer.Replayed, Answer: answer.Body}
	s.shelf.change(r.id, func(r *remembered) { r.state, r.done = stateDone, &done })
	return done, nil
}

// failed notes the outcome of a commit that was no success. What the server has decided it answers for ever; what it did not decide
// may be sent again, and counts as sent, because an earlier or a simultaneous commit may not be answered yet.
func (r *remembered) failed(f *failure, status int) {
	if f.Outcome != client.NotApplied || f.Retryable || r.state == stateDone {
		return
	}
	switch status {
	case http.StatusPaymentRequired, http.StatusConflict, http.StatusGone, http.StatusUnprocessableEntity:
		r.state, r.refusal = stateRefused, f
	}
}

// recall finds the command of an id, in memory or in what was given with it, and refuses it when it may not be sent.
func (s *service) recall(in commitInput) (remembered, error) {
	expires, raw, ok := expiry(in.ID)
	if !ok {
		return remembered{}, &failure{
			Code: codeBadRequest, Detail: "this is no id of a prepared command", Outcome: client.NotApplied, ID: in.ID,
			WhatToDo: "Give the id exactly as a prepare_ tool has returned it.",
		}
	}
	now := s.now()
	r, known := s.shelf.get(in.ID)
	if in.Command != nil {
		c, refused := s.given(in, raw, known && r.state == statePrepared)
		if refused != nil {
			return remembered{}, refused
		}
		if !known {
			r = remembered{id: in.ID, command: c, expires: expires}
		}
	}
	wasSent := r.state == stateUnanswered
	switch {
	case r.ended(): // The answer is known, and is repeated.
	case now.After(expires) && (!wasSent || now.After(expires.Add(settleFor))):
		return remembered{}, s.tooLate(in.ID, expires, r.state)
	case known:
	case in.Command == nil:
		return remembered{}, &failure{
			Code: codeUnknownID, Detail: "this process does not know the id: it was started anew since", Outcome: client.Unknown, ID: in.ID, Retryable: true,
			WhatToDo: "Call commit again with the same id, and with command as the prepare_ tool has returned it. It can't be done twice.",
		}
	default:
		s.shelf.keep(r, now) // Without room it is sent all the same: the server knows its key.
	}
	return r, nil
}

// given reads the command that was given with an id, and refuses one that the id was not made for.
func (s *service) given(in commitInput, raw []byte, unsent bool) (command, *failure) {
	body, err := canonical(in.Command.Body)
	if err != nil {
		return command{}, wrongArguments("command.body: %v", err)
	}
	c := command{Path: in.Command.Path, Body: body}
	if !s.seal.fits(raw, c) {
		return command{}, s.changed(in.ID, unsent)
	}
	return c, nil
}

// changed refuses a command that its id was not made for.
func (s *service) changed(id string, unsent bool) *failure {
	f := &failure{
		Code: codeChanged, ID: id, Outcome: client.Unknown,
		Detail: "the command is not the one that this id was made for. It was changed, or it was prepared with another key or for another server. It was not sent. " +
			"Whether the command that the id was made for was carried out is another question.",
		WhatToDo: "Call commit with the id and the command exactly as the prepare_ tool has returned them. If something else is wanted, prepare that.",
	}
	if unsent {
		f.Outcome = client.NotApplied
		f.Detail = "the command is not the one that this id was made for: it was changed. Nothing was sent under this id."
	}
	return f
}

// tooLate refuses a command that has expired, by the state in which this process knows it, if it does.
func (s *service) tooLate(id string, at time.Time, state string) *failure {
	f := &failure{
		Code: codeExpired, ID: id, Outcome: client.Unknown,
		Detail:   "the command has expired: it could be committed until " + at.UTC().Format(timeFormat) + ". It was not sent now, and this process does not know whether it was carried out before.",
		WhatToDo: "If it was never committed, prepare it anew. Otherwise look first whether it was done, for instance in list_entries of the accounts.",
	}
	if state == statePrepared {
		f.Outcome = client.NotApplied
		f.Detail = "the command has expired: it could be committed until " + at.UTC().Format(timeFormat) + ". It was never sent."
		f.WhatToDo = "Prepare it anew if it is still wanted."
	}
	return f
}
