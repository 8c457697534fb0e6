package archive_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/archive"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// half returns the names of the files in the archives' directories that end like those that are not whole yet.
func (w *world) half() []string {
	w.t.Helper()
	paths, err := filepath.Glob(filepath.Join(w.directory, "*", "*.tmp"))
	testwait.Must(w.t, err)
	for i := range paths {
		paths[i] = filepath.Base(paths[i])
	}
	return paths
}

// TestLeftovers has files in an archive's directory that a killed run has left. A run removes them, and no others, and none that another run writes.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	leave := func(archive, name string) {
		path := filepath.Join(w.directory, archive, name)
		testwait.Must(t, os.MkdirAll(filepath.Dir(path), 0o750))
		testwait.Must(t, os.WriteFile(path, []byte("half"), 0o600))
	}
	others := []string{"entries.csv.gz.tmp", "entries.csv.gz.12a.tmp", "mine.12.tmp"}
	first := "0001-before-20250201"
	for _, name := range append([]string{"entries.csv.gz.1.tmp", "purchases-2.csv.gz.33.tmp", "manifest.json.4.tmp"}, others...) {
		leave(first, name)
	}
	slices.Sort(others)
	beside := false
	w.run(archive.Options{Before: february, Progress: func(p archive.Progress) {
		if beside || !strings.HasPrefix(p.Doing, "copying") {
			return
		}
		beside = true
		before := w.half()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		_, err := archive.Run(ctx, w.pool, archive.Options{Before: february, Directory: w.directory, Progress: func(archive.Progress) { end() }})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the run beside it: %v", err)
		}
		if after := w.half(); len(before) != len(others)+4 || !slices.Equal(after, before) {
			t.Errorf("a run beside it left %q of %q", after, before)
		}
	}})
	if left := w.half(); !beside || !slices.Equal(left, others) {
		t.Errorf("%q are left, want %q", left, others)
	}

	// Those of an archive that is made go with the next run.
	leave(first, "transfers.csv.gz.5.tmp")
	w.run(archive.Options{Before: february, DryRun: true})
	if left := w.half(); len(left) != len(others)+1 {
		t.Errorf("a dry run has left %q", left)
	}
	w.run(archive.Options{Before: february})
	if left := w.half(); !slices.Equal(left, others) {
		t.Errorf("%q are left, want %q", left, others)
	}
	if c, err := archive.Check(t.Context(), w.pool, w.directory, nil); err != nil || c.Archives != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}
