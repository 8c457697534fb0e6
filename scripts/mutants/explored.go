package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	explorer = "./internal/explore"
	// explorerTest runs the schedules of a scenario.
	explorerTest = "TestExplored"
)

// explored looks for the bugs that have a scenario in so many schedules of it, from the first seed on, runs a seed that finds one so many
// times again, and writes what came of it.
func (p *program) explored(ctx context.Context, schedules, again int, table string) error {
	p.mutants = slices.DeleteFunc(p.mutants, func(m *mutant) bool { return m.scenario == "" })
	if len(p.mutants) == 0 {
		return errors.New("none of these bugs has a scenario")
	}
	begun := time.Now()
	failed := p.each(func(m *mutant) (string, error) {
		began := time.Now()
		out, err := testWith(ctx, []string{"FAIRLEAD_SCHEDULES=" + strconv.Itoa(schedules), "FAIRLEAD_SHRINK=0", "FAIRLEAD_AGAIN=" + strconv.Itoa(again)},
			"-timeout", "4h", "-overlay", m.overlay, "-run", "^"+explorerTest+"$/^"+strings.ReplaceAll(m.scenario, " ", "_")+"$", explorer)
		m.took = time.Since(began)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		m.found, err = readFinding(out, err, schedules)
		if err != nil {
			return "", err
		}
		if table != "" { // After each, so that what was found stays if the rest is not run.
			err = writeExplored(table, m)
		}
		return fmt.Sprintf("%s of %q, again %s (%v)", m.found.by, m.scenario, m.found.again, m.took.Round(time.Second)), err
	})
	fmt.Printf("mutants: %d were looked for (%v)\n", len(p.mutants), time.Since(begun).Round(time.Second))
	return failed
}

// finding is how a bug was found by exploring, as the table has it.
type finding struct {
	by    string // the seed, or why there is none
	again string // how often that seed failed again, and with the same history
}

var (
	failingSeed = regexp.MustCompile(`FAIRLEAD_SEED=(\d+): `)
	failedAgain = regexp.MustCompile(`of (\d+) times more, seed \d+ failed (\d+) times, with the same history (\d+) times`)
)

// readFinding reads from what the test printed how it found a bug.
func readFinding(out string, failed error, schedules int) (finding, error) {
	switch match := failingSeed.FindStringSubmatch(out); {
	case strings.Contains(out, "no tests to run"):
		return finding{}, errors.New("there is no such scenario")
	case failed == nil:
		return finding{by: fmt.Sprintf("none of %d", schedules)}, nil
	case match != nil:
		f := finding{by: "seed " + match[1]}
		if again := failedAgain.FindStringSubmatch(out); again != nil {
			f.again = fmt.Sprintf("%s of %s, %s the same", again[2], again[1], again[3])
		}
		return f, nil
	case strings.Contains(out, "the schedule without faults: "), strings.Contains(out, "open the scenario: "):
		return finding{by: "all"}, nil
	}
	return finding{}, fmt.Errorf("no schedule failed by itself: %w\n%s", failed, out)
}

// Marks of what is written in the page.
const (
	beginExplored = "<!-- make mutants writes from here -->\n"
	endExplored   = "<!-- to here -->\n"
)

// writeExplored puts the row of a bug into the page's table.
func writeExplored(page string, m *mutant) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	all, err := read()
	if err != nil {
		return err
	}
	written, err := withRow(string(text), m, all)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(written), 0o644) //nolint:gosec // It is for everybody.
}

// withRow puts the row of a bug in the place of an older one. Rows of bugs that no longer have a scenario go, and those of bugs that can't be
// explored say why.
func withRow(text string, m *mutant, all []*mutant) (string, error) {
	before, rest, found := strings.Cut(text, beginExplored)
	table, after, ended := strings.Cut(rest, endExplored)
	if !found || !ended {
		return "", fmt.Errorf("it lacks the lines %q and %q", beginExplored, endExplored)
	}
	rows := []string{fmt.Sprintf("| [%s](../../%s/%[1]s.patch) | %[3]s | %s | %s | %s |", m.name, bugs, escape(m.breaks), m.scenario, m.found.by, m.found.again)}
	for line := range strings.Lines(table) {
		if slices.ContainsFunc(all, func(o *mutant) bool {
			return o.name != m.name && o.scenario != "" && strings.HasPrefix(line, "| ["+o.name+"](")
		}) {
			rows = append(rows, strings.TrimSpace(line))
		}
	}
	for _, o := range all {
		if o.unexplored != "" {
			rows = append(rows, fmt.Sprintf("| [%s](../../%s/%[1]s.patch) | %[3]s | | %s | |", o.name, bugs, escape(o.breaks), escape(o.unexplored)))
		}
	}
	slices.Sort(rows)
	const head = "\n| bug | what it breaks | scenario | found by | that seed again |\n|---|---|---|---|---|\n"
	return before + beginExplored + head + strings.Join(rows, "\n") + "\n\n" + endExplored + after, nil
}
