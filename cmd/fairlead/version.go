package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead"
)

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  fairlead version --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := map[string]string{"version": fairlead.Version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}
			return show(cmd, asJSON, v, func(out io.Writer) {
				_, _ = fmt.Fprintf(out, "fairlead %s (%s, %s/%s)\n", v["version"], v["go"], v["os"], v["arch"])
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}
