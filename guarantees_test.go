package fairlead

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestGuarantees holds README to its words: each guarantee in brackets links to its section of docs/guarantees.md, which names tests, and
// is a row of the demo's table. TestPages looks for the links and the tests.
func TestGuarantees(t *testing.T) {
	t.Parallel()
	files := readTree(t)
	const page = "docs/guarantees.md"
	sections := map[string]string{}
	for _, part := range strings.Split(files[page], "\n## ")[1:] {
		id, text, _ := strings.Cut(part, "\n")
		sections[id] = text
		if !span.MatchString(text) || !strings.Contains(text, "`Test") && !strings.Contains(text, ".Test") {
			t.Errorf("%s: %s has no test", page, id)
		}
	}
	demo := map[string]bool{}
	for file, text := range files {
		if strings.HasPrefix(file, "internal/demo/") && !strings.HasSuffix(file, "_test.go") {
			for _, m := range regexp.MustCompile(`(?:\{|: )"([A-Z][1-4])"[,}]`).FindAllStringSubmatch(text, -1) {
				demo[m[1]] = true
			}
		}
	}
	for id, text := range sections {
		if marked := strings.Contains(text, "**demo**"); marked != demo[id] {
			t.Errorf("%s: %s is marked as a row of the demo: %v; it is one: %v", page, id, marked, demo[id])
		}
	}
	var named []string
	for _, m := range regexp.MustCompile(`\[([A-Z][1-4])\]\(([^)]*)\)`).FindAllStringSubmatch(files["README.md"], -1) {
		named = append(named, m[1])
		if m[2] != page+"#"+strings.ToLower(m[1]) {
			t.Errorf("README.md: %s leads to %s", m[1], m[2])
		}
		if !demo[m[1]] {
			t.Errorf("README.md: the demo doesn't check %s", m[1])
		}
	}
	for id := range demo {
		if !slices.Contains(named, id) {
			t.Errorf("README.md doesn't name %s, which the demo checks", id)
		}
	}
	if bare := regexp.MustCompile(`\([A-Z][1-4](?:[,–][^)]*)?\)`).FindAllString(files["README.md"], -1); len(bare) > 0 {
		t.Errorf("README.md: %q lead nowhere", bare)
	}
}
