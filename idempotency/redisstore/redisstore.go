package redisstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/rediskit"
	"github.com/fairlead-dev/fairlead/redisclient"
)

// DefaultPrefix begins the names of keys in Redis.
const DefaultPrefix = "fairlead:idempotency:"

// Options configure [New].
type Options struct {
	Prefix string // of names in Redis; "" means [DefaultPrefix]
}

// Store keeps keys in Redis. It is safe for concurrent use.
type Store struct {
	client  redisclient.Client
	prefix  string
	scripts scripts
}

var _ idempotency.Store = (*Store)(nil)

// New returns a store on the server or cluster of a client, which an adapter of package redisclient wraps. The client stays
// the caller's to close.
func New(client redisclient.Client, o Options) *Store {
	return &Store{client: client, prefix: cmp.Or(o.Prefix, DefaultPrefix), scripts: newScripts()}
}

// run runs a script on one key. The first word of its answer says what it is.
func (s *Store) run(ctx context.Context, script *rediskit.Script, id idempotency.ID, args ...string) (word string, rest []string, err error) {
	key := s.prefix + base64.RawURLEncoding.EncodeToString(id[:])
	answer, err := rediskit.Texts(script.Run(ctx, s.client, []string{key}, args))
	if err != nil {
		return "", nil, err
	}
	if len(answer) == 0 {
		return "", nil, rediskit.ErrReply
	}
	switch answer[0] {
	case "lost":
		return "", nil, idempotency.ErrLost
	case "reused":
		return "", nil, idempotency.ErrKeyReused
	}
	return answer[0], answer[1:], nil
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// Begin implements [idempotency.Store].
func (s *Store) Begin(ctx context.Context, r idempotency.Request, t idempotency.Terms) (idempotency.Entry, error) {
	if err := t.Validate(); err != nil {
		return idempotency.Entry{}, fmt.Errorf("redisstore: begin: %w", err)
	}
	park := "0"
	if t.OnCrash == idempotency.ParkAsUnknown {
		park = "1"
	}
	word, rest, err := s.run(ctx, s.scripts.begin, r.ID, string(r.Fingerprint[:]), r.Execution.String(), park, micros(t.Lease), micros(t.Retention))
	if err != nil {
		return idempotency.Entry{}, fmt.Errorf("redisstore: begin: %w", err)
	}
	if word != "started" || len(rest) != 1 {
		return entry(r.ID, word, rest)
	}
	fence, err := strconv.ParseInt(rest[0], 10, 64)
	if err != nil {
		return idempotency.Entry{}, fmt.Errorf("redisstore: begin: %w", err)
	}
	g := idempotency.Grant{ID: r.ID, Execution: r.Execution, Fence: fence}
	return idempotency.Entry{Phase: idempotency.Started, Grant: g, Fingerprint: r.Fingerprint}, nil
}

// Look implements [idempotency.Store].
func (s *Store) Look(ctx context.Context, id idempotency.ID) (idempotency.Entry, error) {
	word, rest, err := s.run(ctx, s.scripts.look, id)
	if err != nil {
		return idempotency.Entry{}, fmt.Errorf("redisstore: look: %w", err)
	}
	return entry(id, word, rest)
}

// entry reads what describe says.
func entry(id idempotency.ID, word string, rest []string) (e idempotency.Entry, err error) {
	phase, ok := map[string]idempotency.Phase{
		"absent": idempotency.Absent, "in_flight": idempotency.InFlight, "unknown": idempotency.Unknown, "answered": idempotency.Answered,
	}[word]
	if ok && phase == idempotency.Absent {
		return e, nil
	}
	if !ok || len(rest) != 7 || len(rest[0]) != len(e.Fingerprint) {
		return e, fmt.Errorf("redisstore: %w: %q", rediskit.ErrReply, word)
	}
	execution, err1 := uuid.Parse(rest[1])
	fence, err2 := strconv.ParseInt(rest[2], 10, 64)
	left, err3 := strconv.ParseInt(rest[3], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return e, fmt.Errorf("redisstore: %w: %w", rediskit.ErrReply, err)
	}
	e.Phase, e.Grant = phase, idempotency.Grant{ID: id, Execution: execution, Fence: fence}
	copy(e.Fingerprint[:], rest[0])
	switch phase {
	case idempotency.Answered:
		e.Response, err = response(rest[4:])
	case idempotency.InFlight:
		e.LeaseLeft = time.Duration(left) * time.Microsecond
	case idempotency.Absent, idempotency.Started, idempotency.Unknown:
	}
	return e, err
}

// response reads status, header and body.
func response(parts []string) (r idempotency.Response, err error) {
	if r.Status, err = strconv.Atoi(parts[0]); err != nil {
		return r, fmt.Errorf("redisstore: %w: %w", rediskit.ErrReply, err)
	}
	r.Body = []byte(parts[2])
	r.Header, err = idempotency.DecodeHeader(parts[1])
	return r, err
}

// change runs a script on an execution.
func (s *Store) change(ctx context.Context, what string, script *rediskit.Script, g idempotency.Grant, args ...string) (string, []string, error) {
	word, rest, err := s.run(ctx, script, g.ID, append([]string{g.Execution.String(), strconv.FormatInt(g.Fence, 10)}, args...)...)
	if err != nil {
		return "", nil, fmt.Errorf("redisstore: %s: %w", what, err)
	}
	return word, rest, nil
}

// Extend implements [idempotency.Store].
func (s *Store) Extend(ctx context.Context, g idempotency.Grant, lease time.Duration) error {
	_, _, err := s.change(ctx, "extend", s.scripts.extend, g, micros(lease))
	return err
}

// Complete implements [idempotency.Store].
func (s *Store) Complete(ctx context.Context, g idempotency.Grant, answer idempotency.Response) (idempotency.Response, error) {
	word, rest, err := s.change(ctx, "complete", s.scripts.complete, g, strconv.Itoa(answer.Status),
		idempotency.EncodeHeader(answer.Header), string(answer.Body))
	if err != nil || word != "kept" {
		return answer, err
	}
	if len(rest) != 3 {
		return idempotency.Response{}, fmt.Errorf("redisstore: complete: %w", rediskit.ErrReply)
	}
	return response(rest)
}

// Release implements [idempotency.Store].
func (s *Store) Release(ctx context.Context, g idempotency.Grant) error {
	_, _, err := s.change(ctx, "release", s.scripts.release, g)
	return err
}

// Sweep implements [idempotency.Store]. Redis expires keys by itself.
func (s *Store) Sweep(context.Context, int) (int, error) { return 0, nil }
