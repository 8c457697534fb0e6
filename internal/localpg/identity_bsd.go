//go:build darwin || freebsd

package localpg

import (
	"errors"
	"syscall"
)

// errNoNamespaces makes the choice of identity fall back to another user.
var errNoNamespaces = errors.New("this system has no user namespaces")

// attr is how a process of this identity is started: in a session of its own, so that neither Ctrl-C nor the end of a terminal
// reaches PostgreSQL, which is ours to stop.
func (id identity) attr(bool) (*syscall.SysProcAttr, error) {
	a := &syscall.SysProcAttr{Setsid: true}
	switch id.kind {
	case asSelf:
	case inNamespace:
		return nil, errNoNamespaces
	case asUser:
		//nolint:gosec // Ids come from the user database and were parsed as non-negative 32-bit numbers.
		a.Credential = &syscall.Credential{Uid: uint32(id.uid), Gid: uint32(id.gid)}
	}
	return a, nil
}

// parentTied says whether DieWithParent can be had here.
const parentTied = false
