package live

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestAFlushThatTookTooLongGoesOnWhereItStopped has a peer that takes a little, then nothing, then the rest.
func TestAFlushThatTookTooLongGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer func() { _ = there.Close() }()
	c := &corkedConn{Conn: here, buffers: &sync.Pool{New: newBuffer}, dirty: make(chan struct{}, 1)}
	var want bytes.Buffer
	write := func(n int, b byte) {
		p := bytes.Repeat([]byte{b}, n)
		want.Write(p)
		testwait.Must(t, testwait.Err(c.Write(p)))
	}
	c.cork()
	write(100_000, 'a')
	if len(c.dirty) != 0 {
		t.Error("the flusher woke itself")
	}
	taken := make([]byte, 1000)
	took := make(chan error, 1)
	go func() { _, err := io.ReadFull(there, taken); took <- err }()
	if err := c.flush(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("nobody reads: %v", err)
	}
	testwait.Must(t, <-took)
	write(10, 'b')
	if len(c.dirty) != 1 {
		t.Error("the flusher was not woken")
	}
	got := make(chan []byte)
	go func() {
		rest, _ := io.ReadAll(there)
		got <- slices.Concat(taken, rest)
	}()
	flushed := c.flush(20 * time.Second)
	write(10, 'c')
	if err := errors.Join(flushed, c.Close()); err != nil { // Close sends what is left.
		t.Fatal(err)
	}
	if all := <-got; !bytes.Equal(all, want.Bytes()) {
		t.Errorf("got %d bytes, want %d", len(all), want.Len())
	}
	if n, err := c.Write(make([]byte, maxUnsent+1)); !errors.Is(err, errUnsent) {
		t.Errorf("more than may wait: %d, %v", n, err)
	}
}
