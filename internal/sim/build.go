//go:build unix

package sim

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build compiles cmd/fairlead, with its crash points, of the module of the working directory into dir, and returns the path of
// the binary. With race, a server that finds a data race says so in its log and ends with code 66.
func Build(ctx context.Context, dir string, race bool) (string, error) {
	return build(ctx, "", dir, race)
}

// BuildAt is Build of another commit of this repository, which must have it.
func BuildAt(ctx context.Context, commit, dir string) (string, error) {
	unpack := exec.CommandContext(ctx, "sh", "-c", `git -C "$(git rev-parse --show-toplevel)" archive "$0" | tar -x -C "$1"`, commit, dir)
	if out, err := unpack.CombinedOutput(); err != nil || len(out) > 0 {
		return "", fmt.Errorf("the repository does not have %s: %w %s", commit, err, out)
	}
	return build(ctx, dir, dir, false)
}

// build compiles the module of the directory from, empty for the working directory.
func build(ctx context.Context, from, dir string, race bool) (string, error) {
	binary := filepath.Join(dir, "fairlead")
	args := []string{"build", "-o", binary, "-ldflags=-w", "-tags", "crashpoints"}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "github.com/fairlead-dev/fairlead/cmd/fairlead")...)
	cmd.Dir = from
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the server does not build: %w\n%s", err, out)
	}
	return binary, nil
}
