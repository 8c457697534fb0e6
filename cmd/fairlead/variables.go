package main

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/internal/localpg"
)

// variables are what the environment has besides flags.
func variables() []string {
	return []string{adminKeyVariable, keyVariable, mcpTokenVariable, localpg.BinVariable}
}

// settings are the names of all variables that some command reads.
func settings(root *cobra.Command) []string {
	known := append(variables(), environmentName("config"))
	var add func(*cobra.Command)
	add = func(verb *cobra.Command) {
		verb.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, environmentName(f.Name)) })
		for _, below := range verb.Commands() {
			add(below)
		}
	}
	add(root)
	return known
}

// warnOfUnknown says which variables have the name of a setting and are none, since a server with a misspelt one has a default that nobody wants.
// It does not fail: other programs may have such variables, too.
func warnOfUnknown(cmd *cobra.Command, logger *slog.Logger) {
	// Kubernetes makes these for each service whose name begins so.
	services := regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_[0-9]+_[A-Z]+(_PROTO|_PORT|_ADDR)?)$`)
	known, own := settings(cmd.Root()), variables()
	cmd.Flags().VisitAll(func(f *pflag.Flag) { own = append(own, environmentName(f.Name)) })
	environment := os.Environ()
	slices.Sort(environment)
	for _, line := range environment {
		key, value, _ := strings.Cut(line, "=")
		if value == "" || !strings.HasPrefix(key, environmentPrefix) || slices.Contains(known, key) || services.MatchString(key) {
			continue
		}
		said := []any{"variable", key}
		if near := nearest("", key, own); len(near) > 0 {
			said = append(said, "nearest", strings.Join(near, " "))
		}
		logger.WarnContext(cmd.Context(), "a variable of the environment is no setting, and is ignored", said...)
	}
}
