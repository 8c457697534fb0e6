package logkeeper

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/durable"
	"github.com/fairlead-dev/fairlead/translog"
)

// Guard is a file with the last checkpoint that was signed here. It is apart from the database, so that a restore of that is noticed.
type Guard struct{ path string }

// NewGuard returns the guard in a file, which need not be there yet. An empty path is a guard that keeps nothing.
func NewGuard(path string) *Guard { return &Guard{path} }

// Last reads the last checkpoint that a key has signed; the empty tree where there is none. One of another key, of a log that was
// ended, does not count.
func (g *Guard) Last(verifier string) (tlog.Tree, error) {
	if g.path == "" {
		return tlog.Tree{}, nil
	}
	text, err := os.ReadFile(g.path)
	if errors.Is(err, os.ErrNotExist) {
		return tlog.Tree{}, nil
	}
	if err != nil {
		return tlog.Tree{}, err
	}
	tree, err := TreeOf(string(text), verifier)
	if errors.Is(err, translog.ErrUnsigned) {
		return tlog.Tree{}, nil
	}
	if err != nil {
		return tlog.Tree{}, fmt.Errorf("%s is no signed checkpoint: %w", g.path, err)
	}
	return tree, nil
}

// Keep writes a checkpoint. When it returns, it is on the disk.
func (g *Guard) Keep(checkpoint string) error {
	if g.path == "" {
		return nil
	}
	return durable.Replace(g.path, []byte(checkpoint), 0o600)
}
