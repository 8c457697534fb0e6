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
	unexplored              string   // why schedules can't; may be empty
	pkg, run                string   // the tests that must catch it
	files                   []string // of the patch
	overlay                 string   // what tells the compiler of the patched copies

	quiet  []string // what keeps its tests from writing failures into the tree
	failed []string // the tests that caught it
	found  finding  // by exploring
	took   time.Duration
}

// parse reads a file of bugs/.
func parse(name, text string) (*mutant, error) {
	m := &mutant{name: name}
	fields := map[string]*string{"Breaks": &m.breaks, "Guarantee": &m.guarantee, "Test": &m.pkg, "Scenario": &m.scenario, "Unexplored": &m.unexplored}
	header, patch, ok := strings.Cut(text, "\n--- a/")
	if !ok {
		return nil, errors.New("it has no patch")
	}
	for line := range strings.Lines(header) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		field := fields[key]
		if field == nil || value == "" || *field != "" {
			return nil, fmt.Errorf("%q is none of Breaks, Guarantee, Test, Scenario and Unexplored, each once", line)
		}
		*field = value
	}
	m.pkg, m.run, ok = strings.Cut(m.pkg, " ")
	if m.scenario != "" && m.unexplored != "" {
		return nil, errors.New("it has a scenario, and a reason to have none")
	}
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

// escape keeps a text within its cell.
func escape(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
