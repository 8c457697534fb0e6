package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/durable"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestReplace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	// What a crash has left, longer and readable by all.
	testwait.Must(t, os.WriteFile(path+".tmp", []byte("left by a crash"), 0o644))
	for _, text := range []string{"one", "another", ""} {
		testwait.Must(t, durable.Replace(path, []byte(text), 0o600))
		got, err := os.ReadFile(path)
		testwait.Must(t, err)
		if string(got) != text {
			t.Errorf("%q, want %q", got, text)
		}
		info, err := os.Stat(path)
		testwait.Must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("mode %04o", info.Mode().Perm())
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	testwait.Must(t, err)
	if len(entries) != 1 {
		t.Errorf("%d files are left", len(entries))
	}
}

// TestReplaceSaysWhatIsKnown tells a write that changed nothing from one that may have.
func TestReplaceSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := durable.Replace(filepath.Join(dir, "absent", "file"), nil, 0o600); !errors.Is(err, os.ErrNotExist) || errors.Is(err, durable.ErrUncertain) {
		t.Errorf("no directory: %v", err)
	}
	occupied := filepath.Join(dir, "occupied")
	testwait.Must(t, os.MkdirAll(filepath.Join(occupied, "by a directory"), 0o700))
	if err := durable.Replace(occupied, nil, 0o600); !errors.Is(err, durable.ErrUncertain) {
		t.Errorf("the file can't be moved to its place: %v", err)
	}
}

func TestCreateOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	var made atomic.Int64
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			switch err := durable.Create(path, []byte("text"), 0o600); {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, os.ErrExist):
				t.Error(err)
			}
		})
	}
	wait.Wait()
	entries, err := os.ReadDir(filepath.Dir(path))
	testwait.Must(t, err)
	if made.Load() != 1 || len(entries) != 1 {
		t.Errorf("%d calls have made it, %d files are there", made.Load(), len(entries))
	}
}
