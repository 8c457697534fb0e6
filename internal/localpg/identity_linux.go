package localpg

import (
	"os"
	"syscall"
)

// namespace makes a process begin in a user namespace that maps the identity onto our own.
func (id identity) namespace(a *syscall.SysProcAttr) error {
	a.Cloneflags = syscall.CLONE_NEWUSER
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: id.uid, HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: id.gid, HostID: os.Getegid(), Size: 1}}
	return nil
}

// tie ends a process with its parent, by an immediate shutdown: recovery follows at the next start, if any.
func tie(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGQUIT }

// parentTied says whether DieWithParent can be had here. The signal is tied to
// the life of the thread that starts the process, which must be kept.
const parentTied = true
