package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/postgres"
)

func newMigrate() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema up to date, or show where it stands",
		Long: "Bring the database's schema up to date, or show where it stands. Migrations go forward only; serve runs them\n" +
			"by itself when it starts.",
		Example: "  fairlead migrate status\n  fairlead migrate up --database-url postgres://db.internal/fairlead",
	})
	act := func(use, short, none string, run func(cmd *cobra.Command, url string) ([]postgres.Migration, error)) {
		var t target
		verb := &cobra.Command{
			Use: use, Short: short, Args: cobra.NoArgs,
			Example: "  fairlead migrate " + use + " --database-url postgres://db.internal/fairlead",
			RunE: func(cmd *cobra.Command, _ []string) error {
				url, err := t.databaseAddress()
				if err != nil {
					return err
				}
				list, err := run(cmd, url)
				if err != nil {
					return err
				}
				return printMigrations(cmd, t.json, list, none)
			},
		}
		t.bindDatabase(verb)
		cmd.AddCommand(verb)
	}
	act("up", "Apply what is pending", "the schema was up to date already", func(cmd *cobra.Command, url string) ([]postgres.Migration, error) {
		return postgres.MigrateReporting(cmd.Context(), url, func(slow string) { _, _ = fmt.Fprintln(cmd.ErrOrStderr(), slow) })
	})
	act("status", "List the steps and whether they are applied", "no migrations", func(cmd *cobra.Command, url string) ([]postgres.Migration, error) {
		return postgres.MigrationStatus(cmd.Context(), url)
	})
	return cmd
}

func printMigrations(cmd *cobra.Command, asJSON bool, list []postgres.Migration, none string) error {
	if list == nil {
		list = []postgres.Migration{}
	}
	return show(cmd, asJSON, map[string]any{"migrations": list}, func(out io.Writer) {
		if len(list) == 0 {
			_, _ = fmt.Fprintln(out, none)
		}
		for _, m := range list {
			state := "pending"
			if m.AppliedAt != nil {
				state = "applied " + m.AppliedAt.UTC().Format(time.RFC3339)
			}
			_, _ = fmt.Fprintf(out, "%05d  %-40s %s\n", m.Version, m.Name, state)
		}
	})
}
