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

// BuildOptions choose the variant of the binary.
type BuildOptions struct {
	// Race builds with the race detector; a server that finds a race says so in its log and ends with code 66.
	Race bool
	// CrashPoints builds the named crash points in.
	CrashPoints bool
}

// Build compiles cmd/fairlead of the module that the working directory belongs to into dir and returns the path of
// the binary. The build cache makes a second build cheap.
func Build(ctx context.Context, dir string, opts BuildOptions) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	args := []string{"build", "-o", filepath.Join(dir, "fairlead")}
	if opts.Race {
		args = append(args, "-race")
	}
	if opts.CrashPoints {
		args = append(args, "-tags", "crashpoints")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/fairlead")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %w\n%s", ErrBuild, err, out)
	}
	return filepath.Join(dir, "fairlead"), nil
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
