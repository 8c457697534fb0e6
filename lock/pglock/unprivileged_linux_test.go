package pglock

import (
	"os"
	"os/exec"
	"syscall"
)

// unprivileged lets a program run that refuses root, with root's files: in a namespace in which root has another number.
func unprivileged(cmd *exec.Cmd) {
	if os.Geteuid() != 0 {
		return
	}
	const id = 1000
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: 0, Size: 1}},
	}
}
