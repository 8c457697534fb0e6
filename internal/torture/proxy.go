package torture

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// readHeader bounds how long a client here may take to begin a request.
const readHeader = time.Minute

var errLost = errors.New("the answer is lost")

// Proxy is a server's door for the clients here, which may be cut off, slow, or lose answers. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	server   *http.Server
	to       sim.Target
	all      sync.WaitGroup

	mu    sync.Mutex
	rng   *rand.Rand
	conns map[net.Conn]bool
	cut   bool
	slow  time.Duration
	lose  int // of the next answers to commands
	lost  int
}

// Listen returns a proxy to a server on a free port. Close it when done.
func Listen(ctx context.Context, to sim.Target, seed uint64) (*Proxy, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, to: to, rng: rand.New(rand.NewPCG(seed, 2)), conns: map[net.Conn]bool{}} //nolint:gosec // Faults are to be repeatable.
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			if target, err := url.Parse(to.URL()); err == nil {
				r.SetURL(target)
			}
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true, IdleConnTimeout: time.Minute},
		ModifyResponse: func(answer *http.Response) error {
			if answer.Request.Method != http.MethodPost || !p.loses() {
				return nil
			}
			_, err := io.Copy(io.Discard, answer.Body) // It was carried out, whatever comes now.
			return errors.Join(errLost, err)
		},
		// A client whose answer is lost, or whose server is away, sees its connection end.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = &http.Server{ReadHeaderTimeout: readHeader, ConnState: p.state, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !wait.For(r.Context(), p.delay()) {
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r)
	})}
	p.all.Go(func() { _ = p.server.Serve(l) }) // It ends by Close.
	return p, nil
}

// URL is the proxy's address.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() }

// Close ends it and all its connections.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.all.Wait()
	return err
}

// Cut ends all connections and refuses new ones, until it is called with false.
func (p *Proxy) Cut(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = on
	if on {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

// Slow holds each request back for up to most; 0 ends that.
func (p *Proxy) Slow(most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = most
}

// Lose loses n more answers to commands, once these have been carried out.
func (p *Proxy) Lose(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose += n
}

// Lost is how many answers were lost so far.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *Proxy) loses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose == 0 {
		return false
	}
	p.lose--
	p.lost++
	return true
}

func (p *Proxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slow == 0 {
		return 0
	}
	return time.Duration(p.rng.Int64N(int64(p.slow)))
}

// state keeps the connections that there are.
func (p *Proxy) state(c net.Conn, now http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch now {
	case http.StateNew:
		p.conns[c] = true
		if p.cut {
			_ = c.Close()
		}
	case http.StateClosed, http.StateHijacked:
		delete(p.conns, c)
	case http.StateActive, http.StateIdle:
	}
}
