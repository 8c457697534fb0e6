package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// TestShelf looks at what is kept, and when it is discarded.
func TestShelf(t *testing.T) {
	t.Parallel()
	var discarded []string
	s := newShelf(2, 100, func(v string) { discarded = append(discarded, v) })
	made := 0
	get := func(key string, size int64) func() {
		t.Helper()
		v, done, err := s.get(t.Context(), key, func() (string, int64, error) { made++; return "of " + key, size, nil })
		must(t, err)
		if v != "of "+key {
			t.Fatalf("%s gives %q", key, v)
		}
		return done
	}
	keep := func(want string) {
		t.Helper()
		if got := fmt.Sprint(made, discarded); got != want {
			t.Fatalf("made and discarded: %s, want %s", got, want)
		}
	}
	get("a", 40)()
	get("a", 40)()
	keep("1 []")
	useB := get("b", 40)
	get("a", 40)()
	keep("2 []")
	get("c", 40)() // b was used longest ago, and is in use.
	keep("3 []")
	useB()
	useB()
	keep("3 [of b]")
	get("d", 500)() // It alone is larger than everything may be.
	keep("4 [of b of a of c]")
	useD := get("d", 500)
	s.clear()
	keep("4 [of b of a of c]")
	useD()
	keep("4 [of b of a of c of d]")

	boom := errors.New("boom")
	if _, _, err := s.get(t.Context(), "e", func() (string, int64, error) { return "", 0, boom }); !errors.Is(err, boom) {
		t.Errorf("a failure is told as %v", err)
	}
	if _, _, err := s.get(t.Context(), "e", func() (string, int64, error) { panic("oh") }); err == nil {
		t.Error("a panic is no error")
	}
	get("e", 1)()
}

// TestShelfMakesOnce asks for the same thing from many sides, one of which goes away.
func TestShelfMakesOnce(t *testing.T) {
	t.Parallel()
	s := newShelf[int](2, 100, nil)
	began, goOn := make(chan struct{}), make(chan struct{})
	made := 0
	fill := func() (int, int64, error) {
		made++
		close(began)
		<-goOn
		return 7, 1, nil
	}
	impatient, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, _, err := s.get(impatient, "x", fill)
		gone <- err
	}()
	<-began
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the one who went away is told %v", err)
	}
	var others sync.WaitGroup
	for range 20 {
		others.Go(func() {
			v, done, err := s.get(t.Context(), "x", fill)
			if err != nil || v != 7 {
				t.Errorf("%d, %v", v, err)
				return
			}
			done()
		})
	}
	close(goOn)
	others.Wait()
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

// TestShelfMakesOnceInARow: who looks before a value is kept, and asks for it afterwards, does not have it made again.
func TestShelfMakesOnceInARow(t *testing.T) {
	t.Parallel()
	var made atomic.Int64
	s := newShelf[int](2, 100, nil)
	for range 2000 {
		made.Store(0)
		s.clear()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				_, done, err := s.get(t.Context(), "x", func() (int, int64, error) { made.Add(1); return 7, 1, nil })
				if err != nil {
					t.Error(err)
					return
				}
				done()
			})
		}
		if all.Wait(); made.Load() != 1 {
			t.Fatalf("made %d times", made.Load())
		}
	}
}

// TestAnswerFileIsGone looks for what a file leaves behind: nothing, whether it was written or not.
func TestAnswerFileIsGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := newAnswerFile(dir, func(w io.Writer) error {
		_, err := io.WriteString(w, "all of it")
		return err
	})
	must(t, err)
	read, err := io.ReadAll(io.NewSectionReader(d.file, 0, d.size))
	must(t, err)
	if string(read) != "all of it" {
		t.Errorf("it has %q", read)
	}
	d.close()
	boom := errors.New("boom")
	if _, err := newAnswerFile(dir, func(io.Writer) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("a failure is told as %v", err)
	}
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) > 0 {
		t.Errorf("%d files are left", len(left))
	}
}
