package redislock

import (
	"context"
	"embed"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
)

//go:embed scripts
var sources embed.FS

// scripts are all that is ever run on the server, besides listening.
type scripts struct {
	acquire, check, leave, renew, release, poll, graph, holders, find, mark *rueidis.Lua
}

// source is the text of a script, or of a part of one.
func source(name string) string {
	text, err := sources.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // It was there when this was compiled.
	}
	return string(text)
}

// newScripts puts the scripts together from their parts. What comes before the common part is done in the usual case, and
// the rest is not run then.
func newScripts(read func(name string) string) *scripts {
	script := func(names ...string) *rueidis.Lua {
		var text strings.Builder
		for _, name := range names {
			text.WriteString(read(name))
		}
		return rueidis.NewLuaScript(text.String())
	}
	return &scripts{
		acquire: script("acquire_free", "tokens", "common", "acquire"),
		release: script("tokens", "common", "release"),
		check:   script("tokens", "common", "check"), leave: script("tokens", "common", "leave"), renew: script("tokens", "common", "renew"),
		poll: script("tokens", "common", "poll"), graph: script("tokens", "common", "graph"), mark: script("tokens", "common", "mark"),
		holders: script("tokens", "common", "holders"), find: script("tokens", "common", "find"),
	}
}

// Statuses of answers.
const (
	statusRefused = iota
	statusGranted
	statusInLine
	statusGone
	statusVictim
)

// What a request in line is to be looked at for.
const (
	lookCircle   = 1 // its owner may wait for itself
	lookOvertake = 2 // it may have the right to overtake
)

// answer is what the scripts that may grant return.
type answer struct {
	status int64
	grant  lock.Grant
	brief  bool // there is nothing but the token; the grant's rest is as it was asked for
	token  int64
	look   int64
	cycle  []string
}

// errAnswer is returned when a script's answer is not understood.
var errAnswer = errors.New("an answer that is not understood")

// answerWithin bounds one request to the server, which takes some microseconds. With a deadline the client makes a lone
// request on the caller's goroutine; without one it passes the request to another goroutine and the answer back, for good,
// which takes half as long again. The price: while a server does not answer, the end of ctx may go unnoticed until then.
const answerWithin = 3 * time.Second

// A grant is called by the id of its request and by its first key, which tells where it is kept.
func name(id, key string) string { return id + "/" + key }

// place is what a grant's name is made of; ok is false for what never was one.
func place(name string) (id, key string, ok bool) {
	id, key, _ = strings.Cut(name, "/")
	return id, key, id != "" && key != ""
}

// hash is what a key's hash is called.
func (b *Backend) hash(key string) string { return b.space + ":h:" + key }

// ask runs a script that may grant what is called so, once, and tells those that it woke.
func (b *Backend) ask(ctx context.Context, s *rueidis.Lua, id string, args ...string) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	start := time.Now()
	message, err := s.Exec(ctx, b.client, b.state, args).ToMessage()
	if err != nil {
		return a, err
	}
	if message.IsString() {
		a = answer{status: statusGranted, brief: true, grant: lock.Grant{ID: id, Start: start}}
		text, _ := message.ToString() // It is one.
		a.token, err = readToken(text)
		return a, err
	}
	parts, err := message.ToArray()
	if err != nil {
		return a, err
	}
	if len(parts) == 1 { // Nothing but a status.
		a.status, err = parts[0].AsInt64()
		return a, err
	}
	if len(parts) != 10 {
		return a, errAnswer
	}
	var n [4]int64 // status, end of lease, TTL, look
	for i, at := range []int{0, 2, 3, 6} {
		if n[i], err = parts[at].AsInt64(); err != nil {
			return a, err
		}
	}
	var text [3]string // owner, keys, cycle
	for i, at := range []int{4, 5, 8} {
		if text[i], err = parts[at].ToString(); err != nil {
			return a, err
		}
	}
	expired, err := parts[7].AsInt64()
	if err != nil {
		return a, err
	}
	woken, err := parts[9].AsStrSlice()
	if err != nil {
		return a, err
	}
	b.expired(expired)
	b.wake(woken)
	a.status, a.look, a.cycle = n[0], n[3], lines(text[2])
	if a.status == statusGranted {
		token, err := parts[1].ToString()
		if err != nil {
			return a, err
		}
		if a.token, err = readToken(token); err != nil {
			return a, err
		}
		keys := lines(text[1])
		a.grant = lock.Grant{
			ID: id, Owner: text[0], Tokens: make(map[string]int64, len(keys)), TTL: microseconds(n[2]),
			ExpiresAt: time.UnixMicro(n[1]).UTC(), Start: start,
		}
		for _, k := range keys {
			a.grant.Tokens[k] = a.token
		}
	}
	return a, nil
}

// readToken reads a token, milliseconds and a number below 1000. It becomes one number, roughly the time in microseconds,
// which a double can tell from its neighbours, too.
func readToken(s string) (int64, error) {
	text, rest, _ := strings.Cut(s, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, errAnswer
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return 0, errAnswer
	}
	return ms*1000 + n, nil
}

