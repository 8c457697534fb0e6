package redislock

import (
	"context"
	"embed"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/rediskit"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
)

//go:embed scripts
var sources embed.FS

// scripts are all that is ever run on the server, besides listening.
type scripts struct {
	acquire, check, leave, renew, release, pass, poll, graph, holders, find, mark *rediskit.Script
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
	script := func(names ...string) *rediskit.Script {
		var text strings.Builder
		for _, name := range names {
			text.WriteString(read(name))
		}
		return rediskit.NewScript(text.String())
	}
	return &scripts{
		acquire: script("acquire_free", "tokens", "common", "acquire"),
		release: script("tokens", "common", "release"), pass: script("tokens", "pass_next", "common", "pass"),
		check: script("tokens", "common", "check"), leave: script("tokens", "common", "leave"), renew: script("tokens", "common", "renew"),
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
	others crowds // in line, of a grant that was taken
}

// answerWithin bounds one request to the server, which takes some microseconds. With a deadline rueidis makes a lone
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
func (b *Backend) ask(ctx context.Context, s *rediskit.Script, id string, args ...string) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	start := time.Now()
	reply, err := s.Run(ctx, b.client, b.state, args)
	if err != nil {
		return a, err
	}
	if token, ok := reply.(string); ok {
		a = answer{status: statusGranted, brief: true, grant: lock.Grant{ID: id, Start: start}}
		a.token, err = readToken(token)
		return a, err
	}
	if list, ok := reply.([]any); ok && len(list) == 1 { // Nothing but a status.
		p := &parts{list: list}
		a.status = p.int(0)
		return a, p.err
	}
	p := read(reply, 12)
	a.status, a.look, a.cycle, a.others = p.int(0), p.int(6), lines(p.text(8)), crowds{p.int(10), p.int(11)}
	owner, keys, expired, woken := p.text(4), lines(p.text(5)), p.int(7), p.texts(9)
	if p.err == nil && a.status == statusGranted {
		a.token, p.err = readToken(p.text(1))
		a.grant = lock.Grant{
			ID: id, Owner: owner, Tokens: tokens(keys, a.token), TTL: microseconds(p.int(3)), ExpiresAt: time.UnixMicro(p.int(2)).UTC(), Start: start,
		}
	}
	if p.err == nil {
		b.expired(expired)
		b.wake(woken, false)
	}
	return a, p.err
}

// parts is an answer of several parts, and the first error of reading one.
type parts struct {
	list []any
	err  error
}

// parts runs a script that answers with n parts.
func (b *Backend) parts(ctx context.Context, s *rediskit.Script, n int, args ...string) *parts {
	reply, err := s.Run(ctx, b.client, b.state, args)
	if err != nil {
		return &parts{err: err}
	}
	return read(reply, n)
}

func read(reply any, n int) *parts {
	list, ok := reply.([]any)
	if !ok || len(list) != n {
		return &parts{err: rediskit.ErrReply}
	}
	return &parts{list: list}
}

// part reads a part of one type.
func part[T any](p *parts, i int) (v T) {
	if p.err != nil {
		return v
	}
	v, ok := p.list[i].(T)
	if !ok {
		p.err = rediskit.ErrReply
	}
	return v
}

func (p *parts) int(i int) int64 {
	if p.err == nil {
		if text, ok := p.list[i].(string); ok {
			return p.number(text)
		}
	}
	return part[int64](p, i)
}

func (p *parts) text(i int) string    { return part[string](p, i) }
func (p *parts) texts(i int) []string { return p.strings(part[[]any](p, i)) }

func (p *parts) strings(list []any) (texts []string) {
	if p.err == nil {
		texts, p.err = rediskit.Texts(list, nil)
	}
	return texts
}

func (p *parts) rows(i, n int) [][]string {
	list := part[[]any](p, i)
	rows := make([][]string, len(list))
	for j, row := range list {
		columns, _ := row.([]any)
		if rows[j] = p.strings(columns); p.err == nil && len(rows[j]) != n {
			p.err = rediskit.ErrReply
		}
		if p.err != nil {
			return nil
		}
	}
	return rows
}

// number reads a number of a row.
func (p *parts) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && p.err == nil {
		p.err = rediskit.ErrReply
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
		return 0, rediskit.ErrReply
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return 0, rediskit.ErrReply
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
		if err == nil || ctx.Err() != nil || !rediskit.Passing(err) || time.Now().After(deadline) {
			return err
		}
		if !wait.For(ctx, wait.Jitter(pause)) {
			return err
		}
		pause = min(2*pause, maxBackoff)
	}
}

// look reads who waits, oldest first, and the owners of the keys that somebody waits for, at one instant.
func (b *Backend) look(ctx context.Context) (owners map[string]string, waiters []lock.Waiter, err error) {
	p := b.parts(ctx, b.scripts.graph, 2)
	owners = map[string]string{}
	for pair := range slices.Chunk(p.texts(1), 2) {
		if len(pair) != 2 {
			return nil, nil, rediskit.ErrReply
		}
		owners[pair[0]] = pair[1]
	}
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
		p := b.parts(ctx, b.scripts.holders, 2, cursor, pattern)
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
			p.err = rediskit.ErrReply
			return nil
		}
		keys := lines(row[2])
		holders = append(holders, lock.Grant{
			ID: name(row[0], keys[0]), Owner: row[1], Tokens: tokens(keys, token), GrantedAt: p.instant(row[4]), ExpiresAt: p.instant(row[5]),
		})
	}
	return holders
}
