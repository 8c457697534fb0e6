//go:build linux || darwin || freebsd

package localpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// identity is who PostgreSQL runs as.
type identity struct {
	kind identityKind
	// uid and gid are those that PostgreSQL sees itself as. They are used for all kinds but asSelf.
	uid, gid int
	name     string
}

type identityKind int

const (
	asSelf      identityKind = iota // our own user, who isn't root
	inNamespace                     // an unprivileged id that a user namespace maps onto root
	asUser                          // another user, to whom the cluster belongs
)

// attr is how a process of this identity is started: in a session of its own, so that neither Ctrl-C nor the end of a terminal
// reaches PostgreSQL, which is ours to stop.
func (id identity) attr(dieWithParent bool) (a *syscall.SysProcAttr, err error) {
	a = &syscall.SysProcAttr{Setsid: true}
	if dieWithParent {
		tie(a)
	}
	switch id.kind {
	case asSelf:
	case inNamespace:
		err = id.namespace(a)
	case asUser:
		//nolint:gosec // Ids come from the user database and were parsed as non-negative 32-bit numbers.
		a.Credential = &syscall.Credential{Uid: uint32(id.uid), Gid: uint32(id.gid)}
	}
	return a, err
}

// chooseIdentity decides who runs PostgreSQL. The owner of an existing cluster
// has the last word, because PostgreSQL refuses to run as anybody else.
func chooseIdentity(ctx context.Context, l layout, bins binaries, log *slog.Logger) (identity, error) {
	owner, err := ownerOf(l.data())
	if errors.Is(err, fs.ErrNotExist) {
		owner, err = os.Geteuid(), nil
	}
	if err != nil {
		return identity{}, err
	}
	if os.Geteuid() != 0 {
		if owner != os.Geteuid() {
			return identity{}, fmt.Errorf("%s belongs to user id %d, but this process runs as %d", l.data(), owner, os.Geteuid())
		}
		return identity{kind: asSelf}, nil
	}
	if owner != 0 {
		return userByID(owner)
	}
	stranger, err := unprivilegedUser()
	if err != nil {
		return identity{}, err
	}
	namespaced := stranger
	namespaced.kind = inNamespace
	if err := probe(ctx, namespaced, bins); err != nil {
		log.Debug("no user namespace for PostgreSQL, running it as another user", "user", stranger.name, "reason", err)
		return stranger, nil
	}
	return namespaced, nil
}

// probe runs a harmless program the way that PostgreSQL would be run.
func probe(ctx context.Context, id identity, bins binaries) error {
	attr, err := id.attr(false)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, bins.postgres(), "-V")
	cmd.Dir = "/"
	cmd.SysProcAttr = attr
	return cmd.Run()
}

// unprivilegedUser picks the user for PostgreSQL when we are root. It must be
// one of the system's list of users, because PostgreSQL looks its name up.
func unprivilegedUser() (identity, error) {
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		id, err := identityOf(u)
		if err == nil && id.uid > 0 {
			return id, nil
		}
	}
	return identity{}, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as: " +
		"run the server as another user, or create one of these")
}

func userByID(uid int) (identity, error) {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return identity{}, fmt.Errorf("the cluster's owner, user id %d: %w", uid, err)
	}
	return identityOf(u)
}

func identityOf(u *user.User) (identity, error) {
	uid, err := strconv.ParseInt(u.Uid, 10, 32)
	if err != nil {
		return identity{}, fmt.Errorf("user %s: id %q: %w", u.Username, u.Uid, err)
	}
	gid, err := strconv.ParseInt(u.Gid, 10, 32)
	if err != nil {
		return identity{}, fmt.Errorf("user %s: group id %q: %w", u.Username, u.Gid, err)
	}
	return identity{kind: asUser, uid: int(uid), gid: int(gid), name: u.Username}, nil
}

// give hands a directory that we made to the identity. Only another user needs
// that, and the way to it opened for passing through.
func (id identity) give(l layout, path string) error {
	if id.kind != asUser {
		return nil
	}
	if err := os.Lchown(path, id.uid, id.gid); err != nil {
		return err
	}
	if filepath.Dir(path) != l.dir {
		return nil
	}
	st, err := os.Stat(l.dir)
	if err != nil {
		return err
	}
	// Passing through shows nothing: the files below have modes of their own.
	if st.Mode()&0o001 == 0 {
		return os.Chmod(l.dir, st.Mode().Perm()|0o011)
	}
	return nil
}

// reach reports, where PostgreSQL runs as another user, a directory on the way to dir that this user cannot pass through.
// It looks at the mode alone: what an access control list allows, initdb will find out.
func (id identity) reach(dir string) error {
	if id.kind != asUser {
		return nil
	}
	for at := dir; ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		if err != nil {
			return err
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		mode := st.Mode().Perm()
		passes := mode&0o001 != 0 || ok && (int(sys.Uid) == id.uid && mode&0o100 != 0 || int(sys.Gid) == id.gid && mode&0o010 != 0)
		if !passes {
			return fmt.Errorf("PostgreSQL runs as %s here, and this user cannot pass through %s (mode %#o): "+
				"allow it (chmod o+x %[2]s), or choose another data directory", id, at, mode)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// giveTree hands over a whole cluster that root made in a namespace, when the machine no longer allows one.
func (id identity) giveTree(l layout) error {
	if id.kind != asUser {
		return nil
	}
	owner, err := ownerOf(l.data())
	if errors.Is(err, fs.ErrNotExist) || err == nil && owner == id.uid {
		return nil
	}
	if err != nil {
		return err
	}
	return filepath.WalkDir(l.data(), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return id.give(l, path)
	})
}

func ownerOf(path string) (int, error) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s: the system doesn't tell its owner", path)
	}
	return int(sys.Uid), nil
}
