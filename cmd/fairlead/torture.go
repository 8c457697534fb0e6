package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/torture"
)

var (
	errNoTest = errors.New("no installation is named")
	errNotYes = errors.New("not confirmed")
)

// leastTorture is the shortest run that is worth its table: a fault takes some tenths of a second.
const leastTorture = time.Second

func newTorture() *cobra.Command {
	var (
		o    torture.Options
		t    target
		yes  bool
		urls []string
	)
	cmd := &cobra.Command{
		Use:   "torture",
		Short: "Break a test installation of your own, and count what is lost or doubled",
		Long: "Break a test installation of your own, one kind of fault at a time, and count what is lost or doubled. Without --only it lists\n" +
			"the kinds, which are the rows of docs/operations/faults.md.\n\n" +
			"It opens accounts, loads the servers with transfers, holds and sales, lets the fault happen again and again, and compares the\n" +
			"answers that its clients got with the database. Only a database without anybody else's data will do: one in which there are\n" +
			"accounts, auctions or publications of others is refused, and so is one that a standby follows. Use the servers for nothing\n" +
			"else meanwhile. The accounts that it opens stay; their names begin with " + torture.Prefix + ".\n\n" +
			"Name the installation on the command line: --url and --database-url, or --data. It needs an admin key in " + keyVariable + "; with --data it\n" +
			"takes the one that the first start kept there, unless that was given in " + adminKeyVariable + ". It asks before it begins; --yes answers that.\n\n" +
			"Exit status 0: nothing was lost or doubled; 1: something was, or an answer was wrong; 2: it was refused, or could not go on.",
		Example: "  fairlead torture                                  # lists the rows\n" +
			"  fairlead torture --only answer-lost --data ~/fairlead-test\n" +
			"  fairlead torture --only backends-terminated --seed 7 --for 10m \\\n" +
			"    --url http://127.0.0.1:8080,http://127.0.0.1:8081 --database-url postgres://127.0.0.1/fairlead_test",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Row == "" {
				return listRows(cmd, t.json)
			}
			row, err := torture.Find(o.Row)
			if err != nil {
				return err
			}
			if o.For < leastTorture {
				return fmt.Errorf("%w: --for is %v, and must be %v or more: a shorter run tries nothing", errUsage, o.For, leastTorture)
			}
			if !cmd.Flags().Changed("seed") {
				o.Seed = rand.Uint64() >> 32 //nolint:gosec // It hides nothing.
			}
			if o.URLs = urls; len(urls) == 0 && t.databaseURL == "" && t.data != "" {
				o.URLs, t.key = []string{kept(addressFile(t.data))}, kept(fairlead.AdminKeyFile(t.data))
				if o.DatabaseURL, err = localpg.URLOf(t.data); err != nil || o.URLs[0] == "" {
					return fmt.Errorf("no server with a private PostgreSQL runs on %s", t.data)
				}
			} else if o.DatabaseURL = t.databaseURL; len(urls) == 0 || t.databaseURL == "" || t.data != "" {
				return fmt.Errorf("%w: give --url and --database-url, or --data alone", errNoTest)
			}
			if o.Key = t.credential(); o.Key == "" {
				return fmt.Errorf("the servers need an admin key in %s%s", keyVariable, t.whichKey())
			}
			if !yes {
				if err := confirm(cmd, row, o); err != nil {
					return err
				}
			}
			o.Progress = func(c tally.Count) {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "fairlead: %d faults, %d acknowledged, %d lost, %d doubled\n", c.Tries, c.Acknowledged, c.Lost, c.Doubled)
			}
			began := time.Now()
			r, err := torture.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			return conclude(cmd, t.json, r, r.Sound(), func(out io.Writer) { printTorture(out, r, time.Since(began)) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Row, "only", "", "the row to run")
	f.StringSliceVar(&urls, "url", nil, "the servers, separated by commas; needs an admin key in "+keyVariable)
	f.StringVar(&t.databaseURL, "database-url", "", "their database, as postgres://USER:PASSWORD@HOST:5432/DATABASE")
	f.StringVar(&t.data, "data", "", "instead of both, the data directory of a running server with a private PostgreSQL; its admin.key, if it has one, stands for "+keyVariable)
	f.StringSliceVar(&o.Processes, "pid", nil, "`numbers` of the servers' processes, or files that have them, for the rows that need them")
	f.Uint64Var(&o.Seed, "seed", 0, "what decides load and faults (default another one each time)")
	f.DurationVar(&o.For, "for", time.Minute, "how long it takes, apart from comparing")
	f.BoolVar(&yes, "yes", false, "begin without asking")
	f.BoolVar(&t.json, "json", false, "print one JSON document")
	// The environment may name another installation than the one to break.
	for _, name := range []string{"only", "url", "database-url", "data", "pid", "seed", "for", "yes"} {
		f.Lookup(name).Annotations = map[string][]string{flagOnly: nil}
	}
	return cmd
}

// listRows says what can be done, with what, and what can't.
func listRows(cmd *cobra.Command, asJSON bool) error {
	rows := torture.Rows()
	return show(cmd, asJSON, map[string]any{"rows": rows}, func(out io.Writer) {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, r := range rows {
			text := r.Does
			if r.Needs != "" {
				text += "; needs " + r.Needs
			}
			if r.Cannot == "" {
				_, _ = fmt.Fprintf(w, "%s\t%s\n", r.Name, text)
			}
		}
		_ = w.Flush() // Into memory.
		_, _ = fmt.Fprintln(out, "\nNot from outside:")
		crash := tally.Crash("")
		for _, r := range rows {
			if r.Cannot != "" && !strings.HasPrefix(r.Name, crash) {
				_, _ = fmt.Fprintf(w, "%s\t%s\n", r.Name, r.Cannot)
			}
		}
		_, _ = fmt.Fprintf(w, "%s…\tthey need servers that were built with crash points (make torture ROWS=%s does them all, in a clone of the project)\n", crash, crash)
		_ = w.Flush()
	})
}

// databaseOf is a database as people read it: without the password, and whatever the form of its URL.
func databaseOf(address string) (string, error) {
	config, err := pgconn.ParseConfig(address)
	if err != nil {
		return "", err
	}
	hosts := []string{place(config.Host, config.Port)}
	for _, other := range config.Fallbacks {
		hosts = append(hosts, place(other.Host, other.Port))
	}
	return strings.Join(slices.Compact(hosts), ", ") + ": " + config.Database, nil
}

// place is where a PostgreSQL listens: a directory with its socket, or an address.
func place(host string, port uint16) string {
	if network, _ := pgconn.NetworkAddress(host, port); network == "unix" {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// confirm asks whether an installation may be broken.
func confirm(cmd *cobra.Command, row torture.Row, o torture.Options) error {
	database, err := databaseOf(o.DatabaseURL)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "This loads %s for %v. Again and again it %s.\nThe database is %s. Use nothing of this for anything else meanwhile. Go on? [y/N] ",
		strings.Join(o.URLs, ", "), o.For, row.Does, database)
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // No answer is one, too.
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return fmt.Errorf("%w: nothing was done; answer y, or give --yes", errNotYes)
}

func printTorture(out io.Writer, r *torture.Result, took time.Duration) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "row\ttries\tacknowledged\tlost\tdoubled\tworst recovery")
	_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%v\n", r.Row, r.Tries, r.Acknowledged, r.Lost, r.Doubled, r.Worst.Round(time.Millisecond))
	_ = w.Flush() // Into memory.
	for _, wrong := range r.Wrong {
		_, _ = fmt.Fprintln(out, "WRONG:", wrong)
	}
	_, _ = fmt.Fprintf(out, "%d commands, --seed %d, %v\n", r.Commands, r.Seed, took.Round(time.Second))
}
