package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/internal/localpg"
)

// newFlags is the verb that makes docs/flags.md; scripts/generate.sh runs it. It is for the repository, so the help doesn't list it.
func newFlags() *cobra.Command {
	return &cobra.Command{
		Use:     "flags",
		Short:   "Print all flags, and their names in the environment, as Markdown",
		Example: "  fairlead flags > docs/flags.md",
		Args:    cobra.NoArgs,
		Hidden:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return documentFlags(cmd.OutOrStdout(), cmd.Root())
		},
	}
}

const flagsIntroduction = `# Flags and environment

A flag has a variable in the environment, unless its table says ` + "`none`" + `: then it counts on the command line only. A flag on the command line
wins over the variable, and the variable over a line such as ` + "`FAIRLEAD_LISTEN=0.0.0.0:8080`" + ` in the file that ` + "`--config`" + ` names. It is one
file for all verbs, and may set the variables below, too; a name with ` + "`FAIRLEAD_`" + ` that is none of these is an error there. In the
environment it is ignored, and ` + "`fairlead serve`" + ` warns of it. Durations have a unit: ` + "`500ms`, `30s`, `10m`, `24h`" + `. This page is made from the code.

These have no flag, so that no secret stands in a list of processes:

| variable | |
|---|---|
| ` + "`" + adminKeyVariable + "`" + ` | the first admin key, 32 or more visible ASCII characters; without it the server makes one, prints it once and keeps it in its data directory |
| ` + "`" + keyVariable + "`" + ` | the key, or user's token, with which the other verbs ask the server that ` + "`--url`" + ` names |
| ` + "`" + mcpTokenVariable + "`" + ` | the bearer token that ` + "`mcp --http`" + ` wants of agents, 32 or more visible ASCII characters; needed beyond loopback addresses |
| ` + "`" + localpg.BinVariable + "`" + ` | the directory of PostgreSQL's programs, for a private PostgreSQL, where they are not found by themselves |

The server sets Go's own ` + "`GOGC`" + ` and ` + "`GOMEMLIMIT`" + ` unless you do: to 400, and to nine tenths of its control group's limit of memory, where it has one. [Traces](operations/traces.md) take the variables of OpenTelemetry, such as ` + "`OTEL_TRACES_SAMPLER`" + `.
`

// documentFlags writes each verb with its flags.
func documentFlags(out io.Writer, root *cobra.Command) error {
	var b strings.Builder
	b.WriteString(flagsIntroduction)
	table(&b, "Every verb", "", root.PersistentFlags(), nil)
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, verb := range cmd.Commands() {
			if verb.Hidden || verb.Name() == "help" || verb.Name() == "completion" {
				continue
			}
			if !verb.HasSubCommands() {
				verb.InheritedFlags() // Merges them into its own.
				table(&b, verb.CommandPath(), verb.Short, verb.Flags(), root.PersistentFlags())
			}
			walk(verb)
		}
	}
	walk(root)
	_, err := io.WriteString(out, b.String())
	return err
}

// table writes the flags of a verb but those that every verb has.
func table(b *strings.Builder, title, about string, flags, every *pflag.FlagSet) {
	fmt.Fprintf(b, "\n## %s\n", title)
	if about != "" {
		fmt.Fprintf(b, "%s.\n", about)
	}
	escape := strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ")
	header := "\n| flag | variable | default | |\n|---|---|---|---|\n"
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" || (every != nil && every.Lookup(f.Name) != nil) {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		spelt := "--" + f.Name
		if name != "" {
			spelt += " " + name
		}
		variable, standard := "`"+environmentName(f.Name)+"`", ""
		if _, only := f.Annotations[flagOnly]; only {
			variable = "none"
		}
		if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" {
			standard = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(b, "%s| `%s` | %s | %s | %s |\n", header, escape.Replace(spelt), variable, standard, escape.Replace(usage))
		header = ""
	})
}
