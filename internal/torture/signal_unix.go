//go:build unix

package torture

import (
	"context"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

const processPoll = 50 * time.Millisecond

// killServer kills a server, which something else starts again.
func killServer(ctx context.Context, s *site) (func() error, error) {
	// The last one may not have been started again yet.
	p, err := s.process()
	within, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	for ; err != nil; p, err = s.process() {
		if !wait.For(within, processPoll) {
			return nil, err
		}
	}
	return nil, p.Signal(syscall.SIGKILL)
}

// pauseServer stops a server, and wakes it again.
func pauseServer(_ context.Context, s *site) (func() error, error) {
	p, err := s.process()
	if err != nil {
		return nil, err
	}
	return func() error { return p.Signal(syscall.SIGCONT) }, p.Signal(syscall.SIGSTOP)
}
