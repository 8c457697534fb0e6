// Command fairlead is the server, and the tools around it. Its files are verbs, nothing else.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/google/uuid"
)

func main() {
	uuid.EnableRandPool() // Identifiers are no secrets, and five to a command.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default behaviour returns: a second one ends a shutdown that takes too long.
	context.AfterFunc(ctx, stop)
	cmd, err := newRoot().ExecuteContextC(ctx)
	stop()
	var code exitCode
	switch {
	case err == nil:
		return
	case errors.As(err, &code):
		os.Exit(int(code))
	}
	fmt.Fprintln(os.Stderr, "fairlead:", err)
	if isMisspelt(err) {
		fmt.Fprint(os.Stderr, cmd.UsageString())
	}
	if slices.Contains(os.Args, "--json") {
		// Whoever reads the one JSON document gets one in this case too.
		_ = json.NewEncoder(os.Stdout).Encode(map[string]string{"error": err.Error()})
	}
	os.Exit(2)
}

// exitCode ends the process with a status of its own, for verbs that have already said why.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }
