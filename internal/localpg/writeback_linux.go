package localpg

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// writeBackEvery is how often writeBack looks for files that were written.
const writeBackEvery = time.Second

// writeBack has the kernel write what PostgreSQL has written to its tables and indexes, each second, until ctx ends. By itself the kernel
// writes it 30 s later and all at once, and commits wait for the disk meanwhile: for 100 to 240 ms were measured, every 31 s. Nothing rests on
// it, since checkpoints sync these files: what can't be looked at is left out.
func (i *Instance) writeBack(ctx context.Context) {
	for since := time.Now(); wait.For(ctx, writeBackEvery); {
		began := time.Now()
		err := writeBackSince(filepath.Join(i.layout.data(), "base"), since)
		if errors.Is(err, errors.ErrUnsupported) {
			i.log.Info("this kernel can't be told to write PostgreSQL's files early: commits may wait for the disk every 30 s", "error", err)
			return
		}
		if err != nil {
			i.log.Debug("not all of PostgreSQL's files are written back early", "error", err)
		}
		since = began.Add(-writeBackEvery) // Times of files are a little behind the clock.
	}
}

// writeBackSince begins to write the files below dir that were written since. It does not wait for the disk, unless that has as much to do as
// the kernel lets it have.
func writeBackSince(dir string, since time.Time) error {
	var failures []error
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil && info.ModTime().After(since) {
				err = writeBackFile(path)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // Tables are dropped at any time.
			failures = append(failures, err)
		}
		return nil
	})
	return errors.Join(append(failures, err)...)
}

func writeBackFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // Nothing was written through it.
	return unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}
