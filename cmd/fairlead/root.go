package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/joho/godotenv"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead"
)

// adminKeyVariable sets the first admin key of serve.
const adminKeyVariable = "FAIRLEAD_ADMIN_KEY"

// newRoot builds the command tree.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "fairlead",
		Short: "Decides contended things exactly once",
		Long: "Fairlead sells the last ticket once, draws winners once, and moves money once, on PostgreSQL.\n\n" +
			"Every flag can be given in the environment: --database-url as FAIRLEAD_DATABASE_URL. Flags win over the\n" +
			"environment, and the environment over the file named by --config (lines of FAIRLEAD_NAME=value).",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       fairlead.Version(),
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return bindEnvironment(cmd.Flags())
		},
	}
	root.PersistentFlags().String("config", "", "file of FAIRLEAD_NAME=value lines")
	root.SetFlagErrorFunc(nearestFlag)
	root.AddCommand(newServe(), newDemo(), newVerify(), newMultidraw(), newIntegrity(), newDoctor(), newMigrate(), newKeys(), newSagas(), newConsole(), newTop(), newVersion())
	nameNearest(root)
	return root
}

// group makes a verb that has only further verbs: without one of them it shows its help and fails.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cmd.Help(); err != nil {
			return err
		}
		return exitCode(2)
	}
	return cmd
}

// nameNearest makes verbs with further verbs, and help, refuse a word that is none of those, and say which is nearest.
func nameNearest(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	known := func(cmd *cobra.Command, words []string) error {
		if len(words) == 0 || !cmd.HasSubCommands() {
			return nil
		}
		cmd.SuggestionsMinimumDistance = 2
		return fmt.Errorf("unknown command %q for %q%s", words[0], cmd.CommandPath(), didYouMean(cmd.SuggestionsFor(words[0])))
	}
	for _, verb := range root.Commands() {
		switch {
		case verb.Name() == "help":
			verb.Args = func(_ *cobra.Command, words []string) error {
				found, rest, err := root.Find(words)
				if err != nil {
					return err
				}
				return known(found, rest)
			}
		case verb.HasSubCommands():
			verb.Args = known
			if !verb.Runnable() { // Cobra asks Args for no other.
				verb.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			}
		}
	}
}

// nearestFlag adds to the error of a misspelt flag which one was meant.
func nearestFlag(cmd *cobra.Command, err error) error {
	name, misspelt := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !misspelt {
		return err
	}
	var flags cobra.Command // It knows which of its verbs is nearest, so they are verbs for a moment.
	flags.SuggestionsMinimumDistance = 2
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	nearest := flags.SuggestionsFor(name)
	for i := range nearest {
		nearest[i] = "--" + nearest[i]
	}
	return fmt.Errorf("%w%s", err, didYouMean(nearest))
}

// didYouMean is how cobra says which verbs are near.
func didYouMean(nearest []string) string {
	if len(nearest) == 0 {
		return ""
	}
	return "\n\nDid you mean this?\n\t" + strings.Join(nearest, "\n\t") + "\n"
}

// isMisspelt reports whether an error is that of a verb or a flag that does not exist.
func isMisspelt(err error) bool {
	return strings.HasPrefix(err.Error(), "unknown command") || strings.HasPrefix(err.Error(), "unknown flag") || strings.HasPrefix(err.Error(), "unknown shorthand flag")
}

// bindEnvironment sets every flag that was not given from the environment or, failing that, from the file.
func bindEnvironment(flags *pflag.FlagSet) error {
	file := map[string]string{}
	name := os.Getenv(environmentName("config"))
	if f := flags.Lookup("config"); f != nil && f.Changed {
		name = f.Value.String()
	}
	if name != "" {
		var err error
		if file, err = godotenv.Read(name); err != nil {
			return fmt.Errorf("--config: %w", err)
		}
	}
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || failed != nil || f.Name == "help" || f.Name == "version" {
			return
		}
		key := environmentName(f.Name)
		value, ok := os.LookupEnv(key)
		if !ok {
			value, ok = file[key]
		}
		if ok && value != "" {
			if err := flags.Set(f.Name, value); err != nil {
				failed = fmt.Errorf("%s: %w", key, err)
			}
		}
	})
	if key, ok := file[adminKeyVariable]; ok && os.Getenv(adminKeyVariable) == "" {
		failed = os.Setenv(adminKeyVariable, key)
	}
	return failed
}

func environmentName(flag string) string {
	return "FAIRLEAD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// newLogger writes to standard error, as text or as JSON.
func newLogger(format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, o)), nil
	}
	return nil, fmt.Errorf("--log-format must be text or json, not %q", format)
}
