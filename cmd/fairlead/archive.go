package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/archive"
)

// archiveRest is how many times as long as each part took is rested after it, so that commands hardly notice.
const archiveRest = 19

func newArchive() *cobra.Command {
	var t target
	var before string
	var purchases bool
	var o archive.Options
	cmd := &cobra.Command{
		Use:   "archive --before TIME",
		Short: "Take old history out of the database, into compressed files",
		Long: "Take whole months that ended before a time out of the database: entries, transfers, the audit log, closed holds, and the bids and\n" +
			"events of auctions that were made in them. They go to files, CSV compressed by gzip, in a directory of their own for each archive;\n" +
			"then their tables are dropped. The database keeps balances, open holds, references that are taken, campaigns, purchases, draws with\n" +
			"their winners, the public log, and whatever is younger than a day.\n\n" +
			"With --purchases, those of campaigns that were made in a month leave, too, as soon as all of them have ended. Servers then no longer\n" +
			"have the proofs of their draws; fairlead archive proof makes them of the files.\n\n" +
			"Commands go on meanwhile. After an interruption, run it again on the same host with the same --to: it goes on.\n" +
			"fairlead integrity --archives DIR checks the files.",
		Example: "  fairlead archive --before 2026-01-01 --to /srv/archives --dry-run\n" +
			"  fairlead archive --before 8760h --to /srv/archives --database-url postgres://db.internal/fairlead",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Before, err = parseBefore(before, time.Now()); err != nil {
				return err
			}
			if o.Rest < 0 {
				return fmt.Errorf("%w: --rest is %d, and must not be negative", errUsage, o.Rest)
			}
			db, err := t.database(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			o.KeepPurchases = !purchases
			o.Progress = showArchive(cmd.ErrOrStderr())
			r, err := db.Archive(cmd.Context(), o)
			if err != nil {
				return err
			}
			return show(cmd, t.json, r, func(out io.Writer) { printArchives(out, r, o.DryRun) })
		},
	}
	t.bindDatabase(cmd)
	f := cmd.Flags()
	f.StringVar(&before, "before", "", "a day (2026-01-31), a time (RFC 3339), or an age (8760h): older history is archived, by whole months")
	f.StringVar(&o.Directory, "to", "archives", "directory for the archives, one in each of its directories")
	f.IntVar(&o.Rest, "rest", archiveRest, "rest so many times as long as each part took; 0 is fastest")
	f.BoolVar(&purchases, "purchases", false, "also the purchases of campaigns that have ended: the proofs of their draws are no longer served then")
	f.BoolVar(&o.DryRun, "dry-run", false, "only say what would be archived")
	f.BoolVar(&o.Restart, "restart", false, "give up an archive that was begun on another host or into another directory, and begin it anew")
	cmd.AddCommand(newArchiveProof())
	return cmd
}

func newArchiveProof() *cobra.Command {
	var t target
	var directory string
	cmd := &cobra.Command{
		Use:   "proof CAMPAIGN",
		Short: "Print the proof of a draw whose purchases are archived",
		Long: "Print the document from which anyone recomputes the draw of a campaign whose purchases are archived, as servers gave it before, at\n" +
			"/v1/campaigns/ID/proof. It is made of the files and of the database, which has the seed. The file that the purchases are in is read\n" +
			"as a whole and compared with its hash. fairlead verify recomputes the draw.",
		Example: "  fairlead archive proof 0192b2f0-6c1e-7000-8000-000000000001 --archives /srv/archives > proof.json",
		Args:    one("the id of a campaign"),
		RunE: func(cmd *cobra.Command, args []string) error {
			campaign, err := uuid.Parse(args[0])
			if err != nil {
				return fmt.Errorf("%w: %q is no id of a campaign", errUsage, args[0])
			}
			db, err := t.database(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			out := bufio.NewWriter(cmd.OutOrStdout())
			return errors.Join(db.WriteArchivedProof(cmd.Context(), directory, campaign, out), out.Flush())
		},
	}
	t.bindDatabase(cmd)
	cmd.Flags().StringVar(&directory, "archives", "archives", "directory of the archives that fairlead archive has made")
	return cmd
}

// parseBefore reads a day, a time, or how long ago.
func parseBefore(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, fmt.Errorf("%w: archive needs --before, such as --before 2026-01-31", errUsage)
	}
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return now.Add(-age), nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: --before %q is no day such as 2026-01-31, no time such as 2026-01-31T12:00:00Z, and no age such as 8760h", errUsage, text)
}

// showArchive returns what tells how far an archive is.
func showArchive(out io.Writer) func(archive.Progress) {
	var told time.Time
	var doing string
	return func(at archive.Progress) {
		if at.Doing == doing && time.Since(told) < showEvery && !at.Waiting {
			return
		}
		told, doing = time.Now(), at.Doing
		line := fmt.Sprintf("archive %d (before %s): %s", at.Archive, day(at.Upto), at.Doing)
		if at.Total > 0 {
			line += fmt.Sprintf(" %3.0f %%", 100*float64(at.Done)/float64(at.Total))
		}
		if at.Waiting {
			line += ": waiting for others that use the table"
		}
		_, _ = fmt.Fprintln(out, line)
	}
}

// day is a time as people read it: without the time of the day at midnight.
func day(t time.Time) string {
	if t = t.UTC(); t.Equal(t.Truncate(24 * time.Hour)) {
		return t.Format(time.DateOnly)
	}
	return t.Format(time.RFC3339)
}

func printArchives(out io.Writer, r archive.Result, dry bool) {
	for _, a := range r.Made {
		if dry {
			_, _ = fmt.Fprintf(out, "would archive what is before %s into %s\n", day(a.To), a.Directory)
			continue
		}
		_, _ = fmt.Fprintf(out, "archived what is before %s into %s:\n", day(a.To), a.Directory)
		for _, f := range a.Files {
			_, _ = fmt.Fprintf(out, "  %-10s %12d rows %14d bytes\n", f.Table, f.Rows, f.Bytes)
		}
	}
	if r.Purchases != "" {
		_, _ = fmt.Fprintln(out, r.Purchases)
	}
	if len(r.Made) == 0 {
		_, _ = fmt.Fprintf(out, "nothing is archived: %s\n", r.Why)
		return
	}
	_, _ = fmt.Fprintf(out, "the rest stays: %s\n", r.Why)
}
