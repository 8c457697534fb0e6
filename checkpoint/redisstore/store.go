package redisstore

import (
	"context"
	_ "embed" // The script is a file, so that an editor knows its language.
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/checkpoint"
)

//go:embed scripts/save.lua
var saveScript string

// Store keeps states in Redis. It is safe for concurrent use.
type Store struct {
	client rueidis.Client
	save   *rueidis.Lua
}

var _ checkpoint.Store = (*Store)(nil)

// New returns a store on the client's server or cluster. The caller closes the client. With rueidis.ClientOption.DisableRetry,
// a server that is down is reported within a second; otherwise the client's own retries come on top, some 5 s for each try.
func New(client rueidis.Client) *Store {
	return &Store{client: client, save: rueidis.NewLuaScript(saveScript)}
}

// Load implements [checkpoint.Store].
func (s *Store) Load(ctx context.Context, key checkpoint.Key) (body []byte, err error) {
	err = checkpoint.Try(ctx, "load", key, passing, func(ctx context.Context) error {
		body, err = s.client.Do(ctx, s.client.B().Get().Key(key.String()).Build()).AsBytes()
		switch {
		case rueidis.IsRedisNil(err):
			body, err = nil, nil
		case wrongType(err):
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
		strconv.FormatInt(max(save.TTL.Milliseconds(), 1), 10), rueidis.BinaryString(save.Body),
	}
	return checkpoint.Try(ctx, "save", key, passing, func(ctx context.Context) error {
		answer, err := s.save.Exec(ctx, s.client, []string{key.String()}, args).AsStrSlice()
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
		return s.client.Do(ctx, s.client.B().Del().Key(key.String()).Build()).Error()
	})
}

// passing reports failures that a later try may not meet: all but the end of the client, and answers of the server to a
// command that will stay wrong.
func passing(err error) bool {
	if errors.Is(err, rueidis.ErrClosing) {
		return false
	}
	answer, refused := rueidis.IsRedisErr(err)
	if !refused {
		return true
	}
	if answer.IsLoading() || answer.IsTryAgain() || answer.IsClusterDown() {
		return true
	}
	// A server that has just become a replica, or is short of memory for the moment.
	for _, word := range []string{"READONLY", "MASTERDOWN", "OOM", "BUSY", "NOREPLICAS"} {
		if strings.HasPrefix(answer.Error(), word) {
			return true
		}
	}
	return false
}

func wrongType(err error) bool {
	answer, refused := rueidis.IsRedisErr(err)
	return refused && strings.HasPrefix(answer.Error(), "WRONGTYPE")
}
