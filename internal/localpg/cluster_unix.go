//go:build linux || darwin || freebsd

package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// tunables are appended to the new cluster's postgresql.conf, where the user may change them. What safety rests on is not here
// but on the command line, see forcedSettings.
const tunables = `
# ---- Fairlead's settings for a private server; yours to tune. ----
max_connections = 100
# For two-phase commit between ledgers.
max_prepared_transactions = 64
# Recovery after a crash replays at most about this much, 1 GB in some 7 s. With
# less, checkpoints come sooner under load, and after each one whole pages are
# written to the log.
max_wal_size = 2GB
# Old segments of the log are used again. A new one is filled with zeros and
# synced first, while commits wait for it.
min_wal_size = 1GB
checkpoint_timeout = 5min
# Hot rows are updated often: look for dead ones more often than once a minute.
autovacuum_naptime = 20s
# Short transactions gain nothing from compiled or parallel plans, and parallel
# ones need shared memory that containers are short of.
jit = off
max_parallel_workers_per_gather = 0
random_page_cost = 1.1
# A session that is gone, or forgot its transaction, must not keep locks.
client_connection_check_interval = 2s
idle_in_transaction_session_timeout = 5min
# Clients get the errors of statements; the log is for the server's own.
log_min_messages = log
log_checkpoints = off
log_line_prefix = '%m [%p] '
log_timezone = 'UTC'
timezone = 'UTC'
`

// buffers are the last lines of tunables.
const buffers = `# An eighth of the memory that there was when this was made, from 128 MB to 2 GB.
# It is taken as pages are used. With less, sessions write pages of the keys'
# index themselves before they can read others.
shared_buffers = %dMB
`

// accessRules admit everybody who can reach the socket, which is in a directory of mode 0700, and nobody over a network.
const accessRules = "# Only the unix socket, which is in a directory of mode 0700.\nlocal all all trust\n"

// childEnv is the whole environment of initdb and postgres: none of the caller's, so that nothing of it (PGDATA, PGOPTIONS, a
// locale that isn't installed) changes what they do. Naming the time zone spares initdb a search.
//
// The rest is for glibc's allocator: a statement over some arrays takes and gives back more than its default keeps, so each
// would ask the kernel for memory anew, which is a twentieth of the server's work under load.
func childEnv() []string {
	env := []string{
		"LC_ALL=C", "TZ=UTC", "PATH=/usr/local/bin:/usr/bin:/bin",
		"MALLOC_TOP_PAD_=1048576", "MALLOC_TRIM_THRESHOLD_=8388608", "MALLOC_MMAP_THRESHOLD_=1048576",
	}
	for _, name := range []string{"LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// initCluster makes a cluster that is either complete and durable or not there at all: initdb builds and syncs it under another
// name, the settings are synced, and then it is renamed.
func initCluster(ctx context.Context, l layout, bins binaries, id identity, durable bool) error {
	if err := os.RemoveAll(l.fresh()); err != nil {
		return err
	}
	// An empty directory, such as a mount point's, can't be replaced by a
	// rename unless it is removed; Remove refuses if there is anything in it.
	if err := os.Remove(l.data()); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.Mkdir(l.fresh(), 0o700); err != nil {
		return err
	}
	if err := id.give(l, l.fresh()); err != nil {
		return err
	}
	if err := id.reach(l.dir); err != nil {
		return err
	}
	attr, err := id.attr(false)
	if err != nil {
		return err
	}
	args := []string{
		"--pgdata=" + l.fresh(), "--username=" + roleName, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions",
	}
	if !durable {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, bins.initdb(), args...)
	cmd.Dir = "/"
	cmd.Env = childEnv()
	cmd.SysProcAttr = attr
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("initdb: %w", context.Cause(ctx))
		}
		return fmt.Errorf("initdb, run as %s: %w: %s", id, err, lastLines(out.Bytes(), 6))
	}
	if err := writeFile(filepath.Join(l.fresh(), "postgresql.conf"), os.O_APPEND, tunables+fmt.Sprintf(buffers, sharedBuffers(memory)), durable); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(l.fresh(), "pg_hba.conf"), os.O_TRUNC, accessRules, durable); err != nil {
		return err
	}
	if err := os.Rename(l.fresh(), l.data()); err != nil {
		return err
	}
	if durable {
		return syncPath(l.dir)
	}
	return nil
}

// String names the identity for messages.
func (id identity) String() string {
	switch id.kind {
	case inNamespace:
		return "user " + id.name + " of a user namespace"
	case asUser:
		return "user " + id.name
	case asSelf:
	}
	return fmt.Sprintf("user id %d", os.Geteuid())
}

// syncPath syncs a file, or the names in a directory.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// writeFile writes text to a file that initdb has made, and syncs it.
func writeFile(path string, how int, text string, durable bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|how, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if durable && err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
