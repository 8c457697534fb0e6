package main

import (
	"errors"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/demo"
)

func newDemo() *cobra.Command {
	var (
		d      demo.Demo
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole story in one terminal",
		Long: "Show the whole story in one terminal, on a private PostgreSQL: 500 buyers race for 210 positions over HTTP,\n" +
			"winners are drawn once, the proof is checked offline; bots bid in an auction of three rounds, watched over\n" +
			"the live stream; money moves both ways; and a table tells which guarantees held, asked of the database\n" +
			"itself. Then the server stays up until Ctrl-C.\n\n" +
			"Exit status 0: every guarantee held; 1: one did not.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.Out, d.ErrOut = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if asJSON {
				d.Out, d.Report = io.Discard, func(r *demo.Result) error { return printJSON(cmd, r) }
			}
			// A closed terminal must not leave a PostgreSQL behind.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
			defer stop()
			collectLess()
			err := d.Run(ctx)
			if errors.Is(err, demo.ErrBroken) {
				return exitCode(1)
			}
			return nameFlag(err)
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.Data, "data", "", "directory to keep the data in; without it a temporary one is used and removed")
	f.StringVar(&d.Listen, "listen", "", "address to listen on (default "+demo.DefaultListen+", or a free port when that is taken)")
	f.BoolVar(&d.Exit, "exit", false, "end at once after the table")
	f.BoolVar(&asJSON, "json", false, "print one JSON document of the results instead of the story")
	return cmd
}
