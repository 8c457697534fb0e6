package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/conform"
	"github.com/fairlead-dev/fairlead/internal/screen"
)

// incomplete is the exit status where no promise is broken and some could not be tried.
const incomplete exitCode = 3

func newConformance() *cobra.Command {
	var (
		o      conform.Options
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Run the test suites on your PostgreSQL, Redis or etcd, and say which guarantees hold there",
		Long: "Run the suites that Fairlead is tested with on a database, Redis or etcd of yours, and say which of the guarantees of\n" +
			"docs/guarantees.md hold there. Everything is made in a schema of its own, or under a prefix of its own, and removed at the end,\n" +
			"also after an interrupt. An interrupted run reports what it has found. Suites: " + strings.Join(conform.Suites(), ", ") + ".\n\n" +
			"Exit status 0: all guarantees hold; 1: one does not; 2: nothing could be tried, or the run was interrupted; 3: none is broken,\n" +
			"and some could not be tried, or not to the end. See docs/operations/conformance.md.",
		Example: "  fairlead conformance --database-url postgres://db.internal/app\n" +
			"  fairlead conformance --redis-url rediss://:PASSWORD@cache.internal:6379 --only locks\n" +
			"  fairlead conformance --etcd-endpoints https://etcd-1:2379,https://etcd-2:2379 --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			progress := screen.New(cmd.ErrOrStderr())
			o.Began = func(t conform.Target) { progress.Note("%s", described(t)) }
			o.Ended = func(f conform.Finding, done, all int) { showFinding(progress, f, done, all) }
			report, err := conform.Run(cmd.Context(), o)
			if report != nil {
				for _, t := range report.Targets {
					if t.Left != "" {
						progress.Note("what was made is still there (%s). To remove it: %s", t.Left, t.Remove)
					}
				}
			}
			if errors.Is(err, conform.ErrNoServer) {
				return fmt.Errorf("%w: %w: give --database-url, --redis-url or --etcd-endpoints", errUsage, err)
			}
			if err != nil && (report == nil || len(report.Findings) == 0) {
				return err
			}
			verdict := conclude(cmd, asJSON, report, report.Held, func(out io.Writer) { printReport(screen.New(out), report) })
			switch {
			case err != nil:
				progress.Note("interrupted: the report has what was found before that")
				return exitCode(2)
			case verdict == nil && !report.Complete:
				return incomplete
			}
			return verdict
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.DatabaseURL, "database-url", "", "a database, as postgres://USER:PASSWORD@HOST:5432/DATABASE; its role may make schemas")
	f.StringVar(&o.RedisURL, "redis-url", "", "a Redis or Valkey, as redis://USER:PASSWORD@HOST:6379, or rediss:// with TLS")
	f.StringSliceVar(&o.EtcdEndpoints, "etcd-endpoints", nil, "an etcd, as http://HOST:2379, one URL for each member")
	for _, name := range []string{"database-url", "redis-url", "etcd-endpoints"} { // A run on one must not put load on what the environment names.
		_ = f.SetAnnotation(name, namesTarget, []string{besideOthers})
	}
	f.StringSliceVar(&o.Only, "only", nil, "what to run, of "+strings.Join(conform.Suites(), ", ")+"; or single checks, as locks/TokensGrow (default all)")
	f.Uint64Var(&o.Seed, "seed", 0, "the seed of random choices, to repeat a run (default a new one, which the report names)")
	f.BoolVar(&o.Keep, "keep", false, "leave what was made, to look at it")
	f.BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func described(t conform.Target) string {
	return fmt.Sprintf("%s at %s: %s, %s (to remove it by hand: %s)", t.Kind, t.Address, t.Version, t.Place, t.Remove)
}

// words are those for people.
func word(v conformance.Verdict) string {
	switch v {
	case conformance.Held:
		return "held"
	case conformance.Broken:
		return "NOT HELD"
	case conformance.NotTried:
	}
	return "not tried"
}

// showFinding tells of a check that has ended.
func showFinding(s *screen.Screen, f conform.Finding, done, all int) {
	colour := map[conformance.Verdict]string{conformance.Held: screen.Green, conformance.Broken: screen.Red}[f.Verdict]
	s.Note("%3d/%d  %s  %s: %s (%s, %.1f s)", done, all, s.Paint(colour, screen.Pad(word(f.Verdict), 9)), f.Suite, f.Check,
		strings.Join(f.Guarantees, " "), float64(f.TookMS)/1000)
	for _, why := range f.Why {
		s.Note("         %s", why)
	}
}

func printReport(s *screen.Screen, r *conform.Report) {
	for _, t := range r.Targets {
		s.Note("%s at %s", t.Kind, t.Address)
		s.Note("  %s", t.Version)
		for _, n := range t.Notes {
			s.Note("  note: %s", n)
		}
		for _, g := range r.Guarantees {
			if g.Target != t.Kind {
				continue
			}
			colour := map[conformance.Verdict]string{conformance.Held: screen.Green, conformance.Broken: screen.Red}[g.Verdict]
			s.Note("  %s  %s  %s: %d held, %d not held, %d not tried", s.Paint(colour, screen.Pad(word(g.Verdict), 9)), g.Number, g.Title, g.Held, g.Broken, g.NotTried)
			for _, f := range r.Findings {
				printCheck(s, f, g)
			}
		}
	}
	verdict := "all guarantees that were tried hold"
	switch {
	case !r.Held:
		verdict = "NOT ALL GUARANTEES HOLD"
	case r.Complete:
		verdict = "all guarantees hold"
	}
	s.Note("%s (seed %d)", verdict, r.Seed)
}

// printCheck prints what one check says of a guarantee.
func printCheck(s *screen.Screen, f conform.Finding, g conform.Guarantee) {
	shows := false
	for _, number := range f.Guarantees {
		shows = shows || number == g.Number
	}
	if !shows || f.Target != g.Target {
		return
	}
	var times strings.Builder
	for _, x := range f.Times {
		fmt.Fprintf(&times, " (seen %.3f s of %.0f s)", float64(x.TookMS)/1000, float64(x.LimitMS)/1000)
	}
	s.Note("    %s  %s: %s%s", screen.Pad(word(f.Verdict), 9), f.Suite, f.Tried, &times)
	for _, why := range f.Why {
		s.Note("               why: %s", why)
	}
}
