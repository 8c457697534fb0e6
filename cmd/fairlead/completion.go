package main

import (
	"bytes"
	"io"

	"github.com/spf13/cobra"
)

// completeAsJSON gives cobra's verbs of completion the flag --json, which all verbs have: the script is in one document then.
func completeAsJSON(root *cobra.Command) {
	either := func(described, bare func(io.Writer) error) func(io.Writer, bool) error {
		return func(w io.Writer, descriptions bool) error {
			if descriptions {
				return described(w)
			}
			return bare(w)
		}
	}
	scripts := map[string]func(w io.Writer, descriptions bool) error{
		"bash":       root.GenBashCompletionV2,
		"zsh":        either(root.GenZshCompletion, root.GenZshCompletionNoDesc),
		"fish":       root.GenFishCompletion,
		"powershell": either(root.GenPowerShellCompletionWithDesc, root.GenPowerShellCompletion),
	}
	completion, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	for _, shell := range completion.Commands() {
		script, plain := scripts[shell.Name()], shell.RunE
		var asJSON bool
		shell.Flags().BoolVar(&asJSON, "json", false, "print one JSON document, with the script in it")
		shell.RunE = func(cmd *cobra.Command, args []string) error {
			if !asJSON {
				return plain(cmd, args)
			}
			var text bytes.Buffer
			bare, err := cmd.Flags().GetBool("no-descriptions")
			if err == nil {
				err = script(&text, !bare)
			}
			if err != nil {
				return err
			}
			return printJSON(cmd, map[string]string{"shell": cmd.Name(), "script": text.String()})
		}
	}
}
