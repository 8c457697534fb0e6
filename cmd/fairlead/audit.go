package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/translog/audit"
)

// progressEvery is how often a long audit says how far it is, on standard error.
const progressEvery = 10 * time.Second

func newAudit() *cobra.Command {
	var (
		o      audit.Options
		watch  bool
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "audit URL",
		Short: "Judge a server's public log: every draw, auction and closing of the books",
		Long: "Judge a server's public log from outside. It reads all leaves, checks them against the tree that the log has signed, draws\n" +
			"the winners of campaigns again, replays auctions, makes multi-draws again, and adds up the books. It names the first leaf that\n" +
			"does not follow. It needs no API key, and asks the server for nothing but its log.\n\n" +
			"Exit status 0: consistent, and every draw, auction and closing follows; 1: the first leaf that does not, or the log has signed\n" +
			"two histories, or too few witnesses have signed; 2: the log could not be read.\n\n" +
			"--key is the log's verifier key. Take it from where the operator has published it: what URL/log/key answers is only what the\n" +
			"server says of itself. --state is a file that keeps the newest checkpoint of a good run; the next run then also sees whether the\n" +
			"log has only grown since. Without it, everything is checked but that.\n\n" +
			"--watch goes on: it prints a line for each growth, warns while the server is away, and ends at the first thing that does not\n" +
			"follow.",
		Example: "  fairlead audit https://tickets.example.com --key tickets.example.com/log+99f5b1a2+AXm3… --state tickets.checkpoint\n" +
			"  fairlead audit https://tickets.example.com --key \"$LOG_KEY\" --state tickets.checkpoint --watch\n" +
			"  fairlead audit https://tickets.example.com --key \"$LOG_KEY\" --witness \"$WITNESS_1\" --witness \"$WITNESS_2\" --witness-quorum 1 --json",
		Args: one("the address of a server, or of its log"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Key = strings.TrimSpace(o.Key); o.Key == "" {
				return fmt.Errorf("--key is missing: give the log's verifier key, as its operator has published it; the server says it at %s/log/key", strings.TrimSuffix(strings.TrimRight(args[0], "/"), "/log"))
			}
			o.URL = args[0]
			for i := range o.Chains {
				o.Chains[i] = strings.ToLower(o.Chains[i])
			}
			o.Progress = progress(cmd.ErrOrStderr())
			a, err := audit.New(o)
			if err != nil {
				return err
			}
			defer a.Close()
			if watch {
				return watchLog(cmd, a, asJSON)
			}
			r, err := a.Run(cmd.Context())
			if err != nil {
				return err
			}
			return conclude(cmd, asJSON, r, r.Consistent, func(out io.Writer) { printAudit(out, r, o) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Key, "key", "", "the log's verifier key, `VKEY`: name+hash+key")
	f.StringVar(&o.State, "state", "", "`file` that keeps the newest checkpoint of a good run")
	f.BoolVar(&watch, "watch", false, "go on, and judge what is added")
	f.DurationVar(&o.Interval, "interval", audit.DefaultInterval, "how long --watch waits between two looks")
	f.StringArrayVar(&o.Witnesses, "witness", nil, "verifier key of a witness whose signature is looked for, `VKEY`; may be repeated")
	f.IntVar(&o.Quorum, "witness-quorum", 0, "how many of the witnesses must have signed")
	f.StringSliceVar(&o.Chains, "chain", nil, "hash of a beacon's chain to trust beside drand's public ones, in hex")
	f.DurationVar(&o.Timeout, "timeout", audit.DefaultTimeout, "how long the server may take for one answer")
	f.BoolVar(&asJSON, "json", false, "print one JSON document; with --watch, one on each line")
	// In the environment these names are those of other verbs: FAIRLEAD_KEY is an API key.
	for _, name := range []string{"key", "state", "witness", "witness-quorum"} {
		f.Lookup(name).Annotations = map[string][]string{flagOnly: nil}
	}
	return cmd
}

// progress says now and then how far a long audit is.
func progress(out io.Writer) func(judged, size int64) {
	last := time.Now()
	return func(judged, size int64) {
		if now := time.Now(); now.Sub(last) >= progressEvery && judged < size {
			last = now
			_, _ = fmt.Fprintf(out, "fairlead: %d of %d leaves\n", judged, size)
		}
	}
}

// watchLog prints a line for each growth, and the whole report where something does not follow.
func watchLog(cmd *cobra.Command, a *audit.Auditor, asJSON bool) error {
	out, warned := cmd.OutOrStdout(), ""
	line := func(r *audit.Report) {
		warned = ""
		if asJSON {
			text, err := json.Marshal(r, spelled)
			if err != nil {
				panic(err) // A report has nothing that JSON can't have.
			}
			_, _ = fmt.Fprintln(out, string(text))
			return
		}
		_, _ = fmt.Fprintf(out, "%s  %d leaves, root %s: consistent%s\n", time.Now().UTC().Format(time.RFC3339), r.Size, r.Root, signers(r))
	}
	r, err := a.Watch(cmd.Context(), line, func(err error) {
		if text := say(err); text != warned { // The same one is said once.
			warned = text
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "fairlead: warning:", text)
		}
	})
	switch {
	case err != nil:
		return err
	case r == nil || r.Consistent: // It was ended, by a signal.
		return nil
	case asJSON:
		line(r)
	default:
		printFinding(out, r)
	}
	return exitCode(1)
}

func printAudit(out io.Writer, r *audit.Report, o audit.Options) {
	_, _ = fmt.Fprintf(out, "log          %s\ncheckpoint   %d leaves, root %s\n", r.Origin, r.Size, r.Root)
	switch {
	case r.SeenBefore != nil:
		_, _ = fmt.Fprintf(out, "seen before  %d leaves\n", *r.SeenBefore)
	case o.State != "":
		_, _ = fmt.Fprintln(out, "seen before  nothing: the state file begins with this run")
	default:
		_, _ = fmt.Fprintln(out, "seen before  nothing: without --state no run sees whether the log has only grown")
	}
	for _, w := range r.Witnesses {
		said := "has not signed"
		if w.At != nil {
			said = "signed at " + w.At.Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(out, "witness      %s %s\n", w.Witness, said)
	}
	if r.Finding != nil && r.Finding.Index < 0 { // No leaf was looked at.
		printFinding(out, r)
		return
	}
	c := r.Counts
	_, _ = fmt.Fprintf(out, "campaigns    %d, of which %d are drawn, with %d winners\n", c.Campaigns, c.Draws, c.Winners)
	_, _ = fmt.Fprintf(out, "auctions     %d, of which %d have ended, with %d bids, %d rounds and %d payments\n", c.Auctions, c.Settled, c.Bids, c.Rounds, c.Sold)
	_, _ = fmt.Fprintf(out, "multi-draws  %d, with %d draws made again\n", c.Multidraws, c.Redrawn)
	_, _ = fmt.Fprintf(out, "closings     %d\n", c.Closings)
	if c.Unfinished > 0 {
		_, _ = fmt.Fprintf(out, "unfinished   %d at the log's end: the rest must come with its next checkpoints\n", c.Unfinished)
	}
	if r.Finding != nil {
		printFinding(out, r)
		return
	}
	_, _ = fmt.Fprintf(out, "consistent: every draw, auction and closing follows%s\n", signers(r))
}

// signers says how many witnesses have signed, where there are any.
func signers(r *audit.Report) string {
	if len(r.Witnesses) == 0 {
		return ""
	}
	n := 0
	for _, w := range r.Witnesses {
		if w.At != nil {
			n++
		}
	}
	return fmt.Sprintf("; %d of %d witnesses have signed", n, len(r.Witnesses))
}

// printFinding prints what does not follow, and the log's own signatures, which prove it.
func printFinding(out io.Writer, r *audit.Report) {
	_, _ = fmt.Fprintf(out, "DOES NOT FOLLOW: %v\n\nKeep this, which the log has signed:\n\n%s", r.Finding, r.Checkpoint)
	if r.Earlier != "" {
		_, _ = fmt.Fprintf(out, "\nand this, which it signed before:\n\n%s", r.Earlier)
	}
}

// nextAudit says what can be done about a log that can't be read.
func nextAudit(err error) string {
	switch _, unread := errors.AsType[*audit.ReadError](err); {
	case unread:
		return "see whether URL leads to the server, and whether it has a log: curl URL/log/checkpoint"
	case errors.Is(err, audit.ErrState):
		return "put back the file that the last good run has written, or name another: then nothing tells whether the log has only grown since"
	case errors.Is(err, audit.ErrNotTheLog):
		return "compare --key with the key that the operator has published, and with what the server says: curl URL/log/key"
	}
	return ""
}
