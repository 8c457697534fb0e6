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
	_ "time/tzdata" // For automations, where the machine has no time zones.

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // For webhooks and beacons, where the machine has no certificates.
)

func main() {
	uuid.EnableRandPool() // Identifiers are no secrets, and five to a command.
	ending := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it. Else a closed terminal must not leave a PostgreSQL behind.
		ending = append(ending, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ending...)
	// After the first signal the default behaviour returns: a second one ends a shutdown that takes too long. But not SIGHUP, which
	// the shell and the kernel both send when a terminal is closed.
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP)
		stop()
	})
	cmd, err := newRoot().ExecuteContextC(ctx)
	stop()
	var code exitCode
	switch {
	case err == nil:
		return
	case errors.As(err, &code):
		os.Exit(int(code))
	}
	report(cmd, err)
	os.Exit(2)
}

// report says what is wrong, and what to do next. The usage comes first: it may be longer than the terminal.
func report(cmd *cobra.Command, err error) {
	if isMisspelt(err) {
		fmt.Fprintln(os.Stderr, cmd.UsageString())
	}
	said := map[string]string{"error": say(err)}
	fmt.Fprintln(os.Stderr, "fairlead:", said["error"])
	step := nextStep(err)
	if isMisspelt(err) {
		step = cmd.CommandPath() + " --help tells what there is"
	}
	if step != "" {
		said["next_step"] = step
		fmt.Fprintln(os.Stderr, "next step:", step)
	}
	if slices.Contains(os.Args, "--json") {
		// Whoever reads the one JSON document gets one in this case too.
		_ = json.NewEncoder(os.Stdout).Encode(said)
	}
}

// exitCode ends the process with a status of its own, for verbs that have already said why.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }
