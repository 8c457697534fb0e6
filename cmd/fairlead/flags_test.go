package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestFlagsDocument keeps docs/flags.md and the flags together: every flag of every verb that is not hidden is there, with its variable.
func TestFlagsDocument(t *testing.T) {
	t.Parallel()
	var made bytes.Buffer
	root := newRoot()
	testwait.Must(t, documentFlags(&made, root))
	file, err := os.ReadFile("../../docs/flags.md")
	testwait.Must(t, err)
	if !bytes.Equal(file, made.Bytes()) {
		t.Error("docs/flags.md is not what the code makes: run scripts/generate.sh")
	}
	sections := map[string]string{}
	for _, part := range strings.Split(string(file), "\n## ")[1:] {
		title, text, _ := strings.Cut(part, "\n")
		sections[title] = text
	}
	verbs := 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, verb := range cmd.Commands() {
			if verb.Hidden || verb.Name() == "help" || verb.Name() == "completion" {
				continue
			}
			look(verb)
			if verb.HasSubCommands() {
				continue
			}
			verbs++
			verb.InheritedFlags()
			verb.Flags().VisitAll(func(f *pflag.Flag) {
				if f.Hidden || f.Name == "help" || f.Name == "version" || f.Name == "config" {
					return
				}
				_, flagAlone := f.Annotations[flagOnly]
				text := sections[verb.CommandPath()]
				if !strings.Contains(text, "`--"+f.Name) || !flagAlone && !strings.Contains(text, "`"+environmentName(f.Name)+"`") {
					t.Errorf("%s: --%s is not in docs/flags.md", verb.CommandPath(), f.Name)
				}
			})
		}
	}
	look(root)
	if verbs < 20 {
		t.Errorf("only %d verbs", verbs)
	}
}

// TestEveryVerbPrintsJSON looks for --json at each verb but serve, which runs until it is ended and prints nothing.
func TestEveryVerbPrintsJSON(t *testing.T) {
	t.Parallel()
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, verb := range cmd.Commands() {
			look(verb)
			if verb.HasSubCommands() || verb.Hidden || verb.Name() == "help" || verb.Name() == "serve" {
				continue
			}
			verb.InheritedFlags()
			if verb.Flags().Lookup("json") == nil {
				t.Errorf("%s has no --json", verb.CommandPath())
			}
		}
	}
	look(newRoot())
}
