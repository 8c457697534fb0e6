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

// newScripts puts the scripts together from their parts. In the usual case the part before the common one does everything,
// and the rest is not run.
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
	result := s.Exec(ctx, b.client, b.state, args)
	message, err := result.ToMessage()
	if err != nil {
		return a, err
	}
	if message.IsString() {
		a = answer{status: statusGranted, brief: true, grant: lock.Grant{ID: id, Start: start}}
		text, _ := message.ToString() // It is one.
		a.token, err = readToken(text)
		return a, err
	}
	if list, err := message.ToArray(); err == nil && len(list) == 1 { // Nothing but a status.
		a.status, err = list[0].AsInt64()
		return a, err
	}
	p := read(result, 10)
	a.status, a.look, a.cycle = p.int(0), p.int(6), lines(p.text(8))
	owner, keys, expired, woken := p.text(4), lines(p.text(5)), p.int(7), p.texts(9)
	if p.err == nil && a.status == statusGranted {
		a.token, p.err = readToken(p.text(1))
		a.grant = lock.Grant{
			ID: id, Owner: owner, Tokens: tokens(keys, a.token), TTL: microseconds(p.int(3)), ExpiresAt: time.UnixMicro(p.int(2)).UTC(), Start: start,
		}
	}
	if p.err == nil {
		b.expired(expired)
		b.wake(woken)
	}
	return a, p.err
}

// parts is an answer of several parts, and the first error of reading one.
type parts struct {
	list []rueidis.RedisMessage
	err  error
}

func read(r rueidis.RedisResult, n int) *parts {
	list, err := r.ToArray()
	if err == nil && len(list) != n {
		err = errAnswer
	}
	return &parts{list, err}
}

func part[T any](p *parts, i int, as func(*rueidis.RedisMessage) (T, error)) (v T) {
	if p.err == nil {
		v, p.err = as(&p.list[i])
	}
	return v
}

func (p *parts) int(i int) int64      { return part(p, i, (*rueidis.RedisMessage).AsInt64) }
func (p *parts) text(i int) string    { return part(p, i, (*rueidis.RedisMessage).ToString) }
func (p *parts) texts(i int) []string { return part(p, i, (*rueidis.RedisMessage).AsStrSlice) }
func (p *parts) rows(i, n int) [][]string {
	list := part(p, i, (*rueidis.RedisMessage).ToArray)
	rows := make([][]string, len(list))
	for j := range list {
		row, err := list[j].AsStrSlice()
		if err == nil && len(row) != n {
			err = errAnswer
		}
		if err != nil {
			p.err = err
			return nil
		}
		rows[j] = row
	}
	return rows
}

// number reads a number of a row.
func (p *parts) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && p.err == nil {
		p.err = errAnswer
	}
	return n
}

// instant reads a time of a row.
func (p *parts) instant(text string) time.Time { return time.UnixMicro(p.number(text)).UTC() }

// tokens is what a grant of some keys has: one token for all of them.
func tokens(keys []string, token int64) map[string]int64 {
	all := make(map[string]int64, len(keys))
	for _, k := range keys {
		all[k] = token
	}
	return all
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

// look reads who waits, oldest first, and the owners of the keys that somebody waits for, at one instant.
func (b *Backend) look(ctx context.Context) (owners map[string]string, waiters []lock.Waiter, err error) {
	p := read(b.scripts.graph.Exec(ctx, b.client, b.state, nil), 2)
	owners = part(p, 1, (*rueidis.RedisMessage).AsStrMap)
	for _, row := range p.rows(0, 5) {
		waiters = append(waiters, lock.Waiter{ID: row[0], Owner: row[1], Keys: lines(row[2]), Ticket: p.number(row[3]), Since: p.instant(row[4])})
	}
	return owners, waiters, p.err
}

// holders lists who holds, maxHolders of them at most. As it looks for them among all names on the server, a part at a time,
// one who came or went meanwhile may be listed or not.
func (b *Backend) holders(ctx context.Context) ([]lock.Grant, error) {
	var all []lock.Grant
	seen := map[string]bool{} // The server may list a name twice.
	pattern := literally(b.hash("")) + "*"
	for cursor := "0"; ; {
		p := read(b.scripts.holders.Exec(ctx, b.client, b.state, []string{cursor, pattern}), 2)
		cursor = p.text(0)
		for _, h := range p.holders(1) {
			if !seen[h.ID] {
				seen[h.ID] = true
				all = append(all, h)
			}
		}
		if p.err != nil {
			return nil, p.err
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

// holders reads a list of grants.
func (p *parts) holders(i int) (holders []lock.Grant) {
	for _, row := range p.rows(i, 6) {
		token, err := readToken(row[3])
		if err != nil || row[2] == "" {
			p.err = errAnswer
			return nil
		}
		keys := lines(row[2])
		holders = append(holders, lock.Grant{
			ID: name(row[0], keys[0]), Owner: row[1], Tokens: tokens(keys, token), GrantedAt: p.instant(row[4]), ExpiresAt: p.instant(row[5]),
		})
	}
	return holders
}
