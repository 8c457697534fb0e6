package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/translog"
)

func newLog() *cobra.Command {
	var t target
	cmd := group(&cobra.Command{
		Use: "log", Short: "Look at the public log, and give it a new key",
		Long: "Look at the public log, and give it a new key. Others judge it with fairlead audit, and witnesses run fairlead witness.",
		Example: "  fairlead log show\n" +
			"  fairlead log renew --origin shop.example/log2",
	})
	show := &cobra.Command{
		Use: "show", Short: "Show the log's key, its newest checkpoint, and whether it is signed",
		Example: "  fairlead log show\n  fairlead log show --database-url postgres://db.internal/fairlead --json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return t.showLog(cmd) },
	}
	t.bindDatabase(show)
	cmd.AddCommand(show, newLogRenew())
	return cmd
}

// logView is what show prints.
type logView struct {
	Key        string `json:"key"`
	Leaves     int64  `json:"leaves"`
	Published  int64  `json:"published"`
	Checkpoint string `json:"checkpoint"`
	Refused    string `json:"refused"`
}

func (t *target) showLog(cmd *cobra.Command) error {
	db, err := t.database(cmd.Context())
	if err != nil {
		return err
	}
	defer db.Close()
	p, err := postgres.NewLogReader(db).Published(cmd.Context())
	if err != nil {
		return err
	}
	v := logView{p.Verifier, p.Leaves, p.Size, p.Checkpoint, p.Refused}
	return show(cmd, t.json, v, func(out io.Writer) {
		_, _ = fmt.Fprintf(out, "key        %s\nleaves     %d, of which %d are under the published checkpoint\n\n%s", v.Key, v.Leaves, v.Published, v.Checkpoint)
		if v.Refused != "" {
			_, _ = fmt.Fprintf(out, "\nNOT SIGNED any more: %s\n", v.Refused)
		}
	})
}

func newLogRenew() *cobra.Command {
	var (
		t      target
		origin string
	)
	cmd := &cobra.Command{
		Use: "renew", Short: "Begin to sign the log with a new key, under a new origin",
		Long: "Begin to sign the log with a new key, under a new origin: after the key was lost, or after a restore from an older copy. Lost leaves\n" +
			"were signed with the old key, so it must not sign others in their places. All leaves that are there stay. Stop the servers first, except\n" +
			"one with a private PostgreSQL, and start them with the new log.key in their data directories. The new verifier key is printed: give it\n" +
			"to auditors and witnesses, and tell them why.",
		Example: "  fairlead log renew --data fairlead-data --origin shop.example/log2\n" +
			"  fairlead log renew --data fairlead-data --database-url postgres://db.internal/fairlead",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return t.renewLog(cmd, origin) },
	}
	t.bindDatabase(cmd)
	// The directory gets the key, whatever has the database: both may be given.
	data := cmd.Flags().Lookup("data")
	data.Usage, data.Annotations = "data directory of a server, which gets the new key; without --database-url its private PostgreSQL, which must run, has the log", nil
	cmd.Flags().StringVar(&origin, "origin", "", "the new origin, which was never used before: a domain and a path of yours; some digits of the key when empty")
	return cmd
}

func (t *target) renewLog(cmd *cobra.Command, origin string) error {
	db, err := t.database(cmd.Context())
	if err != nil {
		return err
	}
	defer db.Close()
	reader := postgres.NewLogReader(db)
	before, err := reader.Published(cmd.Context())
	if err != nil {
		return err
	}
	if name, err := translog.LogKeyName(before.Verifier); err == nil && name == origin {
		return fmt.Errorf("--origin: %q is the log's origin now; a new key needs a new one", origin)
	}
	key, err := logkeeper.NewKey(origin)
	if err != nil {
		return fmt.Errorf("--origin: %w", err)
	}
	if err := fairlead.SetLogAside(t.data); err != nil {
		return err
	}
	if err := key.WriteFile(fairlead.LogKeyFile(t.data)); err != nil {
		return err
	}
	if err := db.RenewLog(cmd.Context(), key.Verifier()); err != nil {
		return fmt.Errorf("the new key is in %s, and the database does not know it yet; run this again: %w", fairlead.LogKeyFile(t.data), err)
	}
	return show(cmd, t.json, map[string]any{"key": key.Verifier(), "before": before.Verifier}, func(out io.Writer) {
		_, _ = fmt.Fprintf(out, "the log's new key: %s\n", key.Verifier())
		if before.Verifier != "" {
			_, _ = fmt.Fprintf(out, "the one before:    %s\n", before.Verifier)
		}
		_, _ = fmt.Fprintf(out, "Start the servers with %s in their data directories, and give auditors and witnesses the new key.\n", fairlead.LogKeyFile(t.data))
	})
}
