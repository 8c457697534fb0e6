package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
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
			"Flags can be given in the environment: --database-url as FAIRLEAD_DATABASE_URL. Flags win over the environment,\n" +
			"and the environment over the file named by --config (lines such as FAIRLEAD_LISTEN=0.0.0.0:8080). A few flags,\n" +
			"such as those of torture, count on the command line only: docs/flags.md names them. Durations have a unit:\n" +
			"500ms, 30s, 10m, 24h.\n\n" +
			"Start with fairlead demo, which shows everything in one terminal, or with fairlead serve. The other commands find a\n" +
			"server that was started in the same directory; else give --url with a key in " + keyVariable + ", --database-url, or --data.",
		Example: "  fairlead demo\n" +
			"  fairlead serve --listen 127.0.0.1:8080 --data ~/fairlead-data\n" +
			"  fairlead doctor --data ~/fairlead-data",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       fairlead.Version(),
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			file, err := readConfig(cmd)
			if err != nil {
				return err
			}
			return bindEnvironment(cmd.Flags(), file)
		},
	}
	root.PersistentFlags().String("config", "", "file of lines such as FAIRLEAD_LISTEN=0.0.0.0:8080")
	root.SetFlagErrorFunc(nearestFlag)
	for _, part := range []struct {
		title string
		verbs []*cobra.Command
	}{
		{"Run a server, or a witness:", []*cobra.Command{newDemo(), newServe(), newWitness()}},
		{"Watch and check:", []*cobra.Command{newConsole(), newTop(), newDoctor(), newConformance(), newIntegrity(), newVerify(), newAudit(), newTorture()}},
		{"Work with a server:", []*cobra.Command{newKeys(), newLog(), newMCP(), newMultidraw(), newSagas(), newMigrate(), newArchive()}},
	} {
		root.AddGroup(&cobra.Group{ID: part.title, Title: part.title})
		for _, verb := range part.verbs {
			verb.GroupID = part.title
			root.AddCommand(verb)
		}
	}
	root.AddCommand(newVersion(), newFlags())
	nameNearest(root)
	return root
}

// group makes a verb that has only further verbs: without one of them it shows its help, as an error, and fails.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SetOut(cmd.ErrOrStderr())
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
	completeAsJSON(root)
	known := func(cmd *cobra.Command, words []string) error {
		if len(words) == 0 || !cmd.HasSubCommands() {
			return nil
		}
		return unknownVerb(cmd, words[0])
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

// unknownVerb is the error of a word in the place of a verb below another one.
func unknownVerb(cmd *cobra.Command, word string) error {
	cmd.SuggestionsMinimumDistance = 2
	return fmt.Errorf("unknown command %q for %q%s", word, cmd.CommandPath(), didYouMean(cmd.SuggestionsFor(word)))
}

// nearestFlag adds to the error of a misspelt flag which one was meant. Where a misspelt verb stands before it, the flag may well be that verb's.
func nearestFlag(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasParent() && cmd.HasSubCommands() && len(words) > 0 {
		return unknownVerb(cmd, words[0])
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if hint := explainValue(bad.GetFlag()); hint != "" {
			return fmt.Errorf("--%s can't be %q: %s", bad.GetFlag().Name, bad.GetValue(), hint)
		}
	}
	name, misspelt := strings.CutPrefix(err.Error(), "unknown flag: --")
	if _, word, short := strings.Cut(err.Error(), "' in -"); !misspelt && short { // Such as -listen, which Go's own flags would take.
		name, _, _ = strings.Cut(word, "=")
		misspelt = len(name) > 1
	}
	if !misspelt {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return fmt.Errorf("%w%s", err, didYouMean(nearest("--", name, names)))
}

// nearest are those names, with the prefix, that may have been meant by a misspelt one.
func nearest(prefix, misspelt string, names []string) (near []string) {
	var verbs cobra.Command // It knows which of its verbs is nearest, so the names are verbs for a moment.
	verbs.SuggestionsMinimumDistance = 2
	for _, name := range names {
		verbs.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	for _, name := range verbs.SuggestionsFor(misspelt) {
		near = append(near, prefix+name)
	}
	return near
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
	return errors.Is(err, errUsage) || strings.HasPrefix(err.Error(), "unknown command") || strings.HasPrefix(err.Error(), "unknown flag") || strings.HasPrefix(err.Error(), "unknown shorthand flag")
}

// errUsage is wrapped where the arguments are not as the usage has them.
var errUsage = errors.New("wrong usage")

// one wants one argument.
func one(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%w: %s needs one argument, %s, and got %d", errUsage, strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" "), what, len(args))
		}
		return nil
	}
}

// flagOnly is the annotation of flags that are never taken from the environment.
const flagOnly = "flag only"

// readConfig reads the file that --config names. It is one file for all verbs, so that each name must be a setting of one of them: a misspelt one
// would leave a server with its default, and nobody would know.
func readConfig(cmd *cobra.Command) (map[string]string, error) {
	name := os.Getenv(environmentName("config"))
	if f := cmd.Flags().Lookup("config"); f != nil && f.Changed {
		name = f.Value.String()
	}
	if name == "" {
		return nil, nil
	}
	file, err := godotenv.Read(name)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	known := settings(cmd.Root())
	for _, key := range slices.Sorted(maps.Keys(file)) {
		if strings.HasPrefix(key, environmentPrefix) && !slices.Contains(known, key) {
			return nil, fmt.Errorf("--config: %s sets %s, which is no setting of any command%s", name, key, didYouMean(nearest("", key, known)))
		}
	}
	for _, key := range variables() {
		if file[key] != "" && os.Getenv(key) == "" {
			if err := os.Setenv(key, file[key]); err != nil {
				return nil, fmt.Errorf("--config: %w", err)
			}
		}
	}
	return file, nil
}

// bindEnvironment sets every flag that was not given from the environment or, failing that, from the file.
func bindEnvironment(flags *pflag.FlagSet, file map[string]string) error {
	chosen, err := chosenTarget(flags)
	if err != nil {
		return err
	}
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		_, given := f.Annotations[flagOnly]
		if f.Changed || failed != nil || given || f.Name == "help" || f.Name == "version" {
			return
		}
		if _, target := f.Annotations[namesTarget]; target && chosen { // Not the one that the environment names.
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
				if hint := explainValue(f); hint != "" {
					failed = fmt.Errorf("%s: can't be %q: %s", key, value, hint)
				}
			}
		}
	})
	return failed
}

// chosenTarget reports whether a server or a database was named on the command line.
func chosenTarget(flags *pflag.FlagSet) (bool, error) {
	var names []string
	several := false
	flags.Visit(func(f *pflag.Flag) {
		if how, target := f.Annotations[namesTarget]; target {
			names = append(names, "--"+f.Name)
			several = slices.Contains(how, besideOthers)
		}
	})
	if len(names) > 1 && !several {
		return false, fmt.Errorf("%s each name a server or a database: give one of them", strings.Join(names, " and "))
	}
	return len(names) > 0, nil
}

const environmentPrefix = "FAIRLEAD_"

func environmentName(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// newLogger writes to standard error, as text or as JSON.
func newLogger(format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level must be debug, info, warn or error, not %q", level)
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
