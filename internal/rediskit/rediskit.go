// Package rediskit has what the packages that keep state in Redis share: scripts, and the reading of replies and errors.
package rediskit

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis calls scripts by it.
	"encoding/hex"
	"errors"

	"github.com/fairlead-dev/fairlead/redisclient"
)

// Script is a Lua script that is sent to a server once, and called by its digest then.
type Script struct{ text, digest string }

// NewScript returns a script.
func NewScript(text string) *Script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // As above.
	return &Script{text, hex.EncodeToString(sum[:])}
}

// Run runs the script, and sends its text if the server does not know it, as after a restart or SCRIPT FLUSH.
func (s *Script) Run(ctx context.Context, c redisclient.Client, keys, args []string) (any, error) {
	reply, err := c.EvalSHA(ctx, s.digest, keys, args)
	if Code(err) == "NOSCRIPT" {
		return c.Eval(ctx, s.text, keys, args)
	}
	return reply, err
}

// ErrReply is returned when a reply is not what its reader expects.
var ErrReply = errors.New("an answer that is not understood")

// Texts reads a reply that is a list of strings.
func Texts(reply any, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	list, ok := reply.([]any)
	if !ok {
		return nil, ErrReply
	}
	texts := make([]string, len(list))
	for i, v := range list {
		if texts[i], ok = v.(string); !ok {
			return nil, ErrReply
		}
	}
	return texts, nil
}

// Code is the code of an error that the server answered, and "" for other errors.
func Code(err error) string {
	if e, ok := errors.AsType[*redisclient.ServerError](err); ok {
		return e.Code()
	}
	return ""
}

// Passing reports errors that a later try may not meet: the server was not there, or not ready. It does not report answers that
// will stay wrong, nor the end of the client.
func Passing(err error) bool {
	switch Code(err) {
	case "":
		return !errors.Is(err, redisclient.ErrClosed) && !errors.Is(err, ErrReply)
	case "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "READONLY", "BUSY", "NOREPLICAS":
		return true
	}
	return false
}
