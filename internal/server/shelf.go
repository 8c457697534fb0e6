package server

import (
	chain "container/list"
	"context"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// shelf is a cache of values that take long to make and never change. It keeps the most recently used, up to a number and a
// size, and makes each value once for all concurrent callers. It is safe for concurrent use.
type shelf[V any] struct {
	most    int
	size    int64
	discard func(V)

	flights singleflight.Group
	mu      sync.Mutex
	kept    map[string]*chain.Element // values are *shelved[V]
	byUse   *chain.List               // latest first
	filled  int64
}

type shelved[V any] struct {
	key   string
	value V
	size  int64
	users int
	gone  bool // from the shelf; the last user discards it
}

func newShelf[V any](most int, size int64, discard func(V)) *shelf[V] {
	return &shelf[V]{most: most, size: size, discard: discard, kept: map[string]*chain.Element{}, byUse: chain.New()}
}

// get returns what is kept under key, or has it made. It may be used until done is called. A caller that goes away leaves
// the value to the others, so fill must not depend on ctx. All waiting callers get a failure, and it is not kept.
func (s *shelf[V]) get(ctx context.Context, key string, fill func() (V, int64, error)) (value V, done func(), err error) {
	for {
		if value, done, ok := s.take(key); ok {
			return value, done, nil
		}
		made := s.flights.DoChan(key, func() (_ any, err error) {
			defer func() {
				if p := recover(); p != nil {
					err = &groupcommit.PanicError{Value: p, Stack: debug.Stack()}
				}
			}()
			value, size, err := fill()
			if err == nil {
				s.keep(key, value, size)
			}
			return nil, err
		})
		select {
		case m := <-made:
			if m.Err != nil {
				return value, nil, m.Err
			}
		case <-ctx.Done():
			return value, nil, ctx.Err()
		}
	}
}

// read is get of what a short look into the database gives. It has its time, and goes on when the first caller goes away.
func (s *shelf[V]) read(ctx context.Context, key string, fill func(context.Context) (V, int64, error)) (V, error) {
	v, done, err := s.get(ctx, key, func() (V, int64, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), edge.CommandTimeout)
		defer cancel()
		return fill(ctx)
	})
	if err == nil {
		done()
	}
	return v, err
}

func (s *shelf[V]) take(key string) (value V, done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.kept[key]
	if !ok {
		return value, nil, false
	}
	s.byUse.MoveToFront(e)
	v := e.Value.(*shelved[V]) //nolint:errcheck,forcetypeassert // The list has nothing else.
	v.users++
	return v.value, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		v.users--
		s.discardUnused(v)
	}), true
}

func (s *shelf[V]) keep(key string, value V, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[key] = s.byUse.PushFront(&shelved[V]{key: key, value: value, size: size})
	s.filled += size
	// The newest value stays, however large it is: somebody waits for it.
	for s.byUse.Len() > 1 && (s.byUse.Len() > s.most || s.filled > s.size) {
		s.remove(s.byUse.Back())
	}
}

func (s *shelf[V]) remove(e *chain.Element) {
	v := s.byUse.Remove(e).(*shelved[V]) //nolint:errcheck,forcetypeassert // As above.
	delete(s.kept, v.key)
	s.filled -= v.size
	v.gone = true
	s.discardUnused(v)
}

func (s *shelf[V]) discardUnused(v *shelved[V]) {
	if v.gone && v.users == 0 && s.discard != nil {
		s.discard(v.value)
	}
}

// clear empties the shelf.
func (s *shelf[V]) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.byUse.Len() > 0 {
		s.remove(s.byUse.Back())
	}
}

// answerFile is an answer that is kept in a file, where even the largest takes no memory. The file has no name, so that nothing
// of it outlives the process.
type answerFile struct {
	file *os.File
	size int64
	name string // to be removed at the end, on systems that cannot remove what is open
}

// newAnswerFile writes a document to a file in dir, which is empty for the system's directory of temporary files.
func newAnswerFile(dir string, write func(io.Writer) error) (_ *answerFile, err error) {
	f, err := os.CreateTemp(dir, "fairlead-document-*")
	if err != nil {
		return nil, err //nolint:wrapcheck // It names the operation and the file.
	}
	d := &answerFile{file: f}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if os.Remove(f.Name()) != nil {
		d.name = f.Name()
	}
	if err := write(f); err != nil {
		return nil, err
	}
	d.size, err = f.Seek(0, io.SeekCurrent)
	return d, err //nolint:wrapcheck // As above.
}

func (d *answerFile) close() {
	err := d.file.Close()
	if d.name != "" {
		err = errors.Join(err, os.Remove(d.name))
	}
	_ = err // Nothing in it is needed again.
}
