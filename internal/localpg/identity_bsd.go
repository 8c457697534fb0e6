//go:build darwin || freebsd

package localpg

import (
	"errors"
	"syscall"
)

// errNoNamespaces makes the choice of identity fall back to another user.
var errNoNamespaces = errors.New("this system has no user namespaces")

func (identity) namespace(*syscall.SysProcAttr) error { return errNoNamespaces }

func tie(*syscall.SysProcAttr) {}

// parentTied says whether DieWithParent can be had here.
const parentTied = false
