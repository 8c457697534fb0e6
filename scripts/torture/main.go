// Command torture lets faults happen and writes how often each was survived into docs/operations/faults.md. Run it in the module's
// directory:
//
//	go run ./scripts/torture                     all long tests, once
//	go run ./scripts/torture ROW…                these rows of the table, until each has its full count; a name's beginning will do
//	go run ./scripts/torture --tries 20 ROW…     the same, until each has so many tries; the tests run in their short form
//	go run ./scripts/torture --table             only write the table
//
// What was counted is kept in bin/torture, in one file a commit, and adds up over runs of the same commit. The table
// keeps the counts of rows that were not run on this commit, and names the commit that they are of.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tally"
)

const (
	page = "docs/operations/faults.md"
	kept = "bin/torture"
	// changed marks a tree with changes, whose counts don't add up over runs.
	changed = "+changes"
	// timeout ends the tests of a package that hang.
	timeout = "6h"
)

func main() {
	tries := flag.Int("tries", 0, "how many tries are enough; 0: the full count")
	table := flag.Bool("table", false, "run nothing, only write the table")
	long := flag.String("long", "", "the packages that have long tests, for a run of all of them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *tries, *table, strings.Fields(*long), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, tries int, table bool, long, names []string) error {
	rows, err := choose(names)
	if err != nil {
		return err
	}
	commit, err := commitOf(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(kept, 0o750); err != nil {
		return err
	}
	counts, err := filepath.Abs(filepath.Join(kept, commit+".jsonl"))
	if err != nil {
		return err
	}
	if strings.HasSuffix(commit, changed) && !table {
		if err := os.Remove(counts); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	var failed error
	switch {
	case table:
	case len(names) == 0:
		failed = test(ctx, counts, true, append([]string{"-p", "1", "-v"}, long...)...)
	default:
		failed = reach(ctx, rows, counts, tries)
	}
	return errors.Join(failed, write(ctx, commit, counts))
}

// choose finds the rows whose names begin with one of those given, or all.
func choose(names []string) (rows []tally.Row, err error) {
	for _, name := range names {
		found := false
		for _, r := range tally.Rows() {
			if found = found || strings.HasPrefix(r.Name, name); strings.HasPrefix(r.Name, name) {
				rows = append(rows, r)
			}
		}
		if !found {
			var all []string
			for _, r := range tally.Rows() {
				all = append(all, r.Name)
			}
			return nil, fmt.Errorf("no row begins with %s; there are %s", name, strings.Join(all, ", "))
		}
	}
	return rows, nil
}

// commitOf names what is tested.
func commitOf(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("git rev-parse: %w", err)
	}
	commit := strings.TrimSpace(string(out))
	dirty, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!"+page).Output()
	if err != nil {
		return "", fmt.Errorf("git status: %w", err)
	}
	if len(dirty) > 0 {
		commit += changed
	}
	return commit, nil
}

// reach runs the tests of each row until its count is reached, or a test fails, or adds nothing.
func reach(ctx context.Context, rows []tally.Row, counts string, tries int) error {
	var failures []error
	for _, r := range rows {
		short := tries > 0
		if short {
			r.Tries, r.Acknowledged = min(r.Tries, tries), 0
		}
		for before := -1; ; {
			all, err := tally.Read(counts)
			if err != nil {
				return err
			}
			c := all[r.Name]
			fmt.Printf("torture: %s: %d of %d tries, %d acknowledged\n", r.Name, c.Tries, r.Tries, c.Acknowledged)
			if r.Reached(c) || ctx.Err() != nil {
				break
			}
			if c.Tries == before {
				failures = append(failures, fmt.Errorf("%s: its tests %s count nothing: they may be skipped here", r.Name, r.Tests))
				break
			}
			before = c.Tries
			if err := test(ctx, counts, !short, "-run", r.Tests, r.Package); err != nil {
				failures = append(failures, fmt.Errorf("%s: %w", r.Name, err))
				if ctx.Err() == nil { // Not because the user has ended it.
					failures = append(failures, lose(counts, r, c))
				}
				break
			}
		}
	}
	return errors.Join(append(failures, ctx.Err())...)
}

// lose notes a failed run that could not do so itself.
func lose(counts string, r tally.Row, before tally.Count) error {
	all, err := tally.Read(counts)
	if err != nil || all[r.Name].Failed > before.Failed {
		return err
	}
	return tally.Append(counts, []tally.Count{{Row: r.Name, Failed: 1}})
}

// test runs tests, and shows their output if they fail.
func test(ctx context.Context, counts string, long bool, args ...string) error {
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-timeout", timeout}, args...)...) //nolint:gosec // Of our own list.
	cmd.Env = append(os.Environ(), "FAIRLEAD_TALLY="+counts)
	if long {
		cmd.Env = append(cmd.Env, "FAIRLEAD_TORTURE=1")
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go ends the test, which ends its servers.
	cmd.WaitDelay = time.Minute
	err := cmd.Run()
	fmt.Printf("torture: go test %s: %v\n", strings.Join(args, " "), time.Since(began).Round(time.Second))
	return err
}

// Marks of what is written in the page.
const (
	begin = "<!-- make torture writes from here -->\n"
	end   = "<!-- to here -->\n"
)

// write puts the table into the page.
func write(ctx context.Context, commit, counts string) error {
	all, err := tally.Read(counts)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return nil // It keeps the table of an earlier commit.
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s lacks the lines %q and %q", page, begin, end)
	}
	version, err := exec.CommandContext(ctx, "postgres", "--version").Output()
	if err != nil {
		version = []byte("PostgreSQL") // Found by the tests elsewhere.
	}
	last := fmt.Sprintf("%s, `%s`", time.Now().UTC().Format(time.DateOnly), commit)
	head := fmt.Sprintf("The last run was on %d processors, %s/%s, %s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), strings.TrimSpace(strings.Replace(string(version), "postgres (PostgreSQL)", "PostgreSQL", 1)))
	table, _, _ := strings.Cut(rest, end)
	return os.WriteFile(page, []byte(before+begin+"\n"+head+".\n\n"+rowsOf(all, last, earlier(table))+"\n"+end+after), 0o644) //nolint:gosec // It is for everybody.
}

// columns of the table.
const (
	header  = "| row | fault | tries | acknowledged | lost | doubled | worst recovery | last run |\n|---|---|--:|--:|--:|--:|--:|---|\n"
	counted = 2 // the column from which on it says what was counted
)

// earlier reads what the rows of a table say was counted, by their names; rows that were not run are left out.
func earlier(table string) map[string][]string {
	rows := map[string][]string{}
	names, _, _ := strings.Cut(header, "\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if name, found := strings.CutPrefix(cells[0], "`"); found && len(cells) == strings.Count(names, "|")-1 && cells[len(cells)-1] != "" {
			rows[strings.TrimSuffix(name, "`")] = cells[counted:]
		}
	}
	return rows
}

// rowsOf is the table: every row, also those that were not run, in this run or in any.
func rowsOf(all map[string]tally.Count, last string, before map[string][]string) string {
	var b strings.Builder
	b.WriteString(header)
	for _, r := range tally.Rows() {
		c := all[r.Name]
		tries := fmt.Sprintf("%d of %d", c.Tries, r.Tries)
		acknowledged := fmt.Sprint(c.Acknowledged)
		if r.Acknowledged > 0 {
			acknowledged += fmt.Sprintf(" of %d", r.Acknowledged)
		}
		if r.Reached(c) {
			tries, acknowledged = fmt.Sprint(c.Tries), fmt.Sprint(c.Acknowledged)
		}
		if c.Failed > 0 {
			tries += fmt.Sprintf(", %d runs failed", c.Failed)
		}
		cells := []string{tries, acknowledged, fmt.Sprint(c.Lost), fmt.Sprint(c.Doubled), c.Worst.Round(time.Millisecond).String(), last}
		switch kept := before[r.Name]; {
		case c.Tries > 0 || c.Failed > 0:
		case kept != nil:
			cells = kept
		default:
			cells = []string{tries, "", "", "", "", ""}
		}
		b.WriteString("| " + strings.Join(append([]string{"`" + r.Name + "`", r.Fault}, cells...), " | ") + " |\n")
	}
	return b.String()
}
