package localpg

import (
	"os"
	"syscall"
)

// attr is how a process of this identity is started: in a session of its own, so that neither Ctrl-C nor the end of a terminal
// reaches PostgreSQL, which is ours to stop.
func (id identity) attr(dieWithParent bool) (*syscall.SysProcAttr, error) {
	a := &syscall.SysProcAttr{Setsid: true}
	if dieWithParent {
		// An immediate shutdown: recovery follows at the next start, if any.
		a.Pdeathsig = syscall.SIGQUIT
	}
	switch id.kind {
	case asSelf:
	case inNamespace:
		a.Cloneflags = syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: id.uid, HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: id.gid, HostID: os.Getegid(), Size: 1}}
	case asUser:
		//nolint:gosec // Ids come from the user database and were parsed as non-negative 32-bit numbers.
		a.Credential = &syscall.Credential{Uid: uint32(id.uid), Gid: uint32(id.gid)}
	}
	return a, nil
}

// parentTied says whether DieWithParent can be had here. The signal is tied to
// the life of the thread that starts the process, which must be kept.
const parentTied = true
