// Package redisclient is what the packages of this module that keep state in Redis need of a Redis client: lock/redislock,
// checkpoint/redisstore and idempotency/redisstore take a [Client].
//
// Wrap the client that your program has: rueidisclient.New takes one of rueidis, goredisclient.New one of go-redis. A program
// imports only the adapter that it uses. To write an adapter for another library, implement [Client] and run the suite of package
// clienttest on it.
package redisclient

import (
	"context"
	"errors"
	"strings"
)

// Client is a client of one Redis server, or of a cluster. It is safe for concurrent use, and its owner closes it.
//
// Where a method returns an error that is neither a [*ServerError] nor [ErrClosed], the server may have executed the command or not.
// Therefore no method but Get sends a command a second time after the first may have reached the server: whoever asks knows best
// what a repetition would do. A cluster's redirections are followed, since a redirected command was not executed.
//
// A method does nothing under a context that has ended. It returns when its context's deadline is over, or a few seconds later if
// the client library has timeouts of its own instead. It may notice only then that its context was cancelled.
type Client interface {
	// Eval runs a Lua script, and EvalSHA the one that the server remembers by this digest. A reply is nil, an int64, a string or
	// a []any of replies. In a cluster all keys are in one slot. When the server does not remember the script, EvalSHA returns
	// a [*ServerError] with the code NOSCRIPT.
	Eval(ctx context.Context, script string, keys, args []string) (any, error)
	EvalSHA(ctx context.Context, sha1 string, keys, args []string) (any, error)
	// Get returns a string's value, which the caller may keep but not change.
	Get(ctx context.Context, key string) (value []byte, found bool, err error)
	// Del deletes a key, if it is there.
	Del(ctx context.Context, key string) error
	// HDel deletes a field of a hash, and reports whether it was there.
	HDel(ctx context.Context, key, field string) (deleted bool, err error)
	// Subscribe listens to a channel, on a connection that serves nothing else, until ctx ends or the connection fails. It calls
	// subscribed when the server has confirmed the subscription, and message with each message, from one goroutine. It does not
	// connect again: messages may be lost then, and the caller has to know. It always returns an error.
	Subscribe(ctx context.Context, channel string, subscribed func(), message func(text string)) error
	// ConfigGet returns the settings whose names match the patterns, of each server by its address.
	ConfigGet(ctx context.Context, patterns ...string) (map[string]map[string]string, error)
}

// ErrClosed is returned when the client was closed by its owner.
var ErrClosed = errors.New("the Redis client is closed")

// ServerError is an error that the server answered. Err is the one of the client library.
type ServerError struct{ Err error }

func (e *ServerError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the client library.
func (e *ServerError) Unwrap() error { return e.Err }

// Code is the error's first word, such as NOSCRIPT or OOM.
func (e *ServerError) Code() string {
	code, _, _ := strings.Cut(strings.TrimPrefix(e.Error(), "ERR "), " ")
	return code
}
