package main

import (
	"fmt"
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
	})
	var up, status target
	upCmd := &cobra.Command{
		Use: "up", Short: "Apply what is pending", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, err := up.databaseAddress()
			if err != nil {
				return err
			}
			applied, err := postgres.Migrate(cmd.Context(), url)
			if err != nil {
				return err
			}
			return printMigrations(cmd, up.json, applied, "the schema was up to date already")
		},
	}
	statusCmd := &cobra.Command{
		Use: "status", Short: "List the steps and whether they are applied", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, err := status.databaseAddress()
			if err != nil {
				return err
			}
			all, err := postgres.MigrationStatus(cmd.Context(), url)
			if err != nil {
				return err
			}
			return printMigrations(cmd, status.json, all, "no migrations")
		},
	}
	up.bindDatabase(upCmd)
	status.bindDatabase(statusCmd)
	cmd.AddCommand(upCmd, statusCmd)
	return cmd
}

func printMigrations(cmd *cobra.Command, asJSON bool, list []postgres.Migration, none string) error {
	if asJSON {
		if list == nil {
			list = []postgres.Migration{}
		}
		return printJSON(cmd, map[string]any{"migrations": list})
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), none)
		return err
	}
	for _, m := range list {
		state := "pending"
		if m.AppliedAt != nil {
			state = "applied " + m.AppliedAt.UTC().Format(time.RFC3339)
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%05d  %-40s %s\n", m.Version, m.Name, state); err != nil {
			return err
		}
	}
	return nil
}
