package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// Fate is what happens to one commit.
type Fate int

// The fates of a commit.
const (
	Delivered   Fate = iota // forwarded, and answered
	AnswerLost              // forwarded and done; cut when the answer came
	OutcomeOpen             // forwarded; cut at once
	CommitLost              // not forwarded; cut
)

// dialTimeout bounds a connection to PostgreSQL.
const dialTimeout = 10 * time.Second

// Options say where the proxy leads and what it loses.
type Options struct {
	// Network and Address are those of PostgreSQL, "tcp" or "unix". Required.
	Network, Address string
	// Seed decides the fates. Two runs with one seed give the n-th commit the same fate.
	Seed uint64
	// LoseOneIn is how many commits there are to a lost one, on average; 0 loses none.
	LoseOneIn int
	// Blackout is how long, after one cut in four, every connection is refused; 0 never does.
	Blackout time.Duration
	// Notice, when set, is given the body of each NoticeResponse on its way to the client. It must not keep it, and may be
	// called concurrently.
	Notice func(body []byte)
	// Deaf keeps notifications from the client, as a pooler does that assigns connections by transaction.
	Deaf bool
	// LoseCancels keeps requests from PostgreSQL that cancel a statement. A client sends one when its connection breaks.
	LoseCancels bool
}

// Stats counts what the proxy did while it was armed.
type Stats struct {
	// Commits by fate.
	Delivered, AnswerLost, OutcomeOpen, CommitLost int
	// Blackouts is how often all connections were cut and refused.
	Blackouts int
	// Delayed is how many answers were held back.
	Delayed int
}

// Lost is how many commits the client got no answer to.
func (s Stats) Lost() int { return s.AnswerLost + s.OutcomeOpen + s.CommitLost }

// Proxy accepts connections on loopback until it is closed. It is safe for concurrent use.
type Proxy struct {
	opts     Options
	listener net.Listener
	group    sync.WaitGroup

	mu        sync.Mutex
	network   string // of PostgreSQL
	address   string
	rng       *rand.Rand
	armed     bool
	closed    bool
	darkUntil time.Time
	refusing  bool
	late      lateness
	stats     Stats
	links     map[*link]struct{}
	outage    *outage // nil when the database is there to stay
}

// Listen starts a proxy on a free port of loopback. It loses nothing until it is armed.
func Listen(ctx context.Context, opts Options) (*Proxy, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("wire proxy: %w", err)
	}
	p := &Proxy{
		opts: opts, network: opts.Network, address: opts.Address, listener: listener, links: map[*link]struct{}{},
		rng: rand.New(rand.NewPCG(opts.Seed, 0)),
	}
	p.group.Go(p.accept)
	return p, nil
}

// Addr is the host and port that the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Lead cuts all connections and takes those that come then to another PostgreSQL, as a failover does.
func (p *Proxy) Lead(network, address string) {
	p.mu.Lock()
	p.network, p.address = network, address
	p.mu.Unlock()
	p.cutAll()
}

// Arm starts or stops the losing of commits.
func (p *Proxy) Arm(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = on
	p.darkUntil = time.Time{}
}

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Close ends the proxy and all its connections, and waits until they are gone.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.cutAll()
	p.group.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // Closed; a listener on loopback has no other errors that pass.
		}
		p.group.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	network, address, refused := p.network, p.address, p.refuses()
	p.mu.Unlock()
	if refused { // PostgreSQL is not to hear of it: hundreds of connections a second would fill the queue that others' are in, too.
		_ = client.Close()
		return
	}
	backend, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(context.Background(), network, address)
	if err != nil {
		_ = client.Close() // PostgreSQL may be down: that is for the client to see.
		return
	}
	l := &link{proxy: p, client: client, backend: backend}
	l.inBlock.Store('I')
	defer l.cut()
	if !p.add(l) {
		return
	}
	defer p.remove(l)
	var group sync.WaitGroup
	group.Go(func() {
		defer l.cut()
		l.forwardAnswers()
	})
	l.forwardCommands()
	l.cut()
	group.Wait()
}

// add registers a new connection, unless the proxy is closed or dark.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses() {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

// refuses reports whether connections are refused. The caller has the mutex.
func (p *Proxy) refuses() bool {
	return p.closed || p.refusing || p.outage.refuses() || time.Now().Before(p.darkUntil)
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) cutAll() { p.cutAllBut(nil) }

func (p *Proxy) cutAllBut(spared *link) {
	p.mu.Lock()
	links := slices.Collect(maps.Keys(p.links))
	p.mu.Unlock()
	for _, l := range links {
		if l != spared {
			l.cut()
		}
	}
}

// fate draws the fate of the next commit and counts it.
func (p *Proxy) fate() Fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.armed {
		return Delivered
	}
	if p.opts.LoseOneIn == 0 || p.rng.IntN(p.opts.LoseOneIn) > 0 {
		p.stats.Delivered++
		return Delivered
	}
	switch p.rng.IntN(5) {
	case 0:
		p.stats.OutcomeOpen++
		return OutcomeOpen
	case 1:
		p.stats.CommitLost++
		return CommitLost
	default:
		p.stats.AnswerLost++
		return AnswerLost
	}
}

// beforeCut starts a blackout at one cut in four.
func (p *Proxy) beforeCut() {
	p.mu.Lock()
	dark := p.armed && p.opts.Blackout > 0 && p.rng.IntN(4) == 0
	if dark {
		p.stats.Blackouts++
		p.darkUntil = time.Now().Add(p.opts.Blackout)
	}
	p.mu.Unlock()
	if dark {
		p.cutAll()
	}
}

// errCut ends a connection on purpose.
var errCut = errors.New("cut")
