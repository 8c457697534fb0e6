// Package durable writes small files that appear whole or not at all, and that stay after a power failure.
//
// A file is written beside its place, flushed, moved to its place, and then its directory is flushed. A crash leaves the old file or
// the new one, and perhaps a temporary file, which the next [Replace] overwrites.
package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// ErrUncertain is wrapped where a file may or may not have got its new content: the write failed after the point at which it could
// still be taken back. Any other error says that the file is as it was.
var ErrUncertain = errors.New("the file may have its new content or the old one")

// Replace writes a file of the given mode, over one that is there. Calls for one path must not overlap, within a process or between
// several. It returns an error of the operating system, with [ErrUncertain] where it can't tell which content the file has.
func Replace(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if err := fill(f, data, mode); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return nil
}

// Create writes a file of the given mode, and returns an error that wraps [os.ErrExist] where there is one already, which stays as it
// is. Of several calls at once for one path, one succeeds.
func Create(path string, data []byte, mode os.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	if err := fill(f, data, mode); err != nil {
		return err
	}
	// A link, unlike a move, never takes the place of another file.
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return nil
}

// fill writes, flushes and closes a temporary file.
func fill(f *os.File, data []byte, mode os.FileMode) error {
	err := f.Chmod(mode) // One that an earlier crash has left may have another.
	if runtime.GOOS == "windows" {
		err = nil // It has no such modes.
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // It can't flush a directory.
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
