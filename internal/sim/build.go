//go:build unix

package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrBuild is returned when the server's binary does not build; it wraps what the compiler said.
var ErrBuild = errors.New("the server does not build")

// Build compiles cmd/fairlead, with its crash points, of the module of the working directory into dir, and returns the path of
// the binary. With race, a server that finds a data race says so in its log and ends with code 66.
func Build(ctx context.Context, dir string, race bool) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "fairlead")
	args := []string{"build", "-o", binary, "-tags", "crashpoints"}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/fairlead")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %w\n%s", ErrBuild, err, out)
	}
	return binary, nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", fmt.Errorf("find the module: the working directory is in none")
	}
	return filepath.Dir(mod), nil
}
