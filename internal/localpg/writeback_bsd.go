//go:build darwin || freebsd

package localpg

import "context"

// writeBack does nothing: these systems offer no way to begin to write a file without waiting for it.
func (i *Instance) writeBack(context.Context) {}
