//go:build !(linux || darwin || freebsd)

package localpg

import "context"

// Instance is a running private PostgreSQL, of which there is none on this system.
type Instance struct{}

// Start returns [ErrUnsupported] on this system.
func Start(context.Context, Options) (*Instance, error) { return nil, ErrUnsupported }

// URL is empty.
func (*Instance) URL() string { return "" }

// PID is zero.
func (*Instance) PID() int { return 0 }

// Restarts is zero.
func (*Instance) Restarts() int { return 0 }

// Done is a channel that is never closed.
func (*Instance) Done() <-chan struct{} { return nil }

// Err is nil.
func (*Instance) Err() error { return nil }

// Stop does nothing.
func (*Instance) Stop(context.Context) error { return nil }
