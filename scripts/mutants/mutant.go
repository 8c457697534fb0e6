package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mutant is one bug, and what came of it.
type mutant struct {
	name, breaks, guarantee string
	scenario                string   // whose schedules should find it; may be empty
	pkg, run                string   // the tests that must catch it
	files                   []string // of the patch
	overlay                 string   // what tells the compiler of the patched copies

	quiet  []string // what keeps its tests from writing failures into the tree
	failed []string // the tests that caught it
	found  int      // by which schedule; 0: by none
	took   time.Duration
}

// parse reads a file of bugs/.
func parse(name, text string) (*mutant, error) {
	m := &mutant{name: name}
	fields := map[string]*string{"Breaks": &m.breaks, "Guarantee": &m.guarantee, "Test": &m.pkg, "Scenario": &m.scenario}
	header, patch, ok := strings.Cut(text, "\n--- a/")
	if !ok {
		return nil, errors.New("it has no patch")
	}
	for line := range strings.Lines(header) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		field := fields[key]
		if field == nil || value == "" || *field != "" {
			return nil, fmt.Errorf("%q is none of Breaks, Guarantee, Test and Scenario, each once", line)
		}
		*field = value
	}
	m.pkg, m.run, ok = strings.Cut(m.pkg, " ")
	if m.breaks == "" || m.guarantee == "" || !ok {
		return nil, errors.New("it needs Breaks, Guarantee, and Test with a package and an expression for -run")
	}
	for line := range strings.Lines("\n--- a/" + patch) {
		if file, ok := strings.CutPrefix(line, "+++ b/"); ok {
			m.files = append(m.files, strings.TrimSpace(file))
		}
	}
	if len(m.files) == 0 {
		return nil, errors.New("the patch names no file")
	}
	return m, nil
}

// findTests checks that each top-level test that is named exists.
func (m *mutant) findTests() error {
	files, err := filepath.Glob(filepath.Join(m.pkg, "*_test.go"))
	if err != nil {
		return err
	}
	var source strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		source.Write(content)
	}
	if strings.Contains(source.String(), `"pgregory.net/rapid"`) {
		m.quiet = []string{"-rapid.nofailfile"}
	}
	for alternative := range strings.SplitSeq(m.run, "|") {
		name, _, _ := strings.Cut(alternative, "/")
		name = strings.Trim(name, "^$")
		if !strings.Contains(source.String(), "\nfunc "+name+"(") {
			return fmt.Errorf("%s has no test %s", m.pkg, name)
		}
	}
	return nil
}

// failures are the tests that failed, without their parts: those change more often, and are not what is named.
func failures(output string) []string {
	var all []string
	for _, match := range regexp.MustCompile(`(?m)^--- FAIL: (\S+) \(`).FindAllStringSubmatch(output, -1) {
		all = append(all, match[1])
	}
	return all
}

// page is the table of bugs.
func page(mutants []*mutant, took time.Duration) string {
	const most = 3 // tests named for each bug
	var b strings.Builder
	fmt.Fprintf(&b, `# Seeded bugs

`+"`make mutants`"+` wrote this page. It puts each of these %d bugs into the source and runs the tests that are to catch it. All were caught,
in %v. The patches are in [scripts/mutants/bugs](../../scripts/mutants/bugs); the guarantees are explained in
[guarantees.md](../guarantees.md). The seconds include building the tests.

| bug | what it breaks | guarantee | caught by | seconds |
|---|---|---|---|--:|
`, len(mutants), took)
	for _, m := range mutants {
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
		fmt.Fprintf(&b, "| [%s](../../%s/%s.patch) | %s | %s | `%s`: %s | %.1f |\n", m.name, bugs, m.name, escape(m.breaks), guarantee,
			strings.TrimPrefix(m.pkg, "./"), strings.Join(tests, ", "), m.took.Seconds())
	}
	return b.String()
}

// escape keeps a text within its cell.
func escape(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
