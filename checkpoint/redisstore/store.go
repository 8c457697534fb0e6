package redisstore

import (
	"context"
	_ "embed" // The script is a file, so that an editor knows its language.
	"errors"
	"fmt"
	"strconv"
	"unsafe"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/rediskit"
	"github.com/fairlead-dev/fairlead/redisclient"
)

//go:embed scripts/save.lua
var saveScript string

// Store keeps states in Redis. It is safe for concurrent use.
type Store struct {
	client redisclient.Client
	save   *rediskit.Script
}

var _ checkpoint.Store = (*Store)(nil)

// New returns a store on the server or cluster of a client, which an adapter of package redisclient wraps. With
// rueidis.ClientOption.DisableRetry, a server that is down is reported within a second; otherwise that client's own retries come
// on top, some 5 s for each try.
func New(client redisclient.Client) *Store {
	return &Store{client: client, save: rediskit.NewScript(saveScript)}
}

// Load implements [checkpoint.Store].
func (s *Store) Load(ctx context.Context, key checkpoint.Key) (body []byte, err error) {
	err = checkpoint.Try(ctx, "load", key, passing, func(ctx context.Context) error {
		body, _, err = s.client.Get(ctx, key.String())
		if rediskit.Code(err) == "WRONGTYPE" {
			return &checkpoint.CorruptError{Key: key, Reason: "it is no string"}
		}
		return err
	})
	return body, err
}

// Save implements [checkpoint.Store].
func (s *Store) Save(ctx context.Context, key checkpoint.Key, save *checkpoint.Save) error {
	args := []string{
		strconv.FormatInt(save.Revision, 10), strconv.FormatInt(save.Revision-1, 10), strconv.FormatInt(save.Token, 10), save.Run,
		strconv.FormatInt(max(save.TTL.Milliseconds(), 1), 10), text(save.Body),
		text(save.Replaces),
	}
	return checkpoint.Try(ctx, "save", key, passing, func(ctx context.Context) error {
		answer, err := rediskit.Texts(s.save.Run(ctx, s.client, []string{key.String()}, args))
		if err != nil {
			return err
		}
		return verdict(key, save.Head, answer)
	})
}

// verdict reads what the script says.
func verdict(key checkpoint.Key, want checkpoint.Head, answer []string) error {
	switch {
	case len(answer) == 1 && answer[0] == "ok":
		return nil
	case len(answer) == 1 && answer[0] == "lost":
		return fmt.Errorf("redisstore: save %s: %w", key, checkpoint.ErrLost)
	case len(answer) == 1 && answer[0] == "corrupt":
		return &checkpoint.CorruptError{Key: key, Reason: "it has no head"}
	case len(answer) == 4 && answer[0] == "fenced":
		revision, err := strconv.ParseInt(answer[1], 10, 64)
		token, err2 := strconv.ParseInt(answer[2], 10, 64)
		if err := errors.Join(err, err2); err != nil {
			return &checkpoint.CorruptError{Key: key, Reason: "its head is out of range"}
		}
		return &checkpoint.FencedError{Key: key, Want: want, Seen: checkpoint.Head{Revision: revision, Token: token, Run: answer[3]}}
	}
	return fmt.Errorf("redisstore: the script answered %q", answer)
}

// Delete implements [checkpoint.Store].
func (s *Store) Delete(ctx context.Context, key checkpoint.Key) error {
	return checkpoint.Try(ctx, "delete", key, passing, func(ctx context.Context) error {
		return s.client.Del(ctx, key.String())
	})
}

// passing also reports that the server is short of memory, which may be for the moment.
func passing(err error) bool { return rediskit.Passing(err) || rediskit.Code(err) == "OOM" }

// text is a body of up to 10 MiB as an argument, without a copy: nobody changes it while it is saved.
func text(body []byte) string { return unsafe.String(unsafe.SliceData(body), len(body)) }
