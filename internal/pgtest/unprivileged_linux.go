package pgtest

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// unprivileged lets a program run that refuses root: with root's files, in a namespace in which root has another number, or,
// where such namespaces are not to be had, as PostgreSQL's user, who is given the directory.
func unprivileged(tb testing.TB, cmd *exec.Cmd, directory string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		return
	}
	const id = 1000
	namespace := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: 0, Size: 1}},
	}
	probe := exec.CommandContext(tb.Context(), "true")
	probe.SysProcAttr = namespace
	if probe.Run() == nil {
		cmd.SysProcAttr = namespace
		return
	}
	postgres, err := user.Lookup("postgres")
	if err != nil {
		tb.Fatal("there are no user namespaces, and there is no user postgres: ", err)
	}
	uid, err := strconv.ParseUint(postgres.Uid, 10, 32)
	testwait.Must(tb, err)
	gid, err := strconv.ParseUint(postgres.Gid, 10, 32)
	testwait.Must(tb, err)
	entries, err := os.ReadDir(directory)
	testwait.Must(tb, err)
	names := []string{directory}
	for _, e := range entries {
		names = append(names, directory+"/"+e.Name())
	}
	for _, name := range names {
		testwait.Must(tb, os.Chown(name, int(uid), int(gid)))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
