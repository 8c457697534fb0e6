package mcp

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Answering is a transport that reports the end of its input only once what was asked before has been answered, or Grace is over.
// Without it, the SDK drops the calls under way when a client sends its last request and closes the server's standard input.
type Answering struct {
	Transport sdk.Transport
	Grace     time.Duration
}

// Connect implements [sdk.Transport].
func (a Answering) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := a.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &answering{Connection: c, grace: a.Grace, open: map[jsonrpc.ID]bool{}, answered: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

type answering struct {
	sdk.Connection
	grace time.Duration

	mu       sync.Mutex
	open     map[jsonrpc.ID]bool // what was asked, and not answered yet
	answered chan struct{}       // that something was answered
	once     sync.Once
	closed   chan struct{}
}

// Read implements [sdk.Connection].
func (a *answering) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := a.Connection.Read(ctx)
	if err != nil {
		a.wait(ctx)
		return m, err
	}
	if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
		a.mu.Lock()
		a.open[r.ID] = true
		a.mu.Unlock()
	}
	return m, nil
}

// wait returns when all is answered, and otherwise when the grace is over or the connection is closed.
func (a *answering) wait(ctx context.Context) {
	end := time.NewTimer(a.grace)
	defer end.Stop()
	for a.pending() {
		select {
		case <-a.answered:
		case <-end.C:
			return
		case <-a.closed:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (a *answering) pending() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.open) > 0
}

// Write implements [sdk.Connection].
func (a *answering) Write(ctx context.Context, m jsonrpc.Message) error {
	err := a.Connection.Write(ctx, m)
	if r, ok := m.(*jsonrpc.Response); ok {
		a.mu.Lock()
		delete(a.open, r.ID)
		a.mu.Unlock()
		select {
		case a.answered <- struct{}{}:
		default:
		}
	}
	return err
}

// Close implements [sdk.Connection].
func (a *answering) Close() error {
	a.once.Do(func() { close(a.closed) })
	return a.Connection.Close()
}
