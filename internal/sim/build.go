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
	binary := filepath.Join(dir, "fairlead")
	args := []string{"build", "-o", binary, "-tags", "crashpoints"}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "github.com/fairlead-dev/fairlead/cmd/fairlead")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the server does not build: %w\n%s", err, out)
	}
	return binary, nil
}
