package main

import (
	"errors"
	"io"

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
			"the live stream; money moves both ways; clients take a lock in turn, and a deadlock is broken. Then four more\n" +
			"servers join, and are killed while they send posts, move money to another ledger, draw and hold a lock: the\n" +
			"one that is left finishes it all. A table tells which guarantees held, asked of the database itself. The\n" +
			"server stays up until Ctrl-C.\n\n" +
			"With --database-url all of this happens on that database, where it stays; one more server joins, not four. The\n" +
			"demo brings the schema up to date, and writes about 570 accounts, a campaign and an auction of its own, some\n" +
			"2,800 transfers, 60 publications and two multi-draws, under new ids in each run. It makes an admin key, and\n" +
			"revokes it at the end, and a table, and drops that. Nothing moves to another ledger. The last rows of the\n" +
			"table audit the whole database, so on a large one they take a while.\n\n" +
			"Exit status 0: every guarantee held; 1: one did not.",
		Example: "  fairlead demo\n  fairlead demo --exit --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.Out, d.ErrOut = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if asJSON {
				d.Out, d.Report = io.Discard, func(r *demo.Result) error { return printJSON(cmd, r) }
			}
			collectLess()
			err := d.Run(cmd.Context())
			if errors.Is(err, demo.ErrBroken) {
				return exitCode(1)
			}
			return nameFlag(err)
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.Data, "data", "", "directory to keep the data in; without it a temporary one is used and removed")
	f.StringVar(&d.DatabaseURL, "database-url", "", "PostgreSQL to use instead of a private one; what the demo writes stays there (never taken from the environment)")
	// The environment may name a database in production.
	f.Lookup("database-url").Annotations = map[string][]string{flagOnly: nil}
	f.StringVar(&d.Listen, "listen", "", "address to listen on (default "+demo.DefaultListen+", or a free port when that is taken)")
	f.BoolVar(&d.Exit, "exit", false, "end at once after the table")
	f.BoolVar(&asJSON, "json", false, "print one JSON document of the results instead of the story")
	return cmd
}
