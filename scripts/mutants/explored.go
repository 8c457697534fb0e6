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

// explored looks for the bugs that have a scenario in so many schedules of it, from the first seed on, and writes which were found.
func (p *program) explored(ctx context.Context, schedules int, table string) error {
	p.mutants = slices.DeleteFunc(p.mutants, func(m *mutant) bool { return m.scenario == "" })
	if len(p.mutants) == 0 {
		return errors.New("none of these bugs has a scenario")
	}
	begun := time.Now()
	if err := p.each(func(m *mutant) (string, error) {
		began := time.Now()
		out, err := testWith(ctx, []string{"FAIRLEAD_SCHEDULES=" + strconv.Itoa(schedules), "FAIRLEAD_SHRINK=0"},
			"-timeout", "4h", "-overlay", m.overlay, "-run", "^"+explorerTest+"$/^"+strings.ReplaceAll(m.scenario, " ", "_")+"$", explorer)
		m.took = time.Since(began)
		if m.found, err = foundAfter(out, err); err != nil {
			return "", err
		}
		if m.found == 0 {
			return fmt.Sprintf("not found in %d schedules of %q (%v)", schedules, m.scenario, m.took.Round(time.Second)), nil
		}
		return fmt.Sprintf("found by schedule %d of %q (%v)", m.found, m.scenario, m.took.Round(time.Second)), nil
	}); err != nil {
		return err
	}
	took := time.Since(begun).Round(time.Second)
	fmt.Printf("mutants: %d were looked for (%v)\n", len(p.mutants), took)
	if table == "" {
		return nil
	}
	return os.WriteFile(table, []byte(exploredPage(p.mutants, schedules)), 0o644) //nolint:gosec // It is for everybody.
}

var failingSeed = regexp.MustCompile(`FAIRLEAD_SEED=(\d+): `)

// foundAfter reads how many schedules it took to find a bug from what the test printed; 0: it passed.
func foundAfter(out string, failed error) (int, error) {
	switch match := failingSeed.FindStringSubmatch(out); {
	case strings.Contains(out, "no tests to run"):
		return 0, errors.New("there is no such scenario")
	case failed == nil:
		return 0, nil
	case match != nil:
		seed, err := strconv.Atoi(match[1])
		return seed + 1, err
	case strings.Contains(out, "the schedule without faults: "):
		return 1, nil
	}
	return 0, fmt.Errorf("no schedule failed by itself: %w\n%s", failed, out)
}

// exploredPage is the table of bugs that schedules were explored for.
func exploredPage(mutants []*mutant, schedules int) string {
	found := 0
	for _, m := range mutants {
		if m.found > 0 {
			found++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# Seeded bugs, and the schedules that find them

`+"`make mutants ARGS='--explored %[1]d --table docs/operations/explored.md'`"+`, with the names of these %[2]d bugs, wrote this page. It puts each of them into the source and runs
up to %[1]d schedules of a scenario of `+"`internal/explore`"+`, from seed 0 on. %[3]d were found. Bugs that are not named here were not looked for. The tests that were written for each bug are in
[mutants.md](mutants.md): no test of them is run here. [ADR 0040](../adr/0040-schedules-are-explored-at-the-wire.md) says what a schedule is.

| bug | what it breaks | scenario | found by schedule |
|---|---|---|--:|
`, schedules, len(mutants), found)
	for _, m := range mutants {
		by := "not found"
		if m.found > 0 {
			by = strconv.Itoa(m.found)
		}
		fmt.Fprintf(&b, "| [%s](../../%s/%s.patch) | %s | %s | %s |\n", m.name, bugs, m.name, escape(m.breaks), m.scenario, by)
	}
	return b.String()
}
