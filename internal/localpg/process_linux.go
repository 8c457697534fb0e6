package localpg

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// alive says whether a process exists and hasn't exited. A zombie has exited, though signals still reach it: where process 1
// doesn't collect orphans they stay for ever, and PostgreSQL itself would take one for a living server.
func alive(pid int) bool {
	raw, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return false
	}
	// The state follows the name, which is in parentheses and may hold any.
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 || end+2 >= len(raw) {
		return false
	}
	state := raw[end+2]
	return state != 'Z' && state != 'X'
}

// isPostmaster says whether a process is a PostgreSQL server on this cluster, and not one that merely got the same number.
func isPostmaster(pid int, dataDir string) bool {
	if !alive(pid) || !namedPostgres(pid) {
		return false
	}
	if worksIn(pid, dataDir) {
		return true
	}
	// Looking at another user's working directory may be denied, even to root
	// in a container; the command line may be read by all.
	raw, err := os.ReadFile(procPath(pid, "cmdline"))
	if err != nil {
		return false
	}
	args := bytes.Split(raw, []byte{0})
	for i, arg := range args {
		if string(arg) == "-D" && i+1 < len(args) && sameFile(string(args[i+1]), dataDir) {
			return true
		}
	}
	return false
}

// leftovers lists the processes of a dead server that still work on the
// cluster. Every PostgreSQL process has the cluster as its working directory.
func leftovers(dataDir string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && alive(pid) && namedPostgres(pid) && worksIn(pid, dataDir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func namedPostgres(pid int) bool {
	raw, err := os.ReadFile(procPath(pid, "comm"))
	if err != nil {
		return false
	}
	name := string(bytes.TrimSpace(raw))
	return name == "postgres" || name == "postmaster"
}

func worksIn(pid int, dir string) bool {
	return sameFile(procPath(pid, "cwd"), dir)
}

func sameFile(a, b string) bool {
	sa, err := os.Stat(a)
	if err != nil {
		return false
	}
	sb, err := os.Stat(b)
	return err == nil && os.SameFile(sa, sb)
}

func procPath(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}

// namespace makes a process begin in a user namespace that maps the identity onto our own.
func (id identity) namespace(a *syscall.SysProcAttr) error {
	a.Cloneflags = syscall.CLONE_NEWUSER
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: id.uid, HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: id.gid, HostID: os.Getegid(), Size: 1}}
	return nil
}

// tie ends a process with the thread that starts it, by an immediate shutdown: recovery follows at the next start, if any.
func tie(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGQUIT }
