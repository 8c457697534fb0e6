package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestHelp: each verb has an example of itself, whose flags exist, and each flag says what it is for.
func TestHelp(t *testing.T) {
	t.Parallel()
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, verb := range cmd.Commands() {
			if verb.Name() != "completion" && verb.Name() != "help" { // They are cobra's.
				look(verb)
			}
		}
		if !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s: no example of it in %q", cmd.CommandPath(), cmd.Example)
		}
		for line := range strings.Lines(cmd.Example) {
			_, words, found := strings.Cut(strings.SplitN(line, "#", 2)[0], "fairlead ")
			if !found {
				continue
			}
			verb, rest, err := cmd.Root().Find(strings.Fields(strings.SplitN(strings.SplitN(words, " | ", 2)[0], "| ", 2)[0]))
			if err != nil {
				t.Errorf("%q: %v", line, err)
				continue
			}
			for _, word := range rest {
				if name, ok := strings.CutPrefix(word, "--"); ok && verb.Flag(name) == nil {
					t.Errorf("%q: there is no --%s", line, name)
				}
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: --%s has no description", cmd.CommandPath(), f.Name)
			}
		})
	}
	look(newRoot())
}