// microseconds is a time span as the scripts have it.
func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// lines undoes what joins names in the scripts.
func lines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// Limits of running a script again.
const (
	runFor       = 10 * time.Second
	firstBackoff = 5 * time.Millisecond
	maxBackoff   = 300 * time.Millisecond
)

// persist runs f again while it fails for a passing reason: the server is not there, or not ready. again tells f that an
// earlier run may have done its work.
func persist(ctx context.Context, f func(again bool) error) error {
	deadline := time.Now().Add(runFor)
	pause := firstBackoff
	for again := false; ; again = true {
		err := f(again)
		if err == nil || ctx.Err() != nil || !passing(err) || time.Now().After(deadline) {
			return err
		}
		if !wait.For(ctx, pause/2+rand.N(pause)) { //nolint:gosec // Jitter needs no secrecy.
			return err
		}
		pause = min(2*pause, maxBackoff)
	}
}

// passing reports failures that a later run may not meet.
func passing(err error) bool {
	if e, ok := rueidis.IsRedisErr(err); ok {
		if e.IsLoading() || e.IsClusterDown() || e.IsTryAgain() {
			return true
		}
		for _, code := range []string{"MASTERDOWN", "READONLY", "BUSY ", "NOREPLICAS"} {
			if strings.HasPrefix(e.Error(), code) {
				return true
			}
		}
		return false
	}
	return !errors.Is(err, rueidis.ErrClosing) && !errors.Is(err, errAnswer) && !rueidis.IsParseErr(err)
}

// waits is the whole graph at one instant.
type waits struct {
	waiters []lock.Waiting
	owners  map[string]string // of the keys that somebody waits for
}

func (w *waits) build() *lock.Graph {
	waiters := make([]lock.Waiter, len(w.waiters))
	for i := range w.waiters {
		waiters[i] = w.waiters[i].Waiter
	}
	return lock.NewGraph(w.owners, waiters)
}

// look reads the graph.
func (b *Backend) look(ctx context.Context) (*waits, error) {
	parts, err := b.scripts.graph.Exec(ctx, b.client, b.state, nil).ToArray()
	if err != nil {
		return nil, err
	}
	if len(parts) != 2 {
		return nil, errAnswer
	}
	w := &waits{}
	if w.owners, err = parts[1].AsStrMap(); err != nil {
		return nil, err
	}
	err = rows(parts[0], 5, func(text []string) error {
		n, err := numbers(text[3:])
		if err != nil {
			return err
		}
		w.waiters = append(w.waiters, lock.Waiting{
			Waiter: lock.Waiter{ID: text[0], Owner: text[1], Keys: lines(text[2]), Ticket: n[0]}, Since: time.UnixMicro(n[1]).UTC(),
		})
		return nil
	})
	return w, err
}

// holders lists who holds, maxHolders of them at most. As it looks for them among all names on the server, a part at a time,
// one who came or went meanwhile may be listed or not.
func (b *Backend) holders(ctx context.Context) ([]lock.Holder, error) {
	var all []lock.Holder
	seen := map[string]bool{} // The server may list a name twice.
	pattern := literally(b.hash("")) + "*"
	for cursor := "0"; ; {
		parts, err := b.scripts.holders.Exec(ctx, b.client, b.state, []string{cursor, pattern}).ToArray()
		if err != nil {
			return nil, err
		}
		if len(parts) != 2 {
			return nil, errAnswer
		}
		if cursor, err = parts[0].ToString(); err != nil {
			return nil, err
		}
		some, err := readHolders(parts[1])
		if err != nil {
			return nil, err
		}
		for _, h := range some {
			if !seen[h.ID] {
				seen[h.ID] = true
				all = append(all, h)
			}
		}
		if cursor == "0" || len(all) >= maxHolders {
			return all[:min(len(all), maxHolders)], nil
		}
	}
}

// literally makes a pattern of a text that may have characters with a meaning in patterns.
func literally(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// readHolders reads a list of grants.
func readHolders(list rueidis.RedisMessage) (holders []lock.Holder, err error) {
	err = rows(list, 6, func(text []string) error {
		token, err := readToken(text[3])
		if text[2] == "" {
			err = errAnswer
		}
		if err != nil {
			return err
		}
		n, err := numbers(text[4:])
		if err != nil {
			return err
		}
		keys := lines(text[2])
		h := lock.Holder{
			ID: name(text[0], keys[0]), Owner: text[1], Tokens: map[string]int64{},
			GrantedAt: time.UnixMicro(n[0]).UTC(), ExpiresAt: time.UnixMicro(n[1]).UTC(),
		}
		for _, k := range keys {
			h.Tokens[k] = token
		}
		holders = append(holders, h)
		return nil
	})
	return holders, err
}

// rows calls f for each of a list of lists of n texts.
func rows(m rueidis.RedisMessage, n int, f func([]string) error) error {
	list, err := m.ToArray()
	if err != nil {
		return err
	}
	for _, row := range list {
		text, err := row.AsStrSlice()
		if err != nil {
			return err
		}
		if len(text) != n {
			return errAnswer
		}
		if err := f(text); err != nil {
			return err
		}
	}
	return nil
}
