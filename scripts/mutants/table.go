package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// seenLayout is how the table writes when a bug was last caught.
const seenLayout = "2006-01-02 15:04"

// table is the page of bugs. Each line says which tests caught a bug, when, and at which commit. Lines of bugs that are not tried
// are left as they are, so that a run of all of them can be spread.
type table struct {
	path   string
	commit string           // that is checked out
	lines  map[string]*line // by the bug's name
}

// line is what was seen of one bug.
type line struct {
	text string
	seen string // in seenLayout, UTC
	at   string // the commit
}

var lineFormat = regexp.MustCompile(`(?m)^\| \[([^\]]+)\]\(.*\| (\d{4}-\d\d-\d\d \d\d:\d\d) \| ([0-9a-f]{7,}) \|$`)

// openTable reads the lines of a table that is there. What a commit shows is only known where all is committed but the table.
func openTable(ctx context.Context, path string) (*table, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	t := &table{path: path, lines: parseLines(string(text))}
	changed, err := git(ctx, "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)"+path)
	if err != nil {
		return nil, err
	}
	if changed != "" {
		return nil, fmt.Errorf("the table names the commit at which a bug was caught; these files are changed:\n%s", changed)
	}
	t.commit, err = git(ctx, "rev-parse", "--short=9", "HEAD")
	return t, err
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

func parseLines(page string) map[string]*line {
	lines := map[string]*line{}
	for _, m := range lineFormat.FindAllStringSubmatch(page, -1) {
		lines[m[1]] = &line{text: m[0], seen: m[2], at: m[3]}
	}
	return lines
}

// oldest are the bugs that were not caught for longest; first those without a line.
func (t *table) oldest(all []*mutant, n int) []*mutant {
	seen := func(m *mutant) string {
		if l := t.lines[m.name]; l != nil {
			return l.seen
		}
		return ""
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *mutant) int { return cmp.Compare(seen(a), seen(b)) })
	return all[:min(n, len(all))]
}

// tried replaces the line of a bug. One that was not caught has none any more.
func (t *table) tried(m *mutant, caught bool, now time.Time) {
	delete(t.lines, m.name)
	if !caught {
		return
	}
	const most = 3 // tests named for each bug
	tests := make([]string, 0, most+1)
	for _, name := range m.failed[:min(most, len(m.failed))] {
		tests = append(tests, "`"+name+"`")
	}
	if more := len(m.failed) - most; more > 0 {
		tests = append(tests, fmt.Sprintf("%d more", more))
	}
	guarantee := m.guarantee
	if guarantee == "none" {
		guarantee = ""
	}
	l := &line{seen: now.UTC().Format(seenLayout), at: t.commit}
	l.text = fmt.Sprintf("| [%s](../../%s/%s.patch) | %s | %s | `%s`: %s | %.1f | %s | %s |", m.name, bugs, m.name, escape(m.breaks), guarantee,
		strings.TrimPrefix(m.pkg, "./"), strings.Join(tests, ", "), m.took.Seconds(), l.seen, l.at)
	t.lines[m.name] = l
}

// write writes the page with the lines of the bugs that there are.
func (t *table) write(all []*mutant) error {
	return os.WriteFile(t.path, []byte(t.page(all)), 0o644) //nolint:gosec // It is for everybody.
}

func (t *table) page(all []*mutant) string {
	var missing []string
	seen := map[string]int{} // by day and commit
	var lines strings.Builder
	for _, m := range all {
		l := t.lines[m.name]
		if l == nil {
			missing = append(missing, "`"+m.name+"`")
			continue
		}
		lines.WriteString(l.text + "\n")
		day, _, _ := strings.Cut(l.seen, " ")
		seen[day+" at commit "+l.at]++
	}
	when := make([]string, 0, len(seen))
	for _, at := range slices.Sorted(maps.Keys(seen)) {
		when = append(when, fmt.Sprintf("%d on %s", seen[at], at))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# Seeded bugs

`+"`make mutants`"+` writes this page. It puts bugs into the source, one at a time, and runs the tests that are to catch each.
There are %d bugs, and %d of them were seen to be caught: %s. The last two columns say when each was, by UTC, and at which commit.
`, len(all), len(all)-len(missing), strings.Join(when, ", "))
	if len(missing) > 0 {
		fmt.Fprintf(&b, "Those that were not tried yet, or survived, have no line: %s.\n", strings.Join(missing, ", "))
	}
	b.WriteString(`The patches are in [scripts/mutants/bugs](../../scripts/mutants/bugs); the guarantees are explained in
[guarantees.md](../guarantees.md). The seconds include building the tests. ` + "`make mutants ARGS='--table docs/operations/mutants.md --oldest 10'`" + ` renews the ten oldest lines.

| bug | what it breaks | guarantee | caught by | seconds | seen | commit |
|---|---|---|---|--:|---|---|
`)
	return b.String() + lines.String()
}
