// Command schedules runs more explored schedules and counts them in docs/operations/explored.md. Run it in the module's directory:
//
//	go run ./scripts/schedules                         the next 1,000 of each scenario
//	go run ./scripts/schedules --count 20000 accounts  the next 20,000 of one
//
// Each run begins with the seed after the last one that was counted, so that many short runs make a long one. A scenario that fails is not
// counted, and its output says with which seed. What code a schedule ran on is not kept: the row names the commit of its last run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	page  = "docs/operations/explored.md"
	begin = "<!-- make schedules writes from here -->\n"
	end   = "<!-- to here, too -->\n"
	// whole is how many schedules of each scenario are wanted.
	whole = 100_000
)

func main() {
	count := flag.Int("count", 1000, "how many schedules of each scenario are run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *count, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "schedules:", err)
		os.Exit(1)
	}
}

// row is what was counted of a scenario.
type row struct {
	scenario         string
	schedules, steps int
	rate             float64 // schedules a second, in the last run
	last             string  // when and on what that was
}

func run(ctx context.Context, count int, names []string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	rows, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	for _, name := range names {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.scenario == name }) {
			return fmt.Errorf("%s has no row for %q", page, name)
		}
	}
	commit, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("git rev-parse: %w", err)
	}
	var failures []error
	for i := range rows {
		r := &rows[i]
		if len(names) > 0 && !slices.Contains(names, r.scenario) {
			continue
		}
		if err := r.explore(ctx, count); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", r.scenario, err))
			continue
		}
		r.last = fmt.Sprintf("%s, `%s`", time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(commit)))
		if err := write(rows); err != nil { // After each, so that an interrupted run has counted the others.
			return err
		}
	}
	return errors.Join(failures...)
}

// explore runs the next schedules.
func (r *row) explore(ctx context.Context, count int) error {
	test := "^TestExplored$/^" + strings.ReplaceAll(r.scenario, " ", "_") + "$"
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-timeout", "72h", "-run", test, "./internal/explore")
	cmd.Env = append(os.Environ(), "CI=true", "FAIRLEAD_SEED="+strconv.Itoa(r.schedules), "FAIRLEAD_SCHEDULES="+strconv.Itoa(count))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go ends the test, which ends its servers.
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if err := r.add(string(out), count); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	fmt.Printf("schedules: %s: %d, with %d steps; %.1f a second\n", r.scenario, r.schedules, r.steps, r.rate)
	return nil
}

// ran is how the test says what it has run.
var ran = regexp.MustCompile(`(\d+) schedules, (\d+) steps, in (\S+)`)

// add adds what the test has printed.
func (r *row) add(out string, count int) error {
	match := ran.FindStringSubmatch(out)
	if match == nil || match[1] != strconv.Itoa(count) {
		return errors.New("the test does not say that it has run them")
	}
	steps, err := strconv.Atoi(match[2])
	if err != nil {
		return err
	}
	took, err := time.ParseDuration(match[3])
	if err != nil {
		return err
	}
	r.schedules += count
	r.steps += steps
	r.rate = float64(count) / max(took.Seconds(), 0.1)
	return nil
}

// parse reads the table.
func parse(text string) (rows []row, err error) {
	_, rest, found := strings.Cut(text, begin)
	table, _, ended := strings.Cut(rest, end)
	if !found || !ended {
		return nil, fmt.Errorf("it lacks the lines %q and %q", begin, end)
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 6 || strings.HasPrefix(cells[0], "-") || cells[0] == " scenario " {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		r := row{scenario: cells[0], last: cells[5]}
		if r.schedules, err = strconv.Atoi(cells[1]); err != nil {
			return nil, err
		}
		if r.steps, err = strconv.Atoi(cells[2]); err != nil {
			return nil, err
		}
		if r.rate, err = strconv.ParseFloat(cells[3], 64); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// write puts the table into the page, as it is by now.
func write(rows []row) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, _ := strings.Cut(string(text), begin)
	_, after, _ := strings.Cut(rest, end)
	return os.WriteFile(page, []byte(before+begin+table(rows)+end+after), 0o644) //nolint:gosec // It is for everybody.
}

func table(rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n| scenario | schedules | steps | a second | %d take | last run |\n|---|--:|--:|--:|--:|---|\n", whole)
	for _, r := range rows {
		takes := "?"
		if r.rate > 0 {
			takes = time.Duration(whole / r.rate * float64(time.Second)).Round(time.Minute).String()
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %.1f | %s | %s |\n", r.scenario, r.schedules, r.steps, r.rate, strings.TrimSuffix(takes, "0s"), r.last)
	}
	return b.String() + "\n"
}
