//go:build !unix

package torture

import (
	"context"
	"errors"
)

var errNoSignals = errors.New("this system has no signals that stop or kill")

func killServer(context.Context, *site) (func() error, error)  { return nil, errNoSignals }
func pauseServer(context.Context, *site) (func() error, error) { return nil, errNoSignals }
